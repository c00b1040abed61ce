"""How long does one round take on 10,000 jobs and 10,000 GPUs, for every policy that solves no program?

    python benchmarks/round_greedy.py [--policies fifo,max-min] [--repeat 5] [--out FILE]

A round is `policy.decide.decide`: the policy, the check of its proposal, a reason for every job and the whole
certificate. The floor, in the same run, is a bare sort of the same jobs by (submitted, name). Three snapshots:

* rigid: gangs of 1 to 32 GPUs, three times as many as fit; a third of the cluster's GPUs are held by running ones;
* elastic: the same jobs, each from 1 GPU up to what it asks for;
* mixed: two GPU types and both kinds of jobs.

CPU seconds of this process (the machine may be shared), the fastest of the repetitions. Goal: below 1 s.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from policy.catalogue import entries
from policy.contract import Context
from policy.decide import choose, decide, propose
from policy.model import Cluster, GpuRange, Job, Node, Snapshot, Tenant, Work
from policy.places.placement import Placer
from policy.throughput import Throughput

ROOT = Path(__file__).resolve().parent.parent
#: Policies that solve mathematical programs have benchmarks of their own.
PROGRAMS = ("themis", "oef-", "gavel-")
JOBS, GPUS_A_NODE = 10_000, 8
SIZES = (1, 1, 1, 1, 2, 2, 4, 8, 16, 32)


def tables() -> list[dict[str, dict[int, float]]]:
    """Ten models: speeds and scaling curves that differ."""
    rng = Random(1)
    out = []
    for _ in range(10):
        speed, exponent, ratio = rng.uniform(0.5, 20), rng.uniform(0.6, 0.98), rng.uniform(1.1, 5)
        points = (1, 2, 4, 8, 16, 32)
        slow = {n: speed * n**exponent for n in points}
        out.append({"k80": slow, "v100": {n: r * ratio for n, r in slow.items()}})
    return out


def snapshot(kind: str, many: int = JOBS) -> Snapshot:
    """`many` jobs on about as many GPUs."""
    rng = Random(7)
    types = ("k80", "v100") if kind == "mixed" else ("v100",)
    count = max(many // GPUS_A_NODE, 2)
    nodes = tuple(
        Node(f"n{i:04}", types[i * len(types) // count], GPUS_A_NODE, rack=f"r{i // 16:02}") for i in range(count)
    )
    models = tables()
    jobs = []
    for i in range(many):
        size = rng.choice(SIZES)
        rigid = kind == "rigid" or (kind == "mixed" and i % 2 == 0)
        jobs.append(
            Job(
                name=f"j{i:05}",
                tenant=f"t{rng.randrange(50):02}",
                app=f"j{i:05}",
                gpus=GpuRange(size, size if rigid else 1, size),
                submitted_s=float(rng.randrange(86_400)),
                work=Work(float(rng.randrange(1_000, 1_000_000)), 0.0),
                throughput=models[rng.randrange(len(models))],
                attained={types[0]: float(rng.randrange(100_000))},
            )
        )
    tenants = tuple(Tenant(f"t{i:02}", 1.0 + i % 3) for i in range(50))
    empty = Snapshot(Cluster(nodes, gpu_types=types), tuple(jobs), tenants, now_s=90_000.0)
    placer = Placer(empty)
    held: dict[str, dict[str, int]] = {}
    for job in jobs[::3]:
        place = placer.best(job, job.gpus.requested)
        if place is not None and placer.free() > 2 * count * GPUS_A_NODE // 3:
            placer.take(job, place)
            held[job.name] = dict(place)
    return replace(empty, jobs=tuple(replace(j, allocation=held.get(j.name, {})) for j in jobs))


def fastest(run: Callable[[], Any], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="", help="comma-separated; default: all without a program")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "round_greedy.json")
    options = parser.parse_args()
    names = [n for n in options.policies.split(",") if n]
    names = names or [n for n in entries() if not n.startswith(PROGRAMS)]
    results: dict[str, Any] = {}
    for kind in ("rigid", "elastic", "mixed"):
        s = snapshot(kind)
        floor = fastest(lambda: sorted(s.jobs, key=lambda j: j.order), 5 * options.repeat)  # noqa: B023
        results[kind] = {"floor_s": round(floor, 5), "policies": {}}
        for name in names:
            entry, given = choose(s, name)
            whole = fastest(lambda: decide(s, name), options.repeat)  # noqa: B023
            alone = fastest(
                lambda: propose(s, entry, given, Context(Throughput(s.cluster))),  # noqa: B023
                options.repeat,
            )
            decision = decide(s, name)
            results[kind]["policies"][name] = {
                "round_s": round(whole, 3),
                "policy_alone_s": round(alone, 3),
                "times_the_floor": round(whole / floor),
                "gpus_given": sum(sum(a.values()) for a in decision.allocation.values()),
                "work_conserving": decision.certificate.work_conserving,
            }
            print(f"{kind:8} {name:18} {whole:6.3f} s ({alone:.3f} s the policy)  {whole / floor:5.0f} x sort")
    slow = [f"{k}/{n}" for k, r in results.items() for n, v in r["policies"].items() if v["round_s"] >= 1.0]
    options.out.write_text(
        json.dumps(
            {
                "question": "CPU seconds of one round of every greedy policy, 10,000 jobs on 10,000 GPUs",
                "command": "python benchmarks/round_greedy.py",
                "machine": {
                    "processor": platform.machine(),
                    "system": platform.system(),
                    "python": platform.python_version(),
                },
                "versions": {p: version(p) for p in ("highspy", "numpy", "pydantic")},
                "goal": "below 1 s",
                "above_the_goal": slow,
                "snapshots": results,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
