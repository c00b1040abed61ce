"""Every policy on every trace: how fair, and how efficient?

    python benchmarks/grid.py --traces FOLDER [--jobs 30] [--most 60] [--workers 2]

The traces are not shipped; FOLDER holds them under the paths of `TRACES`. Of each, so many jobs in a row (from a third
of it on) are played by every policy on eight K80 and eight V100, placed, restarts drawn from measured ones. So that
clusters of all sizes can be set side by side: times are shrunk until the mean job lasts half an hour, arrivals until
the jobs ask for twice what as many K80 could do, gangs are cut to eight, and a job may have one GPU to twice what it
asked for; its speed on n GPUs grows as n^0.9, and is 1.4 to 3.2 times as high on a V100 (by its number). Where a trace
knows no tenants, jobs are four's in turn. Helios is there by the workload that Sia's authors drew from its Saturn
cluster (arrivals and sizes are Saturn's, applications are Pollux'). A policy that needs more than `--most` CPU seconds
for a trace has no result.

Writes benchmarks/results/grid.json, docs/images/grid.svg, and the table of docs/grid.md between its two marks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import exp, fsum, log
from pathlib import Path
from typing import Any

from _limit import TooLong, cpu_limit
from _record import RESULTS, record

from horae.sim import results
from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of
from horae.sim.engine.simulation import simulate
from horae.sim.engine.workload import Table
from horae.sim.traces.model import USUAL, Trace, TraceJob
from horae.sim.traces.reading import read
from policy import catalogue

#: name -> (path, form)
TRACES = {
    "philly (AFS)": ("philly_reconstructed/philly_11vc_jobs.csv.gz", "philly"),
    "philly (Pollux)": ("philly_pollux/philly.csv.gz", "philly"),
    "gavel, simulated": ("gavel_msr/seed0_6214e9.trace.gz", "gavel"),
    "gavel, physical": ("gavel_physical/max_min_fairness.trace", "gavel"),
    "pollux": ("pollux/workloads/workload-1.csv", "pollux"),
    "shockwave": (
        "shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace",
        "gavel",
    ),
    "helios Saturn (Sia)": ("sia/saturn/workload-1.csv", "pollux"),
    "alibaba 2023": ("alibaba_v2023/openb_pod_list_default.csv.gz", "alibaba"),
}
CLUSTER, GPUS, LARGEST = "k80:2x4,v100:2x4", 16, 8
#: Twice what sixteen K80 could do; half of them are V100.
MEAN_S, LOAD = 1800.0, 2.0
SPEEDUPS = (1.4, 2.0, 2.6, 3.2)
TABLE: Table = {
    f"model{n}": {t: {g: by * g**0.9 for g in range(1, GPUS + 1)} for t, by in (("k80", 1.0), ("v100", v100))}
    for n, v100 in enumerate(SPEEDUPS)
}
PAGE = Path(__file__).parents[1] / "docs" / "grid.md"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "grid.svg"
MARKS = ("<!-- table: benchmarks/grid.py -->", "<!-- end of table -->")
KEYS = ("mean_s", "rho_max", "jain", "gpu_hours", "resizes", "cpu_s")


def shrunk(trace: Trace, many: int, gpus: float = GPUS) -> Trace:
    """So many of its jobs, as the module says."""
    whole = [job for job in trace.jobs if job.duration]
    start = min(len(whole) // 3, max(len(whole) - many, 0))
    jobs = whole[start : start + many]
    by = MEAN_S * len(jobs) / fsum(job.duration or 0.0 for job in jobs)
    lengths = [max((job.duration or 0.0) * by, 30.0) for job in jobs]
    sizes = [min(job.gpus, LARGEST) for job in jobs]
    span = jobs[-1].submitted - jobs[0].submitted
    asked = fsum(length * size for length, size in zip(lengths, sizes, strict=True))
    closer = asked / (LOAD * gpus) / span if span else 0.0
    alone = len({job.tenant for job in jobs}) == 1
    return Trace(
        tuple(
            TraceJob(
                job.job,
                round((job.submitted - jobs[0].submitted) * closer, 3),
                sizes[n],
                lengths[n],
                tenant=f"tenant{n % 4}" if alone else job.tenant,
                min_gpus=1,
                max_gpus=2 * sizes[n],
                model=f"model{n % len(SPEEDUPS)}",
                slowdown=USUAL,
            )
            for n, job in enumerate(jobs)
        )
    )


def played(trace: Trace, policy: str, most_s: float) -> dict[str, float] | None:
    settings = Settings.of(cluster_of(CLUSTER), policy, {})
    started = time.process_time()
    try:
        with cpu_limit(most_s):
            outcome = simulate(trace, settings, TABLE)
    except TooLong:
        return None
    found = results.summary(outcome, 0.0)
    assert found["completed"] == len(trace.jobs), f"{policy} leaves jobs"
    return {
        "mean_s": round(found["jct"]["mean"], 1),
        "rho_max": round(found["rho"]["max"], 3),
        "jain": round(found["rho"]["jain"], 3),
        "gpu_hours": round(found["gpu_seconds"] / 3600, 2),
        "resizes": found["resizes"],
        "cpu_s": round(time.process_time() - started, 2),
    }


Cells = dict[str, dict[str, dict[str, float] | None]]


def every(folder: Path, jobs: int, most_s: float, workers: int) -> Cells:
    """policy -> trace -> what came of it; None: it took too long."""
    traces = {name: shrunk(read(folder / path, form, skip_bad=True), jobs) for name, (path, form) in TRACES.items()}
    cells: Cells = {policy: {} for policy in catalogue.entries()}
    with ProcessPoolExecutor(workers) as pool:
        asked = {
            pool.submit(played, trace, policy, most_s): (policy, name)
            for policy in cells
            for name, trace in traces.items()
        }
        for number, future in enumerate(as_completed(asked), 1):
            policy, name = asked[future]
            cells[policy][name] = future.result()
            print(f"{number} of {len(asked)}: {policy} on {name}: {cells[policy][name]}", flush=True)
    return {policy: {name: row[name] for name in traces} for policy, row in cells.items()}


def overall(cells: Cells) -> dict[str, dict[str, float]]:
    """Of policies that played every trace: mean completion time and worst rho over the best policy's, geometric means
    over traces; the mean of Jain's index."""
    whole = {policy: row for policy, row in cells.items() if all(row.values())}
    best = {
        (name, key): min(row[name][key] for row in whole.values()) for name in TRACES for key in ("mean_s", "rho_max")
    }
    out = {}
    for policy, row in whole.items():
        found = {name: one for name, one in row.items() if one is not None}
        over = {
            key: exp(fsum(log(one[key] / best[name, key]) for name, one in found.items()) / len(found))
            for key in ("mean_s", "rho_max")
        }
        out[policy] = {key: round(value, 3) for key, value in over.items()}
        out[policy]["jain"] = round(fsum(one["jain"] for one in found.values()) / len(found), 3)
    return out


def draw(cells: Cells, found: Mapping[str, Mapping[str, float]]) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "grid"
    figure = Figure(figsize=(13, 9.5), layout="constrained")
    spaces = figure.subplot_mosaic(
        [["all", "all", 0, 1], ["all", "all", 2, 3], ["all", "all", 4, 5], ["all", "all", 6, 7]]
    )  # type: ignore[list-item]
    colours = {policy: f"C{n % 10}" for n, policy in enumerate(cells)}
    axes = spaces["all"]
    for policy, one in found.items():
        axes.scatter(one["mean_s"], one["rho_max"], color=colours[policy], s=28)
        axes.annotate(policy, (one["mean_s"], one["rho_max"]), xytext=(4, 3), textcoords="offset points", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="mean completion time over the best policy's")
    axes.set(ylabel="worst rho over the best policy's", title="All traces: fair and fast is at the lower left")
    for n, name in enumerate(TRACES):
        small = spaces[n]  # type: ignore[index]
        for policy, row in cells.items():
            if (one_cell := row[name]) is not None:
                small.scatter(one_cell["mean_s"] / 60, one_cell["rho_max"], color=colours[policy], s=10)
        small.set(xscale="log", yscale="log")
        small.set_title(name, fontsize=9)
        small.set_xlabel("mean completion, min", fontsize=7)
        small.set_ylabel("worst rho", fontsize=7)
        small.tick_params(labelsize=6, which="both")
    figure.savefig(PICTURE, metadata={"Date": None})


def table(found: Mapping[str, Mapping[str, float]], cells: Cells) -> str:
    rows = [
        "| policy | mean completion time | worst rho | Jain's index | CPU s a trace |",
        "|---|---|---|---|---|",
    ]
    for policy, one in sorted(found.items(), key=lambda item: item[1]["mean_s"] * item[1]["rho_max"]):
        cpu = [cell["cpu_s"] for cell in cells[policy].values() if cell is not None]
        numbers = f"{one['mean_s']:.2f} | {one['rho_max']:.2f} | {one['jain']:.2f} | {fsum(cpu) / len(cpu):.1f}"
        rows.append(f"| `{policy}` | {numbers} |")
    for policy, row in cells.items():
        if policy not in found:
            late = ", ".join(name for name, cell in row.items() if cell is None)
            rows.append(f"| `{policy}` | too long on {late} | | | |")
    return "\n".join(rows)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--traces", type=Path, help="where they are; without it the kept figures are drawn again")
    words.add_argument("--jobs", type=int, default=30)
    words.add_argument("--most", type=float, default=60.0, help="CPU seconds of a policy on a trace")
    words.add_argument("--workers", type=int, default=2)
    given = words.parse_args()
    if given.traces is None:
        cells: Any = json.loads((RESULTS / "grid.json").read_text())["cells"]
    else:
        cells = every(given.traces, given.jobs, given.most, given.workers)
        record(Path(__file__), {"cluster": CLUSTER, "jobs": given.jobs, "cells": cells}, ("highspy", "numpy"))
    found = overall(cells)
    draw(cells, found)
    head, _, rest = PAGE.read_text().partition(MARKS[0])
    PAGE.write_text(f"{head}{MARKS[0]}\n\n{table(found, cells)}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
