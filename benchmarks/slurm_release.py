"""How long does a site wait until a long queue is Slurm's own again?

A real slurmctld (plain processes), rigid jobs one by one (no arrays) that wait for their turn in its managed partition,
all GPUs taken. In turn, again and again: `release-all.sh`, the adapter's `release_many` as `horae release-all` calls
it, and a bare loop of as many updates in one scontrol, the floor. In between all are given their far begin time again.

    python benchmarks/slurm_release.py [--jobs 10000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import record

from horae.elastic.files import write_atomic
from horae.lab import LabRequest
from slurm_plugin.adapter import connect
from slurm_plugin.lab.private import PrivateSlurm

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "slurm_plugin/site/release-all.sh"
LANES = 4  #: of sbatch


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.lab = PrivateSlurm(folder / "slurm", ROOT / ".cache" / "slurm")
        self.lab.up(LabRequest(name="bench-release", nodes=8))
        self._folder, self._rounds = folder, 0

    def shell(self, text: str) -> str:
        env = {**os.environ, **self.lab.env(), "LC_ALL": "C"}
        done = subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, check=True)
        return done.stdout

    def fill(self, jobs: int) -> None:
        """Jobs of other partitions take all GPUs, so that who is handed back waits on."""
        (self._folder / "job.sh").write_text("#!/bin/sh\nexec sleep 36000\n")
        batch = f"sbatch --output=/dev/null --chdir={self._folder}"
        self.shell(f"for i in 1 2 3 4 5 6 7 8; do {batch} -p raw --gres=gpu:4 {self._folder}/job.sh; done")
        while self.shell("squeue -h -t R -p raw | wc -l").strip() != "8":
            time.sleep(0.1)
        one = f"for i in $(seq {jobs // LANES}); do {batch} -p dl --gres=gpu:1 {self._folder}/job.sh; done"
        self.beat()
        lanes = [
            subprocess.Popen(["sh", "-c", one], env={**os.environ, **self.lab.env()}, stdout=subprocess.DEVNULL)
            for _ in range(LANES)
        ]
        while any(lane.poll() is None for lane in lanes):
            self.beat()
            time.sleep(1.0)
        assert self.parked() == jobs // LANES * LANES

    def beat(self) -> None:
        write_atomic(str(self.lab.spool / "heartbeat"), f"time {int(time.time())}\nhold dl\n".encode())

    def waiting(self) -> list[str]:
        return self.shell("squeue -h -t PD -p dl -o %i").split()

    def parked(self) -> int:
        """How many are not to begin within months."""
        times = self.shell("SLURM_TIME_FORMAT=%s squeue -h -t PD -p dl -O EligibleTime").split()
        return sum(int(at_s) > time.time() + 180 * 86400 for at_s in times)

    def park(self) -> None:
        far = time.strftime("%Y-%m-%d", time.localtime(time.time() + 366 * 86400))
        waiting = self.waiting()
        self.say(f"update jobid={job} StartTime={far}" for job in waiting)
        assert self.parked() == len(waiting)

    def say(self, lines: Any) -> None:
        env = {**os.environ, **self.lab.env()}
        text = "".join(f"{line}\n" for line in lines)
        subprocess.run(["scontrol"], env=env, input=text, text=True, check=True, stdout=subprocess.DEVNULL)

    def bare(self) -> Callable[[], object]:
        waiting = self.waiting()
        return lambda: self.say(f"update jobid={job} StartTime=now" for job in waiting)

    def script(self) -> Callable[[], object]:
        return lambda: self.shell(f"sh {SCRIPT} {self.lab.spool}")

    def port(self) -> Callable[[], object]:
        self._rounds += 1
        self.beat()
        options = {"partitions": ["dl"], "spool": str(self.lab.spool), "env": self.lab.env(), "timeout_s": 120}
        port = connect({**options, "state": str(self._folder / f"memory{self._rounds}")})
        port.claim("bench")
        jobs = [job.id for job in port.observe().jobs]
        assert len(jobs) == len(self.waiting())

        def release() -> None:
            assert port.release_many(jobs) == {}
            port.close()

        return release


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"bare": [], "script": [], "port": []}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.fill(options.jobs)
            for _ in range(options.rounds):
                for name, found in times.items():
                    run = getattr(cluster, name)()
                    began = time.perf_counter()
                    run()
                    found.append(time.perf_counter() - began)
                    assert cluster.parked() == 0, f"{name} left some"
                    cluster.park()
            count = len(cluster.waiting())
        finally:
            cluster.shell("scancel -p dl; scancel -p raw")
            cluster.lab.down()
    medians = {name: statistics.median(each) for name, each in times.items()}
    ratio = {name: median / medians["bare"] for name, median in medians.items()}
    record(Path(__file__), {"jobs": count, "seconds": times, "median_s": medians, "ratio to bare": ratio})
    print(count, {name: round(median, 1) for name, median in medians.items()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
