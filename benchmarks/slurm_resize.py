"""What does the adapter add to a resize, and to reading a long queue, on a real slurmctld?

Resize: the same job is stopped and started on alternating shapes that share a node, by the bare commands (scancel,
squeue, one scontrol for update and release, the mandatory second between) and by the adapter. Observation: the
adapter's whole observation against one bare `squeue -O` and one `sinfo -O` of the same fields, at several lengths of
the queue, with slurmctld's CPU time. Together: sixteen jobs re-laid out at once, by one scancel and one scontrol (all
updates, then all releases) and by the adapter. Arrival: from sbatch to RUNNING, under plain Slurm and under the whole
arbiter; and slurmctld's own count of what it was asked meanwhile, by kind, in all (`sdiag`). Each pair begins at the
same moment of a second, spread evenly over it.

    python benchmarks/slurm_resize.py [--cycles 10] [--queue 500 2000] [--arrivals 10]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import record

from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.lab import LabRequest
from horae.port import JobState, ObservedJob, attend
from slurm_plugin.adapter import SlurmCluster, connect
from slurm_plugin.clients.command_reading import JOB_FIELDS, NODE_FIELDS
from slurm_plugin.lab.private import PrivateSlurm

ROOT = Path(__file__).parents[1]
SCRIPT = "#!/bin/bash\ntrap 'exit 86' USR1\nwhile :; do sleep 0.02; done\n"
SHAPES = (("n1",), ("n1", "n2"))
_GOLDEN = 0.6180339887498949  #: its multiples are spread evenly over a second


def until(holds: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not follow")
        time.sleep(0.02)


def aligned(index: int) -> None:
    """Wait for the index-th of moments that are spread evenly over a second: slurmctld looks for jobs to start as each
    second begins, so what is compared begins at the same moment of one."""
    time.sleep((index * _GOLDEN - time.time()) % 1.0)


def floor(lab: PrivateSlurm, job: str, nodes: tuple[str, ...], first: bool) -> float:
    """One resize by hand; seconds from the request to stop until the new shape runs."""

    def state() -> str:
        return lab.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]).stdout.strip()

    began = time.monotonic()
    if not first:
        lab.run(["scancel", "-b", "-s", "USR1", job])
        until(lambda: state() == "SPECIAL_EXIT")
        time.sleep(1.0)
    count = len(nodes)
    update = f"update jobid={job} StartTime=now NumNodes={count}-{count} NumTasks={count} NumCPUs={count} "
    update += f"ReqNodeList={','.join(nodes)} Gres=gpu:2"
    lab.run(["scontrol"], input=f"{update}\nrelease {job}\n")
    until(lambda: state() == "RUNNING")
    return time.monotonic() - began


def ours(port: SlurmCluster, job: str, nodes: tuple[str, ...], epoch: int) -> float:
    def seen() -> ObservedJob:
        return next(each for each in attend(port).jobs if each.id == job)

    began = time.monotonic()
    if epoch > 1:
        port.checkpoint_and_stop(job, 20)
        until(lambda: seen().state is JobState.STOPPED)
    port.start(job, dict.fromkeys(nodes, 2), epoch)
    until(lambda: seen().state is JobState.RUNNING)
    return time.monotonic() - began


def compared(times: dict[str, list[float]]) -> dict[str, Any]:
    """`ratio` is of the medians; `ratio_paired` the median over cycles, each against the floor beside it."""
    medians = {name: statistics.median(values) for name, values in times.items()}
    paired = [ours / floor for ours, floor in zip(times["adapter"], times["floor"], strict=True)]
    ratio = medians["adapter"] / medians["floor"]
    return {"median_s": medians, "ratio": ratio, "ratio_paired": statistics.median(paired), "all_s": times}


def resizes(lab: PrivateSlurm, port: SlurmCluster, cycles: int) -> dict[str, Any]:
    script = lab.folder / "shared" / "bench.sh"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    common = ["sbatch", "--parsable", "--gres=gpu:1", "--requeue", "--output=/dev/null"]
    bare = lab.run([*common, "--hold", "--partition=raw", str(script)]).stdout.strip()
    lab.run([*common, "--partition=dl", "--comment=horae:min=1,max=8", str(script)])
    held = attend(port).jobs[-1].id
    times: dict[str, list[float]] = {"floor": [], "adapter": []}
    for cycle in range(cycles + 1):  # side by side, so that both meet the same machine
        nodes = SHAPES[cycle % 2]
        aligned(cycle)
        by_hand = floor(lab, bare, tuple(f"n{int(node[1:]) + 4}" for node in nodes), cycle == 0)
        aligned(cycle)
        by_us = ours(port, held, nodes, cycle + 1)
        time.sleep(1.0)  # a start younger than two seconds may have no trap yet, and is not signalled
        if cycle:  # the first is a start, not a resize
            times["floor"].append(by_hand)
            times["adapter"].append(by_us)
    port.cancel(held)
    lab.run(["scancel", bare])
    return {"cycles": cycles, **compared(times)}


def together(lab: PrivateSlurm, port: SlurmCluster, cycles: int, count: int = 16) -> dict[str, Any]:
    """`count` jobs of one GPU each, all moved to the next node in one go; the floor's are on the nodes' other GPUs.

    No job comes back to a node that it left, so neither side has to wait out the mandatory second.
    """
    script, nodes = lab.folder / "shared" / "bench.sh", 8
    common = ["sbatch", "--parsable", "--gres=gpu:1", "--requeue", "--output=/dev/null"]
    bare = [lab.run([*common, "--hold", "--partition=raw", str(script)]).stdout.strip() for _ in range(count)]
    known = {job.id for job in attend(port).jobs}
    for _ in range(count):
        lab.run([*common, "--partition=dl", "--comment=horae:min=1,max=8", str(script)])
    held = [job.id for job in attend(port).jobs if job.id not in known]

    def states(ids: str) -> set[str]:
        return set(lab.run(["squeue", "-h", "-t", "all", "-j", ids, "-o", "%T"]).stdout.split())

    def seen() -> set[JobState]:
        return {job.state for job in attend(port).jobs if job.id in held}

    times: dict[str, list[float]] = {"floor": [], "adapter": []}
    for cycle in range(cycles + 1):
        aligned(cycle)
        began, ids = time.monotonic(), ",".join(bare)
        if cycle:
            lab.run(["scancel", "-b", "-s", "USR1", *bare])
            until(lambda ids=ids: states(ids) == {"SPECIAL_EXIT"}, 60)  # type: ignore[misc]
        lines = [
            f"update jobid={job} StartTime=now NumNodes=1-1 NumTasks=1 NumCPUs=1 "
            f"ReqNodeList=n{(at + cycle) % nodes + 1} Gres=gpu:1\n"
            for at, job in enumerate(bare)
        ]
        lab.run(["scontrol"], input="".join([*lines, *(f"release {job}\n" for job in bare)]))
        until(lambda ids=ids: states(ids) == {"RUNNING"}, 60)  # type: ignore[misc]
        by_hand = time.monotonic() - began
        aligned(cycle)
        began = time.monotonic()
        if cycle:
            assert not port.stop_many([(job, 20) for job in held])
            until(lambda: seen() == {JobState.STOPPED}, 60)
        shapes = [(job, {f"n{(at + cycle) % nodes + 1}": 1}, cycle + 1) for at, job in enumerate(held)]
        assert not port.start_many(shapes)
        until(lambda: seen() == {JobState.RUNNING}, 60)
        by_us = time.monotonic() - began
        attend(port)
        time.sleep(2.5)  # starts younger than two seconds may have no trap yet
        if cycle:
            times["floor"].append(by_hand)
            times["adapter"].append(by_us)
    for job in held:
        port.cancel(job)
    lab.run(["scancel", *bare])
    return {"jobs": count, **compared(times)}


def requests(lab: PrivateSlurm) -> Counter[str]:
    """What slurmctld was asked so far, by kind: without what its daemons say, and without this question."""
    text = lab.run(["sdiag"]).stdout
    text = text[text.index("by message type") : text.index("by user")]
    found = re.findall(r"^\s*(REQUEST_\w+)\s+\(\s*\d+\)\s+count:(\d+)", text, re.MULTILINE)
    return Counter({name: int(count) for name, count in found if "STATS" not in name})


def arrival(lab: PrivateSlurm, jobs: int) -> dict[str, Any]:
    """Seconds from calling sbatch until the job runs: in a partition that is Slurm's own, and in a managed one."""
    script = lab.folder / "shared" / "bench.sh"
    config = Config.model_validate({
        "state_dir": str(lab.folder / "arbiter"),
        "cluster": {"adapter": "slurm", "options": {**lab.facts(), "state": str(lab.folder / "memory-2")}},
        "pools": [{"name": "all", "policy": "max-min", "mode": "enforce", "nodes": "n[1-8]"}],
    })  # fmt: skip
    arbiter = Arbiter(config, connect(config.cluster.options))
    arbiter.start()
    times: dict[str, list[float]] = {"raw": [], "dl": []}
    asked: dict[str, Counter[str]] = {"raw": Counter(), "dl": Counter()}
    try:
        until(arbiter.ready.is_set, 60)
        for index in range(2 * jobs):
            partition = ("raw", "dl")[index % 2]
            time.sleep(1.0)
            aligned(index // 2)
            before, began = requests(lab), time.monotonic()
            argv = ["sbatch", "--parsable", "--gres=gpu:1", f"--partition={partition}", "--output=/dev/null"]
            job = lab.run([*argv, str(script)]).stdout.strip()
            query = ["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]
            until(lambda query=query: "RUNNING" in lab.run(query).stdout, 120)  # type: ignore[misc]
            times[partition].append(time.monotonic() - began)
            asked[partition] += requests(lab) - before
            lab.run(["scancel", job])
    finally:
        arbiter.stop()
    medians = {"plain": statistics.median(times["raw"]), "horae": statistics.median(times["dl"])}
    more = [ours - plain for ours, plain in zip(times["dl"], times["raw"], strict=True)]
    return {
        "jobs": jobs, "median_s": medians, "ratio": medians["horae"] / medians["plain"], "all_s": times,
        "later_than_plain_s": statistics.median(more),
        "requests": {{"raw": "plain", "dl": "horae"}[name]: dict(count) for name, count in asked.items()},
    }  # fmt: skip


def observation(lab: PrivateSlurm, port: SlurmCluster, length: int, have: int) -> dict[str, Any]:
    script = lab.folder / "shared" / "bench.sh"
    for _ in range((length - have) // 500):
        lab.run(["sbatch", "--parsable", "--array=1-500", "--gres=gpu:1", "--comment=horae:min=1,max=8", str(script)])
    pid = int((lab.folder / "run/slurmctld.pid").read_text())

    def cpu() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def bare() -> None:
        lab.run(["squeue", "-h", "-r", "-t", "all", "-p", "dl", "-O", ",".join(f"{name}:|" for name in JOB_FIELDS)])
        lab.run(["sinfo", "-h", "-N", "-p", "dl", "-O", ",".join(f"{name}:|" for name in NODE_FIELDS)])

    result: dict[str, Any] = {"jobs": len(attend(port).jobs)}
    for name, call in (("bare", bare), ("adapter", port.observe)):
        before, times = cpu(), []
        calls = port.client.calls
        for _ in range(5):
            began = time.monotonic()
            call()
            times.append(time.monotonic() - began)
        result[name] = {"median_s": statistics.median(times), "slurmctld_cpu_s": (cpu() - before) / 5}
        if name == "adapter":
            result["requests_a_round"] = (port.client.calls - calls) / 5
    result["ratio"] = result["adapter"]["median_s"] / result["bare"]["median_s"]
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--queue", type=int, nargs="*", default=[500, 2000])
    parser.add_argument("--arrivals", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lab = PrivateSlurm(Path(folder) / "lab", ROOT / ".cache" / "slurm")
        lab.up(LabRequest(name="bench", nodes=8))
        port = connect(lab.facts())
        try:
            port.claim("benchmark")
            port.heartbeat()
            result: dict[str, Any] = {"resize": resizes(lab, port, options.cycles), "observation": []}
            result["together"] = together(lab, port, max(options.cycles // 2, 1))
            result["arrival"] = arrival(lab, options.arrivals)
            port.claim("benchmark")
            have = 0
            for length in options.queue:
                port.heartbeat()
                result["observation"].append(observation(lab, port, length, have))
                have = length
            result["slurm"] = port.facts().version
        finally:
            port.close()
            lab.down()
    record(Path(__file__), result)
    for name in ("resize", "together", "arrival"):
        print(name, {key: round(value, 3) for key, value in result[name].items() if key.startswith("ratio")})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
