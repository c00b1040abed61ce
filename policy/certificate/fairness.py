"""Sharing incentive, envy, Pareto efficiency and the optimum, between tenants.

With v_i(b) the most that tenant i's jobs make of a bundle b of GPUs (`economy.worth`: GPUs shared over time), u_i
what they make of what they hold now (whole allocations: at their real span; shares: linear), w_i the weights of the
tenants that have work:

- sharing incentive: min over i of u_i / v_i(w_i / W of every GPU type); 1 is exactly the fair share;
- envy: max over pairs (i, j) of v_i(b_j w_i / w_j) - u_i; a bundle no larger than one's own in any type is not envied;
- optimum: v of all jobs together on all GPUs (gangs may span types), an upper bound for every allocation;
- Pareto, of shares: a linear program finds no shares with u at least as large for all tenants and larger in sum;
  of whole allocations: no other sizes (counts by type, placement aside, each job on one type or as it is now) make
  one job faster and none slower.
  An integer program where the linear one does not decide; None when that, too, leaves it open.

Differences below TOLERANCE of the total throughput are the solvers', not the policy's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from policy.certificate.economy import MOST_COLUMNS, Columns, Crowd, Economy, Group, Worth, worth
from policy.certificate.holdings import Holdings
from policy.model import Allocation, Job, JobName, Seconds, Share, Snapshot, Termination, Worst
from policy.throughput import Throughput

TOLERANCE = 1e-6
#: GPUs by type that a job could hold: ((type, GPUs), ...); and several such.
_Bundle = tuple[tuple[int, float], ...]
_Options = tuple[_Bundle, ...]
#: Pairs of tenants compared one by one, and exact evaluations among those that a bound does not rule out.
MOST_PAIRS = 2_000_000
MOST_EXACT = 400
#: Branch-and-bound nodes of the integer program behind Pareto: a bound that is the same on every machine.
MOST_NODES = 2_000


@dataclass(slots=True)
class Fairness:
    sharing_incentive: Worst
    envy: Worst
    pareto: bool | None
    throughput: float
    optimal_throughput: float | None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Tenant:
    name: str
    weight: float
    value: float  #: u
    bundle: tuple[float, ...]
    groups: tuple[Group, ...]
    alike: int  #: tenants with equal groups and weight share this number


def measure(
    snapshot: Snapshot,
    allocation: Mapping[JobName, Allocation],
    shares: Mapping[JobName, Share] | None,
    speeds: Throughput,
    time_limit_s: Seconds | None = None,
    holdings: Holdings | None = None,
) -> Fairness:
    """All of it; `shares` are judged where given, else `allocation`. `holdings`: of who works or has GPUs, where they
    are known already."""
    held: dict[str, int] = {}
    for now in allocation.values():
        for node, gpus in now.items():
            held[node] = held.get(node, 0) + gpus
    economy = Economy(snapshot, speeds, held, fluid=shares is not None)
    kinds = list(map(speeds.kind, snapshot.jobs))
    known = holdings or Holdings(_concerned(snapshot, allocation), allocation, shares, speeds)
    tenants, crowd = _tenants(snapshot, kinds, allocation, known, economy)
    total = sum(t.value for t in tenants)
    notes: list[str] = []
    entitled = _entitled(tenants, economy)
    optimum = economy.most(crowd)
    if shares is None:
        pareto = _pareto_whole(snapshot, kinds, allocation, economy, time_limit_s)
    else:
        pareto = _pareto_shares(tenants, economy, total, time_limit_s)
    if pareto is None:
        notes.append("pareto: left open, the program is too large or ran out of time")
    if optimum is None:
        notes.append("optimal throughput: left out, the program is too large")
    elif shares is None and total > optimum * (1 + TOLERANCE):
        # The optimum is over gangs of one GPU type each; one that spans types can be faster still.
        optimum = total
        notes.append("a gang that spans GPU types is faster than any of one type: it counts as the optimum")
    incentive = _incentive(tenants, entitled, notes)
    envy = _envy(tenants, entitled, total, notes)
    if shares is not None:
        notes.append("fairness is judged on the fractional shares, before rounding to whole GPUs")
    if incentive.worst < 1 - TOLERANCE:
        notes.append(f"sharing incentive fails for {incentive.who}: {incentive.worst:.4g} of its fair share")
    if envy.who is not None:
        notes.append(f"{envy.who[0]} envies {envy.who[1]} by {envy.worst:.4g}")
    return Fairness(incentive, envy, pareto, total, optimum, notes)


def _concerned(snapshot: Snapshot, allocation: Mapping[JobName, Allocation]) -> list[Job]:
    """Who has work, or holds something."""
    return [j for j in snapshot.jobs if j.work.left != 0 or allocation.get(j.name)]


def _tenants(
    snapshot: Snapshot,
    kinds: Sequence[int],
    allocation: Mapping[JobName, Allocation],
    holdings: Holdings,
    economy: Economy,
) -> tuple[list[_Tenant], Crowd]:
    """The tenants that have work, or hold something; and all jobs that have work, by kind."""
    crowds: dict[str, Crowd] = {}
    works: list[tuple[str, int]] = []
    jobs: list[Job] = []
    for job, kind in zip(snapshot.jobs, kinds, strict=True):
        if job.work.left != 0:
            works.append((job.tenant, kind))
            jobs.append(job)
        elif allocation.get(job.name):
            crowds[job.tenant] = {}
    first = dict(zip(reversed(works), reversed(jobs), strict=True))
    everybody: Crowd = {}
    for (tenant, kind), count in Counter(works).items():
        job = first[tenant, kind]
        crowds.setdefault(tenant, {})[kind] = job, count
        known, before = everybody.get(kind, (job, 0))
        everybody[kind] = known, before + count
    alike: dict[object, int] = {}
    out = []
    for who in snapshot.tenants:
        if who.name not in crowds:
            continue
        groups = tuple(economy.groups(crowds[who.name]))
        key = (tuple(sorted((id(g.modes), g.jobs) for g in groups)), who.weight)
        number = alike.setdefault(key, len(alike))
        had, value = economy.bundle(holdings.bundles.get(who.name, {})), holdings.values.get(who.name, 0.0)
        out.append(_Tenant(who.name, who.weight, value, had, groups, number))
    return out, everybody


# --- sharing incentive and envy ----------------------------------------------------------------------------


def _entitled(tenants: list[_Tenant], economy: Economy) -> dict[int, Worth | None]:
    """What each kind of tenant would make of its weighted part of the cluster."""
    weights = sum(t.weight for t in tenants)
    out: dict[int, Worth | None] = {}
    for t in tenants:
        if t.alike not in out:
            out[t.alike] = worth(t.groups, [c * t.weight / weights for c in economy.capacity])
    return out


def _incentive(tenants: list[_Tenant], entitled: Mapping[int, Worth | None], notes: list[str]) -> Worst:
    worst, who, left_out = 1.0, None, 0
    for t in tenants:
        fair = entitled[t.alike]
        if fair is None:
            left_out += 1
        elif fair.value > 0:
            ratio = t.value / fair.value
            if who is None or ratio < worst:
                worst, who = ratio, t.name
    if left_out:
        notes.append(f"sharing incentive: left out for {left_out} tenants, their programs are too large")
    return Worst(worst, who)


def _poorest(tenants: Iterable[_Tenant]) -> list[_Tenant]:
    """Of each kind the one that has least."""
    out: dict[int, _Tenant] = {}
    for t in sorted(tenants, key=lambda t: (t.alike, t.value)):
        out.setdefault(t.alike, t)
    return list(out.values())


def _envy(tenants: list[_Tenant], entitled: Mapping[int, Worth | None], total: float, notes: list[str]) -> Worst:
    """The worst pair. Prices bound what a bundle could be worth, so that few pairs need a program of their own."""
    tolerance = TOLERANCE * max(total, 1.0)
    wanted: dict[tuple[float, ...], str] = {}
    for j in tenants:
        wanted.setdefault(tuple(x / j.weight for x in j.bundle), j.name)
    enviers: dict[object, _Tenant] = {}
    for i in tenants:
        enviers.setdefault((i.alike, i.value, i.bundle), i)
    left = list(enviers.values())
    if len(left) * len(wanted) > MOST_PAIRS:
        left = _poorest(left)[: max(MOST_PAIRS // max(len(wanted), 1), 1)]
        notes.append(f"envy: only {len(left)} tenants compared with all, of each kind the one that has least")
    pairs: list[tuple[float, int, _Tenant, tuple[float, ...], str]] = []
    for i in left:
        fair = entitled[i.alike]
        if fair is None or not i.groups:
            continue
        for unit, name in wanted.items():
            bundle = tuple(x * i.weight for x in unit)
            most = fair.bound(bundle) - i.value
            if most > tolerance and any(b > o * (1 + 1e-9) + 1e-12 for b, o in zip(bundle, i.bundle, strict=True)):
                pairs.append((-most, len(pairs), i, bundle, name))
    pairs.sort(key=lambda p: p[:2])
    worst, who = 0.0, None
    for tried, (bound, _, i, bundle, name) in enumerate(pairs):
        if -bound <= worst:
            break
        if tried >= MOST_EXACT:
            notes.append(f"envy: at least this; pairs left out could envy by up to {-bound:.4g}")
            break
        exact = worth(i.groups, bundle)
        if exact is not None and exact.value - i.value > max(worst, tolerance):
            worst, who = exact.value - i.value, (i.name, name)
    return Worst(worst, who)


# --- Pareto ------------------------------------------------------------------------------------------------


def _pareto_shares(tenants: list[_Tenant], economy: Economy, total: float, time_limit_s: Seconds | None) -> bool | None:
    """False if some shares make no tenant's throughput smaller and the sum larger."""
    alike: dict[tuple[int, float], tuple[_Tenant, int]] = {}
    for t in tenants:
        key = (t.alike, t.value)
        alike[key] = (t, alike[key][1] + 1 if key in alike else 1)
    if sum(len(g.modes) for t, _ in alike.values() for g in t.groups) > MOST_COLUMNS:
        return None
    program = Columns(economy.capacity)
    for tenant, count in alike.values():
        own = program.row(low=count * tenant.value - TOLERANCE * 1e-3)
        for g in tenant.groups:
            bounded = g.modes[0].part > 0
            row = program.row(up=float(g.jobs * count)) if bounded else -1
            for m in g.modes:
                part = [(row, m.part)] if bounded else []
                program.column(m.value, [(m.gpu_type, m.gpus), (own, m.value), *part])
    if not program.objective:
        return True
    found = program.run(time_limit_s=time_limit_s)
    if found.termination is not Termination.OPTIMAL or found.objective is None:
        return None
    return found.objective <= total + TOLERANCE * max(total, 1.0)


def _pareto_whole(
    snapshot: Snapshot,
    kinds: Sequence[int],
    allocation: Mapping[JobName, Allocation],
    economy: Economy,
    time_limit_s: Seconds | None,
) -> bool | None:
    """False if other counts make one job faster and none slower.

    It is enough to look, for each job and type, at the smallest size that keeps its speed and the smallest that
    raises it: if any improvement exists, one exists with these. Only a job that spans types now may do so.
    """
    alike: dict[tuple[int, tuple[float, ...]], tuple[Job, int]] = {}
    for job, kind in zip(snapshot.jobs, kinds, strict=True):
        now = allocation.get(job.name)
        if not now and job.work.left == 0:
            continue
        key = (kind, economy.held(now) if now else economy.nothing)
        known = alike.get(key)
        alike[key] = (job, 1) if known is None else (known[0], known[1] + 1)
    count: dict[tuple[_Options, _Options], int] = {}
    for (_, has), (job, jobs) in alike.items():
        options = _options(job, has, economy)
        count[options] = count.get(options, 0) + jobs
    if len(economy.capacity) == 1:
        least = {options: min(sum(n for _, n in stay) for stay in options[0]) for options in count}
        spare = economy.capacity[0] - sum(least[options] * jobs for options, jobs in count.items())
        return not any(n - least[options] <= spare + 1e-9 for options in count for more in options[1] for _, n in more)
    return _improvable(count, economy.capacity, time_limit_s)


def _options(job: Job, has: tuple[float, ...], economy: Economy) -> tuple[_Options, _Options]:
    """Bundles that keep the job's speed, and bundles that raise it: the smallest size of each type."""
    total = sum(has)
    mine = tuple((t, x) for t, x in enumerate(has) if x)
    now = min((economy.at_best(job, t, total) for t, _ in mine), default=0.0)
    stay: dict[int, float] = {}
    more: dict[int, float] = {}
    for mode in economy.modes(job):
        t = mode.gpu_type
        if t not in more and mode.value > now * (1 + 1e-9) + 1e-12:
            more[t] = float(_smallest(job, t, mode.gpus, now, economy, strict=True))
        if t not in stay and mine and mode.value >= now * (1 - 1e-9):
            stay[t] = float(_smallest(job, t, mode.gpus, now, economy, strict=False))
    kept: list[_Bundle] = [((t, n),) for t, n in stay.items() if len(mine) != 1 or t != mine[0][0] or n < total]
    return (mine, *kept), tuple(((t, n),) for t, n in more.items())


def _smallest(job: Job, gpu_type: int, most: float, value: float, economy: Economy, *, strict: bool) -> int:
    """The smallest feasible size, up to `most` (a mode that will do), whose value is above (or at least) `value`."""
    below = [n for n in economy.sizes(job, gpu_type) if n < most]
    low, high = (below[-1] if below else 0), int(most)

    def enough(n: int) -> bool:
        v = economy.at_best(job, gpu_type, n)
        return v > value * (1 + 1e-9) + 1e-12 if strict else v >= value * (1 - 1e-9)

    # Between two sizes of `sizes` the curve is a line that rises to `most`: bisect for its first size that will do.
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return next((n for n in range(high, int(most) + 1) if job.gpus.feasible(n)), int(most))


def _improvable(
    count: Mapping[tuple[_Options, _Options], int], capacity: list[float], time_limit_s: Seconds | None
) -> bool | None:
    program = Columns(capacity)
    for (stay, more), jobs in count.items():
        row = program.row(low=float(jobs), up=float(jobs))
        for better, options in ((0.0, stay), (1.0, more)):
            for bundle in options:
                program.column(better, [*bundle, (row, 1.0)])
    if not any(program.objective):
        return True
    if len(program.objective) > MOST_COLUMNS:
        return None
    relaxed = program.run(time_limit_s=time_limit_s)
    if relaxed.termination is not Termination.OPTIMAL or relaxed.objective is None:
        return None
    if relaxed.objective < TOLERANCE:
        return True
    exact = program.run(integer=True, time_limit_s=time_limit_s, node_limit=MOST_NODES)
    if exact.has_solution and exact.objective is not None and exact.objective > 0.5:
        return False
    return True if exact.termination is Termination.OPTIMAL else None
