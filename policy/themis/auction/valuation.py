"""rho of Themis: what a bundle of GPUs is worth to an app (§3.2, §4.3, Eq. 1 and 2).

    rho(G)    = T_sh(G) / T_id
    T_sh(G)   = T_current - T_start + time left on G
    T_id      = T_cluster * N_avg

*Time left*. One plain job: iterations left over its rate on G, by the shared throughput model (`speedup=table`), or
by Eq. 1's linear speed-up up to the job's maximum over S (`speedup=paper`). Several jobs: the schedule of
`policy.themis.schedule`, as one phase. Successive halving (an `App` with phases): the sum over the phases left; jobs
of later phases are not chosen yet, so each is taken to be the median job by iteration time (§4.3.3). Curve stopping
(an `App` without phases whose jobs carry loss forecasts): each job ends where the most optimistic fitted curve, the
one that promises the longest training, says (§4.3.2).

*T_cluster*. With a stated budget, Eq. 2: budget / min(R_C, most GPUs the app can use). Else, `speedup=paper`: the
serial GPU time of all phases over the same; `speedup=table`: the time of all phases on R_C GPUs at best placement.
R_C counts the GPUs of nodes that are not down, less foreign ones, of types the app can run on; on mixed GPUs T_id is
in GPUs of the reference type (default: the slowest the app can run on).

*Holding nothing*. T_sh is unbounded then, the logarithm needs a number. The cap is

    cap = D * (1 + log2(2 + waited / lease)) * rho(worst row)

- rho(worst row): the app's rho on its smallest gang at its slowest: getting anything at all at least halves rho;
- the second factor is 2 at first and grows with the waiting time, without limit: among equals the longest-starving
  wins, and no competitor's finite gain wins for ever. It grows slowly on purpose: a competitor's payment is one over
  it (Pseudocode 1, line 8), so a huge cap makes everybody who wins a contended GPU pay all of it;
- D >= 1 is set by the auction (`policy.themis.auction.auction`): the product, over the bidders that hold GPUs under
a lease,
  of the most they could improve. So one starving app served outweighs everything that served apps could gain.

*Unknown lengths*. A job whose length may not be known has as much left as it has done, at least one hour on one GPU.
A job without any measurement runs at one iteration/s a GPU: rho only needs ratios until there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log2
from operator import attrgetter

from policy.model import App, Gpus, GpuType, Health, Job, Seconds, Snapshot
from policy.themis.contention import average, by_app, weights
from policy.themis.options import Options
from policy.themis.schedule import Gangs, Schedule, Task, schedule
from policy.themis.shapes import Bundle, Chunk, canonical, size
from policy.throughput import Span, Throughput

#: An app of more jobs times GPUs of the cluster is looked at more coarsely: not every count of GPUs, nor of lanes.
CLOSELY = 4096
UNKNOWN_S: Seconds = 3600.0  #: the least work, on one GPU, of a job of unknown length


class Rates:
    """`Speed` over the shared throughput model; remembers what it worked out."""

    def __init__(self, throughput: Throughput, linear: bool) -> None:
        self._throughput = throughput
        self._linear = linear
        self._known: dict[tuple[int, tuple[GpuType, ...], Gpus, Span], float] = {}
        self.kind = throughput.kind

    def __call__(self, job: Job, gang: Sequence[Chunk]) -> float:
        first = gang[0]
        types: tuple[GpuType, ...]
        if len(gang) == 1:
            types, span, gpus = (first.gpu_type,), Span.NODE, first.gpus
        else:
            types = tuple(sorted({c.gpu_type for c in gang}))
            span = Span.RACK if all(c.rack == first.rack for c in gang) else Span.CLUSTER
            gpus = size(gang)
        key = (self.kind(job), types, gpus, span)
        if (rate := self._known.get(key)) is None:
            flat = min((self.best_placed(job, t, gpus) for t in types), default=0.0)
            rate = self._known[key] = flat / self._throughput.slowdown(job, span)
        return rate

    def best_placed(self, job: Job, gpu_type: GpuType, gpus: Gpus) -> float:
        """Iterations/s on `gpus` GPUs of one type, S = 1."""
        usable = gpus if job.gpus.max is None else min(gpus, job.gpus.max)
        if not job.throughput:
            return float(usable)
        if self._linear:
            return self.serial(job, gpu_type) * usable
        return self._throughput.at(job, gpu_type, gpus) or 0.0

    def serial(self, job: Job, gpu_type: GpuType) -> float:
        """Iterations/s on one GPU; of a model that no single GPU holds, its smallest gang's rate a GPU."""
        return self._throughput.speedup(job, gpu_type) * (self._throughput.reference(job) or 1.0)


#: Nodes of the worst placement of a gang that are told apart.
MOST_PARTS = 4096


@dataclass(slots=True)
class Valuation:
    """One app's rho as a function of its bundle. `tasks`: the phases left, the current one first."""

    name: str
    jobs: tuple[Job, ...]
    phases: tuple[tuple[Task, ...], ...]
    elapsed_s: Seconds
    ideal_s: Seconds  #: T_id
    gangs: Gangs
    most: Gpus | None  #: the most GPUs it can use in any phase; None: no limit
    _seen: dict[Bundle, Schedule] = field(default_factory=dict)
    _left: dict[Bundle, float] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return not any(t.iterations > 0 for phase in self.phases for t in phase)

    def now(self, bundle: Bundle) -> Schedule:
        """The schedule of the current phase on a canonical bundle."""
        if (known := self._seen.get(bundle)) is None:
            phase = self.phases[0] if self.phases else ()
            known = self._whole(phase, bundle) or schedule(phase, bundle, self.gangs)
            self._seen[bundle] = known
        return known

    def _whole(self, phase: Sequence[Task], bundle: Bundle) -> Schedule | None:
        """One job uses all it is given, where a gang of that size and shape exists."""
        left = [i for i, t in enumerate(phase) if t.iterations > 0]
        if len(left) != 1 or not bundle:
            return None
        task = phase[left[0]]
        if not task.job.gpus.feasible(size(bundle)) or not self.gangs.allowed(bundle):
            return None
        rate = self.gangs.speed(task.job, bundle)
        take = tuple((i, c.gpus) for i, c in enumerate(bundle))
        return Schedule(task.iterations / rate, ((left[0], take),)) if rate > 0 else None

    def left_s(self, bundle: Bundle) -> Seconds:
        """Seconds to the app's end if it kept a canonical bundle; inf where nothing can run on it."""
        if (known := self._left.get(bundle)) is None:
            known = self.now(bundle).seconds
            for phase in self.phases[1:]:
                known += schedule(phase, bundle, self.gangs).seconds
            self._left[bundle] = known
        return known

    def rho(self, bundle: Bundle) -> float:
        """Finish-time fairness on a canonical bundle; inf where nothing can run on it."""
        return max((self.elapsed_s + self.left_s(bundle)) / self.ideal_s, 1e-12)

    def worst_rho(self) -> float:
        """rho on the smallest gang that runs, on the type and span that suit it least; inf: nothing ever runs."""
        worst = 0.0
        for gpu_type in self.gangs.types:
            for job in self.jobs:
                gang = job.gpus.above(0)
                if gang is None:
                    continue
                # A node a GPU, a rack a node. Of a vast gang two halves are as far apart, and cost nothing.
                parts = [1] * gang if gang <= MOST_PARTS else [gang - gang // 2, gang // 2]
                spread = canonical(Chunk(gpu_type, str(i), n) for i, n in enumerate(parts)) if gang > 1 else ()
                whole = canonical([Chunk(gpu_type, "", gang)])
                for bundle in (spread, whole):
                    rho = self.rho(bundle) if bundle else 0.0
                    worst = max(worst, rho) if rho < inf else worst
        return worst or inf


def cap(worst_rho: float, waited_s: Seconds, lease_s: Seconds) -> float:
    """rho of an app that holds nothing, without the auction's factor D; see the module's text."""
    return (1.0 + log2(2.0 + max(waited_s, 0.0) / lease_s)) * worst_rho


def valuations(snapshot: Snapshot, options: Options, throughput: Throughput) -> dict[str, Valuation]:
    """By app, in the tie order: what bundles are worth to it."""
    apps = by_app(snapshot.jobs)
    stated = {a.name: a for a in snapshot.apps}
    weight = weights(snapshot, apps) if options.weigh == "tenants" else dict.fromkeys(apps, 1.0)
    limits = snapshot.cluster.limits
    types = throughput.present
    rates = Rates(throughput, options.speedup == "paper")
    active = sum(any(j.work.left != 0 for j in jobs) for jobs in apps.values())
    capacity: dict[GpuType, Gpus] = {}
    for n in snapshot.cluster.nodes:
        if n.health is not Health.DOWN:
            capacity[n.gpu_type] = capacity.get(n.gpu_type, 0) + max(n.gpus - n.foreign, 0)
    out = {}
    for name, jobs in apps.items():
        start = min(map(attrgetter("submitted_s"), jobs))
        # What a bundle is worth takes a schedule of all jobs, and there are as many bundles as GPUs.
        thrift = max(len(jobs) * sum(capacity.values()) / CLOSELY, 1.0)
        gangs = Gangs(
            rates,
            types,
            limits.equal_gpus_per_node,
            limits.one_type_per_job,
            rates.kind,
            thrift,
        )
        # What can never run here has no end: with it no bundle would be worth anything to the app.
        able = [j for j in jobs if gangs.smallest(j) > 0] or jobs
        phases, past = _phases(able, stated.get(name), rates, throughput)
        most = _most([*past, *phases], stated.get(name))
        runs_on = {t for j in jobs for t in throughput.types(j)}
        cluster = sum(g for t, g in capacity.items() if t in runs_on)
        alone = _cluster_s(jobs, [*past, *phases], stated.get(name), most, cluster, rates, options, throughput)
        contention = average(snapshot.active_apps, snapshot.now_s, start, active) / weight[name]
        elapsed = max(snapshot.now_s - start, 0.0)
        ideal = max(alone * contention, 1e-9)
        out[name] = Valuation(name, tuple(jobs), phases, elapsed, ideal, gangs, most)
    return out


# --- phases ------------------------------------------------------------------------------------------------

Phases = tuple[tuple[Task, ...], ...]


def iterations_left(job: Job, serial: float, curve_stopping: bool = False) -> float:
    """Iterations left, as far as they may be known.

    A loss forecast may say the iteration at which its curve converges (`parameters["iterations"]`), and an interval
    of factors on the iterations left. Curve stopping takes the most optimistic curve, the longest (§4.3.2).
    """
    left, forecast = job.work_left, job.loss_forecast
    ends = inf if forecast is None else forecast.parameters.get("iterations", inf)
    if 0 < ends < inf and (left is None or curve_stopping):  # anything else is no iteration: the curve says nothing
        left = max(ends - job.work.done, 0.0)
    if left is None:
        return max(job.work.done, UNKNOWN_S * serial)
    if curve_stopping and forecast is not None and forecast.interval is not None and forecast.interval[1] < inf:
        left *= max(forecast.interval[1], 1.0)
    return left


def _phases(
    jobs: Sequence[Job], app: App | None, rates: Rates, throughput: Throughput
) -> tuple[Phases, tuple[tuple[Task, ...], ...]]:
    """(the phases left, the current one first with the work left in it; the whole phases that are over)."""

    def serial(job: Job) -> float:
        return max((rates.serial(job, t) for t in throughput.types(job)), default=1.0) or 1.0

    if app is None or not app.phases:
        curve = app is not None
        return (tuple(Task(j, iterations_left(j, serial(j), curve)) for j in jobs),), ()
    slowest_first = sorted(jobs, key=lambda j: (serial(j), j.order))
    median = slowest_first[(len(slowest_first) - 1) // 2]
    ends, total = [], 0.0
    for phase in app.phases:
        total += phase.iterations
        ends.append(total)
    done = min(j.work.done for j in jobs)
    at = next((i for i, end in enumerate(ends) if done < end), len(ends))
    past = tuple(tuple(Task(median, p.iterations) for _ in range(p.jobs)) for p in app.phases[:at])
    if at == len(ends):  # who runs on after the last phase has work left all the same
        return (tuple(Task(j, iterations_left(j, serial(j))) for j in jobs),), past
    current = tuple(Task(j, max(ends[at] - j.work.done, 0.0)) for j in jobs)
    later = tuple(tuple(Task(median, p.iterations) for _ in range(p.jobs)) for p in app.phases[at + 1 :])
    return (current, *later), past


def _most(phases: Sequence[Sequence[Task]], app: App | None) -> Gpus | None:
    """The most GPUs the app can use at once: its stated demand, else the widest phase's; None: no limit."""
    widest: Gpus | None = 0
    for phase in phases:
        tops = [t.job.gpus.max for t in phase]
        if widest is None or any(top is None for top in tops):
            widest = None
            break
        widest = max(widest, sum(top for top in tops if top is not None))
    if app is not None and app.demand_max is not None:
        return app.demand_max if widest is None else min(app.demand_max, widest)
    return widest


def _cluster_s(
    jobs: Sequence[Job],
    phases: Sequence[Sequence[Task]],
    app: App | None,
    most: Gpus | None,
    cluster: Gpus,
    rates: Rates,
    options: Options,
    throughput: Throughput,
) -> Seconds:
    """T_cluster: the app alone on the whole cluster, all its work, S = 1."""
    smallest = max((j.gpus.above(0) or 1 for j in jobs), default=1)
    usable = max(cluster if most is None else min(cluster, most), smallest)
    if app is not None and app.budget is not None:
        return app.budget / usable
    whole = _whole(jobs, phases, app)
    types = {job.name: _reference(job, usable, rates, throughput, options) for job in jobs}
    if options.speedup == "paper":
        serial = 0.0
        for phase in whole:
            for task in phase:
                rate = rates.serial(task.job, types[task.job.name])
                serial += task.iterations / rate if rate > 0 else 0.0
        return serial / usable
    seconds = 0.0
    gangs = Gangs(_OnReference(rates, types), ("",))
    for phase in whole:
        part = schedule(phase, (Chunk("", "", usable),), gangs).seconds
        seconds += part if part < inf else 0.0
    return seconds


@dataclass(frozen=True, slots=True)
class _OnReference:
    """Speed on a cluster that is one node of every job's reference type."""

    rates: Rates
    types: Mapping[str, GpuType]

    def __call__(self, job: Job, gang: Sequence[Chunk]) -> float:
        return self.rates.best_placed(job, self.types[job.name], size(gang))


def _reference(job: Job, usable: Gpus, rates: Rates, throughput: Throughput, options: Options) -> GpuType:
    """The stated type, else the one on which the job at its best size is slowest (`paper`: on one GPU)."""
    types = throughput.types(job)
    if options.reference in types:
        return options.reference or ""
    sizes = [1] if options.speedup == "paper" else _turns(job, usable, throughput)

    def peak(gpu_type: GpuType) -> float:
        if options.speedup == "paper":
            return rates.serial(job, gpu_type)
        return max((rates.best_placed(job, gpu_type, n) for n in sizes), default=0.0)

    return min((t for t in types if peak(t) > 0), key=peak, default=types[0] if types else "")


def _turns(job: Job, usable: Gpus, throughput: Throughput) -> list[Gpus]:
    """Sizes of its gangs among which a curve that is straight between its points is highest."""
    sizes = {job.gpus.above(0) or 0, job.gpus.at_most(usable)}
    if job.gpus.allowed is not None:
        sizes.update(job.gpus.allowed)
    for curve in throughput.curves(job).values():
        sizes.update(curve.points)
    return sorted(n for n in sizes if 0 < n <= usable and job.gpus.feasible(n))


def _whole(jobs: Sequence[Job], phases: Sequence[Sequence[Task]], app: App | None) -> list[list[Task]]:
    """The phases with all their work, the part that is done included."""
    if app is None or not app.phases:
        return [[Task(t.job, t.iterations + t.job.work.done) for t in phase] for phase in phases]
    median = next((t.job for phase in reversed(phases) for t in phase), jobs[0])
    full = []
    for stated, phase in zip(app.phases, phases, strict=False):
        members = [t.job for t in phase][: stated.jobs]
        members += [median] * (stated.jobs - len(members))
        full.append([Task(job, stated.iterations) for job in members])
    return full
