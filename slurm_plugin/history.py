"""Jobs that slurmctld has forgotten: how they ended, by slurmdbd's account, and when we forget them too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from horae.port import JobState, ObservedJob
from slurm_plugin.memory import Memo, Memories

FORGET_AFTER_S = 3600.0
_ENDED = frozenset(state.value for state in JobState if state.ended)
_WORDS = {"COMPLETED": JobState.COMPLETED, "CANCELLED": JobState.CANCELLED}
#: ids -> {id: (state word, exit code)}
Ask = Callable[[Sequence[str]], Mapping[str, tuple[str, int]]]


def vanished(
    memories: Memories, present: frozenset[str], ask: Ask | None, now_s: float, forget: Callable[[str], None]
) -> list[ObservedJob]:
    """Jobs that we granted GPUs and that Slurm no longer shows. Raises PortError when slurmdbd does not answer:
    then nobody is declared dead."""
    gone: list[Memo] = []
    for memo in memories.all():
        if memo.job in present:
            continue
        if memo.released or not (memo.grants or memo.cancelled):
            memories.forget(memo.job)
        elif memo.state in _ENDED:
            if now_s - memo.since_s > FORGET_AFTER_S:
                memories.forget(memo.job)
                forget(memo.job)
        else:
            gone.append(memo)
    if not gone:
        return []
    told = ask([_number(memo) for memo in gone]) if ask else {}
    return [_ended(memories, memo, told.get(_number(memo), ("", 1)), now_s) for memo in gone]


def _ended(memories: Memories, memo: Memo, told: tuple[str, int], now_s: float) -> ObservedJob:
    word, code = told
    state = _WORDS.get(word, JobState.CANCELLED if memo.cancelled else JobState.FAILED)
    memories.put(replace(memo, state=state.value, since_s=now_s))
    epoch = max((grant.epoch for grant in memo.grants if grant.started), default=0)
    native = word or "slurmctld no longer knows it, and no slurmdbd can tell how it ended"
    return ObservedJob(memo.job, state, epoch=epoch, since_s=now_s, exit_code=code, native=native)


def _number(memo: Memo) -> str:
    return memo.job.split(".")[0]
