"""How many jobs a second does the fast engine simulate, by policy, and how does that grow?

    python benchmarks/simulator.py --trace philly_11vc_jobs.csv.gz [--format philly] [--most 60] [--policies fifo,afs-l]

The trace is not shipped: any that `horae simulate` reads, with tenants, will do. CPU seconds of this process (the
machine may be shared), from the first arrival to the last end; reading does not count. Nodes have eight GPUs, as many
as the jobs' mean load fills to four fifths. Each policy plays the first 50 jobs, then twice as many, until all are
played or the next part would take more than `--most` seconds (those that have goals: `WHOLE_S`; the first: `FIRST_S`,
half as many jobs where they take longer): the rows are its growth in jobs, the last is its figure.

    largest    the tenant with most jobs alone, as a textbook plays it (`--ideal`)
    together   all tenants' jobs on one cluster, likewise
    placed     the same on nodes, with restarts of 30 s, of the policies that the growth is told of
    gpus       part of all jobs on 1, 2, 4, 8, 16 times the GPUs, arriving so much faster
    tenants    the same part as 1, 10, 100, 1,000 tenants' in turn
    million    peak memory of `horae simulate` on 1,000,000 jobs that `horae trace scale` drew of the trace

Goals on Philly's log: FIFO 2,700 jobs/s (PCS's simulator; Gavel's makes 13), AFS-L 1,800 (20 times PCS's 90).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import ceil, fsum
from pathlib import Path
from typing import Any

from _limit import TooLong, cpu_limit
from _record import record

from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of, pooled
from horae.sim.engine.simulation import simulate
from horae.sim.traces.model import Trace
from horae.sim.traces.reading import read
from policy import catalogue

FIRST, PART = 50, 4000
FIRST_S = 60.0  #: CPU seconds that the first jobs may take in any case: every policy has a figure
LEAST_S = 0.1  #: what takes less is played again: some systems count CPU seconds in hundredths
#: Policies with goals, and the CPU seconds that each of their simulations may take.
WHOLE, WHOLE_S = ("fifo", "afs-l"), 120.0
FULL = 0.8  #: of a cluster, by the mean load
GROWN = ("fifo", "srtf", "las", "tiresias-l", "max-min", "drf", "afs-l", "gandiva-fair", "themis")
HORAE = [sys.executable, "-c", "from horae.cli import main; raise SystemExit(main())"]
Rows = list[dict[str, Any]]


def played(trace: Trace, policy: str, nodes: int, most_s: float, *, ideal: bool = True) -> dict[str, Any] | None:
    """CPU seconds of one simulation; None where it takes more than `most_s`."""
    cluster = cluster_of(f"v100:{nodes}x8")
    restart = {} if ideal else {"restart_s": 30.0}
    settings = Settings.of(pooled(cluster) if ideal else cluster, policy, {}, ideal=ideal, **restart)
    started, spent_s, times = time.process_time(), 0.0, 0
    try:
        with cpu_limit(most_s):
            while spent_s < LEAST_S:
                outcome, times = simulate(trace, settings, {}), times + 1
                spent_s = time.process_time() - started
    except TooLong:
        return None
    play_s, jobs = spent_s / times, len(trace.jobs)
    return {
        "jobs": jobs,
        "gpus": 8 * nodes,
        "play_s": round(play_s, 4),
        "jobs_per_s": round(jobs / play_s, 1),
        "decisions": outcome.rounds,
    }


def in_jobs(trace: Trace, policy: str, nodes: int, most_s: float, *, ideal: bool = True) -> Rows:
    rows: Rows = []
    most_s = max(most_s, WHOLE_S) if policy in WHOLE else most_s
    jobs, whole = FIRST, len(trace.jobs)
    while not rows or (rows[-1]["jobs"] < whole and 2 * rows[-1]["play_s"] < most_s):
        jobs = min(jobs, whole)
        enough_s = most_s if rows else max(most_s, FIRST_S)
        found = played(replace(trace, jobs=trace.jobs[:jobs]), policy, nodes, enough_s, ideal=ideal)
        if found is not None:
            rows.append(found)
            jobs *= 2
        elif not rows and jobs > 1:
            jobs //= 2
        else:
            break
    return rows


def sized(trace: Trace) -> int:
    """Nodes of eight GPUs that the mean load fills to four fifths."""
    asked = fsum((job.duration or 0.0) * job.gpus for job in trace.jobs)
    load = asked / (trace.jobs[-1].submitted - trace.jobs[0].submitted)
    return ceil(max(load / FULL, *(job.gpus for job in trace.jobs)) / 8)


def quicker(trace: Trace, by: float) -> Trace:
    return replace(trace, jobs=tuple(replace(job, submitted=job.submitted / by) for job in trace.jobs))


def shared(trace: Trace, tenants: int) -> Trace:
    jobs = (replace(job, tenant=f"tenant{n % tenants}") for n, job in enumerate(trace.jobs))
    return replace(trace, jobs=tuple(jobs))


def told(what: str, policies: Iterable[str], rows: Callable[[str], Rows]) -> dict[str, Rows]:
    found = {}
    for policy in policies:
        found[policy] = rows(policy)
        last = found[policy][-1] if found[policy] else {"jobs_per_s": 0.0, "jobs": 0, "gpus": 0}
        told = f"{last['jobs_per_s']:>11,.1f} jobs/s ({last['jobs']} jobs, {last['gpus']} GPUs)"
        print(f"{what:9} {policy:20} {told}", flush=True)
    return found


def million(path: Path, form: str, jobs: int, nodes: int) -> dict[str, Any]:
    """One process draws the trace, another plays it."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.csv"
        part = len(read(path, form, skip_bad=True).jobs)
        drawn = [*HORAE, "trace", "scale", str(path), repr(jobs / part), "--format", form, "--out", str(large)]
        subprocess.run(drawn, check=True, stdout=subprocess.DEVNULL)
        cluster = f"v100:{ceil(nodes * jobs / part)}x8"
        command = [*HORAE, "simulate", str(large), "--cluster", cluster]
        command += ["--policy", "fifo", "--ideal", "--json"]
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        watched = "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], capture_output=True); "
        watched += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done.returncode)"
        peak = subprocess.run([sys.executable, "-c", watched, *command], check=True, capture_output=True, text=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime
        megabytes = round(int(peak.stdout) * 1024 / 1e6)
    print(f"{jobs} jobs: {megabytes} MB, {cpu_s:.0f} CPU s with reading", flush=True)
    return {"jobs": jobs, "policy": "fifo", "peak_megabytes": megabytes, "cpu_s": round(cpu_s, 1)}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--trace", type=Path, required=True)
    words.add_argument("--format", default="philly")
    words.add_argument("--policies", help="else all")
    words.add_argument("--most", type=float, default=60.0, help="CPU seconds of one simulation")
    words.add_argument("--million", type=int, default=1_000_000, metavar="JOBS")
    words.add_argument("--out", type=Path, help="else benchmarks/results/simulator.json")
    given = words.parse_args()
    policies = given.policies.split(",") if given.policies else list(catalogue.entries())
    grown = [policy for policy in GROWN if policy in policies]
    every = read(given.trace, given.format, skip_bad=True)
    most, _ = Counter(job.tenant for job in every.jobs).most_common(1)[0]
    alone = replace(every, jobs=tuple(job for job in every.jobs if job.tenant == most))
    part = replace(every, jobs=every.jobs[:PART])
    nodes, few, enough = sized(every), sized(alone), given.most
    figures = {
        "largest": told("largest", policies, lambda p: in_jobs(alone, p, few, enough)),
        "together": told("together", policies, lambda p: in_jobs(every, p, nodes, enough)),
        "placed": told("placed", grown, lambda p: in_jobs(every, p, nodes, enough, ideal=False)),
    }
    base = sized(part)
    figures["gpus"] = told(
        "gpus",
        grown,
        lambda p: [row for by in (1, 2, 4, 8, 16) if (row := played(quicker(part, by), p, by * base, enough))],
    )
    figures["tenants"] = told(
        "tenants",
        grown,
        lambda p: [
            {"tenants": many, **row}
            for many in (1, 10, 100, 1000)
            if (row := played(shared(part, many), p, base, enough))
        ],
    )
    about = {"trace": given.trace.name, "trace_jobs": len(every.jobs), "largest_tenant": most}
    result = {**about, **figures, "million": million(given.trace, given.format, given.million, nodes)}
    if given.out is None:
        record(Path(__file__), result)
    else:
        given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
