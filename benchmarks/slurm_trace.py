"""A stretch of a real log on a real Slurm, under Horae and under plain backfill: JCT, utilisation, largest rho.

Every job of the stretch that Microsoft's virtual cluster 6c71a0 saw in 17 minutes (`data/philly_6c71a0.csv`) is
submitted by sbatch to 8 nodes of 4 virtual GPUs (slurmctld and eight slurmd as private processes), compressed in time.
First in a partition that is Slurm's own, where each job gets the GPUs that it asked for by sched/backfill; then in a
managed partition under the whole arbiter, where it may have between one GPU and twice what it asked for. A job is a
batch script that "computes" by sleeping: with g GPUs it goes g^0.9 times as fast as with one (`--scaling`), and on
USR1 it writes down what is left, leaves, and goes on from there. So a resize costs what Slurm and Horae take for it.
Both runs ask for the same work; both meet the same machine, one after the other.

Told of each: mean, median and 95th percentile of the job completion time (submission to end, by slurmctld's clock),
makespan, utilisation (GPUs that jobs hold, over the time from the first submission to the last end), and rho of Themis
(its completion time over its time alone on 1/N of the GPUs, N the jobs that were there meanwhile on average, and on no
more GPUs than it asked for; 1 is fair).

    python benchmarks/slurm_trace.py [--compress 8] [--policy max-min] [--jobs 0]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _record import record
from _trace import Job, Run, told, trace

from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.lab import LabRequest
from slurm_plugin.adapter import connect
from slurm_plugin.lab.private import PrivateSlurm

ROOT = Path(__file__).parents[1]
NODES, GPUS_A_NODE = 8, 4
TOTAL = NODES * GPUS_A_NODE
POLL_S = 0.5
#: what a job does: $1 is how long it takes on one GPU, $2 the exponent of its speed
SCRIPT = r"""#!/bin/bash
left=work.$SLURM_JOB_ID
[ -f "$left" ] || echo "$1" > "$left"
IFS=, read -ra held <<< "$CUDA_VISIBLE_DEVICES"
gpus=$((${#held[@]} * SLURM_JOB_NUM_NODES))
read -r work < "$left"
now() { echo "${EPOCHREALTIME/,/.}"; }
began=$(now)
leave() {
    kill "$sleeping" 2>/dev/null
    awk -v w="$work" -v g="$gpus" -v e="$1" -v b="$began" -v n="$(now)" \
        'BEGIN { x = w - (n - b) * g ^ e; print (x > 0 ? x : 0) }' > "$left.new" && mv "$left.new" "$left"
    exit 86
}
trap "leave $2" USR1
sleep "$(awk -v w="$work" -v g="$gpus" -v e="$2" 'BEGIN { print w / g ^ e }')" &
sleeping=$!
wait "$sleeping"
"""


class Side:
    """One run over the trace, in one partition."""

    def __init__(self, lab: PrivateSlurm, partition: str, scaling: float, elastic: bool) -> None:
        self._lab, self._partition, self._scaling, self._elastic = lab, partition, scaling, elastic
        self._script = lab.folder / "shared" / "trace.sh"
        self._script.parent.mkdir(exist_ok=True)
        self._script.write_text(SCRIPT)
        self._folder = lab.folder / f"work-{partition}"
        self._folder.mkdir()

    def submit(self, job: Job) -> str:
        """Its id. More than a node's GPUs are asked for as whole nodes."""
        per_node = min(job.gpus, GPUS_A_NODE)
        argv = [
            "sbatch", "--parsable", f"--partition={self._partition}", f"--chdir={self._folder}", "--output=/dev/null",
            f"--nodes={-(-job.gpus // per_node)}", f"--gres=gpu:{per_node}", "--requeue", "--time=60",
        ]  # fmt: skip
        if self._elastic:
            sizes = [size for size in (1, 2, 4, 8, 16, 32) if size <= 2 * job.gpus]
            argv.append(f"--comment=horae:allowed={'/'.join(map(str, sizes))},grace=20")
        work = job.duration_s * job.gpus**self._scaling
        return self._lab.run([*argv, str(self._script), f"{work:.3f}", str(self._scaling)]).stdout.strip()

    def states(self) -> dict[str, tuple[str, int, float, int]]:
        """id -> (state, GPUs held, end, restarts)."""
        form = "JobID:|,State:|,NumNodes:|,tres-per-node:|,EndTime:|,RestartCnt:|"
        argv = ["squeue", "-h", "-a", "-t", "all", "-p", self._partition, "-O", form]
        found = {}
        for line in self._lab.run(argv).stdout.splitlines():
            job, state, nodes, gres, end, restarts = (part.strip() for part in line.split("|")[:6])
            held = int(nodes) * int(gres.rsplit(":", 1)[1].split("(")[0]) if state in {"RUNNING", "COMPLETING"} else 0
            found[job] = (state, held, float(end) if end.isdigit() else 0.0, int(restarts))
        return found

    def run(self, jobs: Sequence[Job], limit_s: float) -> dict[str, Any]:
        began_s = time.time()
        runs: dict[str, tuple[Job, Run]] = {}
        left_to_submit, held, last_s = list(jobs), 0.0, 0.0
        holding = 0
        while left_to_submit or any(run.end_s is None for _, run in runs.values()):
            now_s = time.time() - began_s
            if now_s > limit_s:
                left = [job for job, (_, run) in runs.items() if run.end_s is None]
                raise TimeoutError(
                    f"not done after {limit_s:.0f} s: {len(left_to_submit)} not submitted, running or held: {left}"
                )
            while left_to_submit and left_to_submit[0].submit_s <= now_s:
                job = left_to_submit.pop(0)
                runs[self.submit(job)] = (job, Run(time.time() - began_s))
            states = self.states()
            now_s = time.time() - began_s
            held += holding * (now_s - last_s)
            last_s, holding = now_s, sum(gpus for _, gpus, _, _ in states.values())
            for name, (_, run) in runs.items():
                state, _, end_s, restarts = states.get(name, ("COMPLETED", 0, 0.0, run.starts))
                run.starts = max(run.starts, restarts)
                if run.end_s is None and state in {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}:
                    if state != "COMPLETED":
                        raise RuntimeError(f"job {name} ended {state}")
                    run.end_s = end_s - began_s if end_s else now_s
            time.sleep(POLL_S)
        return told(list(runs.values()), held, self._scaling, TOTAL)


def arbiter(lab: PrivateSlurm, policy: str) -> Arbiter:
    """The whole of it. Its patience is compressed like the trace: a restart costs seconds of jobs of half a minute."""
    config = Config.model_validate({
        "state_dir": str(lab.folder / "arbiter"),
        "cluster": {"adapter": "slurm", "options": lab.facts()},
        "pools": [{"name": "all", "policy": policy, "mode": "enforce", "nodes": f"n[1-{NODES}]"}],
        "rounds": {"tick_s": 1.0, "busy_s": 0.5, "debounce_s": 0.2},
        "guards": {"min_run_s": 8.0, "restarts_per_hour": 1000, "horizon_s": 20.0, "restart_cost_s": 3.0},
    })  # fmt: skip
    return Arbiter(config, connect(config.cluster.options))


def measured(lab: PrivateSlurm, options: argparse.Namespace) -> dict[str, Any]:
    jobs = trace(options.compress, options.jobs, TOTAL)
    work = sum(job.duration_s * job.gpus for job in jobs)
    limit_s = 60.0 + 5.0 * (jobs[-1].submit_s + work / TOTAL)
    result: dict[str, Any] = {
        "trace": {
            "jobs": len(jobs),
            "compressed": options.compress,
            "arrivals_s": jobs[-1].submit_s,
            "load": work / TOTAL / jobs[-1].submit_s,
            "gpus": sorted({job.gpus for job in jobs}),
        },
        "policy": options.policy,
        "scaling": options.scaling,
    }
    result["backfill"] = Side(lab, "raw", options.scaling, elastic=False).run(jobs, limit_s)
    print("backfill", _short(result["backfill"]), file=sys.stderr)
    horae = arbiter(lab, options.policy)
    horae.start()
    try:
        if not horae.ready.wait(60):
            raise TimeoutError("the arbiter is not ready")
        time.sleep(2.0)
        result["horae"] = Side(lab, "dl", options.scaling, elastic=True).run(jobs, limit_s)
    finally:
        horae.stop()
    print("horae   ", _short(result["horae"]), file=sys.stderr)
    result["ratio horae to backfill"] = {
        name: result["horae"][name] / value for name, value in result["backfill"].items() if value
    }
    return result


def _short(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in figures.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compress", type=float, default=8.0, help="how many times faster than it was")
    parser.add_argument("--policy", default="max-min")
    parser.add_argument("--scaling", type=float, default=0.9)
    parser.add_argument("--jobs", type=int, default=0, help="only the first so many (0: all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = PrivateSlurm(Path(folder) / "lab", ROOT / ".cache" / "slurm")
        lab.up(LabRequest(name="trace", nodes=NODES, gpus=(("v100", GPUS_A_NODE),)))
        try:
            result = measured(lab, options)
            result["slurm"] = lab.run(["scontrol", "--version"]).stdout.split()[-1]
        finally:
            lab.down()
    record(Path(__file__), result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
