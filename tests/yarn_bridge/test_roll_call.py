"""What a ResourceManager says that has lost its state store, as recorded from a real one."""

from __future__ import annotations

import pytest

from horae.port import TryLater
from policy.model import Node
from tests.yarn_bridge.fake import recorded
from yarn_bridge.clients.records import app, cluster_info, many, node_report
from yarn_bridge.clients.roll_call import RollCall, unsaved

LANE = "3.4.2-lab"


def test_one_that_waits_for_zookeeper_names_no_node_and_is_not_believed() -> None:
    info = cluster_info(recorded(LANE)["inactive-info"]["response"]["clusterInfo"])
    nodes = recorded(LANE)["inactive-nodes"]["response"]["nodes"]
    reports = [node_report(each) for each in many(nodes.get("node"))]
    assert many(recorded(LANE)["inactive-apps"]["response"]["apps"].get("app")) == []
    roll = RollCall()
    for known in ((), (Node("n1", "v100", 4),)):
        for now_s in (0.0, 1000.0):
            with pytest.raises(TryLater, match=r"INITIALIZING\): .* \(ZKRMStateStore\); does ZooKeeper run") as told:
                roll.check(reports, known, now_s, lambda: info)
            assert told.value.retry_after_s == 5.0


def test_one_that_is_active_and_has_no_nodes_is_believed() -> None:
    active = cluster_info(recorded("3.4.2")["info"]["response"]["clusterInfo"])
    RollCall().check([], (), 0.0, lambda: active)


def test_what_cannot_be_written_down_is_named_once_it_should_have_been() -> None:
    apps = [app(each) for each in recorded(LANE)["apps-unsaved"]["response"]["apps"]["app"]]
    (found,) = apps
    assert unsaved(apps, found.submitted_s + 10.0) == []
    (note,) = unsaved(apps, found.submitted_s + 30.0)
    assert note.startswith(
        f"{found.id} (plain) waits since 30 s for the ResourceManager to write it into its state store"
    )
