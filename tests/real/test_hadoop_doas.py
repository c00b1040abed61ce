"""Acting for owners by `doAs` where nobody has tickets: the proxy-user filter on simple authentication."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from horae.doctor import Verdict
from horae.lab import LabRequest, default_folder
from horae.port import FixConfiguration, JobState
from tests.contract.driver import Driver
from tests.contract.harness import Behaviour
from tests.contract.waiting import patiently
from tests.real.hadoop import YarnHarness, ends_without_a_trace
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.errors import Powerless
from yarn_bridge.lab import settings
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.site import checks
from yarn_bridge.site.security import PROXY_FILTER

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]


class ActingHarness(YarnHarness):
    @property
    def options(self) -> dict[str, object]:
        return {**super().options, "doas": True}


@pytest.fixture
def harness(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[ActingHarness]:
    core = settings._core

    def with_filter(site: settings.Site) -> dict[str, str]:
        return core(site) | {
            "hadoop.http.filter.initializers": PROXY_FILTER,
            "hadoop.proxyuser.horae.hosts": "*",
            "hadoop.proxyuser.horae.users": "horae,alice",
        }

    lab = PrivateHadoop(tmp_path_factory.mktemp("hadoopdoas-"), default_folder() / "hadoop")
    with pytest.MonkeyPatch.context() as patch, ends_without_a_trace(lab):
        patch.setattr(settings, "_core", with_filter)
        lab.up(LabRequest(name="doas", nodes=2, gpus=(("v100", 2), ("v100", 2))))
        lab._change("/user/alice", "MKDIRS", permission="755")
        lab._change("/user/alice", "SETOWNER", owner="alice")
        made = ActingHarness(lab, tmp_path)
        yield made
        made.end()


@contextmanager
def taken_away(lab: PrivateHadoop, daemon: str) -> Iterator[None]:
    """This daemon alone lets the bridge act for alice no more."""
    site = lab.folder / "etc" / "master" / "core-site.xml"
    whole = site.read_text()
    assert "horae,alice" in whole
    for text in (whole.replace("horae,alice", "horae"), whole):
        site.write_text(text)
        lab.kill(daemon)
        lab.start(daemon)
        lab.wait_hdfs()
        lab.wait_manager()
        if text != whole:
            yield


def test_a_job_is_its_owners_and_nobody_elses(harness: ActingHarness) -> None:
    cluster, port = Driver(harness), harness.port
    assert isinstance(port, YarnCluster)
    spec = harness.spec("hers", Behaviour.TRAINS)
    checkpoint = harness.facts["webhdfs"].replace("http:", "webhdfs:") + "/user/alice/checkpoints"
    port.submit("hers", replace(spec, owner="alice", checkpoint=checkpoint))
    with pytest.raises(FixConfiguration, match=r"not allowed to impersonate bob.*hadoop.proxyuser"):
        port.submit("his", replace(spec, owner="bob"))
    cluster.wait("hers", JobState.QUEUED)
    cluster.start("hers", cluster.one())
    cluster.wait("hers", JobState.RUNNING)
    cluster.wait_progress("hers", 15)
    (app,) = port.manager.apps(states=("RUNNING",))
    assert app.user == "alice"
    for daemon in ("namenode", "resourcemanager"):
        with taken_away(harness.lab, daemon):
            with pytest.raises(Powerless, match="not allowed to impersonate alice"):
                patiently(lambda: port.reshape("hers", cluster.spread(1), 2))
            with pytest.raises(Powerless, match="not allowed to impersonate alice"):
                patiently(lambda: port.checkpoint_and_stop("hers", 120.0))
            for _ in range(3):
                seen = cluster.job("hers")
                assert (seen.state, seen.epoch) == (JobState.RUNNING, 1), "it trains on as it was"
        cluster.wait_progress("hers", 2)
    assert len(cluster.starts("hers")) == 1
    patiently(lambda: port.reshape("hers", cluster.spread(1), 2))
    cluster.until("it grows", lambda: cluster.job("hers").epoch == 2)
    cluster.wait("hers", JobState.RUNNING)
    cluster.wait_progress("hers", 2)
    port.checkpoint_and_stop("hers", 120.0)
    assert cluster.wait("hers", JobState.STOPPED).exit_code == 86
    port.cancel("hers")
    cluster.wait("hers", JobState.CANCELLED)
    found = {check.name: check for check in checks(harness.options)}
    for daemon in ("ResourceManager", "NameNode"):
        told = found[f"acting for owners: {daemon}"]
        assert (told.verdict, "from any host" in told.text) == (Verdict.WARN, True), "as this test has set it"
    assert "acting for owners" not in found, "the ResourceManager heeds doAs"
