"""Which GPU a worker takes on a real NodeManager that isolates nothing: the one that YARN gave its container."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import JobState
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.real.hadoop import (
    YarnHarness,
    hadoop_342,  # noqa: F401 - a fixture
    wait_for,
)
from yarn_bridge.lab.private import PrivateHadoop

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

#: a worker that says which GPUs CUDA would show it
SAYS = """
import os, time
with open({folder!r} + "/" + os.environ["CONTAINER_ID"], "w") as file:
    file.write(os.environ["CUDA_VISIBLE_DEVICES"])
time.sleep(3600)
"""


@pytest.fixture
def harness(hadoop_342: PrivateHadoop, tmp_path: Path) -> Iterator[YarnHarness]:  # noqa: F811
    made = YarnHarness(hadoop_342, tmp_path)
    yield made
    made.end()


def test_no_two_workers_on_a_node_share_a_gpu(harness: YarnHarness, tmp_path: Path) -> None:
    cluster, told = Driver(harness), tmp_path / "told"
    told.mkdir()
    for name in ("a", "b"):
        spec = harness.spec(name, Behaviour.TRAINS, gpus=(2, 2))
        command = (spec.command[0], "-c", SAYS.format(folder=str(told)))
        harness.port.submit(name, replace(spec, command=command, checkpoint=None))
        cluster.wait(name, JobState.QUEUED)
        cluster.start(name, {"n1": 2})

    for name in ("a", "b"):
        cluster.wait(name, JobState.RUNNING)

    def seen() -> list[str]:
        return sorted(path.read_text() for path in told.iterdir())

    wait_for("all four workers have said it", lambda: len([each for each in seen() if each]) == 4)
    assert seen() == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
