"""How fast a job would run there: the one throughput model. No policy has a private copy of it.

    rate(job, allocation) = min over the GPU types held of  curve_type(n)  /  S(span)

`n` is the number of GPUs of the whole allocation: a synchronous job that spans GPU types runs at its slowest
member's rate (Gandiva-fair §2.4, OEF §4.3). S is the slowdown of the span: one node, one rack, several racks
(Themis §4.3.1). Nodes without a rack count as one rack.

`curve_type(n)`, iterations/s at best placement, is the job's table by GPU count:

- at a measured count: the measurement;
- between two: interpolated linearly on throughput; below the first: on the line from (0, 0);
- beyond the last: linear scaling from the last point, curve(last) * n / last (CoDDL's rule, AFS §4.5: overestimate
  first, re-adjust when the measurement is there);
- beyond the job's stated maximum: flat at the rate of the maximum.

A job without any table has no known speed: it may run anywhere and `rate` is None. A job with a table may run on
the types that the table names, and on no other; a rate of 0 says that it cannot run at that count.

Normalised throughput, the currency of shares and certificates, is the rate over the job's *reference*: its rate on
one GPU of its own slowest type among those of the cluster. Speed-ups are not sorted by GPU generation in measured
data, so the slowest type is each job's own. A job without a table counts one per GPU.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import IntEnum

from policy.model import Allocation, Cluster, Gpus, GpuType, Health, IterationsPerSecond, Job, NodeName, Share

#: A gain smaller than this part of the throughput is float noise.
NOISE = 1e-12
#: Jobs that are known by identity: above that the model is asked by somebody who makes jobs anew all the time.
MOST_JOBS = 500_000


class Span(IntEnum):
    """How far an allocation spreads; the wider, the slower."""

    NODE = 0
    RACK = 1
    CLUSTER = 2


class Curve:
    """One job's rate on one GPU type by GPU count; see the module's text for what lies between the points."""

    __slots__ = ("_counts", "_most", "_rates", "whole")

    def __init__(self, points: Mapping[Gpus, IterationsPerSecond], most: Gpus | None) -> None:
        self._counts = sorted(points)
        self._rates = [points[n] for n in self._counts]
        self._most = most
        self.whole: dict[int, IterationsPerSecond] = {}  #: of whole GPUs that were asked for

    def __call__(self, gpus: float) -> IterationsPerSecond:
        """iterations/s on `gpus` GPUs (0 for none)."""
        if type(gpus) is not int:
            return self._at(gpus)
        rate = self.whole.get(gpus)
        if rate is None:
            rate = self.whole[gpus] = self._at(gpus)
        return rate

    def _at(self, gpus: float) -> IterationsPerSecond:
        if self._most is not None and gpus > self._most:
            gpus = self._most
        if gpus <= 0:
            return 0.0
        counts, rates = self._counts, self._rates
        i = bisect_left(counts, gpus)
        if i == len(counts):
            return rates[-1] * gpus / counts[-1]
        if counts[i] == gpus:
            return rates[i]
        if i == 0:
            return rates[0] * gpus / counts[0]
        low, high = counts[i - 1], counts[i]
        return rates[i - 1] + (rates[i] - rates[i - 1]) * (gpus - low) / (high - low)

    @property
    def points(self) -> tuple[Gpus, ...]:
        """The measured counts, ascending."""
        return tuple(self._counts)


class _Kin:
    """What jobs with equal tables, an equal maximum and an equal choice of types have in common."""

    __slots__ = ("curves", "reference", "types")

    def __init__(self, curves: dict[GpuType, Curve], types: tuple[GpuType, ...]) -> None:
        self.curves, self.types = curves, types
        self.reference: tuple[float | None] | None = None  #: once it was asked for


class Throughput:
    """The model over one cluster. Keeps what it worked out for each kind of job; make one a decision and share it.

    Jobs are alike by the content of their tables, whoever holds them: a thousand jobs of one model are one curve.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._type_of = {n.name: n.gpu_type for n in cluster.nodes}
        self._rack_of = {n.name: n.rack for n in cluster.nodes}
        there = {n.gpu_type for n in cluster.nodes if n.health is not Health.DOWN}
        self.present: tuple[GpuType, ...] = tuple(t for t in cluster.gpu_types if t in there)
        self._present = frozenset(self.present)
        # By the identity of a job, then of its parts, which is quick to ask; kept, so that their ids stay theirs.
        self._jobs: dict[int, tuple[_Kin, int, Job]] = {}
        self._kin: dict[tuple[int, Gpus | None, int], tuple[object, _Kin]] = {}
        self._kinds: dict[tuple[int, int, int, int, int], tuple[_Kin, int, object]] = {}
        # By content.
        self._same: dict[object, _Kin] = {}
        self._numbers: dict[object, int] = {}
        self._normalised: dict[tuple[int, GpuType | None, Gpus], float] = {}  #: within one node
        self._speedups: dict[tuple[int, GpuType], float] = {}
        self._by_types: dict[tuple[int, Gpus], tuple[tuple[GpuType, IterationsPerSecond], ...]] = {}

    def _known(self, job: Job) -> tuple[_Kin, int, Job]:
        """What it has in common with others, and the number of those that are alike in all."""
        found = self._jobs.get(id(job))
        if found is None:
            if len(self._jobs) >= MOST_JOBS:
                self._jobs.clear()
            key = (
                id(job.throughput),
                id(job.gpus),
                id(job.slowdown),
                id(job.gpu_types),
                id(job.shape),
            )
            parts = self._kinds.get(key)
            if parts is None:
                parts = self._kinds[key] = self._parts_of(job)
            found = self._jobs[id(job)] = (parts[0], parts[1], job)
        return found

    def _parts_of(self, job: Job) -> tuple[_Kin, int, object]:
        g, kin = job.gpus, self._kin_of(job)
        content = (id(kin), g.min, g.max, g.allowed, job.slowdown, job.shape)
        number = self._numbers.setdefault(content, len(self._numbers))
        return kin, number, (job.throughput, g, job.slowdown, job.gpu_types, job.shape)

    def _kin_of(self, job: Job) -> _Kin:
        key = (id(job.throughput), job.gpus.max, id(job.gpu_types))
        found = self._kin.get(key)
        if found is None:
            table = tuple((t, tuple(points.items())) for t, points in job.throughput.items())
            content = (table, job.gpus.max, job.gpu_types)
            kin = self._same.get(content)
            if kin is None:
                tables = {t: points for t, points in job.throughput.items() if points and self._allows(job, t)}
                made = {t: Curve(points, job.gpus.max) for t, points in tables.items()}
                kin = self._same[content] = _Kin(made, self._types(job))
            found = self._kin[key] = ((job.throughput, job.gpu_types), kin)
        return found[1]

    def _types(self, job: Job) -> tuple[GpuType, ...]:
        speeds = job.throughput or self._present
        return tuple(t for t in self.present if t in speeds and self._allows(job, t))

    @staticmethod
    def _allows(job: Job, gpu_type: GpuType) -> bool:
        """A type that its user rules out is one on which it has no speed."""
        return job.gpu_types is None or job.gpu_types.allows(gpu_type)

    def kind(self, job: Job) -> int:
        """Jobs of one number are alike in what GPUs are worth to them, and in which they ask for: equal curves, ranges
        and slowdowns, equal choices of types, equal shapes."""
        try:
            return self._jobs[id(job)][1]
        except KeyError:
            return self._known(job)[1]

    def curves(self, job: Job) -> Mapping[GpuType, Curve]:
        """The job's curves by GPU type; empty for a job without a table."""
        return self._known(job)[0].curves

    def type_of(self, node: NodeName) -> GpuType | None:
        """The GPU type of a node; None for one that has left the cluster."""
        return self._type_of.get(node)

    def known(self, job: Job) -> bool:
        """True if the job's speed is known on a GPU type that the cluster has."""
        return any(t in self._present for t in job.throughput)

    def types(self, job: Job) -> tuple[GpuType, ...]:
        """GPU types of the cluster that the job may run on, in the cluster's order (slowest first)."""
        return (self._jobs.get(id(job)) or self._known(job))[0].types

    def span(self, nodes: Iterable[str]) -> Span:
        """The span of a set of nodes."""
        names = list(nodes)
        if len(names) <= 1:
            return Span.NODE
        racks = {self._rack_of.get(n) for n in names}
        return Span.RACK if len(racks) == 1 else Span.CLUSTER

    @staticmethod
    def slowdown(job: Job, span: Span) -> float:
        """S of the job at this span."""
        s = job.slowdown
        return s.node if span == Span.NODE else s.rack if span == Span.RACK else s.cluster

    def at(self, job: Job, gpu_type: GpuType, gpus: float) -> IterationsPerSecond | None:
        """iterations/s on `gpus` GPUs of one type at best placement; None when it is not known there."""
        curve = (self._jobs.get(id(job)) or self._known(job))[0].curves.get(gpu_type)
        return None if curve is None else curve(gpus)

    def by_types(self, job: Job, gpus: Gpus) -> tuple[tuple[GpuType, IterationsPerSecond], ...]:
        """(GPU type, iterations/s on `gpus` of it) for each of `types`; 0 where that is not known."""
        key = (self.kind(job), gpus)
        found = self._by_types.get(key)
        if found is None:
            found = tuple((t, self.at(job, t, gpus) or 0.0) for t in self.types(job))
            self._by_types[key] = found
        return found

    def rate(self, job: Job, allocation: Allocation) -> IterationsPerSecond | None:
        """iterations/s on these GPUs; 0 on none, None when a type is held whose speed is not known (a node that has
        left the cluster has no type)."""
        if not allocation:
            return 0.0
        curves = (self._jobs.get(id(job)) or self._known(job))[0].curves
        if len(allocation) == 1:
            ((node, gpus),) = allocation.items()
            curve = curves.get(self._type_of.get(node, ""))
            if curve is None:
                return None
            known = curve.whole.get(gpus)
            return (curve(gpus) if known is None else known) / job.slowdown.node
        gpus = sum(allocation.values())
        slowest: float | None = None
        for gpu_type in {self._type_of.get(n, "") for n in allocation}:
            curve = curves.get(gpu_type)
            if curve is None:
                return None
            rate = curve(gpus)
            slowest = rate if slowest is None else min(slowest, rate)
        assert slowest is not None
        return slowest / self.slowdown(job, self.span(allocation))

    def reference(self, job: Job) -> IterationsPerSecond | None:
        """The job's rate on one GPU of its slowest type here; None when no speed is known, or all are 0."""
        kin = self._known(job)[0]
        if kin.reference is None:
            curves = [kin.curves[t] for t in kin.types if t in kin.curves]
            rates = [r for curve in curves if (r := curve(1)) > 0]
            if not rates:  # a model that no single GPU holds: its smallest gang, a GPU
                rates = [r for curve in curves if (r := _least_per_gpu(curve)) > 0]
            kin.reference = (min(rates, default=None),)
        return kin.reference[0]

    def speedup(self, job: Job, gpu_type: GpuType) -> float:
        """Normalised throughput of one GPU of this type: OEF's w. 1 without a table, 0 where it cannot run, or may
        not."""
        key = (self.kind(job), gpu_type)
        found = self._speedups.get(key)
        if found is None:
            found = self._speedups[key] = self._speedup(job, gpu_type)
        return found

    def _speedup(self, job: Job, gpu_type: GpuType) -> float:
        if not job.throughput:
            return float(self._allows(job, gpu_type))
        reference = self.reference(job)
        curve = self.curves(job).get(gpu_type)
        if reference is None or curve is None:
            return 0.0
        return (curve(1) or _least_per_gpu(curve)) / reference

    def normalised(self, job: Job, allocation: Allocation) -> float:
        """Normalised throughput on these GPUs: rate / reference."""
        if not job.throughput:
            slow = self.slowdown(job, self.span(allocation))
            return sum(allocation.values()) / slow
        if len(allocation) != 1:
            reference, rate = self.reference(job), self.rate(job, allocation)
            return 0.0 if reference is None or rate is None else rate / reference
        ((node, gpus),) = allocation.items()
        key = (self.kind(job), self._type_of.get(node), gpus)
        found = self._normalised.get(key)
        if found is None:
            reference, rate = self.reference(job), self.rate(job, allocation)
            found = self._normalised[key] = 0.0 if reference is None or rate is None else rate / reference
        return found

    def of_share(self, job: Job, share: Share) -> float:
        """Normalised throughput of a fractional share: the sum over types of share x speed-up (OEF §4.1)."""
        if len(share) == 1:  # as nearly all have it
            ((gpu_type, gpus),) = share.items()
            return gpus * self.speedup(job, gpu_type)
        return sum([x * self.speedup(job, t) for t, x in share.items()])

    def by_type(self, allocation: Allocation) -> dict[GpuType, Gpus]:
        """GPUs by type of an allocation, in the cluster's order of types; nodes that have left do not count."""
        if len(allocation) == 1:
            ((node, gpus),) = allocation.items()
            alone = self._type_of.get(node)
            return {} if alone is None else {alone: gpus}
        out: dict[GpuType, Gpus] = {}
        for node, gpus in allocation.items():
            gpu_type = self._type_of.get(node)
            if gpu_type is None:
                continue
            out[gpu_type] = out.get(gpu_type, 0) + gpus
        return {t: out[t] for t in self.present if t in out} if len(out) > 1 else out


def _least_per_gpu(curve: Curve) -> float:
    for n in curve.points:
        if (rate := curve(n)) > 0:
            return rate / n
    return 0.0
