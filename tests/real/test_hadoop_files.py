"""`install yarn` where the scheduler's configuration is a file: diff, refresh, a job in the queue, and out again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.lab import LabRequest, default_folder
from tests.real.hadoop import wait_for
from tests.real.serving import HORAE
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.queues import queues
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


@pytest.fixture(scope="module", params=["3.4.2", "3.3.6"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHadoop]:
    made = PrivateHadoop(tmp_path_factory.mktemp("hadoopfile-"), default_folder() / "hadoop")
    try:
        by_file = {"yarn.scheduler.configuration.store.class": "file"}
        made.up(LabRequest(name="file", nodes=1, gpus=(("v100", 2),), release=request.param, options=by_file))
        yield made
    finally:
        made.down()


@pytest.fixture
def manager(lab: PrivateHadoop) -> Iterator[ResourceManager]:
    options = parse_options(lab.facts())
    made = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
    yield made
    made.close()


def test_a_queue_goes_into_the_schedulers_file_and_out_again(
    lab: PrivateHadoop, manager: ResourceManager, tmp_path: Path
) -> None:
    file = lab.folder / "etc/master/capacity-scheduler.xml"
    before = file.read_bytes()
    assert manager.scheduler_conf("horae") is None, "it is not mutable by REST"
    record = ["--record", str(tmp_path / "record.json")]
    given = {
        "rm": lab.facts()["resource_manager"][0],
        "etc": str(file.parent),
        "queue": "root.trial",
        "capacity": "10",
        "from": "default",
        "out": str(tmp_path / "out"),
        "units": str(tmp_path / "units"),
    }
    words = [
        "install",
        "yarn",
        *record,
        *(part for key, value in given.items() for part in ("--set", f"{key}={value}")),
    ]

    def horae(*said: str) -> str:
        done = subprocess.run([*HORAE, *said], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shown = horae(*words)
    assert "+  <property><name>yarn.scheduler.capacity.root.trial.capacity</name><value>10</value></property>" in shown
    assert "yarn.scheduler.capacity.root.default.capacity</name><value>10</value>" in shown
    assert "nothing was written" in shown
    assert file.read_bytes() == before

    told = horae(*words, "--yes")
    assert "yarn rmadmin -refreshQueues" in told
    lab.admin("rmadmin", "-refreshQueues")
    found = queues(manager.scheduler())
    assert found.find("root.trial").state == "RUNNING"
    assert (found.find("root.trial").weight, found.find("root.default").weight) == (10.0, 10.0)
    assert "nothing to change" in horae(*words)

    # The queue is one in which jobs run.
    services, owner = Services(manager.http, manager.quirks()), "horae"
    worker = {
        "name": "w",
        "number_of_containers": 1,
        "launch_command": "exec sleep 3600",
        "resource": {"cpus": 1, "memory": "64", "additional": {"yarn.io/gpu": {"value": 1, "unit": ""}}},
    }
    services.create({"name": "trial", "version": "1.0", "queue": "trial", "components": [worker]}, owner)
    wait_for("its worker holds a GPU", lambda: sum(node.gpus_used for node in manager.nodes()) == 1, 180.0)
    (app,) = manager.apps(states=("RUNNING",))
    assert app.queue == "root.trial"
    services.destroy("trial", owner)
    wait_for("nothing holds a GPU", lambda: sum(node.gpus_used for node in manager.nodes()) == 0)

    # Out again: a queue that runs cannot be taken from the file, so it is stopped first and the file put back.
    installed = file.read_text()
    stopped = "yarn.scheduler.capacity.root.trial.state</name><value>STOPPED<"
    file.write_text(installed.replace(stopped.replace("STOPPED", "RUNNING"), stopped))
    assert stopped in file.read_text()
    lab.admin("rmadmin", "-refreshQueues")
    wait_for("the queue has stopped", lambda: queues(manager.scheduler()).find("root.trial").state == "STOPPED")
    file.write_text(installed)
    horae("uninstall", "yarn", *record, "--yes")
    assert file.read_bytes() == before
    lab.admin("rmadmin", "-refreshQueues")
    assert "root.trial" not in {queue.path for queue in queues(manager.scheduler()).root.walk()}
    assert queues(manager.scheduler()).find("root.default").weight == 20.0
