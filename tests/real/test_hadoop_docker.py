"""`horae lab ... hadoop` of containers: elastic training from the gateway, reached from the host, gone afterwards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.lab import LabRequest, default_folder, engine
from policy.model import BadInput
from tests.real import books
from tests.real.hadoop import wait_for
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.lab.containers import ContainerHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
REQUEST = LabRequest("soak", nodes=2, gpus=(("v100", 4), ("k80", 4)))
TRAIN = """import time
from horae import elastic
for step in elastic.Training(steps=40, global_batch=8, save=lambda f: None, load=lambda f: None):
    time.sleep(0.05)
    step.report(1.0)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerHadoop]:
    mark = hashlib.sha256(str(ROOT).encode()).hexdigest()[:6]
    folder = tmp_path_factory.mktemp("hadoop-docker")
    made = ContainerHadoop(f"soak-{mark}", folder / "lab", lambda text: None, default_folder() / "hadoop")
    try:
        engine.engine(lambda text: None)
    except BadInput as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no Docker for a cluster of containers: {error}")
    made.down()
    yield made
    made.down()


def test_a_cluster_of_containers_from_nothing_to_nothing(
    lab: ContainerHadoop, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not lab.status().up
    assert lab.up(REQUEST).up
    containers = {container.id for container in engine.find(lab.client, lab.mark)}
    assert lab.up(REQUEST).text.count("RUNNING") == 2
    assert {container.id for container in engine.find(lab.client, lab.mark)} == containers, "up is idempotent"

    assert lab.demo() == 0
    assert capfd.readouterr().out.count("start step=") == 4, "a training in four shapes"

    options = parse_options(lab.facts())
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names))
    hdfs.write("/tmp/from-the-host", b"by a name that only the network of the containers knows")
    assert hdfs.read("/tmp/from-the-host") == b"by a name that only the network of the containers knows"

    words = ["horae", "submit", "--gpus", "1:4", "--name", "one", "--checkpoint", "webhdfs://nn:9870/user/alice/one"]
    lab.must("gateway", [*words, "--", "python3", "-c", TRAIN], user="alice")
    wait_for(
        "alice's job completes",
        lambda: "completed" in lab.must("gateway", ["horae", "history", "1"], user="alice").lower(),
        300,
    )
    manager = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
    books.check(manager, empty=True)
    manager.close()

    lab.down()
    assert not list(engine.find(lab.client, lab.mark))
    assert not lab.client.networks.list(filters={"label": f"{engine.LABEL}={lab.mark}"})
    assert not lab.folder.exists()
