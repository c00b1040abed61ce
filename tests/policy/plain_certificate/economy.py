"""What GPUs are worth to whom: the small linear programs behind the certificate.

A `Group` is a number of jobs that are alike, with the ways (`Mode`) in which one of them can use GPUs: so many GPUs
of one type give so much normalised throughput. `worth` is the most that groups can make of a bundle of GPUs when
GPUs are shared over time: a gang of four on two GPUs runs half the time. With one GPU type this is a fractional
knapsack on concave envelopes and solved by sorting; with several it is a linear program.

Two economies. *Whole* (allocations): the modes of a job are the sizes of its gang, at the span that so many GPUs need
at best. *Fluid* (fractional shares, OEF §4.1): every GPU of a type gives its speed-up, up to the job's maximum; here
a job without a maximum stands for as much work as its tenant wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from policy.model import GpuType, Health, Job, Node, Share, Snapshot, Termination
from policy.throughput import Throughput

if TYPE_CHECKING:  # the solver is imported when there is something to solve
    from policy.parts.matrix import MatrixResult

#: Above this many columns a linear program is not attempted.
MOST_COLUMNS = 40_000


@dataclass(frozen=True, slots=True)
class Mode:
    gpu_type: int  #: index
    gpus: float
    value: float  #: normalised throughput
    part: float  #: of one job that it takes up; 0: any number at once


@dataclass(frozen=True, slots=True)
class Group:
    modes: tuple[Mode, ...]
    jobs: int


class Economy:
    """Modes of jobs over one cluster, worked out once a kind of job."""

    def __init__(self, snapshot: Snapshot, speeds: Throughput, held: Mapping[str, int], fluid: bool) -> None:
        self.speeds, self.fluid = speeds, fluid
        self.one_type = snapshot.cluster.limits.one_type_per_job
        self.types: tuple[GpuType, ...] = speeds.present
        self._at = {t: i for i, t in enumerate(self.types)}
        self.capacity = [0.0] * len(self.types)
        self.node_size = [0] * len(self.types)
        racks: dict[tuple[int, str | None], int] = {}
        for n in (n for n in snapshot.cluster.nodes if n.gpu_type in self.types):
            i, size = self._at[n.gpu_type], _usable(n, held)
            self.capacity[i] += size
            self.node_size[i] = max(self.node_size[i], size)
            racks[i, n.rack] = racks.get((i, n.rack), 0) + size
        self.rack_size = [max((s for (j, _), s in racks.items() if j == i), default=0) for i in range(len(self.types))]
        self._modes: dict[tuple[object, ...], tuple[object, tuple[Mode, ...]]] = {}

    def kind(self, job: Job) -> tuple[object, ...]:
        """Jobs of one kind have the same modes."""
        return (id(job.throughput), job.gpus, job.slowdown, job.gpu_types)

    def bundle(self, share: Share) -> tuple[float, ...]:
        return tuple(float(share.get(t, 0.0)) for t in self.types)

    def modes(self, job: Job) -> tuple[Mode, ...]:
        key = self.kind(job)
        found = self._modes.get(key)
        if found is None:
            made = tuple(self._fluid(job) if self.fluid else self._whole(job))
            found = self._modes[key] = (job.throughput, made)
        return found[1]

    def groups(self, jobs: Iterable[Job]) -> list[Group]:
        count: dict[tuple[Mode, ...], int] = {}
        for job in jobs:
            modes = self.modes(job)
            if modes:
                count[modes] = count.get(modes, 0) + 1
        return [Group(modes, n) for modes, n in count.items()]

    def at_best(self, job: Job, gpu_type: int, gpus: float) -> float:
        """Normalised throughput of so many GPUs of a type, at the narrowest span that holds them."""
        s = job.slowdown
        slow = s.node if gpus <= self.node_size[gpu_type] else s.rack if gpus <= self.rack_size[gpu_type] else s.cluster
        if not job.throughput:
            return gpus / slow
        reference, rate = self.speeds.reference(job), self.speeds.at(job, self.types[gpu_type], gpus)
        return 0.0 if reference is None or rate is None else rate / reference / slow

    def sizes(self, job: Job, gpu_type: int) -> list[int]:
        """Gang sizes between which at_best is linear: enough for its concave envelope."""
        most = int(self.capacity[gpu_type])
        curve = self.speeds.curves(job).get(self.types[gpu_type])
        marks = {job.gpus.min, job.gpus.max or most, most, self.node_size[gpu_type], self.rack_size[gpu_type]}
        marks |= {self.node_size[gpu_type] + 1, self.rack_size[gpu_type] + 1}
        marks |= set(job.gpus.allowed or ())
        marks |= set(() if curve is None else curve.points)
        if job.gpus.allowed is not None:
            return sorted(n for n in job.gpus.allowed if n <= most)
        return sorted(n for n in marks if 0 < n <= most and job.gpus.feasible(n))

    def _whole(self, job: Job) -> Iterable[Mode]:
        for t in self._types(job):
            for n in self.sizes(job, t):
                value = self.at_best(job, t, n)
                if value > 0:
                    yield Mode(t, n, value, 1.0)

    def _fluid(self, job: Job) -> Iterable[Mode]:
        part = 0.0 if job.gpus.max is None else 1.0 / job.gpus.max
        for t in self._types(job):
            value = self.speeds.speedup(job, self.types[t])
            if value > 0:
                yield Mode(t, 1.0, value, part)

    def _types(self, job: Job) -> list[int]:
        return [self._at[t] for t in self.speeds.types(job)]

    def most(self, jobs: Sequence[Job]) -> float | None:
        """The most that all `jobs` make of all GPUs; None where it is too large a program.

        Gangs may span types here (where the cluster can carry that out): a gang of slowest type s draws its GPUs from
        any types that are no slower for it. That leaves the span's slowdown out, so it is an upper bound.
        """
        found: dict[tuple[Mode, ...], list[Job]] = {}
        for job in jobs:
            found.setdefault(self.modes(job), []).append(job)
        if self.fluid or self.one_type or len(self.types) == 1:
            together = worth([Group(m, len(js)) for m, js in found.items() if m], self.capacity)
            return None if together is None else together.value
        total = sum(self.capacity)
        program = Columns(self.capacity)
        for members in found.values():
            job, types = members[0], self._types(members[0])
            row = program.row(up=float(len(members)))
            for slow in types:
                sizes = sorted({*self.sizes(job, slow), *self._beyond(job, slow, types, total)})
                values = {n: self.at_best(job, slow, n) for n in sizes}
                helpers = [t for t in types if any(self.at_best(job, t, n) >= v for n, v in values.items())]
                drawn = program.row(low=0.0, up=0.0)
                for n, value in values.items():
                    program.column(value, [(row, 1.0), (drawn, float(n))])
                for t in {slow, *helpers}:
                    program.column(0.0, [(drawn, -1.0), (t, 1.0)])
        return program.solve() if len(program.objective) <= MOST_COLUMNS else None

    def _beyond(self, job: Job, gpu_type: int, types: Sequence[int], total: float) -> list[int]:
        """Sizes that no single type has GPUs for."""
        room = int(sum(self.capacity[t] for t in types))
        top = job.gpus.at_most(room)
        own = int(self.capacity[gpu_type])
        marks = {top, job.gpus.min, own + 1, *(job.gpus.allowed or ())}
        curve = self.speeds.curves(job).get(self.types[gpu_type])
        marks |= set(() if curve is None else curve.points)
        return [n for n in marks if own < n <= min(room, total) and job.gpus.feasible(n)]


def _usable(node: Node, held: Mapping[str, int]) -> int:
    """GPUs for us: on a draining node those that are held on, on a node that is down none."""
    if node.health is Health.UP:
        return node.gpus - node.foreign
    return held.get(node.name, 0) if node.health is Health.DRAIN else 0


# --- worth -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Worth:
    """The most that groups make of a bundle, and prices that bound it for every other bundle b:
    worth(b) <= prices . b + rest."""

    value: float
    prices: tuple[float, ...]
    rest: float

    def bound(self, bundle: Sequence[float]) -> float:
        return self.rest + sum(p * x for p, x in zip(self.prices, bundle, strict=True))


def worth(groups: Sequence[Group], bundle: Sequence[float]) -> Worth | None:
    """The most that `groups` can make of `bundle` (GPUs by type); None where it is too large a program."""
    used = [t for t, x in enumerate(bundle) if x > 0]
    dear = _dear(groups, len(bundle))
    if not used or all(g.modes[0].part == 0.0 for g in groups):
        return Worth(sum(p * x for p, x in zip(dear, bundle, strict=True)), dear, 0.0)
    if len(used) == 1:
        return _one_type(groups, used[0], bundle[used[0]], dear)
    return _program(groups, bundle)


def _dear(groups: Sequence[Group], types: int) -> tuple[float, ...]:
    """Prices at which nobody gains: the best value of a GPU of each type."""
    best = [0.0] * types
    for g in groups:
        for m in g.modes:
            best[m.gpu_type] = max(best[m.gpu_type], m.value / m.gpus)
    return tuple(best)


def envelope(modes: Iterable[Mode]) -> list[tuple[float, float]]:
    """The concave envelope of one job's (GPUs, value) from (0, 0): steps (GPUs, value a GPU) of falling value."""
    points = [(0.0, 0.0)]
    for n, v in sorted({(m.gpus / m.part, m.value / m.part) for m in modes}):
        if v <= points[-1][1]:
            continue
        if n == points[-1][0]:
            points.pop()
        while len(points) >= 2:
            (n1, v1), (n0, v0) = points[-1], points[-2]
            if (v - v1) * (n1 - n0) >= (v1 - v0) * (n - n1):
                points.pop()
            else:
                break
        points.append((n, v))
    return [(n1 - n0, (v1 - v0) / (n1 - n0)) for (n0, v0), (n1, v1) in pairwise(points)]


def _one_type(groups: Sequence[Group], gpu_type: int, gpus: float, dear: tuple[float, ...]) -> Worth:
    steps: list[tuple[float, float]] = []  # (value a GPU, GPUs)
    for g in groups:
        modes = [m for m in g.modes if m.gpu_type == gpu_type]
        if modes and modes[0].part == 0.0:
            steps.append((max(m.value / m.gpus for m in modes), float("inf")))
        else:
            steps += [(v, n * g.jobs) for n, v in envelope(modes)]
    steps.sort(key=lambda s: -s[0])
    left, value, price = gpus, 0.0, 0.0
    for v, n in steps:
        take = min(left, n)
        value += v * take
        left -= take
        if left <= 0:
            price = v
            break
    prices = tuple(price if t == gpu_type else p for t, p in enumerate(dear))
    return Worth(value, prices, value - price * gpus)


class Columns:
    """A program max c x, x >= 0, built by rows and columns; the first rows are the GPUs of each type."""

    def __init__(self, capacity: Sequence[float]) -> None:
        self.low = [-inf] * len(capacity)
        self.up = [float(c) for c in capacity]
        self.objective: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []

    def row(self, low: float = -inf, up: float = inf) -> int:
        self.low.append(low)
        self.up.append(up)
        return len(self.up) - 1

    def column(self, value: float, cells: Iterable[tuple[int, float]]) -> None:
        for row, coefficient in cells:
            self._rows.append(row)
            self._columns.append(len(self.objective))
            self._values.append(coefficient)
        self.objective.append(value)

    def run(
        self, *, integer: bool = False, time_limit_s: float | None = None, node_limit: int | None = None
    ) -> MatrixResult:
        from policy.parts.matrix import maximise_matrix

        return maximise_matrix(
            self.objective,
            self._rows,
            self._columns,
            self._values,
            self.low,
            self.up,
            integer=integer,
            time_limit_s=time_limit_s,
            node_limit=node_limit,
        )

    def solve(self) -> float | None:
        """The optimum, None if the solver did not prove one."""
        if not self.objective:
            return 0.0
        found = self.run()
        return found.objective if found.termination is Termination.OPTIMAL else None


def _program(groups: Sequence[Group], bundle: Sequence[float]) -> Worth | None:
    if sum(len(g.modes) for g in groups) > MOST_COLUMNS:
        return None
    program = Columns(bundle)
    for g in groups:
        bounded = g.modes[0].part > 0
        row = program.row(up=float(g.jobs)) if bounded else -1
        for m in g.modes:
            program.column(m.value, [(m.gpu_type, m.gpus), *([(row, m.part)] if bounded else [])])
    found = program.run()
    if found.termination is not Termination.OPTIMAL or found.objective is None:
        return None
    types = len(bundle)
    prices = [float(p) for p in found.prices]
    rest = sum(p * x for p, x in zip(prices[types:], program.up[types:], strict=True))
    return Worth(found.objective, tuple(prices[:types]), rest)
