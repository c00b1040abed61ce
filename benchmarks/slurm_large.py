"""What does the adapter cost at hundreds of nodes and ten thousand jobs, beside a bare loop of the same requests?

A real slurmctld with as many real slurmd (plain processes), jobs that wait in its managed partition: most in
arrays, the rest one by one. Side by side in one run, each `--rounds` times: one observation beside a bare `squeue`
and `sinfo` of the same fields; `--grants` rigid jobs started together, until all run, and cancelled together, until
none does; all jobs handed back (the partition is down, so that none starts). Then the whole arbiter, on free GPUs
for `--grants` jobs: from its start until all of these run. Told: seconds, CPU seconds of slurmctld and of this
process, and what sdiag says of requests: how many of each kind, and how many milliseconds slurmctld spent on them.

    python benchmarks/slurm_large.py [--nodes 400] [--jobs 10000] [--grants 500] [--rounds 2]

A thousand nodes need 8 GB of memory (`--nodes 1000`); with few cores, launching is most of what is measured.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _record import record

from horae.arbiter.execute.executor import AT_ONCE
from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.elastic.files import write_atomic
from horae.lab import LabRequest
from horae.port import attend
from slurm_plugin.adapter import SlurmCluster, connect
from slurm_plugin.clients.command_reading import JOB_FIELDS, NODE_FIELDS
from slurm_plugin.clients.sealed import PLAIN
from slurm_plugin.lab.private import PrivateSlurm

ROOT = Path(__file__).parents[1]
ARRAY = 500
LANES = 4  #: of sbatch
#: By default slurmctld starts a hundred jobs at a time, and the others half a minute later: whatever was measured of
#: more was how far off that was.
SWIFT = "batch_sched_delay=0,sched_min_interval=0,default_queue_depth=20000"
_KIND = re.compile(r"^\s*(REQUEST_\w+)\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:\d+\s+total_time:(\d+)", re.MULTILINE)
#: Requests of the benchmark itself, or of daemons
_OTHERS = frozenset({"REQUEST_STATS_INFO", "REQUEST_STATS_RESET"})


class Cluster:
    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.lab = PrivateSlurm(folder / "slurm", ROOT / ".cache" / "slurm")
        more = f"MaxJobCount=40000\nMaxArraySize=10000\nMinJobAge=30\nSchedulerParameters={SWIFT}\n"
        self.lab.up(LabRequest("large", nodes=nodes, gpus=(("v100", 4),), options={"slurm.conf": more}))
        self._pid = int((self.lab.folder / "run/slurmctld.pid").read_text())
        (folder / "job.sh").write_text("#!/bin/sh\nexec sleep 36000\n")

    def shell(self, text: str) -> str:
        env = {**os.environ, **self.lab.env(), "LC_ALL": "C"}
        return subprocess.run(["sh", "-c", text], env=env, capture_output=True, text=True, check=True).stdout

    def say(self, lines: Sequence[str]) -> None:
        """To one scontrol."""
        env = {**os.environ, **self.lab.env()}
        text = "".join(f"{line}\n" for line in lines)
        subprocess.run(["scontrol"], env=env, input=text, text=True, check=True, stdout=subprocess.DEVNULL)

    def beat(self) -> None:
        write_atomic(str(self.lab.spool / "heartbeat"), f"time {int(time.time())}\nhold dl\n".encode())

    def fill(self, arrays: int, alone: int) -> None:
        batch = f"sbatch --output=/dev/null --chdir={self.folder} -p dl --gres=gpu:1"
        one = f"for i in $(seq {alone // LANES}); do {batch} --job-name=alone {self.folder}/job.sh; done"
        many = f"for i in $(seq {arrays}); do {batch} --array=1-{ARRAY} {self.folder}/job.sh; done"
        env = {**os.environ, **self.lab.env()}
        self.beat()
        lanes = [subprocess.Popen(["sh", "-c", each], env=env, stdout=subprocess.DEVNULL)
                 for each in (*[one] * LANES, many)]  # fmt: skip
        while any(lane.poll() is None for lane in lanes):
            self.beat()
            time.sleep(1.0)
        self.beat()

    def alone(self) -> list[str]:
        return self.shell("squeue -h -t PD -p dl -n alone -S i -o %i").split()

    def records(self) -> list[str]:
        """Waiting jobs, an array as one."""
        return sorted(set(self.shell("squeue -h -t PD -p dl -o %A").split()), key=int)

    def running(self) -> int:
        return int(self.shell("squeue -h -t R,CG -p dl | wc -l"))

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def asked(self) -> dict[str, tuple[int, float]]:
        """What slurmctld was asked so far: {kind: (how often, ms)}."""
        text = self.shell("sdiag")
        found = _KIND.findall(text[text.index("by message type") : text.index("by user")])
        return {name: (int(count), int(us) / 1000) for name, count, us in found if name not in _OTHERS}

    def measured(self, does: Callable[[], object]) -> dict[str, Any]:
        before, cpu_s, own_s, began = self.asked(), self.cpu_s(), time.process_time(), time.perf_counter()
        does()
        took_s = time.perf_counter() - began
        now, nothing = self.asked(), (0, 0.0)
        requests = {
            name: {"count": count - before.get(name, nothing)[0], "ms": round(ms - before.get(name, nothing)[1], 1)}
            for name, (count, ms) in now.items()
            if count > before.get(name, nothing)[0]
        }
        cpu = {"slurmctld_cpu_s": self.cpu_s() - cpu_s, "cpu_s": time.process_time() - own_s}
        return {"s": took_s, **cpu, "requests": requests}


def until(holds: Callable[[], bool], limit_s: float = 600.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not follow")
        time.sleep(0.2)


def lots(jobs: Sequence[str]) -> list[Sequence[str]]:
    """As the arbiter hands them to the port."""
    return [jobs[at : at + AT_ONCE] for at in range(0, len(jobs), AT_ONCE)]


def observations(cluster: Cluster, port: SlurmCluster) -> dict[str, Any]:
    def bare() -> None:
        fields = ",".join(f"{name}:|" for name in JOB_FIELDS)
        cluster.shell(f"squeue -h -a -r -t all -p dl -O '{fields}'")
        cluster.shell(f"sinfo -h -N -p dl -O '{PLAIN.format(NODE_FIELDS)}'")

    return {"bare": cluster.measured(bare), "horae": cluster.measured(port.observe)}


def granted(cluster: Cluster, port: SlurmCluster, count: int) -> dict[str, dict[str, Any]]:
    """Starts and cancels of `count` jobs by hand, and of as many others by the port."""
    numbers = cluster.alone()[: 2 * count]
    mine, ids = numbers[:count], set(numbers[count:])
    jobs = [job.id for job in port.observe().jobs if job.id.partition(".")[0] in ids]
    assert len(mine) == len(jobs) == count

    def by_hand() -> None:
        cluster.say([f"update jobid={job} StartTime=now" for job in mine])
        until(lambda: cluster.running() == count)

    def by_port() -> None:
        for lot in lots(jobs):
            assert not port.start_many([(job, {"n1": 1}, 1) for job in lot])
        until(lambda: cluster.running() == count)

    def cancel_by_port() -> None:
        for lot in lots(jobs):
            assert not port.cancel_many(lot)
        until(lambda: cluster.running() == 0)

    def cancel_by_hand() -> None:
        cluster.shell("scancel " + " ".join(mine))
        until(lambda: cluster.running() == 0)

    found: dict[str, dict[str, Any]] = {"start": {}, "cancel": {}}
    found["start"]["bare"] = cluster.measured(by_hand)
    found["cancel"]["bare"] = cluster.measured(cancel_by_hand)
    found["start"]["horae"] = cluster.measured(by_port)
    attend(port)
    found["cancel"]["horae"] = cluster.measured(cancel_by_port)
    return found


def handed_back(cluster: Cluster, options: dict[str, Any]) -> dict[str, Any]:
    """With the partition down, so that none starts. In between all are given their far begin time again."""
    far = time.strftime("%Y-%m-%d", time.localtime(time.time() + 366 * 86400))

    def parked() -> int:
        times = cluster.shell("SLURM_TIME_FORMAT=%s squeue -h -t PD -p dl -O EligibleTime").split()
        return sum(int(at_s) > time.time() + 180 * 86400 for at_s in times)

    cluster.shell("scontrol update PartitionName=dl State=DOWN")
    records = cluster.records()
    found: dict[str, Any] = {"records": len(records)}
    found["bare"] = cluster.measured(lambda: cluster.say([f"update jobid={job} StartTime=now" for job in records]))
    assert parked() == 0
    cluster.say([f"update jobid={job} StartTime={far}" for job in records])
    with tempfile.TemporaryDirectory() as memory:  # what is handed back is not ours any more
        port = connect({**options, "state": memory})
        port.claim("bench")
        jobs = [job.id for job in port.observe().jobs]
        found["jobs"] = len(jobs)
        found["horae"] = cluster.measured(lambda: port.release_many(jobs))
        port.close()
    assert parked() == 0
    cluster.say([f"update jobid={job} StartTime={far}" for job in records])
    cluster.shell("scontrol update PartitionName=dl State=UP")
    return found


def whole(cluster: Cluster, options: dict[str, Any], nodes: int, count: int) -> dict[str, Any]:
    """The whole arbiter, on as many nodes as `count` GPUs need: from its start until all of them run."""
    last = -(-count // 4)
    if last < nodes:
        cluster.shell(f"scontrol update nodename=n[{last + 1}-{nodes}] state=drain reason=benchmark")
    folder = cluster.folder / "arbiter"
    config = Config.model_validate({
        "state_dir": str(folder),
        "cluster": {"adapter": "slurm", "options": {**options, "state": str(folder / "memory")}},
        "pools": [{"name": "all", "policy": "max-min", "mode": "enforce"}],
        "rounds": {"decide_s": 120.0},
    })  # fmt: skip
    folder.mkdir()
    arbiter = Arbiter(config, connect(config.cluster.options))

    def fill() -> None:
        arbiter.start()
        until(lambda: cluster.running() >= last * 4)

    try:
        return {"jobs": last * 4, **cluster.measured(fill)}
    finally:
        arbiter.stop()


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    paired = [row["horae"]["s"] / row["bare"]["s"] for row in rows]
    spent = [_ms(row["horae"]) / max(_ms(row["bare"]), 0.1) for row in rows]
    return {"seconds": statistics.median(paired), "ms in slurmctld": statistics.median(spent)}


def _ms(row: dict[str, Any]) -> float:
    return float(sum(kind["ms"] for kind in row["requests"].values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=10000)
    parser.add_argument("--grants", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    alone = 2 * options.grants * options.rounds
    rows: dict[str, list[dict[str, Any]]] = {"observation": [], "start": [], "cancel": [], "release": []}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), options.nodes)
        try:
            cluster.fill(max(options.jobs - alone, 0) // ARRAY, alone + options.grants)
            facts = {"partitions": ["dl"], "spool": str(cluster.lab.spool), "env": cluster.lab.env(), "timeout_s": 120}
            port = connect({**facts, "state": str(cluster.folder / "memory")})
            port.claim("bench")
            waiting = len(port.observe().jobs)
            for _ in range(options.rounds):
                cluster.beat()
                rows["observation"].append(observations(cluster, port))
                for name, row in granted(cluster, port, options.grants).items():
                    rows[name].append(row)
            port.close()
            for _ in range(options.rounds):
                cluster.beat()
                rows["release"].append(handed_back(cluster, facts))
            arbiter = whole(cluster, facts, options.nodes, options.grants)
        finally:
            cluster.shell("scancel -p dl")
            cluster.lab.down()
    found = {name: ratios(each) for name, each in rows.items()}
    result = {"nodes": options.nodes, "jobs": waiting, "grants": options.grants, "ratio to bare, paired": found}
    record(Path(__file__), {**result, **rows, "whole arbiter": arbiter})
    print(waiting, {name: round(each["seconds"], 2) for name, each in found.items()}, round(arbiter["s"], 1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
