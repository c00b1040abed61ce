"""The HDFS token of a slice: read and written as Hadoop does, asked for in the right name, and nobody else's."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.elastic.stores.container_tokens import hdfs_token
from horae.port import FixConfiguration, TryLater
from tests.yarn_bridge.fake import Asked, Fake, Reply, serving
from yarn_bridge.clients import http
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.settings import Settings
from yarn_bridge.options import Options
from yarn_bridge.runtimes.chooser import Probes, choose
from yarn_bridge.runtimes.slice_tokens import SliceTokens, parse, renewer_of, service_of

# One token of a Hadoop 3.4.2 that is gone: as WebHDFS gave it, and in the file of the container of a distributed shell
# that was submitted with it.
WORD = (
    "GwAFYWxpY2UCcm0AigGiANfFqIoBoiTkSagmAhRhYr5yZulJmGdg0yzncd-N-qStcRJXRUJIREZTIGRlbGVnYXRpb24QMTI3LjgzLjM1LjE6OTAwMA"
)
CONTAINER = base64.b64decode(
    "SERUUwACABQKDQoJCAkQt/LNhqA0EAEQxoTnTxQfrvl1cveKfX7hPcqfjRSYI+APsxBZQVJOX0FNX1JNX1RPS0VOABAxMjcuODMuMzUuMTo5MDAwGwAF"
    "YWxpY2UCcm0AigGiANfFqIoBoiTkSagmAhRhYr5yZulJmGdg0yzncd+N+qStcRVIREZTX0RFTEVHQVRJT05fVE9LRU4QMTI3LjgzLjM1LjE6OTAwMAA="
)
RM = {"yarn.resourcemanager.principal": "rm/_HOST@LAB", "fs.defaultFS": "hdfs://nn:8020"}


def test_a_recorded_token_is_read_and_written_as_it_was() -> None:
    token = parse(WORD)
    assert (token.owner, token.kind, token.service) == ("alice", b"WEBHDFS delegation", b"127.83.35.1:9000")
    assert (len(token.password), token.word) == (20, WORD)


def test_what_is_submitted_is_what_the_container_was_given(tmp_path: Path) -> None:
    (tmp_path / "container_tokens").write_bytes(CONTAINER)
    (entry,) = parse(WORD).for_rpc().credentials()["tokens"]["entry"]
    assert entry == {"key": "127.83.35.1:9000", "value": hdfs_token(str(tmp_path / "container_tokens"))}


def test_where_namenodes_share_a_name_the_token_is_for_that_name() -> None:
    token = parse(WORD)
    made = token.for_rpc("ha-hdfs:prod")
    assert (made.identifier, made.password) == (token.identifier, token.password)
    assert parse(made.word) == made
    assert made.credentials()["tokens"]["entry"][0]["key"] == "ha-hdfs:prod"


@given(st.integers(0, len(WORD) - 1) | st.text(max_size=80))
def test_what_is_no_token_is_refused_and_not_repeated(cut: int | str) -> None:
    text = WORD[:cut] if isinstance(cut, int) else cut
    with pytest.raises(ValueError, match=r"^not a") as raised:
        assert parse(text).owner
    assert len(text) < 6 or text not in str(raised.value)


def test_a_token_does_not_show_its_password() -> None:
    token = parse(WORD)
    assert repr(token.password) not in repr(token)
    assert token.word not in repr(token)


@pytest.mark.parametrize(
    ("manager", "namenode", "addresses", "wanted"),
    [
        ({"fs.defaultFS": "hdfs://nn:8020"}, {"dfs.ha.namenodes.nn": "a,b"}, 2, ""),
        ({"fs.defaultFS": "hdfs://prod"}, {"dfs.ha.namenodes.prod": "a,b"}, 1, "ha-hdfs:prod"),
        ({"fs.defaultFS": "hdfs://prod", "dfs.ha.namenodes.prod": "a,b"}, None, 1, "ha-hdfs:prod"),
        ({"fs.defaultFS": "hdfs://prod"}, None, 2, "ha-hdfs:prod"),
        ({"fs.defaultFS": "hdfs://prod"}, None, 1, ""),
        ({"fs.defaultFS": "hdfs://nn"}, {"dfs.ha.namenodes.other": "a,b"}, 2, ""),
        ({}, {"fs.defaultFS": "hdfs://prod", "dfs.ha.namenodes.prod": "a,b"}, 2, "ha-hdfs:prod"),
        ({}, None, 2, ""),
    ],
)  # fmt: skip
def test_whose_tokens_hadoops_clients_look_for(
    manager: dict[str, str], namenode: dict[str, str] | None, addresses: int, wanted: str
) -> None:
    """A host name and the name of several NameNodes look alike: their settings, or their number, tell."""
    names = Settings({}, "not told") if namenode is None else Settings(namenode)
    assert service_of(Settings(manager), names, addresses) == wanted


def test_the_resource_manager_renews() -> None:
    assert renewer_of(Settings(RM), "http://RM1.site:8088") == "rm/rm1.site@LAB"
    assert renewer_of(Settings({"yarn.resourcemanager.principal": "yarn/x@R"}), "http://rm:8088") == "yarn/x@R"
    with pytest.raises(FixConfiguration, match=r"has no yarn.resourcemanager.principal"):
        renewer_of(Settings({}), "http://rm:8088")
    with pytest.raises(FixConfiguration, match=r"admins only.*read the ResourceManager's /conf"):
        renewer_of(Settings({}, "admins only"), "http://rm:8088")


# --- asking -----------------------------------------------------------------------------------------------


class World:
    """A ResourceManager and a NameNode in one, and the bridge's client of both."""

    def __init__(self, fake: Fake) -> None:
        self.fake, self.word, self.refuses = fake, WORD, Reply()
        options = Options(resource_manager=(fake.url,), webhdfs=(fake.url,), auth="kerberos", principal="horae@LAB")
        manager = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
        self.tokens = SliceTokens(options, manager)
        self.close: Callable[[], None] = manager.close

    def answer(self, asked: Asked) -> Reply:
        if asked.path == "/conf":
            return Reply(200, {"properties": [{"key": key, "value": value} for key, value in RM.items()]})
        if self.refuses.status >= 400:
            return self.refuses
        if asked.query["op"] == "GETDELEGATIONTOKEN":
            return Reply(200, {"Token": {"urlString": self.word} if self.word else None})
        return Reply(200)

    @property
    def asked(self) -> list[dict[str, str]]:
        return [dict(each.query) for each in self.fake.asked if each.path == "/webhdfs/v1/"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(http, "Spnego", lambda *_: None)
    with serving(lambda _: Reply(500)) as fake:
        made = World(fake)
        fake.answers = made.answer
        yield made
        made.tokens.close()
        made.close()


def test_a_token_is_taken_in_the_owners_name_and_renewed_by_the_resource_manager(world: World) -> None:
    token = world.tokens.get("alice")
    assert (token.owner, token.kind) == ("alice", b"HDFS_DELEGATION_TOKEN")
    assert world.asked == [{"op": "GETDELEGATIONTOKEN", "renewer": "rm/127.0.0.1@LAB", "doAs": "alice"}]
    world.tokens.get("alice")
    assert [each.path for each in world.fake.asked].count("/conf") == 2, "settings are read once"
    world.tokens.cancel(token, "alice")
    assert world.asked[-1] == {"op": "CANCELDELEGATIONTOKEN", "token": token.word, "doAs": "alice"}


def test_somebody_elses_token_is_given_back_and_to_no_job(world: World) -> None:
    """A NameNode that ignores doAs gives one of the bridge's own."""
    with pytest.raises(FixConfiguration, match=r"of bob: the NameNode gave one of alice.*hadoop.proxyuser.horae"):
        world.tokens.get("bob")
    assert [each["op"] for each in world.asked] == ["GETDELEGATIONTOKEN", "CANCELDELEGATIONTOKEN"]
    assert "doAs" not in world.asked[-1]


@pytest.mark.parametrize(
    ("word", "reply", "error", "text"),
    [
        ("", Reply(), FixConfiguration, "gives none.*hadoop.security.authentication"),
        ("c2VjcmV0", Reply(), FixConfiguration, "is `webhdfs` the address of a NameNode"),
        (WORD, Reply(403, {"RemoteException": {"exception": "AuthorizationException", "message":
            "User: horae is not allowed to impersonate alice"}}), FixConfiguration, "impersonate alice.*proxyuser"),
        (WORD, Reply(503, "starting"), TryLater, "starting"),
    ],
)  # fmt: skip
def test_no_token_and_why(
    world: World, caplog: pytest.LogCaptureFixture, word: str, reply: Reply, error: Any, text: str
) -> None:
    world.word, world.refuses = word, reply
    with caplog.at_level(logging.DEBUG), pytest.raises(error, match=text) as raised:
        world.tokens.get("alice")
    assert not word or word not in raised.value.text + caplog.text


# --- which way --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "services_api", "release", "told"),
    [
        ("auto", True, "3.4.2", ("services", True)),
        ("auto", True, "3.3.6", ("services", False)),
        ("auto", False, "3.4.2", ("slices", True)),
        ("slices", True, "3.4.2", ("slices", True)),
        ("services", True, "3.4.2", ("services", True)),
    ],
)
def test_under_kerberos_services_come_first(
    said: str, services_api: bool, release: str, told: tuple[str, bool]
) -> None:
    probes = Probes(release, services_api, release == "3.4.2", "scheduler")
    found = choose(Options(auth="kerberos", runtime=said), probes, named=True)
    assert (found.runtime, found.pinned) == told
