"""The client of YARN Services on recorded answers: every trap of the API once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from horae.port import FixConfiguration, Never, TryLater
from tests.yarn_bridge.fake import Asked, Fake, Reply, recorded, replay, serving
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.http import KERBEROS, Access, HttpClient
from yarn_bridge.clients.quirks import quirks_of
from yarn_bridge.clients.services import PROPERTIES, FlexRefused, Services, definition_path

Connected = Callable[..., tuple[Services, Fake]]


@pytest.fixture
def connected() -> Iterator[Connected]:
    with ExitStack() as stack:

        def make(lane: str, *names: str, auth: str = "simple") -> tuple[Services, Fake]:
            fake = stack.enter_context(serving(replay(lane, *names)))
            http = HttpClient(Access((fake.url,), "horae", auth=auth), "ResourceManager")
            return Services(http, quirks_of(lane)), fake

        yield make


def spec(lane: str = "3.4.2", name: str = "svc-create") -> dict[str, Any]:
    return copy.deepcopy(recorded(lane)[name]["request"]["body"])


def puts(fake: Fake) -> list[Asked]:
    return [asked for asked in fake.asked if asked.method == "PUT"]


@pytest.mark.parametrize("lane", ["3.2.0", "3.3.6", "3.4.2"])
def test_a_service_through_its_states(connected: Connected, lane: str) -> None:
    services, _ = connected(lane, "svc-started", "svc-flexing", "svc-stable", "svc-404")
    started = services.get("rec", "alice")
    assert started is not None
    assert (started.name, started.state, started.flexible, started.ended) == ("rec", "STARTED", True, False)
    assert started.counts == {"worker": 1}
    flexing, stable = services.get("rec", "alice"), services.get("rec", "alice")
    assert flexing is not None
    assert stable is not None
    assert flexing.counts == {"worker": 4}
    workers = stable.components["worker"].instances
    assert stable.state == ("STARTED" if lane == "3.2.0" else "STABLE")
    assert {worker.state for worker in workers} == {"READY"}
    assert [worker.name.rpartition("-")[0] for worker in workers] == ["worker"] * len(workers)
    assert all(worker.container.startswith("container_") and worker.node for worker in workers)
    assert services.get("none", "alice") is None


def test_the_node_of_a_worker_is_yarns_name_for_it(connected: Connected) -> None:
    services, _ = connected("3.4.2", "svc-stable")
    found = services.get("rec", "alice")
    assert found is not None
    assert {worker.node for worker in found.components["worker"].instances} <= {"gpu-a", "gpu-b"}


def test_a_service_on_a_lost_node(connected: Connected) -> None:
    services, _ = connected("3.4.2", "svc-node-lost")
    found = services.get("fl", "alice")
    assert found is not None
    assert found.counts["on-a"] == 3
    assert {worker.state for each in found.components.values() for worker in each.instances} <= {"READY", "FAILED"}


def test_another_users_service_is_not_there(connected: Connected) -> None:
    services, fake = connected("3.4.2", "acl-bob-svc")
    assert services.get("sec", "bob") is None
    assert fake.asked[0].query["user.name"] == "bob"


def test_creation_adds_what_is_not_optional(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-create")
    known = fake.answers
    absent = recorded("3.4.2")["svc-404"]
    fake.answers = lambda asked: Reply(404, absent["response"]) if asked.method == "GET" else known(asked)
    asked = spec()
    asked["configuration"] = {"properties": {"yarn.service.readiness-check-interval.seconds": "7"}}
    assert services.create(asked, "alice") == "application_1795240166371_0006"
    sent = fake.asked[-1].json["configuration"]["properties"]
    assert sent == {**PROPERTIES, "yarn.service.readiness-check-interval.seconds": "7"}
    assert int(sent["yarn.service.am-restart.max-attempts"]) > 2, "Hadoop ends it at its second death"
    assert sent["yarn.service.am-failure.validity-interval-ms"] == "600000", "and counts those of its whole life"
    assert "restart_policy" in fake.asked[-1].json["components"][0]


def test_a_taken_name_is_its_own_kind(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-started", "svc-create-dup")
    with pytest.raises(Exists, match="STARTED"):
        services.create(spec(), "alice")
    assert all(asked.method == "GET" for asked in fake.asked)
    known, absent = fake.answers, recorded("3.4.2")["svc-404"]
    fake.answers = lambda asked: Reply(404, absent["response"]) if asked.method == "GET" else known(asked)
    with pytest.raises(Exists, match="already taken"):
        services.create(spec(), "alice")


def test_what_a_refused_creation_leaves_is_swept(connected: Connected) -> None:
    services, fake = connected("3.4.2")
    stopped, there = recorded("3.4.2")["svc-stopped"]["response"], [False]

    def answers(asked: Asked) -> Reply:
        if asked.method == "POST":
            there[0] = True
            return Reply(400, {"diagnostics": "Invalid character in yarn.service.am.java.opts."})
        if asked.method == "DELETE":
            there[0] = False
            return Reply(200, {})
        return Reply(200, stopped) if there[0] else Reply(404, {"diagnostics": "Service rec not found"})

    fake.answers = answers
    with pytest.raises(Never, match="Invalid character"):
        services.create(spec(), "alice")
    assert there == [False]
    assert fake.asked[-1].method == "DELETE"


@pytest.mark.parametrize("in_hdfs", [True, False])
def test_a_definition_is_taken_away_in_hdfs_where_it_is_there(connected: Connected, in_hdfs: bool) -> None:
    """Each DELETE costs the ResourceManager a connection to ZooKeeper for as long as it lives."""
    services, fake = connected("3.4.2", "svc-destroy")
    asked: list[tuple[str, str]] = []

    def taken(name: str, owner: str) -> bool:
        asked.append((name, owner))
        return in_hdfs

    Services(services.http, services.quirks, taken).forget("rec", "alice")
    assert asked == [("rec", "alice")]
    assert [each.method for each in fake.asked] == ([] if in_hdfs else ["DELETE"])


@pytest.mark.parametrize("name", ["", "Upper", "1st", "a_b", "a" * 64])
def test_names_that_yarn_would_refuse(connected: Connected, name: str) -> None:
    services, fake = connected("3.4.2")
    with pytest.raises(Never, match="not a name for a service"):
        services.create({**spec(), "name": name}, "alice")
    assert fake.asked == []


@pytest.mark.parametrize(
    "principal",
    [
        {},
        {"principal_name": "alice@LAB", "keytab": "hdfs:///user/alice/k"},
        {"principal_name": "alice/horae@LAB"},
        {"principal_name": "alice/horae@LAB", "keytab": "/user/alice/k"},
    ],
)
def test_under_kerberos_a_service_that_could_never_be_flexed_is_not_created(
    connected: Connected, principal: dict[str, str]
) -> None:
    services, fake = connected("3.4.2", auth=KERBEROS)
    with pytest.raises(FixConfiguration, match="alice/horae@REALM"):
        services.create({**spec(), "kerberos_principal": principal}, "alice")
    assert fake.asked == []


def test_under_kerberos_a_service_gets_its_owners_principal_and_keytab(
    connected: Connected,
) -> None:
    services, fake = connected("3.4.2", "svc-create")
    known = fake.answers
    absent = Reply(404, {"diagnostics": "Service rec not found"})
    fake.answers = lambda asked: absent if asked.method == "GET" else known(asked)
    services.http.access = replace(services.http.access, auth=KERBEROS, principal="horae@LAB")
    services.create(spec(), "alice")
    assert fake.asked[-1].json["kerberos_principal"] == {
        "principal_name": "alice/horae@LAB",
        "keytab": "hdfs:///user/alice/horae.keytab",
    }


def test_one_flex_for_all_components_that_change(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-pin", "svc-flex-many")
    wanted = recorded("3.4.2")["svc-flex-many"]["request"]["body"]
    counts = {each["name"]: each["number_of_containers"] for each in wanted["components"]}
    present = services.get("pin", "alice")
    assert present is not None
    assert all(present.counts[name] != count for name, count in counts.items())
    services.flex("pin", "alice", counts)
    assert [asked.json for asked in puts(fake)] == [wanted]


def test_a_count_that_stands_already_is_not_sent_since_its_starting_workers_would_be_lost(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-pin", "svc-flex-many")
    found = services.get("pin", "alice")
    assert found is not None
    services.flex("pin", "alice", found.counts)
    assert puts(fake) == []
    first, *others = found.counts
    services.flex("pin", "alice", {**found.counts, first: found.counts[first] + 1})
    assert [each["name"] for each in puts(fake)[0].json["components"]] == [first]
    assert others


def test_a_flex_that_would_be_refused_is_not_sent_since_it_would_be_stored(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-accepted")
    with pytest.raises(TryLater, match="it is ACCEPTED"):
        services.flex("rec", "alice", {"worker": 3})
    assert puts(fake) == []


def test_a_flex_that_was_refused_is_read_again(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-started", "svc-flexing")
    known, told = fake.answers, recorded("3.4.2")["svc-flex-too-early"]
    fake.answers = lambda asked: known(asked) if asked.method == "GET" else Reply(told["status"], told["response"])
    with pytest.raises(FlexRefused, match="may be applied later all the same") as refused:
        services.flex("rec", "alice", {"worker": 4})
    assert refused.value.now is not None
    assert refused.value.now.counts == {"worker": 4}


def test_flexes_that_can_never_work(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-started", "svc-stopped", "svc-404")
    with pytest.raises(Never, match="less than no workers"):
        services.flex("rec", "alice", {"worker": -1})
    with pytest.raises(Never, match="no component zzz"):
        services.flex("rec", "alice", {"worker": 1, "zzz": 1})
    with pytest.raises(Gone, match="it is STOPPED"):
        services.flex("rec", "alice", {"worker": 1})
    with pytest.raises(Gone, match="no such service"):
        services.flex("none", "alice", {"worker": 1})
    assert puts(fake) == []


def test_a_service_that_vanishes_between_the_read_and_the_flex(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-started")
    known, told = fake.answers, recorded("3.4.2")["acl-bob-flex"]
    fake.answers = lambda asked: known(asked) if asked.method == "GET" else Reply(told["status"], told["response"])
    with pytest.raises(Gone, match="File does not exist"):
        services.flex("rec", "alice", {"worker": 4})


def test_stop_start_destroy_are_idempotent(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-stop", "svc-start-too-early", "svc-start", "svc-stopped", "svc-restarted",
                               "svc-destroy", "svc-destroy-again")  # fmt: skip
    with pytest.raises(TryLater, match="still ending"):
        services.stop("rec", "alice")
    fake_known = fake.answers
    with pytest.raises(TryLater, match="already exists"):
        services.start("rec", "alice")
    fake.answers = lambda asked: Reply(400, {"diagnostics": "Service rec is already stopped"})
    services.stop("rec", "alice")
    fake.answers = fake_known
    services.start("rec", "alice")  # runs again: nothing is sent
    services.destroy("rec", "alice")
    services.destroy("rec", "alice")
    assert [asked.json["state"] for asked in puts(fake)] == ["STOPPED", "STARTED", "STOPPED"]


def test_the_version_of_the_interface(connected: Connected) -> None:
    services, fake = connected("3.4.2", "svc-version")
    assert str(services.api_version()).startswith("3.4.2")
    fake.answers = lambda asked: Reply(404, "<title>Error 404 Not Found</title>")
    assert services.api_version() is None


def test_where_the_definition_is_stored() -> None:
    assert definition_path("rec", "alice") == "/user/alice/.yarn/services/rec/rec.json"
