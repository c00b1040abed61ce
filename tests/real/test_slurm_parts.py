"""GPUs that are shared out in parts, on three releases of a real Slurm: shards, MPS, and instances of several sizes on
one node. None is counted as free that anybody has a part of."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horae.port import JobState, attend
from slurm_plugin.adapter import SlurmCluster, connect
from tests.real.slurm import Containers, Private, RealSlurm, containers_of, wait_for

pytestmark = [pytest.mark.real, pytest.mark.soak]

SLEEPS = "#!/bin/bash\nsleep 600\n"
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
#: Gres of each node: with shards, with MPS, instances of two sizes, and a type of digits alone
NODES = {
    "n1": "gpu:v100:4,shard:8", "n2": "gpu:v100:4,mps:400", "n3": "gpu:1g.5gb:3,gpu:3g.20gb:1", "n4": "gpu:3090:4",
}  # fmt: skip
TYPES = {"n1": ("v100",) * 4, "n2": ("v100",) * 4, "n3": ("1g.5gb",) * 3 + ("3g.20gb",), "n4": ("3090",) * 4}
PARTS = {"n1": "Name=shard Count=8", "n2": "Name=mps Count=400"}


def confs(conf: str, more: Callable[[int], str]) -> tuple[str, str]:
    """slurm.conf with these nodes in the place of its own (`more`: what else is said of each), and gres.conf."""
    conf = conf.replace("GresTypes=gpu\n", "GresTypes=gpu,shard,mps\n")
    line = re.search(r"(?m)^NodeName=\S+ (CPUs=\d+ RealMemory=\d+) ", conf)
    assert line is not None
    rows = [
        f"NodeName={name} {line[1]} Gres={gres} {more(at)} State=UNKNOWN\n"
        for at, (name, gres) in enumerate(NODES.items())
    ]
    head, _, tail = re.sub(r"(?m)^NodeName=.*\n", "", conf).partition("PartitionName=")
    tail = re.sub(r"(?m)Nodes=n\S+", f"Nodes={','.join(NODES)}", tail)
    text = "AutoDetect=off\n"
    for name, types in TYPES.items():
        for kind, device in zip(types, DEVICES, strict=True):
            text += f"NodeName={name} Name=gpu Type={kind} File={device}\n"
        text += f"NodeName={name} {PARTS[name]}\n" if name in PARTS else ""
    return f"{head}{''.join(rows)}PartitionName={tail}", text


def private(folder: Path) -> Private:
    made = Private(folder)
    for name in (*(f"slurmd-n{number}" for number in range(1, 9)), "slurmctld"):
        made.lab.kill(name, signal.SIGTERM)
    etc = made.lab.folder / "etc"
    conf = (etc / "slurm.conf").read_text()
    where = re.search(r"(?m)^NodeName=.* (NodeHostname=\S+ NodeAddr=\S+) Port=\[?(\d+)", conf)
    assert where is not None
    texts = confs(conf, lambda at: f"{where[1]} Port={int(where[2]) + at}")
    for name, text in zip(("slurm.conf", "gres.conf"), texts, strict=True):
        (etc / name).write_text(text)
    for path in (made.lab.folder / "state").glob("node_state*"):
        path.unlink()
    made.lab.start_controller()
    for name in NODES:
        made.lab.start_node(name)
    return made


def contained(release: str, folder: Path) -> Containers:
    made = containers_of(release, folder, "p")
    etc = made.lab.folder / "etc"
    for name, text in zip(
        ("slurm.conf", "gres.conf"), confs((etc / "slurm.conf").read_text(), lambda at: ""), strict=True
    ):
        (etc / name).write_text(text)
    made.run("scontrol", "reconfigure")
    return made


@pytest.fixture(params=["22.05", "24.11", "26.05"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealSlurm]:
    folder = tmp_path / "slurm"
    made = private(folder) if request.param == "22.05" else contained(request.param, folder)

    def idle() -> bool:
        shown = made.run("sinfo", "-hN", "-p", "dl", "-O", "NodeList:20,StateLong:20,Gres:90").splitlines()
        words = [line.split() for line in shown]
        return [(node, state) for node, state, _ in words] == [(name, "idle") for name in NODES] and all(
            NODES[node].partition(",")[0] in gres for node, _, gres in words
        )

    try:
        wait_for("all are idle with what they have", idle, 120)
        yield made
    finally:
        made.down()


@pytest.fixture
def port(site: RealSlurm, tmp_path: Path) -> Iterator[SlurmCluster]:
    made = connect({**site.options("dl"), "state": str(tmp_path / "memory")})
    made.claim("parts")
    made.heartbeat()
    yield made
    made.close()


def left(port: SlurmCluster) -> dict[str, int]:
    """GPUs that nobody has, nor a part of: what the arbiter would grant."""
    seen = attend(port)
    held: dict[str, int] = {}
    for job in seen.jobs:
        for node, count in job.allocation.items():
            held[node] = held.get(node, 0) + count
    return {node.name: node.gpus - node.foreign - held.get(node.name, 0) for node in seen.nodes}


def other(site: RealSlurm, gres: str, node: str) -> str:
    """A job that Horae has no part in."""
    return site.submit(SLEEPS, "--partition=raw", "--output=/dev/null", f"--gres={gres}", f"--nodelist={node}")


def test_what_anybody_has_a_part_of_is_granted_to_nobody(site: RealSlurm, port: SlurmCluster) -> None:
    whole = left(port)
    assert (whole["n1"], whole["n2"]) == (4, 4)
    assert whole["n3"] <= 4, "never more than there are, whatever their sizes"

    shards = [other(site, "shard:2", "n1"), other(site, "shard:1", "n1")]
    other(site, "mps:50", "n2")
    other(site, "gpu:3g.20gb:1", "n3")
    wait_for("they run", lambda: len(site.run("squeue", "-h", "-t", "R", "-o", "%i").split()) == 4)
    used = site.run("sinfo", "-hN", "-p", "raw", "-O", "GresUsed:190")
    now = left(port)
    assert 2 <= now["n1"] <= 3, used  # three shards lie on one GPU or on two
    assert now["n2"] == 3, used
    assert now["n3"] <= 3, used

    port.heartbeat()
    ours = site.submit(SLEEPS, "--partition=dl", "--output=/dev/null", f"--gres=gpu:{now['n1']}", "--nodelist=n1")
    job = next(each.id for each in attend(port).jobs if each.id.partition(".")[0] == ours)
    port.start(job, {"n1": now["n1"]}, 1)

    def runs() -> bool:
        return next(each for each in attend(port).jobs if each.id == job).state is JobState.RUNNING

    wait_for("all that was left can be had", runs)
    assert left(port)["n1"] == 0
    for each in shards:
        site.run("scancel", each)
    wait_for("what they had a part of is free", lambda: left(port)["n1"] == 4 - now["n1"])


def test_a_job_of_every_type_runs(site: RealSlurm, port: SlurmCluster) -> None:
    """Of digits alone it is planned; the lesser type of a node is Slurm's own, who took the job at submission."""
    jobs = {
        kind: site.submit(SLEEPS, "--partition=dl", "--output=/dev/null", f"--gres=gpu:{kind}:{count}")
        for kind, count in {"3090": 2, "3g.20gb": 1}.items()
    }
    seen = {job.id.partition(".")[0]: job for job in attend(port).jobs}
    spec = seen[jobs["3090"]].spec
    assert spec is not None
    assert (spec.gpu_types, spec.gpus.requested) == (("3090",), 2)
    port.start(seen[jobs["3090"]].id, {"n4": 2}, 1)
    ids = ",".join(jobs.values())

    def run() -> bool:
        attend(port)
        return len(site.run("squeue", "-h", "-j", ids, "-t", "R", "-o", "%N").split()) == 2

    wait_for("both run", run)
    assert left(port)["n4"] == 2
    assert jobs["3g.20gb"] not in {job.id.partition(".")[0] for job in attend(port).jobs}
