"""What the adapter must remember of a job that Slurm does not: grants, stops, time used. One small file a job.

Everything else is read from Slurm each round. Files are replaced atomically before the write that they describe is
sent, so that after a crash they claim at most one grant too many, which the next observation shows as not started.
A lost folder costs the time already used and the numbers of epochs; both are then taken from Slurm's restart count.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from horae.port import FixConfiguration
from policy.model import Gpus


@dataclass(frozen=True, slots=True)
class Grant:
    """One start that we asked for. `restarts` is Slurm's count at that time: it names the incarnation."""

    epoch: int
    restarts: int
    nodes: tuple[str, ...]
    per_node: Gpus
    at_s: float
    started: bool = False  #: seen to run
    withdrawn: bool = False  #: held again before it ran
    recalled: bool = False  #: withdrawn because a stop was asked for
    before: str = ""  #: the reason that squeue showed before: says nothing about this grant
    began_s: float | None = None


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
class Memo:
    job: str
    grants: tuple[Grant, ...] = ()  #: the last few, oldest first
    stop: Stop | None = None
    cancelled: bool = False
    released: bool = False
    limit_s: float | None = None  #: the user's time limit
    used_s: float = 0.0  #: running time of the incarnations that ended
    blocked: tuple[str, str] | None = None  #: (kind, text) of the last grant that was withdrawn
    state: str = ""  #: the last shown, and since when
    since_s: float = 0.0
    left: tuple[tuple[str, ...], float] | None = None  #: nodes of the shape it left last, and when
    ordered: int = 0  #: SiteFactor that we set
    rescued: int = 0  #: times in a row that an ended job was brought back
    rescued_s: float = 0.0

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

    def with_grant(self, grant: Grant) -> Memo:
        kept = tuple(old for old in self.grants if old.epoch < grant.epoch)[-8:]
        return replace(self, grants=(*kept, grant))

    def with_last(self, **changes: Any) -> Memo:
        last = self.grant
        return self if last is None else replace(self, grants=(*self.grants[:-1], replace(last, **changes)))


class Memories:
    """Memos by job id, in a folder of the arbiter's own (mode 0700)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._memos: dict[str, Memo] = {}
        self._written: dict[str, Memo] = {}
        self.notes: list[str] = []
        for path in sorted(folder.glob("*.json")):
            try:
                memo = _from_json(json.loads(path.read_text()))
                self._memos[memo.job] = self._written[memo.job] = memo
            except (ValueError, TypeError, KeyError) as error:
                path.rename(path.with_suffix(".unreadable"))
                self.notes.append(f"{path}: not a memo ({error}); put aside, the job's numbers are taken from Slurm")

    def get(self, job: str) -> Memo:
        return self._memos.get(job) or Memo(job)

    def known(self, job: str) -> bool:
        return job in self._memos

    def all(self) -> tuple[Memo, ...]:
        return tuple(self._memos.values())

    def keep(self, memo: Memo) -> None:
        """Remember until we end: what a job that was never started shows can be read again."""
        self._memos[memo.job] = memo

    def put(self, memo: Memo) -> Memo:
        """Remember for good; written only when it differs."""
        self._memos[memo.job] = memo
        if self._written.get(memo.job) != memo:
            path = self._folder / f"{memo.job}.json"
            temporary = path.with_suffix(".part")
            try:
                temporary.write_text(json.dumps(asdict(memo), separators=(",", ":")))
                temporary.replace(path)
            except OSError as error:
                raise FixConfiguration(
                    f"cannot write {path}: {error.strerror}", "free space there, or give it to Horae's account"
                ) from error
            self._written[memo.job] = memo
        return memo

    def forget(self, job: str) -> None:
        self._memos.pop(job, None)
        if self._written.pop(job, None) is not None:
            (self._folder / f"{job}.json").unlink(missing_ok=True)


def _from_json(raw: dict[str, Any]) -> Memo:
    grants = tuple(Grant(**{**grant, "nodes": tuple(grant["nodes"])}) for grant in raw.pop("grants"))
    stop = raw.pop("stop")
    blocked, left = raw.pop("blocked"), raw.pop("left")
    return Memo(
        **raw,
        grants=grants,
        stop=Stop(**stop) if stop else None,
        blocked=tuple(blocked) if blocked else None,
        left=(tuple(left[0]), left[1]) if left else None,
    )
