"""What the adapter must remember of a job that Slurm does not: grants, stops, time used. One file for all jobs.

Everything else is read from Slurm each round. A memo is in the file before the write that it describes is sent, so
that after a crash it claims at most one grant too many, which the next observation shows as not started. A lost
folder costs the time already used and the numbers of epochs; both are then taken from Slurm's restart count.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from horae.elastic.files import write_atomic
from horae.port import FixConfiguration
from policy.model import Gpus

#: The file is written anew when it is longer than this, and eight times as long as when it was new.
_COMPACT_AT = 1 << 20


ASKED = -1  #: of a SiteFactor: one is being written, for the first time


@dataclass(frozen=True, slots=True)
class Grant:
    """One start that we asked for. `restarts` is Slurm's count at that time: it names the incarnation."""

    epoch: int
    restarts: int
    nodes: tuple[str, ...]
    per_node: Gpus
    at_s: float  #: when Slurm was asked for it
    started: bool = False  #: seen to run
    withdrawn: bool = False  #: held again before it ran
    recalled: bool = False  #: withdrawn because a stop was asked for
    behind: bool = False  #: withdrawn while it waited behind others: nothing was wrong with it
    refused: bool = False  #: withdrawn because Slurm did not start it, for no limit: others waited behind it
    before: str = ""  #: the reason that squeue showed before: says nothing about this grant
    began_s: float | None = None
    let_go: bool = False  #: free to start once it is written, or seen so: a hold or a time that it shows is somebody's


@dataclass(frozen=True, slots=True)
class Stop:
    at_s: float
    grace_s: float
    restarts: int
    signalled_s: float = 0.0  #: 0: not yet
    forced: bool = False
    stay: bool = False  #: its supervisor stays after the checkpoint, until we requeue it
    seen_s: float = 0.0  #: when the job was first seen out of RUNNING


@dataclass(frozen=True, slots=True)
class Mark:
    """The module's tag as Slurm last showed it, and by what its job is told from another that gets the number."""

    text: str
    uid: int
    submit_s: float | None
    restarts: int
    bare: bool = False  #: somebody's words stand in its place now

    def is_of(self, uid: int, submit_s: float | None, restarts: int) -> bool:
        """Whether that is its job: a requeue gives another time of submission, and is counted."""
        return uid == self.uid and (submit_s == self.submit_s or restarts > self.restarts)


@dataclass(frozen=True, slots=True)
class Memo:
    job: str
    grants: tuple[Grant, ...] = ()  #: the last few, oldest first
    stop: Stop | None = None
    cancelled: bool = False
    released: bool = False
    limit_s: float | None = None  #: time limit over all its starts
    limits: tuple[
        float | None, ...
    ] = ()  #: what Slurm showed as its limit, or is about to: any other is somebody's word
    used_s: float = 0.0  #: running time of the incarnations that ended
    blocked: tuple[str, str] | None = None  #: (kind, text) of the last grant that was withdrawn
    state: str = ""  #: the last shown, and since when
    since_s: float = 0.0
    left: tuple[tuple[str, ...], float] | None = None  #: nodes of the shape it left last, and when
    ordered: int = 0  #: SiteFactor that we set; ASKED where we may have
    rescued: int = 0  #: times that it was asked to be brought back from its newest end, and when last
    rescued_s: float = 0.0
    launches: int = 0  #: starts in a row that were lost before any of its code ran
    held_s: float = 0.0  #: when we held it last; 0: what holds it is not ours
    lost: tuple[int, str] | None = None  #: (restarts, why it left its nodes), as far as could be told then
    mark: Mark | None = None

    @property
    def number(self) -> str:
        """Slurm's own: `17`, or `17_2`."""
        return self.job.partition(".")[0]

    @property
    def lasts(self) -> bool:
        """Whether it says what Slurm may not show again."""
        return bool(self.mark or self.grants or self.stop)

    @property
    def grant(self) -> Grant | None:
        return self.grants[-1] if self.grants else None

    @property
    def outstanding(self) -> Grant | None:
        """The grant that is asked for and neither ran nor was withdrawn."""
        last = self.grant
        return last if last and not last.started and not last.withdrawn else None

    def of(self, restarts: int) -> Grant | None:
        """The grant behind the incarnation that Slurm counts as `restarts`."""
        return next((grant for grant in reversed(self.grants) if grant.restarts == restarts), None)

    def epoch_of(self, restarts: int) -> int:
        """Of that incarnation; by Slurm's own count where the grant is not known."""
        grant = self.of(restarts)
        return grant.epoch if grant else restarts + 1

    @property
    def requeued(self) -> bool:
        """Whether we had it requeued held at the end of its newest start."""
        last = self.grant
        rescued = last is not None and self.rescued_s > (last.began_s or last.at_s)
        return rescued or (self.stop is not None and self.stop.forced)

    def with_grant(self, grant: Grant) -> Memo:
        kept = tuple(old for old in self.grants if old.epoch < grant.epoch)[-8:]
        return replace(self, grants=(*kept, grant))

    def with_last(self, **changes: Any) -> Memo:
        last = self.grant
        return self if last is None else replace(self, grants=(*self.grants[:-1], replace(last, **changes)))


class Memories:
    """Memos by job id, in one file of a folder of the arbiter's own (mode 0700): a line a change, the last one of a
    job counts. Reading writes nothing there, and does not make the folder: whoever only looks (root, for a doctor)
    would own it. Raises OSError when the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "memos"
        self._fresh = not folder.exists()  #: one that is lost later is not made anew: what it held would be missing
        self._memos: dict[str, Memo] = {}
        self._written: dict[str, Memo] = {}
        self._waiting: list[bytes] | None = None  #: lines of changes that are written together
        self._size = self._whole_size = 0
        self._unclean = False  #: there is a line in the file that cannot be read
        self.notes: list[str] = []
        self._read()

    def get(self, job: str) -> Memo:
        return self._memos.get(job) or Memo(job)

    def known(self, job: str) -> bool:
        return job in self._memos

    def all(self) -> tuple[Memo, ...]:
        return tuple(self._memos.values())

    def held(self) -> frozenset[str]:
        """Jobs that we hold ourselves, or have, or had, requeued held."""
        ours = (memo for memo in self._memos.values() if not memo.released)
        return frozenset(memo.job for memo in ours if memo.held_s or memo.requeued)

    def ordered(self) -> frozenset[str]:
        """Jobs that have, or may have, a SiteFactor of ours."""
        return frozenset(memo.job for memo in self._memos.values() if memo.ordered)

    def marks(self) -> dict[str, Mark]:
        """By Slurm's numbers, of jobs that were not handed back."""
        found = {}
        for memo in self._memos.values():
            if memo.mark and not memo.released:
                found[memo.number] = memo.mark
        return found

    def bare(self) -> frozenset[str]:
        """For who hands back without us: `NUMBER SUBMITTED RESTARTS MARK` of those whose mark was written over."""
        lines = set()
        for number, mark in self.marks().items():
            if mark.bare:
                submitted = int(mark.submit_s or 0)
                lines.add(f"{number} {submitted} {mark.restarts} {mark.text}")
        return frozenset(lines)

    def keep(self, memo: Memo) -> None:
        """Remember until we end: what a job that was never started shows can be read again."""
        self._memos[memo.job] = memo

    def granted_at(self, job: str, at_s: float) -> None:
        """How long its grant has been with Slurm counts from then; not worth a write of its own."""
        memo = self.get(job)
        if memo.outstanding:
            self.keep(memo.with_last(at_s=at_s))

    def put(self, memo: Memo) -> Memo:
        """Remember for good; written only when it differs. Raises FixConfiguration."""
        self._memos[memo.job] = memo
        if self._written.get(memo.job) != memo:
            self._write(_line(memo))
            self._written[memo.job] = memo
        return memo

    def forget(self, job: str) -> None:
        self._memos.pop(job, None)
        if self._written.pop(job, None) is not None:
            self._write(json.dumps({"job": job, "forgotten": True}).encode() + b"\n")

    @contextmanager
    def together(self, *, durable: bool = False) -> Iterator[None]:
        """What is put meanwhile is written at the end, at once; with `durable` it is on the disk then. Raises
        FixConfiguration at the end: then none of it is."""
        lines: list[bytes] = []
        self._waiting = lines
        before = dict(self._written)
        try:
            yield
        finally:
            self._waiting = None
            if lines:
                try:
                    self._append(b"".join(lines), durable=durable)
                except FixConfiguration:
                    self._written = before
                    raise

    # --- the file ---

    def _read(self) -> None:
        raw = self._path.read_bytes() if self._path.exists() else b""
        self._size = len(raw)
        whole, _, torn = raw.rpartition(b"\n")  # what was cut off by a crash had not been written, for anybody
        self._unclean = bool(torn)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                value = json.loads(line)
                if value.get("forgotten"):
                    self._memos.pop(value["job"], None)
                    continue
                memo = _from_json(value)
                self._memos[memo.job] = memo
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                self._unclean = True
                why = str(error).replace("\n", " ")[:200]
                self.notes.append(
                    f"{self._path}:{number}: not a memo ({why}); left out, the job's numbers are taken from Slurm"
                )
        self._written = dict(self._memos)
        self._whole_size = self._size

    def _write(self, line: bytes) -> None:
        if self._waiting is not None:
            self._waiting.append(line)
        else:
            self._append(line)

    def _append(self, lines: bytes, *, durable: bool = False) -> None:
        try:
            if self._fresh:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fresh = False
            if self._unclean or self._size > max(_COMPACT_AT, 8 * self._whole_size):
                self._compact()
            with self._path.open("ab", buffering=0) as file:
                start = file.seek(0, os.SEEK_END)
                try:
                    if file.write(lines) != len(lines):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    file.truncate(start)
                    raise
                if durable:
                    os.fdatasync(file.fileno())
                self._size = start + len(lines)
        except OSError as error:
            raise FixConfiguration(
                f"cannot write {self._path}: {error.strerror}", "free space there, or give it to Horae's account"
            ) from error

    def _compact(self) -> None:
        """Only the last line of each job."""
        write_atomic(str(self._path), b"".join(_line(memo) for memo in self._written.values()))
        self._size = self._whole_size = self._path.stat().st_size
        self._unclean = False


def _line(memo: Memo) -> bytes:
    return json.dumps(asdict(memo), separators=(",", ":")).encode() + b"\n"


_MEMO = TypeAdapter(Memo)


def _from_json(raw: Mapping[str, Any]) -> Memo:
    """Raises ValueError where a part is missing or of another type: what reads a memo later asks no more."""
    for name in ("grants", "stop", "blocked", "left"):
        raw[name]
    return _MEMO.validate_python(raw)
