"""Bad days that other people make: signals, kills, moves, preemption, memory. On a real Hadoop, for the soak run.

HORAE_PREEMPTIONS: how often another queue takes its share back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from horae.lab import LabRequest, default_folder
from horae.port import JobState, PortError, attend
from policy.model import Pinning
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour, starts_in, steps_in
from tests.contract.waiting import patiently
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
    wait_for,
    workers,
)
from tests.real.serving import HORAE, arbiter
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.resource_manager import FORCEFUL, GRACEFUL, QueueEdits
from yarn_bridge.clients.settings import settings_of
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options
from yarn_bridge.runtimes.chooser import HANDLER, PATIENT, PROCESSOR

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

SCHEDULER = "yarn.resourcemanager.scheduler.monitor"
PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption"
#: a cluster that preempts at once, and that ends who takes more memory than it asked for
STRICT = {
    **PATIENT,
    f"{SCHEDULER}.enable": "true",
    f"{SCHEDULER}.policies": "org.apache.hadoop.yarn.server.resourcemanager.monitor.capacity."
    "ProportionalCapacityPreemptionPolicy",
    f"{PREEMPTION}.monitoring_interval": "1000",
    f"{PREEMPTION}.max_wait_before_kill": "1000",
    f"{PREEMPTION}.total_preemption_per_round": "1.0",
    f"{PREEMPTION}.natural_termination_factor": "1.0",
    f"{PREEMPTION}.max_ignored_over_capacity": "0.0",
    "yarn.nodemanager.pmem-check-enabled": "true",
    # By looking: else the kernel is left to do it, in a cgroup that plain processes do not have.
    "yarn.nodemanager.resource.memory.enforced": "false",
    "yarn.service.am-resource.memory": "768",
}


#: so long nobody must lose anything
QUIET_S = 30.0
HALF = {"root.default": {"capacity": "50"}, "root.horae": {"capacity": "50"}}


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module", params=[PROCESSOR])
def strict_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHadoop]:
    lab = PrivateHadoop(tmp_path_factory.mktemp("hadoopstrict-"), default_folder() / "hadoop")
    options = {**STRICT, HANDLER: request.param}
    try:
        lab.up(LabRequest(name="strict", nodes=2, gpus=(("v100", 2), ("v100", 2)), options=options))
        yield lab
    finally:
        lab.down()


@pytest.fixture
def strict(strict_lab: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:
    made = YarnHarness(strict_lab, tmp_path)
    yield made
    made.end()


def bridge(harness: YarnHarness) -> YarnCluster:
    assert isinstance(harness.port, YarnCluster)
    return harness.port


def free(port: YarnCluster) -> bool:
    return not any(node.gpus_used for node in port.manager.nodes())


def plain(port: YarnCluster, name: str, owner: str, queue: str, count: int) -> None:
    """A service that is none of Horae's: somebody's own application that holds GPUs."""
    worker = {
        "name": "w",
        "number_of_containers": count,
        "restart_policy": "ON_FAILURE",
        "launch_command": "exec sleep 3600",
        "resource": {"cpus": 1, "memory": "64", "additional": {"yarn.io/gpu": {"value": 1, "unit": ""}}},
    }
    port.services.create({"name": name, "version": "1.0", "queue": queue, "components": [worker]}, owner)


def containers(port: YarnCluster, name: str, owner: str) -> set[str]:
    found = port.services.get(name, owner)
    parts = found.components.values() if found is not None else ()
    return {each.container for part in parts for each in part.instances if each.state == "READY"}


def test_what_others_may_do_to_a_job(harness: YarnHarness) -> None:
    """Moved to another queue, its workers signalled by a stranger, its application killed; never worse than a stop."""
    cluster, port = Driver(harness), bridge(harness)
    job = cluster.running("molested", allocation=cluster.spread(1))
    cluster.wait_progress(job, 15)
    kept = workers(port, job)

    def application() -> str:
        (found,) = port.manager.apps(kinds=("yarn-service",), states=("ACCEPTED", "RUNNING"))
        return found.id

    # Its owner moves it to another queue: it runs on where it is.
    moved = port.manager.http.ask(
        "PUT", f"/ws/v1/cluster/apps/{application()}/queue", owner="horae", json={"queue": "default"}
    )
    moved.check("moving it")
    cluster.until("it is moved", lambda: port.manager.app(application()).queue == "root.default")
    cluster.wait_progress(job, 5)
    assert (cluster.job(job).state, workers(port, job)) == (JobState.RUNNING, kept)

    # A stranger asks one worker to end: the whole gang stops at a checkpoint.
    port.manager.signal(kept[0], GRACEFUL, owner="mallory")
    stopped = cluster.wait(job, JobState.STOPPED, JobState.LOST)
    assert stopped.checkpoint is not None
    cluster.until("no GPU is held by nobody", lambda: free(port))
    cluster.start(job, cluster.spread(1), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("it has started", lambda: len(cluster.starts(job)) == 2)
    assert cluster.starts(job)[1].step >= stopped.checkpoint.step
    cluster.wait_progress(job, 10)

    # And kills one: the start is lost, the checkpoint is not.
    port.manager.signal(workers(port, job)[1], FORCEFUL, owner="mallory")
    lost = cluster.wait(job, JobState.LOST)
    assert "was lost" in lost.native
    assert lost.checkpoint is not None
    assert lost.checkpoint.epoch == 2
    cluster.until("no GPU is held by nobody", lambda: free(port))

    # An administrator kills its application: that is told, and the job goes on in a new one.
    cluster.start(job, cluster.one(), 3)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 10)
    first = application()
    port.manager.kill(first, owner="root")
    lost = cluster.wait(job, JobState.LOST)
    assert "killed by user root" in lost.native
    cluster.until("no GPU is held by nobody", lambda: free(port))
    cluster.start(job, cluster.one(), 4)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 10)
    assert application() != first

    # Its owner kills it: that is the end of the job.
    port.manager.kill(application(), owner="horae")
    ended = cluster.wait(job, JobState.CANCELLED)
    assert "killed by user horae" in ended.native
    cluster.until("no GPU is held by nobody", lambda: free(port))
    starts = cluster.starts(job)
    assert [start.epoch for start in starts] == [1, 2, 3, 4]
    assert all(later.step > earlier.step for earlier, later in pairwise(starts))


def test_an_owner_whom_hdfs_does_not_let_in_is_told_so(harness: YarnHarness) -> None:
    """Without a home of its own no service can be made: the job waits and says why, and nothing is held."""
    cluster, port = Driver(harness), bridge(harness)
    who = f"new{harness.shared.name[-1]}"
    job = "homeless"
    port.submit(job, replace(harness.spec(job, Behaviour.TRAINS), owner=who))
    cluster.wait(job, JobState.QUEUED)
    with pytest.raises(PortError, match=r"Permission denied"):
        port.start(job, cluster.one(), 1)
    seen = cluster.job(job)
    assert (seen.state, dict(seen.allocation)) == (JobState.QUEUED, {})
    assert seen.blocked is None, "an arbiter leaves GPUs alone that block"
    assert "/user" in seen.native
    assert free(port)
    harness.lab._change(f"/user/{who}", "MKDIRS", permission="755")
    harness.lab._change(f"/user/{who}", "SETOWNER", owner=who)
    options = parse_options(harness.options)
    root = Hdfs(options.access(options.webhdfs)).as_user("horae")
    folder = "/" + (harness.spec(job, Behaviour.TRAINS).checkpoint or "").partition("://")[2].partition("/")[2]
    root.make_folder(folder, "777")
    cluster.start(job, cluster.one(), 1)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 2)
    assert {each.user for each in port.manager.apps(states=("RUNNING",))} == {who}


@pytest.mark.parametrize("turn", range(int(os.environ.get("HORAE_PREEMPTIONS", "1"))))
def test_another_queue_takes_its_share_back(strict: YarnHarness, turn: int) -> None:
    """Preempted by a plain application: the job loses its start, not its work, and goes on with what is left."""
    cluster, port = Driver(strict), bridge(strict)
    patiently(lambda: port.manager.edit_scheduler(QueueEdits(update=HALF), "horae"))
    job, name = cluster.running("squeezed", allocation=cluster.spread(2)), f"plain-{turn}"
    cluster.wait_progress(job, 15)
    plain(port, name, "root", "default", 2)
    # Who is told to end before it is killed may still leave at a checkpoint.
    lost = cluster.wait(job, JobState.LOST, JobState.STOPPED)
    assert lost.checkpoint is not None
    assert lost.checkpoint.step >= 5
    assert dict(lost.allocation) == {}
    wait_for("the plain application has its GPUs", lambda: len(containers(port, name, "root")) == 2)
    theirs = patiently(lambda: containers(port, name, "root"))
    cluster.until("only its GPUs are held", lambda: sum(node.foreign for node in cluster.observe().nodes) == 2)
    left = {node.name: node.gpus - node.foreign for node in cluster.observe().nodes if node.gpus > node.foreign}
    with pytest.raises(PortError):
        port.start(job, cluster.spread(2) if len(left) == 2 else {next(iter(left)): 3}, 2)
    cluster.start(job, left, 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("it has started", lambda: len(cluster.starts(job)) == 2)
    assert cluster.starts(job)[1].step >= lost.checkpoint.step  # who was left may have written another one
    cluster.wait_progress(job, 5)
    patiently(lambda: port.checkpoint_and_stop(job, 120.0))
    assert cluster.wait(job, JobState.STOPPED).exit_code == 86
    assert patiently(lambda: containers(port, name, "root")) == theirs, "the plain application was never touched"
    patiently(lambda: port.services.destroy(name, "root"))
    cluster.until("it is gone", lambda: sum(node.foreign for node in cluster.observe().nodes) == 0)
    cluster.start(job, cluster.spread(2), 3)
    cluster.wait(job, JobState.RUNNING)


@pytest.mark.parametrize("strict_lab", [PROCESSOR, "scheduler"], indirect=True)
def test_nobody_loses_a_container_to_a_worker_that_has_come(strict: YarnHarness) -> None:
    """Another queue holds more than its own, ours less, and nobody in it waits: nobody is preempted. By Hadoop's
    `scheduler` that would be so only while nobody had asked for a named node, so then none does."""
    cluster, port = Driver(strict), bridge(strict)
    port.manager.edit_scheduler(QueueEdits(update=HALF), "horae")
    pinned = settings_of(port.manager.http, "the ResourceManager").get(HANDLER) == PROCESSOR
    name = f"plain-{'processor' if pinned else 'scheduler'}"
    plain(port, name, "root", "default", 3)
    wait_for("the plain application has its GPUs", lambda: len(containers(port, name, "root")) == 3)
    theirs = containers(port, name, "root")
    assert (port.capabilities().limits.pinning is Pinning.EXACT) is pinned
    cluster.until("theirs are seen", lambda: sum(node.foreign for node in cluster.observe().nodes) == 3)
    (left,) = [node.name for node in cluster.observe().nodes if node.gpus > node.foreign]
    job = cluster.running("content", allocation={left: 1})
    cluster.wait_progress(job, 15)
    looked_until = time.monotonic() + QUIET_S
    while time.monotonic() < looked_until:  # the policy looks once a second
        assert containers(port, name, "root") == theirs, "a stranger lost a container"
        time.sleep(1.0)
    assert cluster.job(job).state is JobState.RUNNING
    port.services.destroy(name, "root")


HUNGRY = """import os, time
from horae import elastic
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
for step in elastic.Training(steps=60, global_batch=8, save=save, load=load, checkpoint_every_steps=5,
                             log_every_s=0.0):
    time.sleep(0.1)
    done[0] += 1
    step.report(1.0 / done[0])
    if done[0] == 30 and not os.path.exists({mark!r}):
        open({mark!r}, "w").close()
        taken = bytearray(os.urandom(1 << 20)) * 600
        time.sleep(600)
"""


def test_a_worker_killed_for_its_memory_costs_a_restart_and_is_told(strict: YarnHarness, tmp_path: Path) -> None:
    """Under the arbiter: it starts the job again from its checkpoint by itself, and its history says what happened."""
    train, socket = tmp_path / "train.py", tmp_path / "api.sock"
    train.write_text(HUNGRY.format(mark=str(tmp_path / "has-eaten")))
    tmp_path.chmod(0o755)
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "yarn", "options": {**strict.options, "memory_mib": 256}},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n1"}],
        "guards": {"min_run_s": 5.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
        "api": {"socket": str(socket)},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    checkpoint = strict.facts["webhdfs"].replace("http:", "webhdfs:") + f"/tmp/{tmp_path.parent.name}-hungry"

    def horae(*words: str) -> str:
        done = subprocess.run(
            [*HORAE, words[0], "--socket", str(socket), *words[1:]], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr + (tmp_path / "serve.log").read_text()[-2000:]
        return done.stdout

    def done() -> bool:
        """Seen by a connection of our own, which only looks."""
        return any(job.state is JobState.COMPLETED for job in attend(strict.port).jobs)

    words = ["--gpus", "1:1", "--name", "hungry", "--iterations", "60", "--checkpoint", checkpoint]
    try:
        with arbiter(tmp_path):
            wait_for("the arbiter listens", socket.exists)
            horae("submit", *words, "--", sys.executable, str(train))
            wait_for("it is done", done, 400.0)
            (job,) = attend(strict.port).jobs
            log, history = strict.log(job.id), horae("history", job.id)
        starts = starts_in(log)
        assert [start.epoch for start in starts] == [1, 2]
        assert starts[1].step >= 25
        assert steps_in(log)[-1] == 60
        assert "(its worker on n" in history
    except AssertionError as error:
        told = (tmp_path / "serve.log").read_text(errors="replace")[-3000:]
        raise AssertionError(f"{error}\n{told}") from None
