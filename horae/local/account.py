"""A supervisor's account of one start (`state.json`): the owner may write it, so it is typed and bounded here.

What is believed of it are words about that one job: how far it is, how it ended, its newest checkpoint. Not believed
are who owns the job, which start this is, which GPUs it holds and which processes are its: those stand in its book.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horae.elastic.protocol import State
from horae.port import CheckpointMark
from horae.untrusted import Facts, FromUser, parse
from policy.model import Seconds

MOST_EPOCHS = 10**9
#: Later than any clock says, and longer than anything runs.
_LATEST_S = 1e11
_NOTHING = FromUser("")
_STATES = frozenset((State.STARTING, State.RUNNING, State.STOPPING, *State.FINAL))


@dataclass(frozen=True, slots=True)
class Account:
    epoch: int
    state: str  #: one of `protocol.State`'s words
    since_s: Seconds = 0.0
    exit_code: int | None = None
    checkpoint: CheckpointMark | None = None
    failures: int = 0
    ran_s: Seconds = 0.0
    native: FromUser = _NOTHING

    @property
    def final(self) -> bool:
        return self.state in State.FINAL

    def plain(self) -> dict[str, Any]:
        """As `read` takes it."""
        mark = self.checkpoint
        return {
            "epoch": self.epoch,
            "state": self.state,
            "since_s": self.since_s,
            "exit_code": self.exit_code,
            "checkpoint": None if mark is None else {"epoch": mark.epoch, "step": mark.step, "time_s": mark.time_s},
            "failures": self.failures,
            "ran_s": self.ran_s,
            "native": self.native,
        }


def read(data: bytes, where: str) -> Account:
    """Raises Unbelievable."""
    return of(Facts(parse(data, where), where))


def of(facts: Facts) -> Account:
    """Raises Unbelievable."""
    return Account(
        epoch=facts.whole("epoch", 0, MOST_EPOCHS) or 0,
        state=facts.word("state", _STATES) or State.STARTING,
        since_s=facts.number("since_s", 0.0, _LATEST_S) or 0.0,
        exit_code=facts.whole("exit_code", -65535, 65535),
        checkpoint=_mark(facts.inner("checkpoint")),
        failures=facts.whole("failures", 0, MOST_EPOCHS) or 0,
        ran_s=facts.number("ran_s", 0.0, _LATEST_S) or 0.0,
        native=facts.text("native") or _NOTHING,
    )


def _mark(facts: Facts | None) -> CheckpointMark | None:
    if facts is None:
        return None
    epoch = facts.whole("epoch", 0, MOST_EPOCHS)
    step, time_s = facts.number("step"), facts.number("time_s", 0.0, _LATEST_S)
    if epoch is None or step is None or time_s is None:
        return None
    return CheckpointMark(epoch, step, time_s)


def slots(value: Facts | None, known: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """GPU indices by node, none that the nodes have not. Raises Unbelievable."""
    found: dict[str, tuple[int, ...]] = {}
    for node in value.keys() if value is not None else ():
        held = (value.each(node) if value is not None else None) or []
        indices = known.get(node, ())
        found[node] = tuple(index for index in indices if index in held)
    return {node: held for node, held in found.items() if held}
