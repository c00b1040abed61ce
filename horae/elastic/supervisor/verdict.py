"""What the end of a gang means for its job. Pure, so that every case can be tested."""

from typing import Iterator, NamedTuple, Tuple

from .. import protocol
from ..protocol import State

#: Not a state: run the gang again in place.
RETRY = "retry"
MOST_UNBEGUN = 4  #: gangs of one start of which no rank began


class End(NamedTuple):
    """How a gang ended and what had been asked of it."""

    code: int  #: the gang's exit code
    cancel: bool = False  #: it was ended because cancellation was asked for
    stop: bool = False  #: checkpoint-and-leave was asked for
    killed: bool = False  #: it did not leave in time and was killed
    out_of_time: bool = False  #: its time limit is used up
    complete: bool = False  #: a complete checkpoint exists, or the job says that it keeps its own
    own_checkpoints: bool = False  #: the job says that it keeps its own
    unbegun: int = 0  #: gangs of this start whose launcher failed before any rank began, with this one; 0: it began
    unformed: bool = False  #: its ranks were asked to leave before they had found each other
    resumable: bool = True  #: it can be started again at all
    lost: str = ""  #: why no checkpoint could be written, where none is there: a start would begin at step 0
    failures: int = 0  #: before this end, over all starts
    retries: int = 0


class Ending(NamedTuple):
    state: str
    text: str
    failure: bool = False  #: counts against the job's retries


def judge(end: End) -> Ending:
    return next(ending for holds, ending in _verdicts(end) if holds)


def _verdicts(end: End) -> "Iterator[Tuple[bool, Ending]]":
    """The first that holds is its end."""
    asked, checkpointed = end.code == protocol.EXIT_STOPPED, end.code == protocol.EXIT_STOPPED and end.complete
    text, kept = _describe(end), "; its newest checkpoint is kept" if end.complete else ""
    yield end.cancel, Ending(State.CANCELLED, "cancelled")
    # Perhaps it finished; perhaps it checkpointed and knows nothing of 86. Started again, a finished one ends at once;
    # taken for finished, an unfinished one would be lost.
    left = end.code == 0 and end.stop and end.own_checkpoints
    yield left, Ending(State.STOPPED, "left when it was asked to")
    yield end.code == 0, Ending(State.COMPLETED, "finished")
    yield end.out_of_time, Ending(State.CANCELLED, "its time limit is used up" + kept)
    yield checkpointed, Ending(State.STOPPED, "stopped after a checkpoint")
    yield asked and end.stop and end.unformed, Ending(State.STOPPED, "asked to stop before it began")
    yield end.stop and end.killed, Ending(State.STOPPED, "did not leave in time and was killed")
    unbegun = end.unbegun > 0 and not end.stop
    yield unbegun and end.unbegun < MOST_UNBEGUN, Ending(RETRY, text + " before any of its ranks began")
    # The fault is in what it was given, which no further try changes: Slurm may count a job's GPUs as none.
    anew = "%s: none of its ranks can begin in this start, it waits for another" % text
    yield unbegun and end.failures <= end.retries, Ending(State.STOPPED, anew, failure=True)
    lost = "%s; it is not run again from the beginning: no checkpoint could be written (%s)" % (text, end.lost)
    yield bool(end.lost) and not end.complete, Ending(State.FAILED, lost, failure=True)
    yield not end.resumable or end.failures >= end.retries, Ending(State.FAILED, text, failure=True)
    yield end.stop, Ending(State.STOPPED, text, failure=True)
    yield True, Ending(RETRY, text, failure=True)


def _describe(end: End) -> str:
    if end.code == protocol.EXIT_STOPPED:
        return (
            "said that it checkpointed (exit %d), but there is no complete checkpoint; a job whose checkpoints are "
            "its own says %s=true" % (end.code, protocol.EXTRA_SELF_CHECKPOINTING)
        )
    if end.code == protocol.EXIT_NO_CHECKPOINT:
        return "could not write its checkpoint (exit %d)" % end.code
    if end.code > 128:
        return "killed by signal %d" % (end.code - 128)
    return "failed with exit code %d" % end.code
