"""The order of pending jobs, by SiteFactor alone: what is asked for, what shows, and what must be asked again.

24.11 counts the tasks of `--ntasks-per-gpu`, and of GPUs a node and a task both, anew at every update of a job, and
wrongly: there the number is read right before, and said with it. 22.05 and 26.05 do not; those between are taken to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from horae.port import JobId
from slurm_plugin.clients.routes import Batch, Routes
from slurm_plugin.files.spool import Spool
from slurm_plugin.jobs.record import ASKED, Memories
from slurm_plugin.jobs.waiting import barred, others_of
from slurm_plugin.records import JobRow
from slurm_plugin.writes import Change, Write, update

#: A priority that stays low after so many writes has sunk for another reason (fair share, a nice of its user): let be.
_TRIES = 3
_LOSING_AFTER, _LOSING_BEFORE = (22, 5), (26, 5)
_ASKED = 64  #: jobs whose tasks are asked for in one setting; the others are ordered by the next
_MANY = 1_000_000
_BY_GPU = re.compile(r"^ +(?:NtasksPerTRES=[1-9]|TresPerTask=.*gpu)", re.MULTILINE)
_TASKS = re.compile(r"^ +NumNodes=.* NumTasks=([0-9]{1,9})", re.MULTILINE)


def site_factor(row: JobRow, factor: int, tasks: int | None = None) -> Write:
    """Of an array all tasks together: named one by one, each would become a record of its own in slurmctld."""
    return update(record_of(row), Change(site_factor=factor, tasks=tasks))


def record_of(row: JobRow) -> str:
    """Its number, or its array's where that stands for it."""
    return str(row.slurm_id) if is_whole(row) else row.id


def tasks_by_gpu(text: str) -> int | None:
    """Of `scontrol show job`, of a job or an array: tasks that follow from its GPUs; None where none do."""
    waiting = next((each for each in text.split("\n\n") if "\n   JobState=PENDING " in each), "")
    found = _TASKS.search(waiting) if _BY_GPU.search(waiting) else None
    return int(found[1]) if found else None


def is_whole(row: JobRow) -> bool:
    """Whether it is one of the tasks that an array's own record stands for."""
    return "_" in row.id and row.slurm_id == array_of(row)


def array_of(row: JobRow) -> int:
    return int(row.id.partition("_")[0])


def _is_ordered(row: JobRow) -> bool:
    """One that waits in others' partitions too keeps its place among those there."""
    return row.state == "PENDING" and not others_of(row) and not barred(row)


@dataclass(slots=True)
class _Place:
    """A job or an array, and the jobs that its factor is for."""

    row: JobRow
    jobs: list[JobId]


class Order:
    def __init__(self, client: Routes, spool: Spool, memories: Memories) -> None:
        self._client, self._spool, self._memories = client, spool, memories
        self._standing = False  #: whether the order asked for last was written whole; after a restart nobody knows
        self._own: dict[JobId, int] = {}  #: priorities without our factors, as they were when those were written
        self._plain: frozenset[str] = frozenset()  #: records whose tasks do not follow from their GPUs, for good
        self._tries: dict[JobId, int] = {}  #: writes of factors that have not shown since

    def lost(self, rows: Mapping[JobId, JobRow]) -> bool:
        """Whether the order is to be asked for again: a write failed, or what was written does not show (any more)."""
        for job in [job for job in self._tries if job not in rows or not self._hidden(job, rows[job])]:
            del self._tries[job]
        self._own = {job: own for job, own in self._own.items() if job in rows}
        if self._plain:
            self._plain &= {record_of(row) for row in rows.values()}
        return not self._standing or any(self._due(job, row) for job, row in rows.items())

    def set(self, jobs: Sequence[JobId], rows: Mapping[JobId, JobRow], release: tuple[int, int] = (0, 0)) -> None:
        """First first; only what differs is written. Raises PortError, with the others' written all the same."""
        self._standing = False
        places = self._places([job for job in jobs if job in rows and _is_ordered(rows[job])], rows)
        own = {job: self._without(job, rows[job]) for place in places for job in place.jobs}
        # Each place outweighs all that priorities differ by; a power of two, so that it seldom changes.
        step = 1 << (max(own.values(), default=0) - min(own.values(), default=0) + 10).bit_length()
        wanted = [(place, rank * step) for rank, place in enumerate(reversed(places), start=1)]
        asked = [each for each in wanted if is_whole(each[0].row) and self._differs(*each, rows)]
        arrays = {place.row.slurm_id for place, _ in asked}  # theirs reaches tasks that have places of their own
        for place, factor in wanted:
            if not is_whole(place.row) and (array_of(place.row) in arrays or self._differs(place, factor, rows)):
                asked.append((place, factor))
        told = self.tasks([place.row for place, _ in asked], release, _ASKED)
        now = [each for each in asked if record_of(each[0].row) in told]
        self._announce([job for place, _ in now for job in place.jobs])
        writes = [site_factor(place.row, factor, told[record_of(place.row)]) for place, factor in now]
        batches = [Batch((write,), "ordering the pending jobs") for write in writes]
        errors = self._client.write_each(batches)
        with self._memories.together():
            for (place, factor), error in zip(now, errors, strict=True):
                if error is None:
                    self._own |= {job: own[job] for job in place.jobs}
                    self._book(place, factor)
        failed = [error for error in errors if error is not None]
        if failed:
            raise failed[0]
        self._standing = len(now) == len(asked)

    def tasks(self, rows: Sequence[JobRow], release: tuple[int, int], most: int = _MANY) -> dict[str, int | None]:
        """What is to be said of the tasks of these in an update, by their records; of no more new ones than `most`, and
        one that is left out is not to be written now. Raises PortError."""
        records = dict.fromkeys(map(record_of, rows))
        if not _LOSING_AFTER < release < _LOSING_BEFORE:
            return dict.fromkeys(records)
        unknown = [each for each in records if each not in self._plain][:most]
        told = self._client.standing(unknown) if unknown else {}
        found = {each: tasks_by_gpu(text) for each, text in told.items()}
        self._plain |= {each for each, tasks in found.items() if tasks is None}
        return {each: None for each in records if each in self._plain} | found

    def _announce(self, jobs: Sequence[JobId]) -> None:
        """Before anything is written: whoever hands back after a crash in between has to reach them."""
        with self._memories.together():
            for job in jobs:
                memo = self._memories.get(job)
                self._memories.put(replace(memo, ordered=memo.ordered or ASKED))
        self._spool.note_ordered(self._memories.ordered())

    def _places(self, jobs: Sequence[JobId], rows: Mapping[JobId, JobRow]) -> list[_Place]:
        """In order; an array is where the first of its tasks is."""
        arrays: dict[int, _Place] = {}
        places = []
        for job in jobs:
            row = rows[job]
            known = arrays.get(row.slurm_id) if is_whole(row) else None
            if known is not None:
                known.jobs.append(job)
                continue
            places.append(_Place(row, [job]))
            if is_whole(row):
                arrays[row.slurm_id] = places[-1]
        return places

    def _without(self, job: JobId, row: JobRow) -> int:
        """Its priority without our factor."""
        return row.priority if self._hidden(job, row) else row.priority - self._memories.get(job).ordered

    def _differs(self, place: _Place, factor: int, rows: Mapping[JobId, JobRow]) -> bool:
        return any(self._memories.get(job).ordered != factor or self._due(job, rows[job]) for job in place.jobs)

    def _book(self, place: _Place, factor: int) -> None:
        for job in place.jobs:
            memo = self._memories.get(job)
            self._tries[job] = self._tries.get(job, 0) + 1 if memo.ordered == factor else 1
            self._memories.put(replace(memo, ordered=factor))

    def _hidden(self, job: JobId, row: JobRow) -> bool:
        """Whether a factor of ours does not show, as far as can be told: of a held job nothing does."""
        ordered = self._memories.get(job).ordered
        own = self._own.get(job, 0)
        return bool(ordered) and row.state == "PENDING" and not row.held and row.priority < own + ordered / 2

    def _due(self, job: JobId, row: JobRow) -> bool:
        return self._hidden(job, row) and self._tries.get(job, 0) < _TRIES
