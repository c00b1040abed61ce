"""Racks, licences and uneven splits on a private Slurm."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from horae.lab import LabRequest
from horae.port import BlockKind, JobState, Never, attend
from policy.model import BadInput, Health
from slurm_plugin.adapter import SlurmCluster, connect
from slurm_plugin.lab.private import PrivateSlurm
from tests.real.slurm import CACHE, reap_orphans, wait_for

pytestmark = pytest.mark.real

PLAIN = "#!/bin/bash\ntrap 'exit 86' USR1\nwhile :; do sleep 0.05; done\n"
#: few JobIds, and none kept for long after its job
NUMBERS = "FirstJobId=900\nMaxJobId=920\nMinJobAge=2\n"
RACKS = "SwitchName=left Nodes=n[1-2]\nSwitchName=right Nodes=n[3-4]\nSwitchName=spine Switches=left,right\n"


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    folder = tmp_path_factory.mktemp("slurm")
    reap_orphans()
    made = PrivateSlurm(folder, CACHE)
    try:
        made.up(LabRequest(name="features", nodes=4, options={"slurm.conf": f"Licenses=matlab:1\n{NUMBERS}"}))
    except BadInput as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no private Slurm here: {error}")
    yield made
    made.down()


@pytest.fixture
def port(lab: PrivateSlurm, tmp_path: Path) -> Iterator[SlurmCluster]:
    made = connect({**lab.facts(), "state": str(tmp_path / "memory"), "blocked_after_s": 12.0})
    made.claim("features")
    made.heartbeat()
    yield made
    made.close()


def state(port: SlurmCluster, job: str) -> JobState:
    return next(each for each in attend(port).jobs if each.id == job).state


def submitted(lab: PrivateSlurm, port: SlurmCluster, *options: str) -> str:
    common = ["--partition=dl", "--gres=gpu:1", "--comment=horae:min=1,max=4", "--output=/dev/null"]
    number = lab.submit(PLAIN, {}, [*common, *options])
    return next(job.id for job in attend(port).jobs if job.id.split(".")[0] == number)


def test_a_licence_in_use_blocks_the_next_job_and_a_stop_frees_it(lab: PrivateSlurm, port: SlurmCluster) -> None:
    first, second = (submitted(lab, port, "--licenses=matlab:1") for _ in range(2))
    port.start(first, {"n1": 1}, 1)
    wait_for("the first runs", lambda: state(port, first) is JobState.RUNNING)
    port.start(second, {"n2": 1}, 1)

    def blocked() -> bool:
        job = next(each for each in attend(port).jobs if each.id == second)
        return job.blocked is not None and job.blocked.kind is BlockKind.OTHER and "Licenses" in job.blocked.text

    wait_for("the second is blocked by its licence", blocked)
    wait_for("and taken back", lambda: state(port, second) is JobState.QUEUED)
    port.checkpoint_and_stop(first, 120.0)
    wait_for("the first left", lambda: state(port, first) is JobState.STOPPED)
    port.start(second, {"n2": 1}, 2)
    wait_for("its licence is free", lambda: state(port, second) is JobState.RUNNING)


def test_leaf_switches_are_racks(lab: PrivateSlurm, port: SlurmCluster) -> None:
    assert {node.rack for node in attend(port).nodes} == {None}
    lab.kill("slurmctld", signal.SIGTERM)
    (lab.folder / "etc/topology.conf").write_text(RACKS)
    conf = lab.folder / "etc/slurm.conf"
    conf.write_text(conf.read_text() + "TopologyPlugin=topology/tree\n")
    lab.start_controller()
    fresh = connect({**lab.facts(), "state": str(lab.folder / "fresh")})
    try:
        wait_for("slurmctld answers", lambda: bool(lab.run(["sinfo", "-h"], check=False).stdout))
        racks = {node.name: node.rack for node in fresh.observe().nodes}
    finally:
        fresh.close()
    assert racks == {"n1": "left", "n2": "left", "n3": "right", "n4": "right"}


def test_an_uneven_split_of_a_total_is_seen_as_it_is(lab: PrivateSlurm, tmp_path: Path) -> None:
    """A job of the users' own, which asked for GPUs over two nodes and got what was free on each."""
    common = ["--partition=raw", "--output=/dev/null"]
    lab.submit(PLAIN, {}, [*common, "--gpus=3", "--nodes=1", "--nodelist=n1"])
    lab.submit(PLAIN, {}, [*common, "--gpus=4", "--nodes=2", "--ntasks=2", "--nodelist=n[1-2]"])
    watching = connect({**lab.facts(), "partitions": ["raw"], "hold": False, "state": str(tmp_path / "watching")})
    try:
        wait_for("both run", lambda: [job.state for job in watching.observe().jobs] == [JobState.RUNNING] * 2)
        made = watching.client.calls
        seen = watching.observe()
        assert watching.client.calls - made == 4, "the split is asked for once"
    finally:
        watching.close()
    shapes = sorted((dict(job.allocation) for job in seen.jobs), key=len)
    assert shapes == [{"n1": 3}, {"n1": 1, "n2": 3}]
    assert {node.name: node.foreign for node in seen.nodes} == {"n1": 0, "n2": 0, "n3": 0, "n4": 0}


def test_a_grant_wakes_a_node_that_is_powered_down(lab: PrivateSlurm, tmp_path: Path) -> None:
    """All nodes sleep, and their daemons are gone. Slurm wakes those that are granted; here the test is its cloud."""
    conf = lab.folder / "etc/slurm.conf"
    power = "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=3600\nSuspendTimeout=1\nResumeTimeout=300\n"
    conf.write_text(conf.read_text() + power)
    lab.kill("slurmctld", signal.SIGTERM)
    lab.start_controller()
    wait_for("slurmctld answers", lambda: bool(lab.run(["sinfo", "-h"], check=False).stdout))

    def states() -> list[str]:
        return lab.run(["sinfo", "-hN", "-p", "dl", "-o", "%t"]).stdout.split()

    lab.run(["scontrol", "update", "nodename=n[1-4]", "state=power_down_force"])
    wait_for("all sleep", lambda: states() == ["idle~"] * 4, 200)
    for at in range(1, 5):
        lab.kill(f"slurmd-n{at}")
    made = connect({**lab.facts(), "state": str(tmp_path / "memory"), "blocked_after_s": 12.0})
    try:
        made.claim("features")
        made.heartbeat()
        # Its place is Slurm's to find: on less than a whole node it might come to n3, which wakes by then.
        rigid = lab.submit("#!/bin/bash\nsleep 600\n", {}, ["--partition=dl", "--gres=gpu:4", "--output=/dev/null"])
        elastic = submitted(lab, made)
        seen = attend(made)
        assert {(node.health, node.wake_s) for node in seen.nodes} == {(Health.UP, 300.0)}
        first = next(job.id for job in seen.jobs if job.id.partition(".")[0] == rigid)
        made.start(elastic, {"n3": 1}, 1)
        made.start(first, {"n1": 4}, 1)
        wait_for("Slurm wakes two", lambda: attend(made) and sum(each.endswith("#") for each in states()) == 2)
        assert states()[2] == "mix#"
        assert {state(made, job) for job in (first, elastic)} == {JobState.STARTING}
        for at, each in enumerate(states(), start=1):
            if each.endswith("#"):
                lab.start_node(f"n{at}", "-b")
        for job in (first, elastic):
            wait_for("it runs on a node that woke", lambda job=job: state(made, job) is JobState.RUNNING, 200)  # type: ignore[misc]
        assert next(node for node in attend(made).nodes if node.name == "n3").wake_s == 0.0
    finally:
        made.close()


@pytest.mark.soak
def test_a_number_that_slurm_gives_out_again_is_another_job(lab: PrivateSlurm, port: SlurmCluster) -> None:
    old = submitted(lab, port)
    port.start(old, {"n1": 1}, 1)
    wait_for("it runs", lambda: state(port, old) is JobState.RUNNING)
    number = old.partition(".")[0]
    lab.run(["scancel", number])
    for _ in range(12):
        port.heartbeat()
        lab.run(["scancel", lab.submit(PLAIN, {}, ["--partition=dl", "--gres=gpu:1", "--output=/dev/null"])])

    def forgotten() -> bool:
        attend(port)
        return number not in lab.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout.split()

    wait_for("Slurm has forgotten it", forgotten, 200)
    again = ""
    while again.partition(".")[0] != number:
        port.heartbeat()
        again = submitted(lab, port)
        if again.partition(".")[0] != number:
            lab.run(["scancel", again.partition(".")[0]])
    assert again != old
    job = next(each for each in attend(port).jobs if each.id == again)
    assert (job.state, job.epoch, dict(job.allocation)) == (JobState.QUEUED, 0, {})
    port.start(again, {"n2": 1}, 1)
    wait_for("it runs", lambda: state(port, again) is JobState.RUNNING)
    assert [each.id for each in attend(port).jobs if each.id.partition(".")[0] == number] == [again]


@pytest.mark.soak
@pytest.mark.parametrize("where", ["raw", "dl"])
def test_a_strangers_job_with_an_old_jobs_number_is_not_touched(
    lab: PrivateSlurm, port: SlurmCluster, where: str
) -> None:
    """Slurm gave the number out again while nobody looked; the stranger's job has no mark at all."""
    old, stays = (submitted(lab, port) for _ in range(2))
    for job, node in ((old, "n1"), (stays, "n2")):
        port.start(job, {node: 1}, 1)
        wait_for("it runs", lambda job=job: state(port, job) is JobState.RUNNING)  # type: ignore[misc]
    number = old.partition(".")[0]
    lab.run(["scancel", number])
    again = ""
    while again != number:  # Slurm forgets an ended job within some seconds
        if again:
            lab.run(["scancel", again])
        again = lab.submit("#!/bin/bash\nsleep 600\n", {}, [f"--partition={where}", "--output=/dev/null"])
    lab.run(["scontrol", "update", f"jobid={number}", "Comment=horae:min=1"])

    def told(job: str) -> list[JobState]:
        return [each.state for each in attend(port).jobs if each.id == job]

    wait_for("it runs", lambda: lab.run(["squeue", "-h", "-j", number, "-o", "%T"]).stdout.strip() == "RUNNING")
    assert told(number) == [], "Slurm's own"
    wait_for("ours is over", lambda: JobState.RUNNING not in told(old), 60)
    for deed in (port.cancel, port.release, lambda job: port.checkpoint_and_stop(job, 5.0)):
        with suppress(Never):
            deed(old)
    assert told(stays) == [JobState.RUNNING], "numbers come round past it"
    assert lab.run(["squeue", "-h", "-j", number, "-o", "%T %k"]).stdout.strip() == "RUNNING horae:min=1"
    lab.run(["scancel", number])
