"""The order of pending jobs, by SiteFactor alone: what is asked for, what shows, and what must be asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from horae.port import JobId
from slurm_plugin.clients.routes import Batch, Routes
from slurm_plugin.jobs.record import Memories
from slurm_plugin.jobs.waiting import others_of
from slurm_plugin.records import JobRow
from slurm_plugin.writes import Change, Write, update

#: A priority that stays low after so many writes has sunk for another reason (fair share, a nice of its user): let be.
_TRIES = 3


def site_factor(row: JobRow, factor: int) -> Write:
    """Of an array all tasks together: named one by one, each would become a record of its own in slurmctld."""
    return update(str(row.slurm_id) if is_whole(row) else row.id, Change(site_factor=factor))


def is_whole(row: JobRow) -> bool:
    """Whether it is one of the tasks that an array's own record stands for."""
    return "_" in row.id and row.slurm_id == array_of(row)


def array_of(row: JobRow) -> int:
    return int(row.id.partition("_")[0])


def _is_ordered(row: JobRow) -> bool:
    """One that waits in others' partitions too keeps its place among those there."""
    return row.state == "PENDING" and not others_of(row)


@dataclass(slots=True)
class _Place:
    """A job or an array, and the jobs that its factor is for."""

    row: JobRow
    jobs: list[JobId]


class Order:
    def __init__(self, client: Routes, memories: Memories) -> None:
        self._client, self._memories = client, memories
        self._standing = False  #: whether the order asked for last was written whole; after a restart nobody knows
        self._own: dict[JobId, int] = {}  #: priorities without our factors, as they were when those were written
        self._tries: dict[JobId, int] = {}  #: writes of factors that have not shown since

    def lost(self, rows: Mapping[JobId, JobRow]) -> bool:
        """Whether the order is to be asked for again: a write failed, or what was written does not show (any more)."""
        for job in [job for job in self._tries if job not in rows or not self._hidden(job, rows[job])]:
            del self._tries[job]
        self._own = {job: own for job, own in self._own.items() if job in rows}
        return not self._standing or any(self._due(job, row) for job, row in rows.items())

    def set(self, jobs: Sequence[JobId], rows: Mapping[JobId, JobRow]) -> None:
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
        batches = [Batch((site_factor(place.row, factor),), "ordering the pending jobs") for place, factor in asked]
        errors = self._client.write_each(batches)
        with self._memories.together():
            for (place, factor), error in zip(asked, errors, strict=True):
                if error is None:
                    self._own |= {job: own[job] for job in place.jobs}
                    self._book(place, factor)
        failed = [error for error in errors if error is not None]
        if failed:
            raise failed[0]
        self._standing = True

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
