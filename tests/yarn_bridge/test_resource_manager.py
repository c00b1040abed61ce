"""The ResourceManager's client on answers recorded from real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from xml.etree import ElementTree as ET

import pytest

from horae.port import FixConfiguration, Never, TryLater
from tests.yarn_bridge.fake import Fake, Reply, recorded, replay, serving
from yarn_bridge.clients.errors import Gone, Powerless
from yarn_bridge.clients.http import Access, HttpClient
from yarn_bridge.clients.quirks import quirks_of
from yarn_bridge.clients.resource_manager import FORCEFUL, QueueEdits, ResourceManager

LANES = ("3.2.0", "3.3.6", "3.4.2")
Connected = Callable[..., tuple[ResourceManager, Fake]]


@pytest.fixture
def connected() -> Iterator[Connected]:
    with ExitStack() as stack:

        def make(lane: str, *names: str) -> tuple[ResourceManager, Fake]:
            fake = stack.enter_context(serving(replay(lane, *names)))
            return ResourceManager(HttpClient(Access((fake.url,), "horae"), "ResourceManager")), fake

        yield make


@pytest.mark.parametrize("lane", LANES)
def test_version_and_what_differs_by_it(connected: Connected, lane: str) -> None:
    rm, fake = connected(lane, "info")
    assert rm.info().version == lane
    assert rm.info().store == "NullRMStateStore"
    quirks = rm.quirks()
    assert rm.quirks() is quirks
    assert (quirks.container_signal, quirks.pin_by_attribute) == {
        "3.2.0": (False, False),
        "3.3.6": (True, False),
        "3.4.2": (True, True),
    }[lane]
    assert quirks.tried is (lane != "3.2.0")
    assert len(fake.asked) == 3


def test_whether_we_may_act_for_somebody_is_asked_where_a_site_can_refuse_it() -> None:
    said = "User: horae is not allowed to impersonate bob"
    refused = Reply(403, {"RemoteException": {"exception": "AuthorizationException", "message": said}})
    info = recorded("3.4.2")["info"]["response"]
    with serving(lambda asked: refused if asked.query.get("doAs") == "bob" else Reply(200, info)) as fake:
        rm = ResourceManager(HttpClient(Access((fake.url,), "horae", doas=True), "ResourceManager"))
        rm.check_power("alice")
        rm.check_power("horae")
        assert [each.query["doAs"] for each in fake.asked] == ["alice"], "of ourselves there is nothing to ask"
        with pytest.raises(Powerless, match="acting for bob: User: horae is not allowed to impersonate bob"):
            rm.check_power("bob")
        plain = ResourceManager(HttpClient(Access((fake.url,), "horae"), "ResourceManager"))
        plain.check_power("bob")
        assert len(fake.asked) == 2, "everybody is who he says there"


def test_versions_of_vendors_and_nonsense() -> None:
    assert quirks_of("3.3.6.4-cdh").release == (3, 3, 6)
    assert quirks_of("3.5").release == (3, 5, 0)
    unknown = quirks_of("trunk")
    assert not unknown.tried
    assert not unknown.container_signal


@pytest.mark.parametrize(("lane", "gpus"), [("3.2.0", 8), ("3.3.6", 8), ("3.4.2", 8)])
def test_metrics_and_nodes(connected: Connected, lane: str, gpus: int) -> None:
    rm, _ = connected(lane, "metrics", "nodes")
    seen = rm.nodes()
    assert sum(node.gpus for node in seen) == gpus
    assert all(node.state == "RUNNING" and node.rack == "/default-rack" and node.gpus_used == 0 for node in seen)
    assert all(node.cpus > 0 and node.memory_mib == 6144 and node.memory_used_mib == 0 for node in seen)
    assert rm.metrics().nodes == len(seen)
    if lane != "3.2.0":
        assert rm.metrics().gpus == gpus


def test_a_lost_node_keeps_its_size_and_attributes(connected: Connected) -> None:
    rm, _ = connected("3.4.2", "nodes-lost")
    here, lost = rm.nodes()
    assert (lost.host, lost.state, lost.gpus, lost.http) == ("gpu-b", "LOST", 4, "")
    assert lost.attributes == {"nm.yarn.io/gpukind": "K80", "nm.yarn.io/host": "gpu-b"}
    assert (here.gpus, here.gpus_used, here.cpus_used, here.tags) == (4, 3, 4, {"on-a": 3})


def test_applications(connected: Connected) -> None:
    rm, fake = connected("3.4.2", "apps-types", "app-404", "app-bad-queue", "app-killed")
    held = rm.apps(states=["RUNNING", "ACCEPTED"], kinds=["yarn-service"], user="alice")
    assert fake.asked[0].query["states"] == "RUNNING,ACCEPTED"
    assert "resourceRequests" in fake.asked[0].query["deSelects"]
    assert {app.kind for app in held} == {"yarn-service"}
    running = next(app for app in held if app.state == "RUNNING")
    assert (running.gpus, running.queue, running.user) == (3, "root.themis", "alice")
    assert running.submitted_s > 1.7e9
    with pytest.raises(Gone, match="application_1_0001 not found"):
        rm.app("application_1_0001")
    refused = rm.app("application_1795240166371_0005")
    assert (refused.state, refused.queue, refused.ended) == ("FAILED", "root.nope", True)
    assert "unknown queue" in refused.diagnostics
    assert rm.app("application_1795240166371_0004").state == "KILLED"


@pytest.mark.parametrize("lane", LANES)
def test_no_applications_is_an_empty_object(connected: Connected, lane: str) -> None:
    rm, _ = connected(lane, "apps-empty-filter") if lane != "3.3.6" else connected("3.4.2", "apps-empty-filter")
    assert rm.apps(states=["RUNNING"]) == []


def test_attempts_and_containers(connected: Connected) -> None:
    rm, _ = connected("3.4.2", "svc-attempts", "svc-containers")
    application = "application_1795240166371_0006"
    (attempt,) = rm.attempts(application)
    assert (attempt.state, attempt.node) == ("RUNNING", "gpu-b:18041")
    held = rm.containers(application, attempt.id, owner="alice")
    workers = [container for container in held if container.gpus]
    assert {container.node for container in workers} == {"gpu-a:18041", "gpu-b:18041"}
    assert [container.gpus for container in workers] == [1] * 4
    assert all(container.state == "RUNNING" for container in held)


def test_containers_of_another_user_are_refused(connected: Connected) -> None:
    rm, _ = connected("3.4.2", "acl-bob-containers")
    with pytest.raises(TryLater):
        rm.containers("application_1795241133510_0001", "appattempt_1795241133510_0001_000001", owner="bob")


def test_a_kill_sends_what_was_seen_to_work(connected: Connected) -> None:
    rm, fake = connected("3.4.2", "kill", "kill-again")
    application = "application_1795240166371_0004"
    assert rm.kill(application, "lease expired", owner="alice") is False
    assert rm.kill(application, owner="alice") is True
    sent = {asked.path.rpartition("/")[2]: asked.json for asked in fake.asked if asked.body}
    pairs = recorded("3.4.2")
    assert sent["state"] == pairs["kill-again"]["request"]["body"]
    assert {asked.query["user.name"] for asked in fake.asked if asked.body} == {"alice"}


def test_submission(connected: Connected) -> None:
    rm, fake = connected("3.4.2", "new-application", "submit")
    assert rm.new_application("alice") == "application_1795240166371_0004"
    rm.submit(recorded("3.4.2")["submit"]["request"]["body"], "alice")
    assert fake.asked[1].json["application-name"] == "plain"


def test_signals(connected: Connected) -> None:
    rm, fake = connected("3.4.2", "signal-forceful_shutdown", "signal-nope", "info")
    rm.signal("container_1795240166371_0006_01_000008", FORCEFUL, owner="alice")
    assert fake.asked[0].path.endswith("_000008/signal/FORCEFUL_SHUTDOWN")
    with pytest.raises(Never, match="Invalid command: NOPE"):
        rm.signal("container_1795240166371_0006_01_000008", "NOPE", owner="alice")


def test_a_release_without_the_signal_says_so(connected: Connected) -> None:
    rm, fake = connected("3.2.0", "info")
    known = fake.answers
    fake.answers = lambda asked: Reply(404, "<title>Not Found</title>") if "signal" in asked.path else known(asked)
    with pytest.raises(FixConfiguration, match="cannot signal containers"):
        rm.signal("container_1_0001_01_000002")


def test_the_schedulers_configuration(connected: Connected) -> None:
    rm, fake = connected("3.4.2", "sched-conf-get", "sched-conf-put-xml")
    found = rm.scheduler_conf()
    assert found is not None
    assert found["yarn.scheduler.capacity.root.queues"] == "default,themis"
    edits = QueueEdits(update={"root.themis": {"capacity": "80"}, "root.default": {"capacity": "20"}})
    rm.edit_scheduler(edits, owner="root")
    sent = next(asked for asked in fake.asked if asked.method == "PUT")
    assert sent.headers["Content-Type"] == "application/xml"
    queues = ET.fromstring(sent.body).findall("update-queue")
    assert [queue.findtext("queue-name") for queue in queues] == ["root.themis", "root.default"]
    assert queues[0].findtext("params/entry/key") == "capacity"


def test_an_edit_that_was_answered_well_and_did_nothing_is_noticed(connected: Connected) -> None:
    rm, _ = connected("3.4.2", "sched-conf-get", "sched-conf-put-json-wrapped")
    with pytest.raises(TryLater, match=r"root.themis.capacity is 80, not 60"):
        rm.edit_scheduler(QueueEdits(update={"root.themis": {"capacity": "60"}}))


def test_a_configuration_in_a_file_cannot_be_changed(connected: Connected) -> None:
    rm, fake = connected("3.4.2")
    text = "This API only supports to retrieve scheduler configuration from a mutable-conf scheduler, underneath ..."
    fake.answers = lambda asked: Reply(400, text)
    assert rm.scheduler_conf() is None


def test_delegation_tokens(connected: Connected) -> None:
    rm, fake = connected("3.4.2-kerberos", "krb-rm-token", "krb-rm-token-renew")
    token = rm.delegation_token("horae", owner="alice")
    assert (token.owner, token.renewer) == ("alice@LAB", "horae")
    assert token.max_s - token.expires_s == pytest.approx(6 * 86400, abs=5)
    assert "<token>" not in repr(token)
    assert rm.renew_token(token) == pytest.approx(1795331602.836)
    assert fake.asked[1].headers["Hadoop-YARN-RM-Delegation-Token"] == token.token


def test_an_address_that_is_not_a_resource_manager(connected: Connected) -> None:
    rm, fake = connected("3.4.2")
    fake.answers = lambda asked: Reply(200, ["a", "list"])
    with pytest.raises(TryLater, match="is the address right"):
        rm.info()


def test_who_may_submit_to_a_queue(connected: Connected) -> None:
    rm, fake = connected("3.4.2-queues", "access-bob", "access-alice")
    assert rm.may_submit("horae", "bob") == ""
    assert "alice doesn't have access to queue=horae" in (rm.may_submit("horae", "alice") or "")
    assert fake.asked[-1].query == {"user": "alice", "queue-acl-type": "SUBMIT_APPLICATIONS", "user.name": "horae"}, (
        "only who administers a queue is told, and on a closed one its users do not"
    )
    fake.answers = lambda asked: Reply(404)  # before Hadoop 3.3
    assert rm.may_submit("horae", "bob") is None
