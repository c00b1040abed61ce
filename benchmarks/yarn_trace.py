"""A stretch of a real log on a real YARN, under Horae and under the plain capacity scheduler: JCT, utilisation, rho.

The first jobs of Microsoft's virtual cluster 6c71a0 (`data/philly_6c71a0.csv`), compressed in time. First as plain
YARN services in one queue of the capacity scheduler: a gang of as many containers as the job asked for, which begins
when all of them are there. Then under the whole arbiter, where a job may have between one GPU and twice what it asked
for. A job "computes" by sleeping: on g GPUs it goes g^0.9 times as fast as on one (`--scaling`). So starts, resizes
and checkpoints cost what YARN and Horae take for them. Both sides do the same work, one after the other.

Told of each: job completion times (submission to end), makespan, utilisation (GPUs that are allocated, over the time
from the first submission to the last end), and rho of Themis (a job's completion time over its time alone on a share of
1/N of the GPUs, N the jobs that were there meanwhile on average; 1 is fair).

    python benchmarks/yarn_trace.py [--jobs 10] [--compress 3] [--policy max-min] [--lab FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from _record import record
from _trace import Job, Run, told, trace
from _yarn import USER, ByHand, arguments, hadoop, until

from horae.api.client import Client
from horae.api.service import Service
from horae.config import Config
from yarn_bridge.clients.records import Metrics, metrics
from yarn_bridge.lab.private import PrivateHadoop

POLL_S = 0.5
STEP_S = 0.5  #: on one GPU
#: A container of a plain gang: `plain.py FOLDER RANKS SECONDS`.
PLAIN = """import os, sys, time
folder, ranks, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
open(folder + "/" + os.environ["CONTAINER_ID"], "w").close()
while len(os.listdir(folder)) < ranks:
    time.sleep(0.2)
time.sleep(seconds)
"""
#: A rank under Horae: `elastic.py STEPS STEP_S SCALING`.
ELASTIC = """import os, sys, time
from horae import elastic
def save(folder): open(folder + "/done", "w").close()
def load(folder): pass
pause = float(sys.argv[2]) / int(os.environ["WORLD_SIZE"]) ** float(sys.argv[3])
for step in elastic.Training(steps=int(sys.argv[1]), global_batch=64, save=save, load=load, checkpoint_every_s=3600):
    time.sleep(pause)
    step.report(1.0)
"""


def now(hand: ByHand) -> Metrics:
    return metrics(hand.ask("GET", "/ws/v1/cluster/metrics").json()["clusterMetrics"])


class Side:
    """`submit` takes a job and its name; `states` says of each name whether it is over, and how often it started."""

    def __init__(
        self, hand: ByHand, submit: Callable[[str, Job], None], states: Callable[[], Mapping[str, tuple[bool, int]]]
    ) -> None:
        self._hand, self._submit, self._states = hand, submit, states

    def run(self, jobs: list[Job], scaling: float, total: int, limit_s: float) -> dict[str, Any]:
        began = time.monotonic()
        left_to_submit = dict(enumerate(jobs))
        runs: dict[str, tuple[Job, Run]] = {}
        held = last_s = 0.0
        while left_to_submit or any(run.end_s is None for _, run in runs.values()):
            now_s = time.monotonic() - began
            if now_s > limit_s:
                raise TimeoutError(f"not done after {limit_s:g} s: {self._states()}")
            for number in [number for number, job in left_to_submit.items() if job.submit_s <= now_s]:
                job = left_to_submit.pop(number)
                runs[f"trace-{number}"] = (job, Run(time.monotonic() - began))
                self._submit(f"trace-{number}", job)
            used = now(self._hand).gpus_used
            now_s = time.monotonic() - began
            held, last_s = held + used * (now_s - last_s), now_s
            for name, (over, starts) in self._states().items():
                if name in runs and runs[name][1].end_s is None:
                    runs[name][1].starts = max(starts - 1, 0)
                    runs[name][1].end_s = now_s if over else None
            time.sleep(POLL_S)
        return told(list(runs.values()), held, scaling, total)


def plain(hand: ByHand, folder: Path, scaling: float) -> Side:
    """Services of one component; the capacity scheduler places their containers where there is room."""
    mark = int(time.time())
    hand.put(f"/user/{USER}/plain.py", PLAIN.encode())

    def submit(name: str, job: Job) -> None:
        (folder / name).mkdir()
        command = f"exec {sys.executable} plain.py {folder / name} {job.gpus} {job.duration_s:.2f}"
        hand.create(f"{name}-{mark}", {"worker": job.gpus}, command, {"plain.py": f"/user/{USER}/plain.py"}, pin=False)

    def states() -> dict[str, tuple[bool, int]]:
        query = {"user.name": USER, "applicationTypes": "yarn-service"}
        answer = hand.session.get(f"{hand.rm}/ws/v1/cluster/apps", params=query, timeout=60).json()["apps"] or {}
        apps = {each["name"]: each["state"] for each in answer.get("app") or ()}
        ours = {name: state for name, state in apps.items() if name.endswith(f"-{mark}")}
        if bad := [name for name, state in ours.items() if state in {"FAILED", "KILLED"}]:
            raise RuntimeError(f"failed: {bad}")
        return {name.removesuffix(f"-{mark}"): (state == "FINISHED", 1) for name, state in ours.items()}

    return Side(hand, submit, states)


def managed(hand: ByHand, client: Client, lab: PrivateHadoop, folder: Path, scaling: float) -> Side:
    (folder / "elastic.py").write_text(ELASTIC)
    url, mark = str(lab.facts()["webhdfs"]).replace("http:", "webhdfs:"), int(time.time())

    def submit(name: str, job: Job) -> None:
        steps = max(1, round(job.duration_s * job.gpus**scaling / STEP_S))
        client.submit([{
            "name": name,
            "command": [sys.executable, str(folder / "elastic.py"), str(steps), str(STEP_S), str(scaling)],
            "gpus": {"min": 1, "max": 2 * job.gpus},
            "checkpoint": f"{url}/user/{USER}/trace-{mark}/{name}",
            "iterations": steps,
        }])  # fmt: skip

    def states() -> dict[str, tuple[bool, int]]:
        jobs = client.status(ended=True)["jobs"]
        if bad := [job["name"] for job in jobs if job["state"] in {"failed", "cancelled"}]:
            raise RuntimeError(f"failed: {bad}")
        return {job["name"]: (job["state"] == "completed", job["starts"]) for job in jobs}

    return Side(hand, submit, states)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--compress", type=float, default=3.0)
    parser.add_argument("--scaling", type=float, default=0.9)
    parser.add_argument("--policy", default="max-min")
    options = parser.parse_args()
    with hadoop("bench-yarn-trace", options.lab) as lab, tempfile.TemporaryDirectory() as made:
        hand, folder = ByHand(lab), Path(made)
        total = now(hand).gpus
        jobs = trace(options.compress, options.jobs, total)
        limit_s = 300.0 + 5.0 * sum(job.duration_s * job.gpus for job in jobs) / total
        result: dict[str, Any] = {
            "trace": {"jobs": len(jobs), "compressed": options.compress, "arrivals_s": jobs[-1].submit_s},
            "gpus": total,
            "policy": options.policy,
            "scaling": options.scaling,
        }
        result["capacity scheduler"] = plain(hand, folder, options.scaling).run(jobs, options.scaling, total, limit_s)
        until("its GPUs are free", lambda: now(hand).gpus_used == 0)
        config = Config.model_validate({
            "state_dir": str(folder / "arbiter"),
            "cluster": {"adapter": "yarn", "options": {
                **lab.facts(), "memory_mib": 256, "folder": f"/user/{USER}/arbiter-{int(time.time())}",
            }},
            "pools": [{"name": "all", "mode": "enforce", "policy": options.policy}],
            # Its patience is compressed like the trace: a restart costs seconds of jobs of half a minute.
            "rounds": {"tick_s": 1.0, "busy_s": 0.5},
            "guards": {"min_run_s": 8.0, "restarts_per_hour": 1000, "horizon_s": 40.0, "restart_cost_s": 5.0},
            "api": {"socket": str(folder / "api.sock")},
        })  # fmt: skip
        service = Service(config)
        service.start()
        try:
            side = managed(hand, Client(service.socket), lab, folder, options.scaling)
            result["horae"] = side.run(jobs, options.scaling, total, limit_s)
        finally:
            service.stop()
    result["ratio horae to capacity scheduler"] = {
        name: result["horae"][name] / value for name, value in result["capacity scheduler"].items() if value
    }
    record(Path(__file__), result, ("requests", "hdfs"))
    for name in ("capacity scheduler", "horae"):
        print(name, {key: round(value, 2) for key, value in result[name].items()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
