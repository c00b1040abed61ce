"""Sharing incentive, envy, Pareto efficiency and the optimum, between tenants.

With v_i(b) the most that tenant i's jobs make of a bundle b of GPUs (`economy.worth`: GPUs shared over time), u_i
what they make of what they hold now (whole allocations: at their real span; shares: linear), w_i the weights of the
tenants that have work:

- sharing incentive: min over i of u_i / v_i(w_i / W of every GPU type); 1 is exactly the fair share;
- envy: max over pairs (i, j) of v_i(b_j w_i / w_j) - u_i; a bundle no larger than one's own in any type is not envied;
- optimum: v of all jobs together on all GPUs, an upper bound for every allocation;
- Pareto, of shares: a linear program finds no shares with u at least as large for all tenants and larger in sum;
  of whole allocations: no other sizes (counts by type, placement aside) make one job faster and none slower.
  An integer program where the linear one does not decide; None when that, too, leaves it open.

Differences below TOLERANCE of the total throughput are the solvers', not the policy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from policy.certificate.economy import MOST_COLUMNS, Economy, Group, Worth, worth
from policy.model import Allocation, GpuType, Job, JobName, Seconds, Share, Snapshot, Termination, Worst
from policy.throughput import Throughput

TOLERANCE = 1e-6
#: Sizes by type: (type, GPUs).
_Step = tuple[tuple[int, float], ...]
#: Pairs of tenants compared one by one, and exact evaluations among those that a bound does not rule out.
MOST_PAIRS = 2_000_000
MOST_EXACT = 400


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
) -> Fairness:
    """All of it; `shares` are judged where given, else `allocation`."""
    held: dict[str, int] = {}
    for now in allocation.values():
        for node, gpus in now.items():
            held[node] = held.get(node, 0) + gpus
    economy = Economy(snapshot, speeds, held, fluid=shares is not None)
    tenants = _tenants(snapshot, allocation, shares, economy)
    total = sum(t.value for t in tenants)
    notes: list[str] = []
    entitled = _entitled(tenants, economy)
    optimum = worth(economy.groups(j for j in snapshot.jobs if j.work.left != 0), economy.capacity)
    if shares is None:
        pareto = _pareto_whole(snapshot, allocation, economy, time_limit_s)
    else:
        pareto = _pareto_shares(tenants, economy, total, time_limit_s)
    if pareto is None:
        notes.append("pareto: left open, the program is too large or ran out of time")
    if optimum is None:
        notes.append("optimal throughput: left out, the program is too large")
    incentive = _incentive(tenants, entitled, notes)
    envy = _envy(tenants, entitled, total, notes)
    if shares is not None:
        notes.append("fairness is judged on the fractional shares, before rounding to whole GPUs")
    if incentive.worst < 1 - TOLERANCE:
        notes.append(f"sharing incentive fails for {incentive.who}: {incentive.worst:.4g} of its fair share")
    if envy.who is not None:
        notes.append(f"{envy.who[0]} envies {envy.who[1]} by {envy.worst:.4g}")
    return Fairness(incentive, envy, pareto, total, None if optimum is None else optimum.value, notes)


def _tenants(
    snapshot: Snapshot,
    allocation: Mapping[JobName, Allocation],
    shares: Mapping[JobName, Share] | None,
    economy: Economy,
) -> list[_Tenant]:
    """The tenants that have work, or hold something."""
    jobs: dict[str, list[Job]] = {}
    for job in snapshot.jobs:
        if job.work.left != 0 or allocation.get(job.name):
            jobs.setdefault(job.tenant, []).append(job)
    alike: dict[object, int] = {}
    out = []
    for tenant in snapshot.tenants:
        if tenant.name not in jobs:
            continue
        bundle: dict[GpuType, float] = {}
        value = 0.0
        for job in jobs[tenant.name]:
            if shares is None:
                now = allocation.get(job.name) or {}
                if not now:
                    continue
                share: Mapping[GpuType, float] = economy.speeds.by_type(now)
                value += economy.speeds.normalised(job, now)
            else:
                share = shares.get(job.name) or {}
                value += economy.speeds.of_share(job, share)
            for t, x in share.items():
                bundle[t] = bundle.get(t, 0.0) + x
        groups = tuple(economy.groups(j for j in jobs[tenant.name] if j.work.left != 0))
        key = (tuple(sorted((id(g.modes), g.jobs) for g in groups)), tenant.weight)
        number = alike.setdefault(key, len(alike))
        out.append(_Tenant(tenant.name, tenant.weight, value, economy.bundle(bundle), groups, number))
    return out


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
        left.sort(key=lambda t: (t.alike, t.value))
        poorest: dict[int, _Tenant] = {}
        for t in left:
            poorest.setdefault(t.alike, t)
        left = list(poorest.values())[: max(MOST_PAIRS // max(len(wanted), 1), 1)]
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
    from policy.solver import maximise_matrix

    low = [-inf] * len(economy.capacity)
    up = list(economy.capacity)
    objective: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for tenant, count in alike.values():
        low.append(count * tenant.value - TOLERANCE * 1e-3)
        up.append(inf)
        own = len(up) - 1
        for g in tenant.groups:
            bounded = g.modes[0].part > 0
            if bounded:
                low.append(-inf)
                up.append(float(g.jobs * count))
            for m in g.modes:
                at = [(m.gpu_type, m.gpus), (own, m.value), *([(len(up) - 1, m.part)] if bounded else [])]
                for row, value in at:
                    rows.append(row)
                    columns.append(len(objective))
                    values.append(value)
                objective.append(m.value)
    if not objective:
        return True
    found = maximise_matrix(objective, rows, columns, values, low, up, time_limit_s=time_limit_s)
    if found.termination is not Termination.OPTIMAL or found.objective is None:
        return None
    return found.objective <= total + TOLERANCE * max(total, 1.0)


def _pareto_whole(
    snapshot: Snapshot, allocation: Mapping[JobName, Allocation], economy: Economy, time_limit_s: Seconds | None
) -> bool | None:
    """False if other counts make one job faster and none slower.

    It is enough to look, for each job and type, at the smallest size that keeps its speed and the smallest that
    raises it: if any improvement exists, one exists with these.
    """
    used = [0.0] * len(economy.capacity)
    least: list[tuple[_Step, _Step]] = []
    for job in snapshot.jobs:
        now = allocation.get(job.name) or {}
        if job.work.left == 0 and not now:
            continue
        by_type = economy.bundle(economy.speeds.by_type(now))
        used = [u + x for u, x in zip(used, by_type, strict=True)]
        least.append(_steps(job, by_type, economy))
    count: dict[tuple[_Step, _Step], int] = {}
    for step in least:
        count[step] = count.get(step, 0) + 1
    if len(economy.capacity) == 1:
        spare = economy.capacity[0] - used[0]
        keep = [min((n for _, n in stay), default=0.0) for stay, _ in least]
        spare += used[0] - sum(keep)
        return not any(n - k <= spare + 1e-9 for (_, ups), k in zip(least, keep, strict=True) for _, n in ups)
    return _improvable(count, economy.capacity, time_limit_s)


def _steps(job: Job, has: tuple[float, ...], economy: Economy) -> tuple[_Step, _Step]:
    """(type, GPUs) that keep the job's speed, and that raise it: the smallest size of each type."""
    total = sum(has)
    now = min((economy.at_best(job, t, total) for t, x in enumerate(has) if x), default=0.0)
    stay: list[tuple[int, float]] = []
    more: list[tuple[int, float]] = []
    if now == 0.0 and total == 0:
        stay.append((-1, 0.0))
    for mode in economy.modes(job):
        t = mode.gpu_type
        if not any(u == t for u, _ in more) and mode.value > now * (1 + 1e-9) + 1e-12:
            more.append((t, float(_smallest(job, t, mode.gpus, now, economy, strict=True))))
        if now > 0 and not any(u == t for u, _ in stay) and mode.value >= now * (1 - 1e-9):
            stay.append((t, float(_smallest(job, t, mode.gpus, now, economy, strict=False))))
    if now > 0 and sum(1 for x in has if x) == 1:
        own = next(t for t, x in enumerate(has) if x)
        if not any(u == own and n <= total for u, n in stay):
            stay = [s for s in stay if s[0] != own] + [(own, total)]
    elif now > 0 or total:
        stay = stay or [(next(t for t, x in enumerate(has) if x), total)]
    return tuple(stay), tuple(more)


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
    count: Mapping[tuple[_Step, _Step], int], capacity: list[float], time_limit_s: Seconds | None
) -> bool | None:
    from policy.solver import maximise_matrix

    objective: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low, up = [-inf] * len(capacity), list(capacity)
    for (stay, more), jobs in count.items():
        low.append(float(jobs))
        up.append(float(jobs))
        for better, options in ((0.0, stay), (1.0, more)):
            for t, n in options:
                if t >= 0:
                    rows.append(t)
                    columns.append(len(objective))
                    values.append(n)
                rows.append(len(up) - 1)
                columns.append(len(objective))
                values.append(1.0)
                objective.append(better)
    if not any(objective):
        return True
    if len(objective) > MOST_COLUMNS:
        return None
    relaxed = maximise_matrix(objective, rows, columns, values, low, up, time_limit_s=time_limit_s)
    if relaxed.termination is not Termination.OPTIMAL or relaxed.objective is None:
        return None
    if relaxed.objective < TOLERANCE:
        return True
    exact = maximise_matrix(
        objective, rows, columns, values, low, up, integer=True, time_limit_s=min(time_limit_s or 5.0, 5.0)
    )
    if exact.has_solution and exact.objective is not None and exact.objective > 0.5:
        return False
    return True if exact.termination is Termination.OPTIMAL else None
