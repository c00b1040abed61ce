"""Everything that is asked of the cluster, one call after the other. The only module that holds a port.

`Hands` runs where calls may take long; the core runs elsewhere and gets values back. A call's error is a value
here: what it means is the core's affair (`outcomes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from horae.arbiter.profiles import Measurement, Profiles
from horae.journal.events import Verb
from horae.port import Capabilities, ClusterPort, JobId, Observation, PortError
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


Op = Do | Claim | Beat | SetOrder | SetReason


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


class Hands:
    def __init__(
        self, port: ClusterPort, profiles: Profiles, monotonic: Callable[[], Seconds] = time.monotonic
    ) -> None:
        self._port, self._profiles, self._monotonic = port, profiles, monotonic

    def look(self, *, read_logs: bool) -> Look:
        try:
            capabilities = self._port.capabilities()
            observation = self._port.observe()
        except PortError as error:
            return Look(None, error=error)
        measured: Mapping[JobId, Measurement] = EMPTY
        if read_logs:
            measured = self._profiles.update(observation, self._port.read_log)
        return Look(observation, capabilities, measured)

    def perform(self, ops: Sequence[Op], budget_s: Seconds) -> tuple[Done, ...]:
        """Each in turn; what does not fit into `budget_s` is not tried."""
        until = self._monotonic() + budget_s
        done: list[Done] = []
        for op in ops:
            if done and self._monotonic() > until:
                done.append(Done(op, tried=False))
                continue
            try:
                self._perform(op)
            except PortError as error:
                done.append(Done(op, error))
            else:
                done.append(Done(op))
        return tuple(done)

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
