"""How long does AFS-L take by its tournament tree, and beside Algorithm 1 walked literally?

    python benchmarks/afs_tree.py [--literal 1000]

n elastic jobs of one GPU type with concave curves and random lengths on M GPUs. The tree's shares are asserted equal to
the literal walk over all jobs for every GPU, up to --literal jobs. Then n is varied with M = 10,000, and M with
n = 1,000. CPU seconds of the sharing alone; growth exponents are fitted.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
from _record import record

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from policy.afs.afs_l import share
from policy.model import Cluster, GpuRange, Job, Node, Slowdown, Snapshot, Tenant, Work
from policy.parts.ordered import active
from policy.parts.pools import Pools
from policy.throughput import Throughput
from tests.policy.afs.literal import literal


def world(n: int, gpus: int) -> Snapshot:
    draw = Random(n)
    curves = [{k: k**power for k in range(1, 65)} for power in (draw.uniform(0.3, 0.95) for _ in range(40))]
    jobs = tuple(
        Job(
            f"j{i:05}", "t", f"j{i:05}", GpuRange(64, 1, 64), draw.uniform(0, 1e4), Work(draw.uniform(1e3, 1e6)),
            {"v100": draw.choice(curves)}, slowdown=Slowdown(1.0, 1.0, 1.0),
        )
        for i in range(n)
    )  # fmt: skip
    nodes = tuple(Node(f"n{i:05}", "v100", 8) for i in range(gpus // 8))
    return Snapshot(Cluster(nodes, gpu_types=("v100",)), jobs, (Tenant("t"),), now_s=2e4)


def tree(s: Snapshot) -> tuple[float, dict[str, int]]:
    pools, jobs = Pools(s, Throughput(s.cluster)), active(s)
    started = time.process_time()
    share(jobs, pools)
    return time.process_time() - started, {j.name: pools.count.get(j.name, 0) for j in jobs}


def exponent(points: dict[int, float]) -> float:
    return round(float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--literal", type=int, default=1000, help="most jobs for the literal walk")
    given = parser.parse_args()
    rows = []
    for n in (96, 304, 1000, 3000, 10000):
        s = world(n, n)
        seconds, counts = tree(s)
        row = {"n": n, "M": sum(node.gpus for node in s.cluster.nodes), "tree_s": round(seconds, 4)}
        if n <= given.literal:
            started = time.process_time()
            walked = literal(s)
            row["literal_s"] = round(time.process_time() - started, 4)
            if walked != counts:
                raise SystemExit(f"n = {n}: the tree's shares are not those of Algorithm 1")
        print(row, flush=True)
        rows.append(row)
    over_n = {n: tree(world(n, 10_000))[0] for n in (1000, 3000, 10_000)}
    over_m = {m: tree(world(1000, m))[0] for m in (2000, 8000, 32_000)}
    growth = {"in_n_at_M_10000": exponent(over_n), "in_M_at_n_1000": exponent(over_m)}
    print(growth)
    record(Path(__file__), {"rows": rows, "growth_exponents": growth}, ("numpy",))


if __name__ == "__main__":
    main()
