"""Submarine commands and the SDK's checkpoints on a real, unpatched Hadoop."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from horae.elastic.stores import checkpoints
from horae.elastic.stores.hdfserrors import HdfsError
from horae.elastic.stores.store import open_store
from horae.job_form import JobForm
from horae.port import JobState, ObservedJob, attend
from policy.model import Allocation
from tests.real.hadoop import (
    ALIVE,
    YarnHarness,
    hadoop_336,  # noqa: F401 - a fixture
    hadoop_342,  # noqa: F401
    patiently,
    wait_for,
)
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.submarine import translate, upload

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]

TRAIN = """
import json, os, sys, time
from horae import elastic

told = json.loads(os.environ.get("TF_CONFIG", "{}"))
sizes = {role: len(listed) for role, listed in told.get("cluster", {}).items()}
# In one piece: beside another program's lines, `print` unbuffered writes word by word.
line = f"told {json.dumps(sizes, sort_keys=True)} {json.dumps(told.get('task'))} {sys.argv[1:]}"
os.write(1, line.encode() + b"\\n")
if told.get("task", {}).get("type") == "ps":
    time.sleep(3600)
count = [0]

def save(folder):
    with open(os.path.join(folder, "count"), "w") as file:
        file.write(str(count[0]))

def load(folder):
    with open(os.path.join(folder, "count")) as file:
        count[0] = int(file.read())

steps = int(sys.argv[1])
for step in elastic.Training(steps=steps, global_batch=12, save=save, load=load, log_every_s=0.0):
    # A long training must not be over before it was stopped, however long the test was kept from the processor.
    time.sleep(0.25 if steps > 100 and os.environ["HORAE_EPOCH"] == "1" else 0.02)
    count[0] += 1
    step.report(1.0 / count[0])
"""
SIZE = "memory=300M,vcores=1,gpu=1"


class Site:
    """A Hadoop with a user's script in HDFS."""

    def __init__(self, harness: YarnHarness) -> None:
        self.harness = harness
        self.port = harness.port
        self.home = str(harness.options["folder"])
        self.webhdfs = str(harness.lab.facts()["webhdfs"])
        self.hdfs("PUT", f"{self.home}/in", "MKDIRS")
        made = self.hdfs("PUT", f"{self.home}/train.py", "CREATE", noredirect="true", overwrite="true")
        requests.put(made.json()["Location"], data=TRAIN.encode(), timeout=30).raise_for_status()

    def hdfs(self, method: str, path: str, operation: str, user: str = "horae", **options: str) -> requests.Response:
        query = {"op": operation, "user.name": user, **options}
        answer = requests.request(method, f"{self.webhdfs}/webhdfs/v1{path}", params=query, timeout=30)
        answer.raise_for_status()
        return answer

    def submit(self, name: str, *words: str) -> None:
        """As `horae submarine job run WORDS` hands it in."""
        found = translate(["--name", name, *words], "horae")
        job = found.job
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HORAE_WEBHDFS", self.webhdfs)
            upload(found.uploads, "horae")
        self.port.submit(name, JobForm.model_validate(job).spec(owner="horae"))

    @property
    def local(self) -> Path:
        """A folder of the user's own machine."""
        return self.harness.shared

    def job(self, name: str) -> ObservedJob:
        return next(job for job in patiently(lambda: attend(self.port)).jobs if job.id == name)

    def start(self, name: str, shape: Allocation, epoch: int) -> None:
        def started() -> bool:
            self.port.start(name, shape, epoch)
            return True

        self.until(f"{name} is started", started)

    def until(self, what: str, holds: Callable[[], Any]) -> None:
        def looked() -> bool:
            attend(self.port)  # the bridge moves its jobs when it looks
            return bool(holds())

        wait_for(what, looked, 240.0)

    def until_state(self, name: str, *states: JobState) -> ObservedJob:
        self.until(f"{name} {states}", lambda: self.job(name).state in states)
        return self.job(name)

    def log(self, name: str) -> str:
        return self.port.read_log(name, 0).data.decode(errors="replace")

    def node(self, kind: str) -> list[str]:
        return [node.name for node in patiently(lambda: attend(self.port)).nodes if node.gpu_type == kind]


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = YarnHarness(request.getfixturevalue("hadoop_342"), tmp_path)
    yield Site(made)
    made.end()


def words(site: Site, steps: int, workers: int) -> list[str]:
    python = str(site.harness.lab.facts()["python"])
    return [
        "--num_workers", str(workers), f"--input_path={site.home}/in", "-worker_resources", SIZE,
        "--worker_launch_cmd", f"{python} train.py {steps} %input_path%", "--queue", "horae",
        "--localization", f"hdfs://{site.home}/train.py:./train.py",
        "--checkpoint_path", f"hdfs://{site.home}/model",
    ]  # fmt: skip


def test_workers_of_a_submarine_command_grow_and_finish(site: Site) -> None:
    first, second = site.node("v100")[:2]
    site.submit("elastic", *words(site, 400, 1), "--max_workers", "4")
    shapes: list[Allocation] = [{first: 1}, {first: 1, second: 2}]
    site.start("elastic", shapes[0], 1)
    site.until("it trains", lambda: "step=20/400" in site.log("elastic"))
    site.port.checkpoint_and_stop("elastic", 120.0)
    mark = site.until_state("elastic", JobState.STOPPED).checkpoint
    assert mark is not None and mark.step >= 20
    site.start("elastic", shapes[1], 2)
    done = site.until_state("elastic", JobState.COMPLETED, JobState.FAILED)
    log = site.log("elastic")
    assert done.state is JobState.COMPLETED, log[-3000:]
    assert f"told {{}} null ['400', '{site.home}/in']" in log, "alone it is told of no cluster"
    assert f'told {{"chief": 1, "worker": 2}} {{"index": 0, "type": "chief"}} [\'400\', \'{site.home}/in\']' in log
    assert f"start step={mark.step:g} world=3 epoch=2" in log


def test_a_parameter_server_job_is_a_rigid_gang_that_ends_whole(site: Site) -> None:
    first, second = site.node("v100")[:2]
    python = str(site.harness.lab.facts()["python"])
    command = f"{python} train.py 60 %input_path%"
    servers = ("--num_ps", "1", "--ps_resources", "memory=100M,vcores=1", "--ps_launch_cmd", command)
    site.submit("served", *words(site, 60, 2), *servers)
    site.start("served", {first: 1, second: 1}, 1)
    done = site.until_state("served", JobState.COMPLETED, JobState.FAILED)
    log = site.log("served")
    assert done.state is JobState.COMPLETED, log[-3000:]
    assert 'ps-0: told {"chief": 1, "ps": 1, "worker": 1} {"index": 0, "type": "ps"}' in log
    assert 'told {"chief": 1, "ps": 1, "worker": 1} {"index": 0, "type": "chief"}' in log


def test_a_job_without_gpus_runs_as_it_comes(site: Site) -> None:
    """Of its parts: a server, TensorBoard's place, an archive of the user's own."""
    python = str(site.harness.lab.facts()["python"])
    given = words(site, 40, 2)
    given[given.index(SIZE)] = "memory=300M,vcores=1"
    given[given.index("--worker_launch_cmd") + 1] = f"test -f env.zip/here && {python} train.py 40 %input_path%"
    servers = ("--num_ps", "1", "--ps_resources", "memory=100M,vcores=1", "--ps_launch_cmd", f"{python} train.py 40 x")
    with zipfile.ZipFile(site.local / "env.zip", "w") as archive:
        archive.writestr("here", "")
    conf = f"tony.containers.resources={site.local}/env.zip#archive,"
    board = ("--tensorboard", "--tensorboard_resources", "memory=100M,vcores=1")
    site.submit("plain", *given, *servers, *board, "--conf", conf)
    done = site.until_state("plain", JobState.COMPLETED, JobState.FAILED)
    log = site.log("plain")
    assert done.state is JobState.COMPLETED, log[-3000:]
    assert (done.allocation, done.epoch) == ({}, 1)
    assert 'told {"chief": 1, "ps": 1, "worker": 1} {"index": 0, "type": "chief"}' in log, "TensorBoard is none of them"
    assert "TensorBoard has ended, or is not installed here" in log


@pytest.mark.soak
def test_a_job_without_gpus_begins_again_when_it_is_lost(site: Site) -> None:
    given = words(site, 1, 2)
    given[given.index(SIZE)] = "memory=300M,vcores=1"
    given[given.index("--worker_launch_cmd") + 1] = "sleep 600"
    site.submit("again", *given)
    site.until_state("again", JobState.RUNNING)
    manager = site.port.manager
    (app,) = [each for each in manager.apps(kinds=("yarn-service",), states=ALIVE) if each.name.startswith("h-again")]
    manager.kill(app.id, "an administrator's kill", "root")
    site.until("it runs again", lambda: (job := site.job("again")).state is JobState.RUNNING and job.epoch > 1)
    site.port.cancel("again")
    site.until_state("again", JobState.CANCELLED)


@pytest.mark.soak
def test_a_process_of_several_gpus_has_them_in_one_container(site: Site) -> None:
    first, second = site.node("v100")[:2]
    command = "echo world=$WORLD_SIZE rank=$RANK sees=$CUDA_VISIBLE_DEVICES"
    given = words(site, 1, 2)
    given[given.index(SIZE)] = "memory=300M,vcores=1,gpu=2"
    given[given.index("--worker_launch_cmd") + 1] = f"{command}; sleep 3"
    site.submit("wide", *given)
    shape: Allocation = {first: 2, second: 2}
    site.start("wide", shape, 1)
    running = site.until_state("wide", JobState.RUNNING, JobState.COMPLETED, JobState.FAILED)
    assert running.allocation in (shape, {})
    done = site.until_state("wide", JobState.COMPLETED, JobState.FAILED)
    log = site.log("wide")
    assert done.state is JobState.COMPLETED, log[-3000:]
    assert "world=2 rank=0 sees=0,1" in log


# --- the SDK's store --------------------------------------------------------------------------------------


def fill(folder: str) -> None:
    (Path(folder) / "model").write_bytes(os.urandom(3 << 20))


@pytest.fixture(params=["hadoop_342", pytest.param("hadoop_336", marks=pytest.mark.soak)])
def hadoop(request: pytest.FixtureRequest) -> PrivateHadoop:
    found: PrivateHadoop = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(hadoop: PrivateHadoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("HADOOP_USER_NAME", "horae")
    monkeypatch.setenv("HORAE_WEBHDFS", str(hadoop.facts()["webhdfs"]))
    return open_store(f"hdfs:///user/horae/store-{os.getpid()}-{tmp_path.name}")


def admin(lab: PrivateHadoop, *arguments: str) -> None:
    """`hdfs dfsadmin`, as the NameNode's superuser."""
    facts = lab._lab()
    conf = lab.folder / "etc/master"
    command = [facts["java"], f"-Djdk.net.hosts.file={lab.folder}/hosts", "-Djava.net.preferIPv4Stack=true"]
    command += ["-cp", f"{conf}:{facts['jars']}/*", "org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments]
    env = {name: value for name, value in os.environ.items() if name != "HADOOP_USER_NAME"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_checkpoints_in_hdfs_are_whole_counted_and_swept(store: Any) -> None:
    for step in (1, 2, 3):
        checkpoints.write(store, step, 1, {}, fill, lambda: None)
    assert [len(checkpoints.prune(store, 2)), [mark.step for mark in checkpoints.marks(store)]] == [1, [3, 2]]
    mark, _, folder = next(checkpoints.complete(store, pytest.fail))
    assert mark.step == 3 and (Path(folder) / "model").stat().st_size == 3 << 20
    store.done(folder)
    assert store.sweep() == []


def test_a_full_quota_and_a_safe_mode_are_told(
    hadoop: PrivateHadoop,
    store: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = checkpoints.write(store, 1, 1, {}, fill, lambda: None)
    folder = store.url.removeprefix("hdfs://")
    admin(hadoop, "-setSpaceQuota", "4194304", folder)
    with pytest.raises(HdfsError, match=r"quota.*remove old checkpoints"):
        checkpoints.write(store, 2, 1, {}, fill, lambda: None)
    assert checkpoints.marks(store) == [first]
    admin(hadoop, "-clrSpaceQuota", folder)
    monkeypatch.setenv("HORAE_GRACE_S", "4")
    admin(hadoop, "-safemode", "enter")
    try:
        with pytest.raises(HdfsError, match="until the NameNode leaves its safe mode"):
            checkpoints.write(open_store(store.url), 2, 1, {}, fill, lambda: None)
        assert [mark.step for mark, _, _ in checkpoints.complete(store, pytest.fail)] == [1], "it can still be read"
    finally:
        admin(hadoop, "-safemode", "leave")
    checkpoints.write(store, 2, 1, {}, fill, lambda: None)
    assert [mark.step for mark in checkpoints.marks(store)] == [2, 1]
