"""What the end of a gang means for its job. Pure, so that every case can be tested."""

from typing import NamedTuple

from .. import protocol
from ..protocol import State

#: Not a state: run the gang again in place.
RETRY = "retry"


class End(NamedTuple):
    """How a gang ended and what had been asked of it."""

    code: int  #: the gang's exit code
    cancel: bool = False  #: it was ended because cancellation was asked for
    stop: bool = False  #: checkpoint-and-leave was asked for
    killed: bool = False  #: it did not leave in time and was killed
    out_of_time: bool = False  #: its time limit is used up
    complete: bool = False  #: a complete checkpoint exists, or the job says that it keeps its own
    own_checkpoints: bool = False  #: the job says that it keeps its own
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
    if end.cancel:
        return Ending(State.CANCELLED, "cancelled")
    if end.code == 0 and end.stop and end.own_checkpoints:
        # Perhaps it finished; perhaps it checkpointed and knows nothing of 86. Started again, a finished one ends
        # at once; taken for finished, an unfinished one would be lost.
        return Ending(State.STOPPED, "left when it was asked to")
    if end.code == 0:
        return Ending(State.COMPLETED, "finished")
    if end.out_of_time:
        kept = "; its newest checkpoint is kept" if end.complete else ""
        return Ending(State.CANCELLED, "its time limit is used up" + kept)
    if end.code == protocol.EXIT_STOPPED and end.complete:
        return Ending(State.STOPPED, "stopped after a checkpoint")
    if end.code == protocol.EXIT_STOPPED and end.stop and end.unformed:
        return Ending(State.STOPPED, "asked to stop before it began")
    if end.stop and end.killed:
        return Ending(State.STOPPED, "did not leave in time and was killed")
    text = _describe(end)
    if end.lost and not end.complete:
        what = "%s; it is not run again from the beginning: no checkpoint could be written (%s)" % (text, end.lost)
        return Ending(State.FAILED, what, failure=True)
    if not end.resumable or end.failures >= end.retries:
        return Ending(State.FAILED, text, failure=True)
    if end.stop:
        return Ending(State.STOPPED, text, failure=True)
    return Ending(RETRY, text, failure=True)


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
