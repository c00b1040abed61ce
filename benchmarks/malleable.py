"""How much of the gain of elastic jobs comes with the first fifth of them?

    python benchmarks/malleable.py --traces FOLDER [--jobs 150] [--policies afs-l,max-min]

"Evaluating Malleable Job Scheduling" (arXiv 2602.17318) finds on three sites' logs that waits fall by 73 to 99 %
against rigid jobs, and that gains stay substantial where only 20 % of the jobs are malleable. Here the question is put
to our traces (those of `grid.py`, made comparable in the same way, on four nodes of eight GPUs of one type, asked for a
fifth more than they can do): a part of the jobs, drawn by the seed, may run on half to twice the GPUs that it asked
for, at n^0.9 times the speed on n times as many; restarts cost 30 s. Waits are until a job first runs; `rigid` is first
come first served with backfilling, none elastic. Mean over `--seeds`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grid
from _record import record

from horae.sim.engine.cluster import cluster_of
from horae.sim.traces.reading import read
from horae.sim.whatif import replay
from horae.sim.whatif.replay import Assumption

CLUSTER = cluster_of("v100:4x8")
PARTS = (0.0, 0.2, 0.5, 1.0)


def waits(trace: Any, policy: str, elastic: float, seeds: int) -> float:
    found = []
    for seed in range(seeds if 0 < elastic < 1 else 1):
        drawn, table = replay.assumed(trace, Assumption(elastic=elastic), CLUSTER, seed)
        found.append(replay.figures(replay.by_engine(drawn, table, CLUSTER, policy, 30.0, seed))["wait"]["mean"])
    return float(round(sum(found) / len(found), 1))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--traces", type=Path, required=True)
    words.add_argument("--jobs", type=int, default=150)
    words.add_argument("--seeds", type=int, default=2)
    words.add_argument("--policies", default="afs-l,max-min")
    given = words.parse_args()
    started, found = time.process_time(), dict[str, Any]()
    for name, (path, form) in grid.TRACES.items():
        whole = grid.shrunk(read(given.traces / path, form, skip_bad=True), given.jobs, gpus=19.2)
        jobs = [replace(job, min_gpus=job.gpus, max_gpus=job.gpus, model=None) for job in whole.jobs]
        row: dict[str, Any] = {"jobs": len(jobs), "rigid_s": waits(jobs, "fifo-backfill", 0.0, 1)}
        for policy in given.policies.split(","):
            by = {f"{part:.0%}": waits(jobs, policy, part, given.seeds) for part in PARTS}
            gain = by["0%"] - by["100%"]
            row[policy] = {
                "wait_s": by,
                "less_than_rigid_percent": {
                    part: round(100 * (1 - wait / row["rigid_s"]), 1) if row["rigid_s"] else None
                    for part, wait in by.items()
                },
                "part_of_the_gain_at_20_percent": round((by["0%"] - by["20%"]) / gain, 2) if gain > 0 else None,
            }
        found[name] = row
        print(name, row, flush=True)
    record(Path(__file__), {"cluster": "v100:4x8", "cpu_s": round(time.process_time() - started, 1), "traces": found})


if __name__ == "__main__":
    main()
