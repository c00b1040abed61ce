"""What does one observation of a long queue cost by each client, for us and for slurmctld?

A real slurmctld in containers, held jobs in its managed partition (nine of ten in arrays of 500), and side by side, in
one run: bare `squeue -O` of the same fields (the floor), the reads of each client (jobs and nodes as rows), and the
adapter's whole observation. Told: seconds, slurmctld's CPU seconds, and requests to slurmctld a round as sdiag counts
them.

    python benchmarks/slurm_observe.py [--release 26.05] [--queue 2000 10000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import record

from horae.lab import LabRequest
from slurm_plugin.adapter import SlurmCluster, connect
from slurm_plugin.clients.command_reading import JOB_FIELDS
from slurm_plugin.clients.sealed import Seal
from slurm_plugin.lab.containers import ContainerSlurm
from slurm_plugin.lab.pyslurm import with_pyslurm

CACHE = Path(__file__).parents[1] / ".cache" / "slurm"
SCRIPT = "#!/bin/bash\nexec sleep 600\n"
ARRAY = 500
_COUNT = re.compile(r"^\s*(\w+)\s+\(\s*\d+\)\s+count:(\d+)", re.MULTILINE)
#: what daemons say of themselves, not what was asked
_OTHERS = frozenset({"REQUEST_STATS_INFO", "REQUEST_STATS_RESET", "MESSAGE_NODE_REGISTRATION_STATUS"})


class Cluster:
    def __init__(self, folder: Path, release: str) -> None:
        self.lab = ContainerSlurm("bench-observe", folder, lambda text: print(text, file=sys.stderr))
        self.lab.up(LabRequest(name="bench-observe", release=release, nodes=8))
        self.pyslurm = with_pyslurm(self.lab, CACHE) if release == "26.05" else ""
        self.have = 0

    def fill(self, length: int) -> None:
        """Held elastic jobs of one user: arrays, and every tenth a job of its own."""
        alone = length // 10 - self.have // 10
        options = ["--partition=dl", "--gres=gpu:1", "--hold", "--comment=horae:min=1,max=8", "--output=/dev/null"]
        self.lab.submit(SCRIPT, {}, options)
        loop = f"for i in $(seq {alone}); do sbatch {' '.join(options)} /shared/submitted.sh >/dev/null || exit 1; done"
        self.lab.must("ctl", ["sh", "-c", loop], user="alice")
        rest = length - self.have - alone - 1
        while rest > 0:
            self.lab.submit(SCRIPT, {}, [*options, f"--array=1-{min(rest, ARRAY)}"])
            rest -= ARRAY
        self.have = length

    def cpu_s(self) -> float:
        pid = self.lab.must("ctl", ["pgrep", "-o", "-x", "slurmctld"])
        fields = self.lab.must("ctl", ["cat", f"/proc/{pid}/stat"]).rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def requests(self) -> int:
        text = self.lab.must("ctl", ["sdiag"])
        counts = _COUNT.findall(text[text.index("by message type") : text.index("by user")])
        return sum(int(count) for name, count in counts if name not in _OTHERS)

    def connect(self, **more: Any) -> SlurmCluster:
        options = {**self.lab.facts(), "hold": False, "timeout_s": 120, "requests_per_s": 1000, **more}
        port = connect({**options, "state": str(self.lab.folder / f"memory-{more.get('client', 'auto')}")})
        port.facts()
        return port


def measured(cluster: Cluster, call: Callable[[], object], rounds: int) -> dict[str, float]:
    call()  # the first opens connections
    times = []
    requests, cpu_s = cluster.requests(), cluster.cpu_s()
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return {
        "median_s": statistics.median(times),
        "slurmctld_cpu_s": (cluster.cpu_s() - cpu_s) / rounds,
        "requests": (cluster.requests() - requests) / rounds,
    }


def observation(cluster: Cluster, length: int, rounds: int) -> dict[str, Any]:
    cluster.fill(length)
    squeue = ["squeue", "-h", "-a", "-r", "-t", "all", "-p", "dl", "-O", Seal.fresh().format(JOB_FIELDS)]
    rest = {"rest_url": f"http://{cluster.lab.address('rest')}:6820"}
    ports = {"command": cluster.connect(client="command"), "slurmrestd": cluster.connect(client="slurmrestd", **rest)}
    if cluster.pyslurm:
        ports["pyslurm"] = cluster.connect(client="pyslurm", pyslurm=cluster.pyslurm)
    transport = ports["command"]._transport
    result: dict[str, Any] = {"bare squeue -O": measured(cluster, lambda: transport.run(squeue, 120.0), rounds)}
    result["jobs"] = len(ports["command"].client.jobs(["dl"]))
    for name, port in ports.items():
        result[f"{name}: jobs and nodes"] = measured(cluster, lambda port=port: _read(port), rounds)  # type: ignore[misc]
        result[f"{name}: whole observation"] = measured(cluster, port.observe, rounds)
        assert not port.observe().notes, "another client did a part of it"
        port.close()
    floor = result["bare squeue -O"]["median_s"]
    result["ratio to bare squeue"] = {
        name: row["median_s"] / floor for name, row in result.items() if isinstance(row, dict) and "median_s" in row
    }
    return result


def _read(port: SlurmCluster) -> None:
    port.client.jobs(["dl"])
    port.client.nodes(["dl"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="26.05")
    parser.add_argument("--queue", type=int, nargs="*", default=[2000, 10000])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    result: dict[str, Any] = {"release": options.release, "observations": []}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder) / "lab", options.release)
        try:
            for length in options.queue:
                result["observations"].append(observation(cluster, length, options.rounds))
        finally:
            cluster.lab.down()
    record(Path(__file__), result, ("httpx", "paramiko"))
    for found in result["observations"]:
        print(found["jobs"], {name: round(ratio, 2) for name, ratio in found["ratio to bare squeue"].items()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
