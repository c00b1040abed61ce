"""Jobs that a read of Slurm does not show any more: whether they are gone, how they ended, when we forget them too.

That a job is missing in an answer proves nothing: an answer may be cut, a right may be lost, an administrator may
have moved the job. It is gone when slurmctld says so of this very job, or gives its number to another. How it ended
is slurmdbd's to say, which may be late; until it does the job is neither shown as running nor as ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from horae.port import JobState, ObservedJob
from slurm_plugin.jobs.record import Memo, Memories
from slurm_plugin.jobs.state_machine import OVER
from slurm_plugin.records import End

FORGET_AFTER_S = 3600.0
#: how long slurmdbd may be silent about a job that slurmctld has forgotten
TELLS_WITHIN_S = 600.0
_ASKED = 32  #: jobs a look that slurmctld is asked about one by one
#: a user's words stand before it (his job's name) and behind it: it counts where there is one such line alone
_USER = re.compile(r"^ +UserId=[^(\n]*\(([0-9]+)\)", re.MULTILINE)
_RESTARTS = re.compile(r"^ +Requeue=.* Restarts=([0-9]+)", re.MULTILINE)
_SUBMITTED = re.compile(r"^ +SubmitTime=([0-9]+)", re.MULTILINE)
_TAGGED = re.compile(r"AdminComment=.*\bhorae=")
_ENDED = frozenset(state.value for state in JobState if state.ended)
#: ids -> what slurmdbd has of the end of each
Ask = Callable[[Sequence[str]], Mapping[str, End]]
#: ids -> {id: what slurmctld has of it, empty: nothing}
Stand = Callable[[Sequence[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom to ask about jobs that are missing. All raise PortError."""

    standing: Stand
    ended: Ask | None  #: None: no slurmdbd
    forget: Callable[[str], None]


class Absent:
    """What is known of jobs that a read left out, from look to look."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories
        self._gone_s: dict[str, float] = {}  #: since when slurmctld says that there is no such job
        self.notes: list[str] = []
        self.left_out: frozenset[str] = frozenset()  #: jobs that Slurm still has in a managed partition

    def look(
        self, present: Mapping[str, str], sources: Sources, partitions: Sequence[str], now_s: float
    ) -> list[ObservedJob]:
        """Jobs that are over now. `present`: those that the read shows, with Slurm's own number of each."""
        self.left_out = frozenset()
        numbers = frozenset(present.values())
        missing = [memo for memo in self._memories.all() if memo.job not in present and self._matters(memo, now_s)]
        for job in self._gone_s.keys() - {memo.job for memo in missing}:
            del self._gone_s[job]
        unclear = [memo for memo in missing if memo.job not in self._gone_s]
        reissued = [memo for memo in unclear if memo.number in numbers]
        asked = [memo for memo in unclear if memo.number not in numbers][:_ASKED]
        told = sources.standing([memo.number for memo in asked]) if asked else {}
        left_out = set()
        for memo in asked:
            said = told.get(memo.number)
            if said == "" or (said and not _is_it(said, memo)):
                reissued.append(memo)
            elif said and (not partitions or set(_partition(said).split(",")) & set(partitions)):
                left_out.add(memo.job)
                self.notes.append(f"{memo.job}: the read of all jobs left it out, and Slurm has it: taken as last seen")
            elif said and not memo.released:
                self.notes.append(f"{memo.job} is in partition {_partition(said)}, which is not managed")
        self.left_out = frozenset(left_out)
        self._gone_s |= {memo.job: now_s for memo in reissued}
        return self._over([memo for memo in missing if memo.job in self._gone_s], sources, now_s)

    def _matters(self, memo: Memo, now_s: float) -> bool:
        """What was neither granted nor handed back is read anew when it shows again."""
        if memo.released or memo.grants or memo.cancelled:
            return memo.state not in _ENDED or now_s - memo.since_s > FORGET_AFTER_S
        self._memories.forget(memo.job)
        return False

    def _over(self, gone: Sequence[Memo], sources: Sources, now_s: float) -> list[ObservedJob]:
        ended: list[Memo] = []
        for memo in gone:
            if memo.released:
                self._memories.forget(memo.job)
            elif memo.state in _ENDED:
                self._memories.forget(memo.job)
                sources.forget(memo.job)
            else:
                ended.append(memo)
        if not ended:
            return []
        told = sources.ended([memo.number for memo in ended]) if sources.ended else {}
        found = []
        for memo in ended:
            word = told.get(memo.job)
            if word is None and sources.ended and now_s - self._gone_s[memo.job] < TELLS_WITHIN_S:
                self.notes.append(
                    f"{memo.job}: slurmctld has forgotten it, and slurmdbd does not tell how it ended yet"
                )
                continue
            found.append(_ended(self._memories, memo, word or End("", 1, None), now_s))
        return found


def _ended(memories: Memories, memo: Memo, told: End, now_s: float) -> ObservedJob:
    word, code, at_s = told
    state = OVER.get(word, JobState.CANCELLED if memo.cancelled else JobState.FAILED)
    at_s = now_s if at_s is None else min(at_s, now_s)
    memories.put(replace(memo, state=state.value, since_s=at_s))
    epoch = max((grant.epoch for grant in memo.grants if grant.started), default=0)
    native = word or "slurmctld no longer knows it, and no slurmdbd can tell how it ended"
    return ObservedJob(memo.job, state, epoch=epoch, since_s=at_s, exit_code=code, native=native)


def _is_it(said: str, memo: Memo) -> bool:
    """Whether that may be this job: numbers are given out again after slurmctld lost its state. An answer without any
    AdminComment (a part of one) does not say that it is another; nor do somebody's words in place of our tag."""
    _, _, nonce = memo.job.partition(".")
    if not nonce or "AdminComment=" not in said or f"horae={nonce}" in said:
        return True
    told: list[str] = []
    for pattern in (_USER, _SUBMITTED, _RESTARTS):
        told += pattern.findall(said)
    if len(told) != 3 or memo.mark is None or _TAGGED.search(said):
        return False
    uid, submit_s, restarts = map(int, told)
    return memo.mark.is_of(uid, submit_s, restarts)


def _partition(said: str) -> str:
    found = re.search(r"^ +Partition=(\S+)", said, re.MULTILINE)
    return found[1] if found else ""
