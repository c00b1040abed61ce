"""Random snapshots for property tests, and short ways to write small ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from policy import catalogue
from policy.model import (
    App,
    Cluster,
    GpuRange,
    Health,
    Job,
    Limits,
    LossForecast,
    Node,
    Phase,
    Pinning,
    PolicyChoice,
    Provenance,
    Shape,
    Slowdown,
    Snapshot,
    Tenant,
    TypeChoice,
    Work,
)

#: every policy of the catalogue
NAMES = sorted(catalogue.entries())

NO_LIMITS = Limits()
TYPES = ("k80", "p100", "v100")
CURVE = LossForecast("power", {"asymptote": 1.5, "scale": 2.0, "p": 0.5}, (0.1, 0.2))
rates = st.floats(0.01, 1000.0, allow_nan=False).map(lambda x: round(x, 4))
times = st.floats(0.0, 1e6, allow_nan=False).map(lambda x: round(x, 3))


def cluster(*nodes: str, limits: Limits = NO_LIMITS, types: tuple[str, ...] = ()) -> Cluster:
    """`cluster("a1 v100 4", "a2 v100 4 rackA")`."""
    made = []
    for text in nodes:
        name, gpu_type, gpus, *rack = text.split()
        made.append(Node(name, gpu_type, int(gpus), rack[0] if rack else None))
    present = types or tuple(dict.fromkeys(n.gpu_type for n in made))
    return Cluster(tuple(made), limits, present)


def job(name: str, gpus: int | tuple[int, int | None], **more: object) -> Job:
    """A job of its own tenant; `gpus`: a rigid gang, or (min, max)."""
    low, high = (gpus, gpus) if isinstance(gpus, int) else gpus
    defaults: dict[str, object] = {"tenant": name, "app": name, "gpus": GpuRange(high or low, low, high)}
    return Job(name=name, **{**defaults, **more})  # type: ignore[arg-type]


def world(where: Cluster, *jobs: Job, tenants: tuple[Tenant, ...] | None = None, **more: object) -> Snapshot:
    """A snapshot with a tenant of weight 1 for everyone who is named."""
    named = tenants if tenants is not None else tuple(Tenant(t) for t in dict.fromkeys(j.tenant for j in jobs))
    return Snapshot(cluster=where, jobs=jobs, tenants=named, **more)  # type: ignore[arg-type]


def sublinear(speed: float, exponent: float, most: int) -> dict[int, float]:
    """A concave curve, speed * n ** exponent."""
    return {n: speed * n**exponent for n in range(1, most + 1)}


def choosy(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same with jobs that ask for shapes and types, some of them alike and some not, and nodes with features."""
    rng = Random(seed)
    named = tuple(replace(n, features=rng.choice(((), ("ib",), ("ib", "nvme")))) for n in snapshot.cluster.nodes)
    jobs = []
    for job in snapshot.jobs:
        even = [n for n in (1, 2, 3, 4) if job.gpus.rigid and job.gpus.min % n == 0]
        nodes_or_none = rng.choice((None, *even))
        shape = Shape(
            nodes=nodes_or_none,
            gpus_per_node=rng.choice((None, job.gpus.min // nodes_or_none)) if nodes_or_none else None,
            cpus_per_node=rng.choice((None, 4.0)),
            memory_per_node=rng.choice((None, 2**30)),
            features=rng.choice(((), (), ("ib",))),
            exclusive=rng.random() < 0.2,
        )
        choice = rng.choice(
            (
                TypeChoice(require=TYPES[:1]),
                TypeChoice(prefer=TYPES[1:]),
                TypeChoice(forbid=TYPES[:1]),
                TypeChoice(require=("a100",)),
            )
        )
        shape_or_none, choice_or_none = rng.choice(((shape, None), (None, choice), (shape, choice), (None, None)))
        jobs.append(replace(job, shape=shape_or_none, gpu_types=choice_or_none))
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=named), jobs=tuple(jobs))


@st.composite
def gpu_ranges(draw: st.DrawFn, most: int = 8) -> GpuRange:
    kind = draw(st.sampled_from(("rigid", "range", "open", "allowed")))
    if kind == "allowed":
        sizes = tuple(sorted(draw(st.sets(st.integers(1, most), min_size=1, max_size=4))))
        return GpuRange(draw(st.sampled_from(sizes)), sizes[0], sizes[-1], sizes)
    low = draw(st.integers(1, most))
    if kind == "rigid":
        return GpuRange(low, low, low)
    high = None if kind == "open" else draw(st.integers(low, most))
    return GpuRange(draw(st.integers(low, high or most)), low, high)


@st.composite
def curves(draw: st.DrawFn, *, concave: bool = False) -> dict[int, float]:
    if concave:
        speed, exponent = draw(st.floats(0.1, 10)), draw(st.floats(0.2, 0.999))
        return sublinear(speed, exponent, draw(st.integers(1, 16)))
    points = draw(st.dictionaries(st.integers(1, 16), rates, min_size=1, max_size=5))
    return dict(sorted(points.items()))


@st.composite
def nodes(draw: st.DrawFn, types: tuple[str, ...], *, plain: bool) -> tuple[Node, ...]:
    made = []
    for i in range(draw(st.integers(0 if not plain else 1, 6))):
        gpus = draw(st.integers(0 if not plain else 1, 8))
        made.append(
            Node(
                name=f"n{i}",
                gpu_type=draw(st.sampled_from(types)),
                gpus=gpus,
                rack=draw(st.sampled_from((None, "r1", "r2"))),
                health=Health.UP if plain else draw(st.sampled_from((*[Health.UP] * 4, Health.DRAIN, Health.DOWN))),
                foreign=0 if plain else draw(st.integers(0, gpus) | st.just(0)),
                cpus=None if plain else draw(st.none() | st.integers(0, 64).map(float)),
                memory=None if plain else draw(st.none() | st.integers(0, 2**36)),
            )
        )
    return tuple(made)


@st.composite
def snapshots(draw: st.DrawFn, *, plain: bool = False, concave: bool = False, most_jobs: int = 6) -> Snapshot:
    """Any snapshot; `plain`: healthy nodes, no side constraints; `concave`: every speed known, curves concave."""
    types = draw(st.sampled_from((TYPES[:1], TYPES[:2], TYPES)))
    where = draw(nodes(types, plain=plain))
    present = [t for t in types if any(n.gpu_type == t for n in where)]
    listed = tuple(draw(st.permutations(sorted(set(present) | set(draw(st.sets(st.sampled_from(types))))))))
    limits = Limits()
    if not plain:
        limits = Limits(draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(tuple(Pinning))))
    tenants = tuple(
        Tenant(
            f"t{i}",
            1.0 if plain else draw(st.sampled_from((1.0, 1.0, 2.0, 0.5))),
            None if plain else draw(st.none() | st.none() | st.integers(0, 12)),
        )
        for i in range(draw(st.integers(1, 3)))
    )
    room = {n.name: n.gpus - n.foreign for n in where}
    jobs = []
    for i in range(draw(st.integers(0, most_jobs))):
        jobs.append(draw(_jobs(f"j{i}", tenants, types, room, plain=plain, concave=concave)))
    apps = () if plain else draw(st.just(()) | st.just((App("a", "hyperband", 16.0, 8, (Phase(4, 10.0),)),)))
    active = () if plain else tuple(sorted(draw(st.lists(st.tuples(times, st.integers(0, 9)), max_size=3))))
    return Snapshot(
        cluster=Cluster(where, limits, listed),
        jobs=tuple(jobs),
        tenants=tenants,
        now_s=draw(times),
        apps=apps,
        active_apps=active,
        state=draw(st.sampled_from(({}, {"passes": {"t0": 1.5}, "list": [1, None, "x"]}))),
        policy=draw(st.sampled_from((None, PolicyChoice("fifo"), PolicyChoice("max-min", {"over": "job"})))),
    )


@st.composite
def _jobs(
    draw: st.DrawFn,
    name: str,
    tenants: tuple[Tenant, ...],
    types: tuple[str, ...],
    room: dict[str, int],
    *,
    plain: bool,
    concave: bool,
) -> Job:
    tables = st.dictionaries(st.sampled_from(types), curves(concave=concave), min_size=1 if concave else 0, max_size=3)
    allocation: dict[str, int] = {}
    lease: dict[str, tuple[float, ...]] = {}
    for node in draw(st.sets(st.sampled_from(sorted(room)), max_size=2)) if room else ():
        if room[node] > 0:
            allocation[node] = draw(st.integers(1, room[node]))
            room[node] -= allocation[node]
            if draw(st.booleans()):
                lease[node] = tuple(sorted(draw(times) for _ in range(allocation[node])))
    total = draw(st.none() | times)
    throughput = draw(tables)
    side: dict[str, object] = {}
    if not plain:
        side = {
            "cpus_per_gpu": draw(st.none() | st.integers(1, 8).map(float)),
            "memory_per_gpu": draw(st.none() | st.integers(1, 2**34)),
            "known": draw(st.booleans()),
            "model": draw(st.none() | st.just("resnet50")),
            "provenance": {t: draw(st.sampled_from(tuple(Provenance))) for t in throughput},
            "slowdown": draw(st.just(Slowdown()) | st.just(Slowdown(1.0, 1.5, 2.0))),
            "loss": tuple(draw(st.lists(st.tuples(times, times), max_size=2))),
            "loss_forecast": draw(st.none() | st.just(CURVE)),
            "restart_cost_s": draw(st.none() | times),
            "attained": draw(st.dictionaries(st.sampled_from(types), times, max_size=2)),
        }
    return Job(
        name=name,
        tenant=draw(st.sampled_from(tenants)).name,
        app=draw(st.sampled_from((name, "a"))),
        gpus=draw(gpu_ranges()),
        submitted_s=draw(st.sampled_from((0.0, 1.0, 2.5))),
        work=Work(total, 0.0 if total is None else round(total * draw(st.sampled_from((0.0, 0.5, 1.0))), 3)),
        throughput=throughput,
        allocation=allocation,
        lease_until=lease,
        **side,  # type: ignore[arg-type]
    )
