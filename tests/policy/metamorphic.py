"""Changes of a snapshot after which a decision must change in a known way, or not at all. Any policy's tests use them.

Each takes a snapshot and returns the changed one, and how an allocation of the old one reads in the new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from policy import catalogue
from policy.decide import decide
from policy.model import Allocation, Decision, GpuRange, Health, Job, Node, Snapshot, Tenant, Work

Translate = Callable[[Mapping[str, Allocation]], dict[str, Allocation]]


def counts(decision: Decision) -> dict[str, int]:
    return {name: sum(a.values()) for name, a in decision.allocation.items()}


def renamed(s: Snapshot) -> tuple[Snapshot, Translate]:
    """New names for nodes, jobs, tenants and apps, in the same alphabetical order (ties go by name)."""

    def other(name: str) -> str:
        return "renamed-" + name

    def job(j: Job) -> Job:
        return replace(
            j,
            name=other(j.name),
            tenant=other(j.tenant),
            app=other(j.app),
            allocation={other(n): g for n, g in j.allocation.items()},
            lease_until={other(n): t for n, t in j.lease_until.items()},
        )

    nodes = tuple(replace(n, name=other(n.name)) for n in s.cluster.nodes)
    changed = replace(
        s,
        cluster=replace(s.cluster, nodes=nodes),
        jobs=tuple(job(j) for j in s.jobs),
        tenants=tuple(replace(t, name=other(t.name)) for t in s.tenants),
        apps=tuple(replace(a, name=other(a.name)) for a in s.apps),
    )
    return changed, lambda a: {other(j): {other(n): g for n, g in p.items()} for j, p in a.items()}


def reordered(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Jobs and tenants listed the other way round: order in the file means nothing."""
    return replace(s, jobs=s.jobs[::-1], tenants=s.tenants[::-1]), dict


def in_other_units(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Iterations counted by the thousand."""

    def job(j: Job) -> Job:
        total = None if j.work.total is None else j.work.total / 1024
        return replace(
            j,
            work=replace(j.work, total=total, done=j.work.done / 1024),
            throughput={t: {n: r / 1024 for n, r in c.items()} for t, c in j.throughput.items()},
        )

    return replace(s, jobs=tuple(job(j) for j in s.jobs)), dict


def with_a_node_of_no_use(s: Snapshot) -> tuple[Snapshot, Translate]:
    """One more node that has no GPUs."""
    gpu_type = s.cluster.nodes[0].gpu_type if s.cluster.nodes else "none"
    nodes = (*s.cluster.nodes, Node("zzz-empty", gpu_type, 0))
    types = s.cluster.gpu_types if s.cluster.nodes else (*s.cluster.gpu_types, gpu_type)
    return replace(s, cluster=replace(s.cluster, nodes=nodes, gpu_types=types)), dict


CHANGES = (renamed, reordered, in_other_units, with_a_node_of_no_use)

NEVER = GpuRange(1000, 1000, 1000)


def with_a_job_that_can_never_run(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Of a tenant that has no other."""
    job = Job("aa-never", "zz-new", "aa-never", NEVER, 0.0, Work(10.0))
    return replace(s, jobs=(job, *s.jobs), tenants=(*s.tenants, Tenant("zz-new"))), _without("aa-never")


def with_one_more_that_can_never_run(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Of a tenant, and of an app, that have others."""
    if not s.jobs:
        return s, dict
    job = replace(s.jobs[0], name="aa-never", gpus=NEVER, work=Work(10.0), allocation={}, lease_until={})
    return replace(s, jobs=(*s.jobs, job)), _without("aa-never")


def with_a_tenant_without_jobs(s: Snapshot) -> tuple[Snapshot, Translate]:
    return replace(s, tenants=(Tenant("aa-empty", 7.0), *s.tenants)), dict


def with_a_node_that_is_down(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Of a type that others are of."""
    node = Node("aa-down", s.cluster.nodes[0].gpu_type if s.cluster.nodes else "k80", 8, "r1", Health.DOWN)
    types = s.cluster.gpu_types if node.gpu_type in s.cluster.gpu_types else (*s.cluster.gpu_types, node.gpu_type)
    return replace(s, cluster=replace(s.cluster, nodes=(node, *s.cluster.nodes), gpu_types=types)), dict


def with_a_type_that_is_down(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Of one that no other node is of, whose speed is known to some jobs."""
    present = {n.gpu_type for n in s.cluster.nodes}
    known = sorted({t for j in s.jobs for t in j.throughput if t not in present})
    node = Node("zz-down", known[0] if known else "zz100", 8, "r9", Health.DOWN)
    types = (node.gpu_type, *(t for t in s.cluster.gpu_types if t != node.gpu_type))
    return replace(s, cluster=replace(s.cluster, nodes=(*s.cluster.nodes, node), gpu_types=types)), dict


def with_weights_doubled(s: Snapshot) -> tuple[Snapshot, Translate]:
    return replace(s, tenants=tuple(replace(t, weight=2 * t.weight) for t in s.tenants)), dict


def in_units_of_their_own(s: Snapshot) -> tuple[Snapshot, Translate]:
    """Iterations of each app counted by another number of them: two apps' iterations are two things."""
    by = {app: 2.0 ** (i % 5 - 2) for i, app in enumerate(sorted({j.app for j in s.jobs}))}

    def job(j: Job) -> Job:
        total = None if j.work.total is None else j.work.total * by[j.app]
        rates = {t: {n: r * by[j.app] for n, r in c.items()} for t, c in j.throughput.items()}
        return replace(j, work=replace(j.work, total=total, done=j.work.done * by[j.app]), throughput=rates)

    apps = tuple(
        replace(a, phases=tuple(replace(p, iterations=p.iterations * by.get(a.name, 1.0)) for p in a.phases))
        for a in s.apps
    )
    return replace(s, jobs=tuple(map(job, s.jobs)), apps=apps), dict


def in_slow_motion(s: Snapshot) -> tuple[Snapshot, Translate]:
    """All takes four times as long; with it go the options of a policy that are times (`slower`)."""

    def job(j: Job) -> Job:
        return replace(
            j,
            submitted_s=j.submitted_s * SLOWER,
            throughput={t: {n: r / SLOWER for n, r in c.items()} for t, c in j.throughput.items()},
            attained={t: gpu_s * SLOWER for t, gpu_s in j.attained.items()},
            lease_until={n: tuple(x * SLOWER for x in until) for n, until in j.lease_until.items()},
            restart_cost_s=None if j.restart_cost_s is None else j.restart_cost_s * SLOWER,
        )

    apps = tuple(replace(a, budget=None if a.budget is None else a.budget * SLOWER) for a in s.apps)
    active = tuple((at_s * SLOWER, n) for at_s, n in s.active_apps)
    return replace(s, jobs=tuple(map(job, s.jobs)), apps=apps, active_apps=active, now_s=s.now_s * SLOWER), dict


SLOWER = 4.0


def slower(policy: str) -> dict[str, float]:
    """The policy's options that are times, so much longer."""
    options = catalogue.find(policy).options
    return {o.name: o.default * SLOWER for o in options if o.unit in ("s", "GPU-s") and o.default is not None}


#: What nothing may depend on, under any policy.
ANYWHERE = (
    renamed,
    reordered,
    with_a_node_of_no_use,
    with_a_job_that_can_never_run,
    with_one_more_that_can_never_run,
    with_a_tenant_without_jobs,
    with_a_node_that_is_down,
    with_a_type_that_is_down,
    with_weights_doubled,
)
#: What nothing may depend on where speeds and lengths are known: what is unknown has a number of some unit.
OF_KNOWN = (in_other_units, in_units_of_their_own, in_slow_motion)


def all_known(s: Snapshot) -> Snapshot:
    """The same with a speed and a length for every job that has none."""
    types = tuple(dict.fromkeys((*s.cluster.gpu_types, "k80", "p100", "v100")))
    table = {t: {1: 1.0 + i, 2: 1.8 + 1.7 * i, 4: 3.1 + 2.9 * i} for i, t in enumerate(types)}
    jobs = (
        replace(
            j,
            throughput=j.throughput or table,
            known=True,
            work=j.work if j.work.total is not None else Work(3000.0 + 97.0 * i, j.work.done),
        )
        for i, j in enumerate(s.jobs)
    )
    return replace(s, jobs=tuple(jobs))


def _without(name: str) -> Translate:
    return lambda allocation: {**allocation, name: {}}


def check(
    s: Snapshot, policy: str, change: Callable[[Snapshot], tuple[Snapshot, Translate]], **options: object
) -> None:
    """The decision on the changed snapshot is the translated one."""
    changed, translate = change(s)
    then = slower(policy) if change is in_slow_motion else {}
    before, after = decide(s, policy, options), decide(changed, policy, {**then, **options})
    assert after.allocation == translate(before.allocation), policy
