"""A real HttpFS: what it can hold, and what it cannot."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.lab import LabRequest, default_folder
from horae.port import FixConfiguration, JobState
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.real.hadoop import YarnHarness
from tests.real.httpfs import httpfs, proxy_user
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHadoop]:
    made = PrivateHadoop(tmp_path_factory.mktemp("hadoophttpfs-"), default_folder() / "hadoop")
    try:
        made.up(LabRequest(name="httpfs", nodes=1, gpus=(("v100", 2),), options=proxy_user(getpass.getuser())))
        yield made
    finally:
        made.down()


def test_httpfs_holds_checkpoints_and_no_documents(lab: PrivateHadoop, tmp_path: Path) -> None:
    """It cannot replace what is there, so the bridge does not begin; a job's checkpoints may go there."""
    address = httpfs(lab, tmp_path)
    for again in range(2):  # the claim is not there, or is
        port = YarnCluster(parse_options({**lab.facts(), "folder": "/user/horae/by-httpfs", "webhdfs": address}))
        with pytest.raises(FixConfiguration, match="is no WebHDFS of a NameNode: it does not replace") as told:
            port.claim(f"arbiter {again}")
        assert "the NameNodes' own addresses" in told.value.remedy
        port.close()

    harness = YarnHarness(lab, tmp_path)
    cluster = Driver(harness)
    spec = harness.spec("saved", Behaviour.TRAINS)
    assert spec.checkpoint is not None
    path = spec.checkpoint.partition("/user/")[2]
    spec = replace(spec, checkpoint=f"{address.replace('http:', 'webhdfs:')}/user/{path}")
    harness.port.submit("saved", spec)
    cluster.wait("saved", JobState.QUEUED)
    cluster.start("saved", {"n1": 2})
    cluster.wait("saved", JobState.RUNNING)
    cluster.wait_progress("saved", 15)
    harness.port.checkpoint_and_stop("saved", 120.0)
    stopped = cluster.wait("saved", JobState.STOPPED)
    assert stopped.exit_code == 86
    assert stopped.checkpoint is not None
    cluster.start("saved", {"n1": 1}, 2)
    cluster.wait("saved", JobState.RUNNING)
    cluster.until("it has started", lambda: len(cluster.starts("saved")) == 2)
    assert cluster.starts("saved")[1].step == stopped.checkpoint.step
    harness.end()
