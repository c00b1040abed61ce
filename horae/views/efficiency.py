"""What became of the GPU time of one job, as `seff` tells it of CPUs: held, trained, in starts and stops, and waiting.

Pure: of what the cluster showed of it (its record and the events `seen` of it). Training is what it held while it ran,
less what each start took until its first iteration, where that was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from horae.journal import Event, JobRecord, Kind
from horae.journal.events import JobSeen
from horae.journal.form import read
from horae.port import JobState
from policy.model import Gpus, GpuSeconds, GpuType, IterationsPerSecond, Seconds

#: Parts of the time below which nothing is to be said.
_LITTLE, _POOR = 0.1, 0.7
#: Who held less than this has other troubles than how it was used.
_WORTH_ADVICE: GpuSeconds = 60.0


@dataclass(slots=True)
class Efficiency:
    """GPU time is in GPU-s, of all types together."""

    held: GpuSeconds
    trained: GpuSeconds
    restarting: GpuSeconds  #: starts until the first iteration, checkpoints, leaving
    waited_s: Seconds  #: without a GPU, since it was handed in
    starts: int
    scaling: float | None  #: speed at its sizes over that of as many single GPUs; None: not known
    whole: bool  #: False: the journal does not hold its first events any more, parts are of what it holds
    advice: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Parts:
    running: GpuSeconds = 0.0
    other: GpuSeconds = 0.0
    waited_s: Seconds = 0.0
    ran_s: dict[tuple[GpuType, Gpus], Seconds] = field(default_factory=dict)
    warming: GpuSeconds = 0.0


def efficiency(record: JobRecord, events: Iterable[Event], now_s: Seconds) -> Efficiency:
    """`events`: of this job, in order."""
    until_s = record.ended_s if record.ended_s is not None else now_s
    seen = [(e.at_s, read(e)) for e in events if e.kind is Kind.SEEN]
    found = [(min(told.since_s, at_s), told) for at_s, told in seen if isinstance(told, JobSeen)]
    parts = _parts(record, found, until_s)
    held = parts.running + parts.other
    trained = max(parts.running - parts.warming, 0.0)
    accounted = sum((record.attained_at(now_s) if record.live else record.attained).values())
    out = Efficiency(
        held=accounted,
        trained=trained,
        restarting=held - trained,
        waited_s=parts.waited_s,
        starts=record.epoch_seen,
        scaling=_scaling(parts.ran_s, record.measured.get("rates", {})),
        whole=abs(held - accounted) <= max(0.01 * accounted, 1.0),
    )
    out.advice = _advice(record, out)
    return out


def _parts(record: JobRecord, found: list[tuple[Seconds, JobSeen]], until_s: Seconds) -> _Parts:
    """`found`: what was seen of it, and when it came into that state."""
    parts, warm = _Parts(), record.warmup_s or 0.0
    from_s, state, holding, epoch = record.submitted_s, JobState.QUEUED, dict[str, int](), 0
    warmed: dict[int, Seconds] = {}
    for at_s, seen in [*found, (until_s, None)]:
        took_s, gpus = max(min(at_s, until_s) - from_s, 0.0), sum(holding.values())
        if not gpus:
            parts.waited_s += took_s
        elif state is JobState.RUNNING:
            parts.running += gpus * took_s
            left_s = min(max(warm - warmed.get(epoch, 0.0), 0.0), took_s)
            warmed[epoch] = warmed.get(epoch, 0.0) + left_s
            parts.warming += gpus * left_s
            if len(holding) == 1:
                key = next(iter(holding)), gpus
                parts.ran_s[key] = parts.ran_s.get(key, 0.0) + took_s
        else:
            parts.other += gpus * took_s
        from_s = max(from_s, min(at_s, until_s))
        if seen is not None:
            state, holding, epoch = seen.state, dict(seen.holding), seen.epoch
    return parts


def _scaling(
    ran_s: Mapping[tuple[GpuType, Gpus], Seconds], rates: Mapping[GpuType, Mapping[str, IterationsPerSecond]]
) -> float | None:
    part = total = 0.0
    for (gpu_type, gpus), seconds in ran_s.items():
        table = rates.get(gpu_type, {})
        one, many = table.get("1"), table.get(str(gpus))
        if one and many:
            part += seconds * gpus * (many / (gpus * one))
            total += seconds * gpus
    return part / total if total else None


def _advice(record: JobRecord, found: Efficiency) -> list[str]:
    """What would have been better, as far as it shows."""
    out: list[str] = []
    if record.state.ended and found.held < _WORTH_ADVICE:
        return out
    if found.held and found.restarting > _LITTLE * found.held:
        part = found.restarting / found.held
        what = "fewer resizes (a narrower --gpus)" if found.starts > 2 else "a quicker start"
        out.append(f"{part:.0%} of its GPU time went into starts, checkpoints and stops: {what} would have kept it")
    if found.scaling is not None and found.scaling < _POOR:
        out.append(
            f"at its sizes a GPU did {found.scaling:.0%} of what one alone does: fewer GPUs a job, or a larger batch, "
            "would have used them better"
        )
    if found.held and record.spec.checkpoint is None and record.spec.elastic and not record.spec.gpus.rigid:
        out.append("without --checkpoint it could not be resized: it kept the size that it started at")
    if found.held and found.waited_s > found.held / max(record.spec.gpus.min, 1) and record.spec.gpus.rigid:
        out.append("it waited longer than it ran: a range (--gpus 1:N, with --checkpoint) starts on what is free")
    return out
