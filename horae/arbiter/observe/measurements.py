"""What the logs of running jobs tell: the hook that a profiler fills, and a minimal one that is always there.

`SdkProfiles` reads the SDK's progress line alone. Anything better implements `Profiles` and gives more of
`Measurement`; the arbiter asks nothing else of it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from horae.journal.measured import Measurement
from horae.port import JobId, JobState, LogChunk, Observation, ObservedJob, PortError
from policy.model import (
    Gpus,
    GpuType,
    Node,
    NodeName,
    Provenance,
    Seconds,
)

ReadLog = Callable[[JobId, int], LogChunk]


class Profiles(Protocol):
    def update(self, observation: Observation, read_log: ReadLog) -> Mapping[JobId, Measurement]:
        """The jobs whose measurement changed. `read_log(job, offset)` may raise PortError: skip that job."""
        ...

    def read_s(self) -> Mapping[JobId, Seconds]:
        """When each log was last read to its end, on the cluster's clock; jobs whose log never was are not in it."""
        ...

    def restore(self, known: Mapping[JobId, Measurement]) -> None:
        """After a restart: what was measured before, and how far each log was read."""
        ...


#: Logs looked at in one round; the others wait for the next.
LOGS_A_ROUND = 500
#: A log is looked at again when the job has run for this share longer, at the latest after so long: what a look can
#: tell that is new is a share of what is known.
SHARE, LATEST_S = 0.01, 30.0
#: When a log that nobody has looked at yet was read.
NEVER_S = float("-inf")
#: Newest points of a loss curve that are kept.
LOSS_POINTS = 200
#: Weight of the newest rate in the smoothed one.
NEWEST = 0.3

_LINE = re.compile(rb"^(?:\d+: )?\[horae\] step=(\d+)(?:/(\d+))?((?: \w+=\S+)*)\s*$", re.MULTILINE)
_FIELD = re.compile(rb" (\w+)=(\S+)")


@dataclass(slots=True)
class _Reader:
    offset: int = 0
    identity: str | None = None
    rest: bytes = b""
    read_s: Seconds = NEVER_S
    measured: Measurement = field(default_factory=Measurement)
    loss: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LOSS_POINTS))


def due(observation: Observation, read_s: Mapping[JobId, Seconds], every_s: Seconds) -> list[ObservedJob]:
    """The jobs whose logs are to be looked at in this round, the longest unread first. `read_s`: when each was read;
    `every_s`: how often that of a job is read which has just begun."""
    waiting = []
    for job in observation.jobs:
        before_s = read_s.get(job.id, NEVER_S)
        if job.epoch and _due(job, observation.now_s, before_s, every_s):
            waiting.append((before_s, job.id, job))
    return [job for *_, job in sorted(waiting, key=lambda each: each[:2])[:LOGS_A_ROUND]]


def _due(job: ObservedJob, now_s: Seconds, before_s: Seconds, every_s: Seconds) -> bool:
    # Its last words, or its first; or the cluster's clock was set back meanwhile.
    if job.since_s > before_s or before_s > now_s:
        return True
    wait_s = max(every_s, min(SHARE * (now_s - job.since_s), LATEST_S))
    return job.state is JobState.RUNNING and now_s - before_s >= wait_s


class SdkProfiles:
    """Reads `[horae] step=120/4000 loss=2.3 iter_s=0.0123 world=4 epoch=2` lines; every `every_s` a running job."""

    def __init__(self, every_s: Seconds = 10.0) -> None:
        self._every_s = every_s
        self._readers: dict[JobId, _Reader] = {}

    def read_s(self) -> Mapping[JobId, Seconds]:
        return {job: reader.read_s for job, reader in self._readers.items() if reader.read_s > NEVER_S}

    def restore(self, known: Mapping[JobId, Measurement]) -> None:
        for job, measured in known.items():
            self._readers[job] = _Reader(
                measured.offset,
                measured.identity or None,
                measured=measured,
                loss=deque(measured.loss, maxlen=LOSS_POINTS),
            )

    def update(self, observation: Observation, read_log: ReadLog) -> Mapping[JobId, Measurement]:
        now_s, nodes = observation.now_s, {n.name: n for n in observation.nodes}
        changed = {}
        for job in due(observation, {job: reader.read_s for job, reader in self._readers.items()}, self._every_s):
            reader = self._readers.setdefault(job.id, _Reader())
            try:
                if self._read(reader, job, read_log, _type_of(job.allocation, nodes)):
                    changed[job.id] = reader.measured
            except PortError:
                continue  # no log now; the next round asks again
            reader.read_s = now_s
        known = {job.id for job in observation.jobs}
        for gone in [job for job in self._readers if job not in known]:
            del self._readers[gone]
        return changed

    def _read(self, reader: _Reader, job: ObservedJob, read_log: ReadLog, gpu_type: GpuType | None) -> bool:
        before = reader.measured
        while True:
            chunk = read_log(job.id, reader.offset)
            if reader.identity not in (None, chunk.identity):
                reader.rest = b""
            reader.identity, reader.offset = chunk.identity, chunk.next_offset
            text = reader.rest + chunk.data
            whole, _, reader.rest = text.rpartition(b"\n")
            reader.rest = reader.rest[-4096:]  # a line of ours is never that long
            for match in _LINE.finditer(whole):
                reader.measured = _with_line(reader, match, gpu_type, job.epoch)
            if chunk.eof or not chunk.data:
                break
        if reader.measured is before:
            return False
        reader.measured = replace(
            reader.measured,
            loss=tuple(reader.loss),
            offset=reader.offset - len(reader.rest),
            identity=reader.identity or "",
        )
        return True


def _with_line(reader: _Reader, match: re.Match[bytes], gpu_type: GpuType | None, now: int) -> Measurement:
    """`now`: the epoch that runs on `gpu_type`; a line of an older start says nothing about it."""
    measured, step = reader.measured, float(match[1])
    words = {key.decode(): value.decode(errors="replace") for key, value in _FIELD.findall(match[3])}
    iter_s, world, epoch = _number(words.get("iter_s")), _number(words.get("world")), _number(words.get("epoch"))
    loss = _number(words.get("loss"))
    if loss is not None:
        reader.loss.append((step, loss))
    rates, provenance = measured.rates, measured.provenance
    if gpu_type is not None and epoch == now and iter_s and iter_s > 0 and world and world >= 1:
        table = dict(rates.get(gpu_type, {}))
        old, new = table.get(int(world)), 1.0 / iter_s
        table[int(world)] = new if old is None else NEWEST * new + (1 - NEWEST) * old
        rates = {**rates, gpu_type: table}
        provenance = {**provenance, gpu_type: Provenance.MEASURED}
    return replace(
        measured,
        done=step,
        total=float(match[2]) if match[2] else measured.total,
        epoch=int(epoch) if epoch is not None else measured.epoch,
        rates=rates,
        provenance=provenance,
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e300 else None


def _type_of(allocation: Mapping[NodeName, Gpus], nodes: Mapping[NodeName, Node]) -> GpuType | None:
    """The one GPU type a job runs on; None where it spans types: its rate then says nothing about either."""
    types = {nodes[name].gpu_type for name in allocation if name in nodes}
    return types.pop() if len(types) == 1 else None
