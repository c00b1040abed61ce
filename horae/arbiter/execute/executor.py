"""Everything that is asked of the cluster, one call after the other. The only module that holds a port.

`Executor` runs where calls may take long; the core runs elsewhere and gets values back. A call's error is a value
here: what it means is the core's affair (`outcomes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from horae.arbiter.observe.measurements import Profiles
from horae.journal.events import Verb
from horae.journal.measured import Measurement
from horae.port import (
    Batching,
    Capabilities,
    ClusterPort,
    FollowingUp,
    HandingIn,
    JobId,
    Leaving,
    Observation,
    PortError,
)
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation, Seconds


@dataclass(frozen=True, slots=True)
class Do:
    """An action on one job; its intent is in the journal."""

    verb: Verb
    job: JobId
    allocation: Allocation = field(default_factory=lambda: EMPTY)
    epoch: int = 0
    grace_s: Seconds = 0.0
    spec: JobSpec | None = None
    what: str = ""  #: of a follow-up: what it is about to do


@dataclass(frozen=True, slots=True)
class Claim:
    token: str


@dataclass(frozen=True, slots=True)
class Beat:
    """The heartbeat."""


@dataclass(frozen=True, slots=True)
class SetOrder:
    pool: str
    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class SetReason:
    job: JobId
    text: str


@dataclass(frozen=True, slots=True)
class ReleaseRest:
    """Hand back what the cluster holds for us and does not show yet."""


#: Follow-ups given to the port at once: the time that actions may take is looked at in between.
AT_ONCE = 64

Op = Do | Claim | Beat | SetOrder | SetReason | ReleaseRest


@dataclass(frozen=True, slots=True)
class Done:
    op: Op
    error: PortError | None = None
    tried: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the cluster gave, or why it gave nothing."""

    observation: Observation | None
    capabilities: Capabilities | None = None
    measured: Mapping[JobId, Measurement] = field(default_factory=lambda: EMPTY)
    error: PortError | None = None
    read_s: Mapping[JobId, Seconds] = field(default_factory=lambda: EMPTY)  #: when each log was last read


class Executor:
    def __init__(
        self, port: ClusterPort, profiles: Profiles, monotonic: Callable[[], Seconds] = time.monotonic
    ) -> None:
        self._port, self._profiles, self._monotonic = port, profiles, monotonic
        #: what the port takes at once: its own, and slow to ask in every round
        batched = {Verb.START, Verb.STOP, Verb.CANCEL} if isinstance(port, Batching) else set()
        self._together_verbs = {Verb.FOLLOW_UP} | batched
        self._together_verbs |= {Verb.RELEASE} if isinstance(port, Leaving) else set()
        self._together_verbs |= {Verb.SUBMIT} if isinstance(port, HandingIn) else set()
        self._at_once = port.at_once if isinstance(port, Batching | HandingIn) else AT_ONCE

    def look(self, *, read_logs: bool) -> Look:
        try:
            capabilities = self._port.capabilities()
            observation = self._port.observe()
        except PortError as error:
            return Look(None, error=error)
        measured: Mapping[JobId, Measurement] = EMPTY
        if read_logs:
            measured = self._profiles.update(observation, self._port.read_log)
        return Look(observation, capabilities, measured, read_s=self._profiles.read_s())

    def perform(self, ops: Sequence[Op], budget_s: Seconds) -> tuple[Done, ...]:
        """In turn; those of one verb that come one after the other together where the port can. What does not fit into
        `budget_s` is not tried."""
        until = self._monotonic() + budget_s
        done: list[Done] = []
        for some in self._grouped(ops):
            if done and self._monotonic() > until:
                done += [Done(op, tried=False) for op in some]
            elif len(some) > 1 or _follows_up(some[0]):
                done += self._together(some)
            else:
                done += [self._alone(some[0])]
        return tuple(done)

    def _grouped(self, ops: Sequence[Op]) -> list[list[Op]]:
        """Single calls, and runs of a verb that the port takes at once. The order stays."""
        groups: list[list[Op]] = []
        last: Verb | None = None
        for op in ops:
            verb = op.verb if isinstance(op, Do) and op.verb in self._together_verbs else None
            most = AT_ONCE if verb is Verb.FOLLOW_UP else self._at_once
            alike = verb is not None and verb is last
            if alike and (len(groups[-1]) < most or verb is Verb.RELEASE):  # what is whole is handed back whole
                groups[-1].append(op)
            else:
                groups.append([op])
            last = verb
        return groups

    def _together(self, ops: Sequence[Op]) -> list[Done]:
        asked = [op for op in ops if isinstance(op, Do)]
        try:
            failed = self._many(asked)
        except PortError as error:
            failed = {op.job: error for op in asked}
        return [Done(op, failed.get(op.job)) for op in asked]

    def _many(self, asked: Sequence[Do]) -> Mapping[JobId, PortError]:
        """Of one verb, that the port takes at once."""
        port, jobs = self._port, [op.job for op in asked]
        match asked[0].verb:
            case Verb.FOLLOW_UP if isinstance(port, FollowingUp):
                return port.follow_up(jobs)
            case Verb.RELEASE if isinstance(port, Leaving):
                return port.release_many(jobs)
            case Verb.SUBMIT if isinstance(port, HandingIn):
                return port.submit_many([(op.job, op.spec) for op in asked if op.spec is not None])
            case Verb.START if isinstance(port, Batching):
                return port.start_many([(op.job, op.allocation, op.epoch) for op in asked])
            case Verb.STOP if isinstance(port, Batching):
                return port.stop_many([(op.job, op.grace_s) for op in asked])
            case Verb.CANCEL if isinstance(port, Batching):
                return port.cancel_many(jobs)
        raise AssertionError(f"the port does not {asked[0].verb} many at once")

    def _alone(self, op: Op) -> Done:
        try:
            self._perform(op)
        except PortError as error:
            return Done(op, error)
        return Done(op)

    def _perform(self, op: Op) -> None:
        port = self._port
        match op:
            case Claim(token):
                port.claim(token)
            case Beat():
                port.heartbeat()
            case SetOrder(_, jobs):
                port.set_order(jobs)
            case SetReason(job, text):
                port.set_reason(job, text)
            case ReleaseRest():
                if isinstance(port, Leaving):
                    port.release_rest()
            case Do(Verb.SUBMIT, job, spec=spec):
                assert spec is not None
                port.submit(job, spec)
            case Do(Verb.START, job, allocation, epoch):
                port.start(job, allocation, epoch)
            case Do(Verb.RESHAPE, job, allocation, epoch):
                port.reshape(job, allocation, epoch)
            case Do(Verb.STOP, job, grace_s=grace_s):
                port.checkpoint_and_stop(job, grace_s)
            case Do(Verb.CANCEL, job):
                port.cancel(job)
            case Do(Verb.RELEASE, job):
                port.release(job)

    def close(self) -> None:
        self._port.close()


def _follows_up(op: Op) -> bool:
    return isinstance(op, Do) and op.verb is Verb.FOLLOW_UP
