"""Reading the job folders: one directory scan, and only what changed is read again.

A folder's modification time changes with every file that is made, replaced or removed in it, so a record whose time
is the same is the same. (Within a clock tick two changes can carry one time: a record read that soon after its
folder changed is read again next time.) Whether a supervisor lives is not in any file; it is asked of the lock,
and only for jobs that have not ended.
"""

# Ten thousand folders a scan: plain strings instead of Path objects.
# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from horae.elastic import protocol
from horae.elastic.files import read_bytes
from horae.elastic.jobfolder import JobFolder
from horae.elastic.protocol import State
from horae.local import specfile
from horae.port import CheckpointMark, JobId, JobState, ObservedJob
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation

#: Written into a folder whose job was handed back: it is no longer ours, its processes run on.
RELEASED_FILE = "released"
#: Where `set_reason` writes.
REASON_FILE = "reason"

#: A folder that changed less than this before it was read may change again with the same time stamp.
_TICK_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """What one job folder says, and whether its supervisor lives."""

    id: JobId
    folder: JobFolder
    spec: JobSpec | None = None
    submitted_s: float = 0.0
    epoch: int = 0
    state: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    cancelled: bool = False
    released: bool = False
    lives: bool = False
    trouble: str = ""  #: what could not be read
    stamp: int = 0
    settled: bool = False  #: the stamp can be relied on

    @property
    def final(self) -> bool:
        """The last start's end is written down (or there was none)."""
        return self.epoch == 0 or (self.state.get("state") in State.FINAL and self.state_epoch >= self.epoch)

    @property
    def state_epoch(self) -> int:
        return _whole(self.state.get("epoch"))

    @property
    def slots(self) -> Mapping[str, tuple[int, ...]]:
        """GPU indices by node that a living supervisor holds."""
        if not self.lives:
            return EMPTY
        try:
            return {str(node): tuple(int(i) for i in held) for node, held in self.state["slots"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            return EMPTY

    @property
    def allocation(self) -> Allocation:
        return {node: len(held) for node, held in self.slots.items() if held}

    @property
    def job_state(self) -> JobState:
        word = self.state.get("state")
        if self.lives:
            if word in (State.RUNNING, State.STOPPING) and self.state_epoch == self.epoch:
                return JobState(word)
            # A start whose supervisor has not written yet, or an end whose lock is not free yet.
            return JobState.STOPPING if word in State.FINAL else JobState.STARTING
        if word in (State.COMPLETED, State.FAILED, State.CANCELLED) and self.final:
            return JobState(word)
        if self.cancelled:
            return JobState.CANCELLED
        if self.epoch == 0:
            return JobState.QUEUED
        return JobState.STOPPED if word == State.STOPPED and self.final else JobState.LOST

    def observed(self) -> ObservedJob:
        state = self.job_state
        code = self.state.get("exit_code")
        since = self.state.get("since_s")
        return ObservedJob(
            id=self.id,
            state=state,
            epoch=max(self.epoch, self.state_epoch),
            allocation=self.allocation if state.holds else EMPTY,
            since_s=float(since) if isinstance(since, int | float) else self.submitted_s,
            exit_code=code if isinstance(code, int) and not state.holds and state is not JobState.LOST else None,
            spec=self.spec,
            checkpoint=_mark(self.state.get("checkpoint")),
            submitted_s=self.submitted_s,
            native=str(self.state.get("native") or ""),
        )


class Records:
    """All job folders below one folder, kept in memory and refreshed by `scan`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[JobId, Record] = {}

    def scan(self) -> list[Record]:
        """Every job, by name. Raises OSError when the folder cannot be read."""
        found: dict[JobId, Record] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                record = self._refreshed(entry.name, self._known.get(entry.name))
                if record is not None:
                    found[entry.name] = record
        self._known = found
        return [found[name] for name in sorted(found)]

    def one(self, job: JobId) -> Record | None:
        """One job, read now."""
        record = self._refreshed(job, None)
        if record is not None:
            self._known[job] = record
        return record

    def _refreshed(self, job: JobId, known: Record | None) -> Record | None:
        path = self.path / job
        try:
            found = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISDIR(found.st_mode):
            return None
        stamp = found.st_mtime_ns
        record = known if known is not None and known.settled and known.stamp == stamp else None
        if record is None:
            record = read(job, str(path), known)
        if record.final and not record.lives:
            return record
        # The lock first, the files after it: what a dying supervisor wrote last is then not missed. Also when it was
        # not known to live: it may have come and gone since the last look.
        lives = record.folder.lives()
        if not lives:
            record = read(job, str(path), record)
        return replace(record, lives=lives)


def read(job: JobId, path: str, known: Record | None) -> Record:
    """Everything but whether the supervisor lives. A specification never changes, so it is read once."""
    folder = JobFolder(path)
    begun_ns = time.time_ns()  # before anything is read: a reader may be held up for longer than a tick
    stamp = os.stat(path, follow_symlinks=False).st_mtime_ns
    spec, submitted, trouble = (known.spec, known.submitted_s, known.trouble) if known else (None, 0.0, "")
    if spec is None:
        spec, submitted, trouble = _read_spec(folder)
    names = set(os.listdir(path))
    return Record(
        id=job,
        folder=folder,
        spec=spec,
        submitted_s=submitted,
        epoch=folder.epoch() if protocol.EPOCH_FILE in names else 0,
        state=(folder.state() or {}) if protocol.STATE_FILE in names else {},
        cancelled=protocol.CANCEL_FILE in names,
        released=RELEASED_FILE in names,
        lives=known.lives if known else protocol.LOCK_FILE in names,
        trouble=trouble,
        stamp=stamp,
        settled=begun_ns - stamp > _TICK_NS,
    )


def _read_spec(folder: JobFolder) -> tuple[JobSpec | None, float, str]:
    path = folder.file(protocol.SPEC_FILE)
    data = read_bytes(path)
    if data is None:
        return None, 0.0, f"{path} is missing"
    try:
        return specfile.decode(data), os.stat(path).st_mtime, ""
    except ValueError as error:
        return None, 0.0, f"{path}: {error}"


def _mark(value: object) -> CheckpointMark | None:
    if not isinstance(value, Mapping):
        return None
    try:
        return CheckpointMark(int(value["epoch"]), float(value["step"]), float(value["time_s"]))
    except (KeyError, TypeError, ValueError):
        return None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def alive(records: list[Record]) -> Iterator[Record]:
    return (record for record in records if record.lives)
