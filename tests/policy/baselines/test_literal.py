"""Baselines against their papers' rules written out, on small random clusters of one node.

Jobs are elastic or rigid, weights and attained service differ; what is compared is who gets how many GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from policy.decide import decide
from policy.model import Cluster, Decision, GpuRange, Job, LossForecast, Node, Snapshot, Tenant, Work

NOW, SEEDS = 10_000.0, range(60)
Count = dict[str, int]


def instance(seed: int) -> Snapshot:
    random = Random(seed)
    gpus, jobs = random.randint(1, 6), list[Job]()
    for i in range(random.randint(1, 4)):
        low = random.randint(1, min(3, gpus))
        high = random.choice((low, random.randint(low, 6)))
        bend, speed = random.choice((0.3, 0.6, 0.9, 1.0)), random.choice((0.3, 1.0, 5.0))
        total = random.choice((100.0, 400.0, 2000.0))
        jobs.append(
            Job(
                f"j{i}",
                f"t{random.randint(0, 1)}",
                f"a{random.randint(0, 1)}",
                GpuRange(random.randint(low, min(high, gpus)), low, high),
                random.choice((0.0, 5.0, 10.0)),
                Work(total, total * random.choice((0.0, 0.25, 0.5))),
                {"g": {n: speed * n**bend for n in range(1, 7)}},
                attained={"g": random.choice((0.0, 100.0, 3000.0, 4000.0, 9000.0))},
                loss_forecast=LossForecast("power", {"asymptote": 0.1, "scale": random.choice((2.0, 9.0)), "p": 0.5}),
                cpus_per_gpu=random.choice((1.0, 2.0, 4.0)),
            )
        )
    tenants = (Tenant("t0", random.choice((1.0, 2.0, 3.0))), Tenant("t1"))
    return Snapshot(Cluster((Node("n", "g", gpus, cpus=24.0),), gpu_types=("g",)), tuple(jobs), tenants, NOW)


def counts(decision: Decision) -> Count:
    return {name: sum(place.values()) for name, place in decision.allocation.items()}


def line(job: Job) -> tuple[float, str]:
    return (job.submitted_s, job.name)


def attained(job: Job) -> float:
    return job.attained["g"]


def left_s(job: Job) -> float:
    return (job.work_left or 0.0) / job.throughput["g"][job.gpus.requested]


def walked(snapshot: Snapshot, order: Sequence[Job]) -> tuple[Count, int]:
    """Gangs as requested in this order, who does not fit is skipped; and what is left."""
    free, out = snapshot.cluster.nodes[0].gpus, dict[str, int]()
    for job in order:
        out[job.name] = job.gpus.requested if job.gpus.requested <= free else 0
        free -= out[job.name]
    return out, free


def tiresias_queue(job: Job) -> int:
    """Two queues by GPUs x time; back to the first after waiting eight times as long as it ran."""
    waited, ran = NOW - job.submitted_s, attained(job) / job.gpus.requested
    return 1 if attained(job) < 3600 or waited >= 8 * ran else 2


ORDERS: dict[tuple[str, str], Callable[[Snapshot, Job], float]] = {
    ("fifo", ""): lambda s, j: 0.0,
    ("srtf", ""): lambda s, j: left_s(j),
    ("srsf", ""): lambda s, j: left_s(j) * j.gpus.requested,
    ("las", "job"): lambda s, j: attained(j),
    ("las", "app"): lambda s, j: sum(attained(o) for o in s.jobs if o.app == j.app),
    ("tiresias-l", ""): lambda s, j: tiresias_queue(j),
}


@pytest.mark.parametrize(("policy", "scope"), ORDERS)
def test_an_order_is_walked_from_its_head(policy: str, scope: str) -> None:
    for seed in SEEDS:
        snapshot = instance(seed)
        order = sorted(snapshot.jobs, key=lambda j: (ORDERS[policy, scope](snapshot, j), *line(j)))
        expected, free = walked(snapshot, order)
        if policy == "fifo":  # nobody overtakes the head
            free = snapshot.cluster.nodes[0].gpus
            stopped = next((i for i, j in enumerate(order) if (free := free - j.gpus.requested) < 0), len(order))
            expected = {j.name: j.gpus.requested if i < stopped else 0 for i, j in enumerate(order)}
        assert counts(decide(snapshot, policy, {"scope": scope} if scope else {})) == expected, seed


@pytest.mark.parametrize(("policy", "service"), [("srtf-e", False), ("srsf-e", True)])
def test_the_elastic_forms_hand_what_is_left_to_the_largest_gain(policy: str, service: bool) -> None:
    compared = 0
    for seed in SEEDS:
        snapshot = instance(seed)
        order = sorted(snapshot.jobs, key=lambda j: (left_s(j) * (j.gpus.requested if service else 1), *line(j)))
        expected, free = walked(snapshot, order)

        def gain(job: Job, has: int) -> float:
            rates = job.throughput["g"]
            return (rates[has + 1] - rates[has]) / rates[1]

        while free:
            could = [j for j in snapshot.jobs if 0 < expected[j.name] < (j.gpus.max or 0)]
            if not could:
                break
            best = min(could, key=lambda j: (-round(gain(j, expected[j.name]), 12), *line(j)))
            expected[best.name] += 1
            free -= 1
        if all(expected[j.name] or j.gpus.min > free for j in snapshot.jobs):  # else a waiting one runs smaller
            compared += 1
            assert counts(decide(snapshot, policy)) == expected, seed
    assert compared > len(SEEDS) / 2


def test_drf_serves_the_smallest_dominant_share() -> None:
    """Algorithm 1 over GPUs and CPUs, by weight, whole gangs, whoever does not fit is passed over."""
    for seed in SEEDS:
        snapshot = instance(seed)
        (node,), weight = snapshot.cluster.nodes, {t.name: t.weight for t in snapshot.tenants}
        total = {"gpus": float(node.gpus), "cpus": node.cpus or 0.0}
        used = {t: dict.fromkeys(total, 0.0) for t in weight}
        waiting, expected = sorted(snapshot.jobs, key=line), dict.fromkeys((j.name for j in snapshot.jobs), 0)
        while waiting:
            heads = [next(j for j in waiting if j.tenant == t) for t in {j.tenant for j in waiting}]
            job = min(heads, key=lambda j: (max(used[j.tenant][r] / n for r, n in total.items()) / weight[j.tenant],
                                            *line(j)))  # fmt: skip
            waiting.remove(job)
            wants = {"gpus": float(job.gpus.requested), "cpus": job.gpus.requested * (job.cpus_per_gpu or 0.0)}
            if all(sum(u[r] for u in used.values()) + wants[r] <= total[r] for r in total):
                expected[job.name] = job.gpus.requested
                used[job.tenant] = {r: used[job.tenant][r] + wants[r] for r in total}
        assert counts(decide(snapshot, "drf")) == expected, seed


def test_slaq_gives_each_gpu_to_the_loss_that_falls_most() -> None:
    """Smallest gangs by predicted fall, then GPU by GPU; a fall is in parts of the job's steepest so far."""
    for seed in SEEDS:
        snapshot = instance(seed)
        jobs = [replace(j, cpus_per_gpu=None, work=replace(j.work, total=None)) for j in snapshot.jobs]
        snapshot = replace(snapshot, jobs=tuple(jobs))

        def loss(job: Job, at: float) -> float:
            assert job.loss_forecast is not None
            p = job.loss_forecast.parameters
            return float(p["asymptote"] + p["scale"] * max(at, 1e-9) ** -p["p"])

        def fall(job: Job, gpus: int) -> float:
            rates, done = job.throughput["g"], job.work.done
            step = max(done, 100.0) / 100
            steepest = (loss(job, step) - loss(job, 2 * step)) / step
            end = done + (rates[gpus] * 180 if gpus else 0.0)
            return (loss(job, done) - loss(job, end)) / (steepest * rates[job.gpus.min] * 180)

        free, expected = snapshot.cluster.nodes[0].gpus, dict.fromkeys((j.name for j in jobs), 0)
        for job in sorted(jobs, key=lambda j: (-float(f"{fall(j, j.gpus.min) / j.gpus.min:.12g}"), *line(j))):
            if job.gpus.min <= free:
                expected[job.name] = job.gpus.min
                free -= job.gpus.min
        while could := [j for j in jobs if free and 0 < expected[j.name] < (j.gpus.max or 0)]:
            best = min(
                could,
                key=lambda j: (-float(f"{fall(j, expected[j.name] + 1) - fall(j, expected[j.name]):.12g}"), *line(j)),
            )
            expected[best.name] += 1
            free -= 1
        assert counts(decide(snapshot, "slaq")) == expected, seed
