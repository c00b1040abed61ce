"""GPUs that are a resource of their own type (`yarn.io/gpu-a100`), on a real Hadoop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import JobState, attend
from policy.model import Allocation
from tests.contract.harness import Behaviour, steps_in
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import YarnHarness, cluster_of
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

GPU = "yarn.io/gpu-a100"
SETTINGS = {
    "yarn.resource-types": GPU,
    "yarn.nodemanager.resource-plugins": "",
    f"yarn.nodemanager.resource-type.{GPU}": "4",
}


@pytest.fixture
def harness(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[YarnHarness]:
    made = YarnHarness(cluster_of("3.4.2", pytestconfig, tmp_path_factory, SETTINGS), tmp_path)
    yield made
    made.end()


def test_they_are_in_the_snapshot_and_are_asked_for_by_their_name(harness: YarnHarness) -> None:
    port = YarnCluster(parse_options({**harness.options, "kind_attribute": "nm.yarn.io/none"}))
    port.claim("types")
    nodes = patiently(port.observe).nodes
    assert [(node.gpu_type, node.gpus, node.foreign) for node in nodes] == [("a100", 4, 0)] * 3
    spec = harness.spec("typed", Behaviour.TRAINS, gpus=(1, 4))
    port.submit("typed", replace(spec, gpu_types=("a100",)))
    first, second = nodes[0].name, nodes[1].name

    def until(shape: Allocation) -> None:
        def runs() -> bool:
            job = next(each for each in patiently(lambda: attend(port)).jobs if each.id == "typed")
            assert job.state not in (JobState.LOST, JobState.FAILED), (
                job.native,
                port.read_log("typed", 0).data[-3000:],
            )
            return job.state is JobState.RUNNING and dict(job.allocation) == dict(shape)

        wait_for(f"it runs on {shape}", runs, 240.0)

    port.start("typed", {first: 2}, 1)
    until({first: 2})
    wait_for("it trains", lambda: len(steps_in(port.read_log("typed", 0).data)) > 3, 240.0)
    held = {node.host: node.gpus_used for node in port.manager.nodes()}
    assert (held[first], held[second]) == (2, 0)
    port.reshape("typed", {first: 1, second: 2}, 2)
    until({first: 1, second: 2})
    assert {node.name: node.foreign for node in patiently(port.observe).nodes} == {node.name: 0 for node in nodes}
    port.cancel("typed")
    wait_for("all are free", lambda: not any(node.gpus_used for node in port.manager.nodes()))
    port.close()
