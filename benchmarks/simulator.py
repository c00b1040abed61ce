"""How many jobs a second does the fast engine simulate, by policy?

    python benchmarks/simulator.py --trace philly_11vc_jobs.csv.gz --format philly [--cluster v100:40x8] [--jobs 10000]
                                   [--policies fifo,srtf,afs-l] [--placed] [--out FILE]

The trace is not shipped: any that `horae simulate` reads will do. Reading it does not count. CPU seconds of this
process (the machine may be shared), from the first arrival to the last end; a policy that needs more than `--most`
seconds is played on fewer jobs, half as many each time, and says on how many. Goals on the Philly log: FIFO 2,700
jobs/s, AFS 1,800. A million jobs: `horae trace scale philly.csv.gz 9.135 --format philly --out million.csv.gz`.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of, pooled
from horae.sim.engine.simulation import simulate
from horae.sim.traces.model import Trace
from horae.sim.traces.reading import read


class _TooLong(Exception):
    """The policy needs more time than it has."""


def _stop(*_about: object) -> None:
    raise _TooLong


def measured(trace: Trace, settings: Settings, most_s: float) -> dict[str, Any]:
    """Jobs/s of one policy."""
    jobs = len(trace.jobs)
    while True:
        part = replace(trace, jobs=trace.jobs[:jobs])
        signal.setitimer(signal.ITIMER_PROF, most_s)
        started = time.process_time()
        try:
            outcome = simulate(part, settings, {})
        except _TooLong:
            if (jobs := jobs // 2) < 10:
                return {"jobs": 0, "seconds": most_s, "jobs_per_s": 0.0}
            continue
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        seconds = time.process_time() - started
        return {
            "jobs": jobs,
            "seconds": round(seconds, 3),
            "jobs_per_s": round(jobs / seconds, 1),
            "decisions": outcome.rounds,
        }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--trace", type=Path, required=True)
    words.add_argument("--format", default="ours")
    words.add_argument("--cluster", default="v100:40x8")
    words.add_argument("--jobs", type=int, default=10_000)
    words.add_argument("--policies", default="fifo,srtf,srsf,max-min,afs-l")
    words.add_argument("--placed", action="store_true", help="on nodes, with restarts of 30 s; else --ideal")
    words.add_argument("--most", type=float, default=60.0, help="CPU seconds of one policy")
    words.add_argument("--out", type=Path, help="write the figures here, as JSON")
    given = words.parse_args()
    signal.signal(signal.SIGPROF, _stop)
    trace, cluster = read(given.trace, given.format, skip_bad=True), cluster_of(given.cluster)
    trace = replace(trace, jobs=trace.jobs[: given.jobs])
    found = {}
    for name in given.policies.split(","):
        nodes = cluster if given.placed else pooled(cluster)
        settings = Settings.of(nodes, name, {}, ideal=not given.placed, restart_s=30.0)
        found[name] = measured(trace, settings, given.most)
        print(f"{name:20} {found[name]['jobs_per_s']:>10,.1f} jobs/s  ({found[name]['jobs']} jobs)", flush=True)
    if given.out is not None:
        from _record import provenance

        about = {"trace": given.trace.name, "cluster": given.cluster, "ideal": not given.placed}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        about |= {"trace_jobs": len(trace.jobs), "peak_megabytes": round(peak)}
        result = {"provenance": provenance(Path(__file__)), **about, "policies": found}
        given.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
