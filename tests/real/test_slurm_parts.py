"""GPUs that are shared out in parts, on a private Slurm: shards, MPS, and instances of several sizes on one node. None
is counted as free that anybody has a part of."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.lab import LabRequest
from horae.port import JobState, attend
from slurm_plugin.adapter import SlurmCluster, connect
from slurm_plugin.lab.private import PrivateSlurm
from tests.real.slurm import CACHE, reap_orphans, wait_for

pytestmark = [pytest.mark.real, pytest.mark.soak]

SLEEPS = "#!/bin/bash\nsleep 600\n"
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
#: Gres of each node: with shards, with MPS, and instances of two sizes
NODES = {"n1": "gpu:v100:4,shard:8", "n2": "gpu:v100:4,mps:400", "n3": "gpu:1g.5gb:3,gpu:3g.20gb:1"}
TYPES = {"n1": ("v100",) * 4, "n2": ("v100",) * 4, "n3": ("1g.5gb",) * 3 + ("3g.20gb",)}
PARTS = {"n1": "Name=shard Count=8", "n2": "Name=mps Count=400"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PrivateSlurm]:
    reap_orphans()
    made = PrivateSlurm(tmp_path / "slurm", CACHE)
    made.up(LabRequest(name="parts", nodes=3))
    try:
        for name in ("slurmd-n1", "slurmd-n2", "slurmd-n3", "slurmctld"):
            made.kill(name, signal.SIGTERM)
        etc = made.folder / "etc"
        conf = (etc / "slurm.conf").read_text().replace("GresTypes=gpu", "GresTypes=gpu,shard,mps")
        line = re.search(r"(?m)^NodeName=\S+ (.*) Gres=\S+ (.*) Port=\[?(\d+)\S* (.*)$", conf)
        assert line is not None
        rows = [
            f"NodeName={name} {line[1]} Gres={gres} {line[2]} Port={int(line[3]) + at} {line[4]}\n"
            for at, (name, gres) in enumerate(NODES.items())
        ]
        head, _, tail = re.sub(r"(?m)^NodeName=.*\n", "", conf).partition("PartitionName=")
        (etc / "slurm.conf").write_text(f"{head}{''.join(rows)}PartitionName={tail}")
        text = "AutoDetect=off\n"
        for name, types in TYPES.items():
            for kind, device in zip(types, DEVICES, strict=True):
                text += f"NodeName={name} Name=gpu Type={kind} File={device}\n"
            text += f"NodeName={name} {PARTS[name]}\n" if name in PARTS else ""
        (etc / "gres.conf").write_text(text)
        for path in (made.folder / "state").glob("node_state*"):
            path.unlink()
        made.start_controller()
        for name in NODES:
            made.start_node(name)
        wait_for("all are idle", lambda: made.run(["sinfo", "-hN", "-p", "dl", "-o", "%t"], check=False).stdout.split()
                 == ["idle"] * 3, 120)  # fmt: skip
        yield made
    finally:
        made.down()


@pytest.fixture
def port(lab: PrivateSlurm, tmp_path: Path) -> Iterator[SlurmCluster]:
    made = connect({**lab.facts(), "state": str(tmp_path / "memory")})
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


def other(lab: PrivateSlurm, gres: str, node: str) -> str:
    """A job that Horae has no part in."""
    return lab.submit(SLEEPS, {}, ["--partition=raw", "--output=/dev/null", f"--gres={gres}", f"--nodelist={node}"])


def test_what_anybody_has_a_part_of_is_granted_to_nobody(lab: PrivateSlurm, port: SlurmCluster) -> None:
    whole = left(port)
    assert (whole["n1"], whole["n2"]) == (4, 4)
    assert whole["n3"] <= 4, "never more than there are, whatever their sizes"

    shards = [other(lab, "shard:2", "n1"), other(lab, "shard:1", "n1")]
    other(lab, "mps:50", "n2")
    other(lab, "gpu:3g.20gb:1", "n3")
    wait_for("they run", lambda: len(lab.run(["squeue", "-h", "-t", "R", "-o", "%i"]).stdout.split()) == 4)
    used = lab.run(["sinfo", "-hN", "-p", "raw", "-O", "GresUsed:190"]).stdout
    now = left(port)
    assert 2 <= now["n1"] <= 3, used  # three shards lie on one GPU or on two
    assert now["n2"] == 3, used
    assert now["n3"] <= 3, used

    ours = lab.submit(SLEEPS, {}, ["--partition=dl", "--output=/dev/null", f"--gres=gpu:{now['n1']}", "--nodelist=n1"])
    job = next(each.id for each in attend(port).jobs if each.id.partition(".")[0] == ours)
    port.start(job, {"n1": now["n1"]}, 1)

    def runs() -> bool:
        return next(each for each in attend(port).jobs if each.id == job).state is JobState.RUNNING

    wait_for("all that was left can be had", runs)
    assert left(port)["n1"] == 0
    for each in shards:
        lab.run(["scancel", each])
    wait_for("what they had a part of is free", lambda: left(port)["n1"] == 4 - now["n1"])
