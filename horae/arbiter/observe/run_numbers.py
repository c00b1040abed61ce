"""What one run, as it was read from a log, says in numbers: progress, times, the loss curve, and what it leaves open.

Pure: `log_profiles.py` says which part of which run is meant, and keeps what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from horae.spec import JobSpec
from policy.model import Allocation, Gpus, GpuType, Node, NodeName
from profiler.estimates.curves import Positions, curve_of, loss_curve
from profiler.estimates.iteration import Timing, without_pauses
from profiler.estimates.loss import State, state
from profiler.estimates.profiles import lacks
from profiler.estimates.stretch import Span
from profiler.estimates.trust import Verdict
from profiler.model import Kind, Run

#: Points kept of the loss curve of the runs before.
MOST_POINTS = 256


def progress(run: Run) -> tuple[float, float | None, bool] | None:
    """(done, total, counted in epochs) of a run, None where it shows no progress."""
    last = next((p for p in reversed(run.points) if p.kind is Kind.TRAIN and p.iteration is not None), None)
    if last is not None and (run.unit != "sample" or run.batch_size):
        per = run.batch_size if run.unit == "sample" and run.batch_size else 1.0
        at = Positions.of(run)(last)
        total = run.total_iterations
        if run.scope == "epoch":
            length, epochs = run.iterations_per_epoch, run.total_epochs
            total = length * epochs if length is not None and epochs is not None else None
        if at is not None:
            return at / per, None if total is None else total / per, False
    if run.last_epoch is None:
        return None
    return run.last_epoch, run.total_epochs, True


def since(run: Run, line: int, gpus: Gpus) -> Run:
    """The part of a run that was written at the present placement."""
    kept = tuple(p for p in run.points if p.line > line and (p.world is None or not gpus or p.world == gpus))
    return replace(run, points=kept, pauses=tuple(p for p in run.pauses if p.first_line > line))


def seconds(times: Timing) -> float | None:
    return times.iteration.median if times.iteration is not None else None


def samples(times: Timing) -> tuple[int, float]:
    """How many samples and how far they spread, relative, for the weight of a stretch."""
    if times.iteration is None or not times.samples:
        return 1, 0.1
    kept = [s.seconds for s in without_pauses(times.samples)]
    middle = times.iteration.median
    spread = sorted(abs(s - middle) for s in kept)[len(kept) // 2] / middle
    return times.iteration.n, min(max(1.4826 * spread, 0.005), 1.0)


def merged(before: tuple[tuple[float, float], ...], run: Run) -> tuple[tuple[float, float], ...]:
    """The loss of the starts before and of this run; what was trained again replaces what was."""
    curve = loss_curve(run)
    now = curve.points if curve is not None else ()
    if not before or not now:
        return before or now
    again = now[0][0]
    stands = [(at, value) for at, value in before if at < again]
    return curve_of([(at, None, value) for at, value in [*stands, *now]])


def thinned(curve: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Not more than `MOST_POINTS`: every second goes, the last stays."""
    while len(curve) > MOST_POINTS:
        curve = (*curve[:-1:2], curve[-1])
    return curve


def notes(
    run: Run,
    curve: tuple[tuple[float, float], ...],
    verdict: Verdict,
    progress: tuple[float, float | None, bool] | None,
    timed: bool,
) -> tuple[str, ...]:
    length = progress is not None and progress[1] is not None
    said = list(lacks(progress=progress is not None, speed=timed, length=length, loss=bool(curve)))
    said += [*verdict.reasons, *run.warnings]
    if progress is not None and progress[2]:
        said.append("its log counts epochs, not iterations: progress and rates are in epochs")
    if state(curve) is State.DIVERGING:
        said.append("its training loss rises at the end of what was read")
    if run.failure is not None:
        said.append(f"its log shows {run.failure.kind.value} at line {run.failure.line}: {run.failure.text[:200]}")
    return tuple(said)


def place(allocation: Allocation, nodes: Mapping[NodeName, Node]) -> tuple[GpuType, Gpus, Span] | None:
    """Where a job runs; None where it spans types: its rate then says nothing about either."""
    held = [nodes[name] for name in allocation if name in nodes]
    types = {n.gpu_type for n in held}
    if len(types) != 1 or len(held) != len(allocation):
        return None
    racks = {n.rack for n in held}
    span = Span.NODE if len(held) == 1 else Span.RACK if len(racks) == 1 else Span.CLUSTER
    return types.pop(), sum(allocation.values()), span


def counts(measured: Mapping[Gpus, object], spec: JobSpec | None) -> list[Gpus]:
    """Counts worth telling a policy beside the measured ones: what the job may have, in doublings."""
    top = max(measured, default=1) * 2
    if spec is None:
        return []
    if spec.gpus.allowed is not None:
        return [n for n in spec.gpus.allowed if n <= top]
    most = min(spec.gpus.max or top, top)
    counts = {1 << i for i in range(most.bit_length())} | {spec.gpus.min, spec.gpus.requested, most}
    return sorted(n for n in counts if n and spec.gpus.feasible(n) and n <= most)
