"""AFS' Figure 5 over the whole logs: mean completion times of eleven Philly clusters, policy by policy.

    python benchmarks/afs_clusters.py --trace philly_11vc_jobs.csv.gz [--most 60] [--policies afs-l,...] [--again]

The trace is not shipped. Each job trains a model as in `horae reproduce afs-fig-5`, whose words on the paper hold here
too: the 64 GPUs of the paper's own cluster as one pool without restart costs, elastic policies from one GPU to where
the model is fastest. Each policy plays the first 60 jobs, then twice as many, until all are played or the next part
would take more than `--most` CPU seconds: the result says how many, and its baseline is played on the same jobs.

Every cell is written as it is done, so that a run may be ended at any time and goes on where it stood (`--again`: all
anew). Numbers are of simulated time and do not hang on the machine; `cpu_s` does.
Writes benchmarks/results/afs_clusters.json and the table of docs/reproductions.md between its two marks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from math import exp, fsum, log
from pathlib import Path
from typing import Any

from _limit import TooLong, cpu_limit
from _record import RESULTS, provenance

from horae.sim.reproductions.afs import CLUSTER, completion_s, modelled
from horae.sim.results import mean
from horae.sim.traces.model import TraceJob
from horae.sim.traces.reading import read

RESULT = RESULTS / "afs_clusters.json"
PAGE = Path(__file__).parents[1] / "docs" / "reproductions.md"
MARKS = ("<!-- table: benchmarks/afs_clusters.py -->", "<!-- end of table: benchmarks/afs_clusters.py -->")
#: Policy -> what its completion times are set beside. Cheap ones first.
BASELINES = {
    "srsf": "srtf",
    "max-min": "tiresias-l",
    "afs-l": "srtf",
    "afs-p": "tiresias-l",
    "optimus": "srtf",
    "themis": "tiresias-l",
}
FEWEST = 60  #: jobs that say something
Cells = dict[str, dict[str, dict[str, float]]]


def clusters(trace: Path, seed: int) -> dict[str, Sequence[TraceJob]]:
    """In the order of their sizes: the small ones are done first."""
    jobs = modelled(read(trace, "philly").jobs, seed)
    return dict(sorted(jobs.items(), key=lambda item: len(item[1])))


def played(jobs: Sequence[TraceJob], policy: str, seed: int, most_s: float) -> dict[str, float] | None:
    """Of as many of the first jobs as the time suffices for, twice as many each time, and of its baseline on the same.
    None: of too few."""
    many, spent_s, ours_s = 0, 0.0, 0.0
    while many < len(jobs) and 2 * spent_s < most_s:
        next_many, started = min(2 * many or FEWEST, len(jobs)), time.process_time()
        try:
            with cpu_limit(most_s):
                ours_s = mean(completion_s(jobs[:next_many], policy, seed))
        except TooLong:
            break
        many, spent_s = next_many, time.process_time() - started
    if not many:
        return None
    baseline_s = mean(completion_s(jobs[:many], BASELINES[policy], seed))
    return {
        "jobs": many,
        "mean_s": round(ours_s, 1),
        "baseline_s": round(baseline_s, 1),
        "ratio": round(baseline_s / ours_s, 3),
        "cpu_s": round(spent_s, 1),
    }


def table(cells: Cells, sizes: Mapping[str, int]) -> str:
    """Ratios, with the number of jobs where that is not all of them."""
    done = {policy: row for policy, row in cells.items() if row}
    heads = [f"{policy} over {BASELINES[policy]}" for policy in done]
    rows = [f"| cluster | jobs | {' | '.join(heads)} |", f"|---|---:|{'---:|' * len(heads)}"]
    for cluster, size in sizes.items():
        texts = [_text(row.get(cluster), size) for row in done.values()]
        rows.append(f"| `{cluster}` | {size:,} | {' | '.join(texts)} |")
    means = [exp(fsum(log(cell["ratio"]) for cell in row.values()) / len(row)) for row in done.values()]
    rows.append(f"| geometric mean | | {' | '.join(f'{value:.2f}' for value in means)} |")
    return "\n".join(rows)


def _text(cell: Mapping[str, float] | None, size: int) -> str:
    if cell is None:
        return "-"
    return f"{cell['ratio']:.2f}" if cell["jobs"] == size else f"{cell['ratio']:.2f} ({cell['jobs']:,} jobs)"


def written(cells: Cells, sizes: Mapping[str, int], seed: int) -> None:
    about = {"provenance": provenance(Path(__file__)), "cluster": CLUSTER, "seed": seed}
    RESULT.write_text(json.dumps({**about, "jobs": sizes, "baselines": BASELINES, "cells": cells}, indent=2) + "\n")
    head, _, rest = PAGE.read_text().partition(MARKS[0])
    PAGE.write_text(f"{head}{MARKS[0]}\n\n{table(cells, sizes)}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--trace", type=Path, required=True)
    words.add_argument("--most", type=float, default=60.0, help="CPU seconds of a policy on a cluster")
    words.add_argument("--policies", default=",".join(BASELINES))
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--again", action="store_true", help="keep nothing of what is there")
    given = words.parse_args()
    known: Any = json.loads(RESULT.read_text()) if RESULT.exists() and not given.again else {}
    cells: Cells = known.get("cells", {})
    jobs = clusters(given.trace, given.seed)
    sizes = {cluster: len(of_it) for cluster, of_it in jobs.items()}
    for policy in given.policies.split(","):
        row = cells.setdefault(policy, {})
        for cluster in [name for name in jobs if name not in row]:
            found = played(jobs[cluster], policy, given.seed, given.most)
            print(f"{policy} {cluster}: {found}", flush=True)
            if found is not None:
                row[cluster] = found
                written(cells, sizes, given.seed)


if __name__ == "__main__":
    main()
