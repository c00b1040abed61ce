"""Small worlds for the tests of Themis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from policy import decide as deciding
from policy.contract import Context
from policy.model import Allocation, App, Cluster, GpuRange, Job, Limits, Node, Slowdown, Snapshot, Tenant, Work
from policy.themis.round import Round, run
from policy.throughput import Throughput


def node(name: str, gpus: int, gpu_type: str = "v100", rack: str | None = None, **more: Any) -> Node:
    return Node(name, gpu_type, gpus, rack, **more)


def nodes(count: int, gpus: int, gpu_type: str = "v100", racks: int = 1, prefix: str = "n") -> list[Node]:
    return [node(f"{prefix}{i}", gpus, gpu_type, f"r{i * racks // count}") for i in range(count)]


def job(
    name: str,
    gpus: int | tuple[int, int | None] = (1, None),
    *,
    total: float | None = 1000.0,
    done: float = 0.0,
    rate: float | Mapping[str, Mapping[int, float]] = 1.0,
    allocation: Allocation | None = None,
    lease: Mapping[str, Sequence[float]] | None = None,
    allowed: Sequence[int] | None = None,
    slowdown: Slowdown | None = None,
    **more: Any,
) -> Job:
    if allowed is not None:
        span = GpuRange(max(allowed), min(allowed), max(allowed), tuple(allowed))
    elif isinstance(gpus, int):
        span = GpuRange(gpus, gpus, gpus)
    else:
        span = GpuRange(gpus[1] or gpus[0], gpus[0], gpus[1])
    table = {"v100": {1: rate}} if isinstance(rate, int | float) else rate
    return Job(
        name=name,
        tenant=more.pop("tenant", name),
        app=more.pop("app", name),
        gpus=span,
        submitted_s=more.pop("submitted", 0.0),
        work=Work(total, done),
        throughput=table,
        slowdown=slowdown or Slowdown(),
        allocation=allocation or {},
        lease_until={n: tuple(t) for n, t in (lease or {}).items()},
        **more,
    )


def world(
    machines: Sequence[Node],
    jobs: Sequence[Job],
    *,
    now: float = 0.0,
    apps: Sequence[App] = (),
    active: Sequence[tuple[float, int]] = (),
    tenants: Sequence[Tenant] | None = None,
    limits: Limits | None = None,
    state: Mapping[str, Any] | None = None,
) -> Snapshot:
    types = tuple(dict.fromkeys(n.gpu_type for n in machines))
    owners = [Tenant(t) for t in dict.fromkeys(j.tenant for j in jobs)]
    return Snapshot(
        cluster=Cluster(tuple(machines), limits or Limits(), types),
        jobs=tuple(jobs),
        tenants=tuple(tenants if tenants is not None else owners),
        now_s=now,
        apps=tuple(apps),
        active_apps=tuple(active),
        state=state or {},
    )


def decide(snapshot: Snapshot, seed: int = 0, **options: Any) -> Any:
    return deciding.decide(snapshot, "themis", options, seed=seed)


def rounds(snapshot: Snapshot, seed: int = 0, **options: Any) -> Round:
    full = {"fairness_knob": 0.0, **options}
    return run(snapshot, full, Context(Throughput(snapshot.cluster), seed))


def contended() -> Snapshot:
    return world(nodes(2, 4), [job(f"j{i}", (1, 8), total=500.0 * (i + 1)) for i in range(3)])


@st.composite
def machines(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(1, 3))
    return [
        node(f"n{i}", draw(st.integers(1, 3)), draw(st.sampled_from(["k80", "v100"])), draw(st.sampled_from("rs")))
        for i in range(count)
    ]


@st.composite
def jobs_on(draw: st.DrawFn, nodes: list[Node], now: float, held: bool) -> list[Job]:
    types = sorted({n.gpu_type for n in nodes})
    room = {n.name: n.gpus for n in nodes}
    out = []
    for i in range(draw(st.integers(1, 4))):
        known = draw(st.lists(st.sampled_from(types), min_size=1, max_size=len(types), unique=True))
        rate = {
            t: dict(zip(range(1, 5), sorted(draw(st.lists(st.floats(0.5, 8), min_size=4, max_size=4))), strict=True))
            for t in known
        }
        low = draw(st.integers(1, 3))
        gpus = draw(st.sampled_from([low, (low, None), (low, low + 2), (1, 4)]))
        s = sorted(draw(st.lists(st.floats(1, 2), min_size=2, max_size=2)))
        allocation: dict[str, int] = {}
        lease: dict[str, list[float]] = {}
        if held and draw(st.booleans()):
            able = [n for n in nodes if n.gpu_type in known and room[n.name] > 0]
            if able:
                n = draw(st.sampled_from(able))
                size = GpuRange(1, *(gpus if isinstance(gpus, tuple) else (gpus, gpus))).at_most(room[n.name])
                allocation = {n.name: size} if size else {}
                room[n.name] -= size
                ends = st.sampled_from([now - 1, now + 50])
                lease = {n.name: sorted(draw(st.lists(ends, min_size=size, max_size=size)))} if size else {}
        out.append(
            job(
                f"j{i}",
                gpus,
                total=draw(st.sampled_from([100.0, 1000.0])),
                done=draw(st.sampled_from([0.0, 50.0])),
                rate=rate,
                slowdown=Slowdown(1.0, s[0], s[1]),
                submitted=draw(st.sampled_from([0.0, now / 2, now])),
                allocation=allocation,
                lease=lease,
            )
        )
    return out


@st.composite
def worlds(draw: st.DrawFn, held: bool = True, limits: Limits | None = None) -> Snapshot:
    now = draw(st.sampled_from([0.0, 600.0]))
    nodes = draw(machines())
    return world(nodes, draw(jobs_on(nodes, now, held)), now=now, limits=limits)
