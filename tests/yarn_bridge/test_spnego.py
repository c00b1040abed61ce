"""Tickets: a fresh token a request, renewed before their end and after a refusal; with stand-ins for the libraries."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import requests

from horae.port import FixConfiguration
from tests.yarn_bridge.fake import Asked, Reply, serving
from tests.yarn_bridge.fake_hdfs import World
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import KERBEROS, Access, HttpClient
from yarn_bridge.clients.spnego import Spnego


class GSSError(Exception):
    pass


class Libraries:
    """gssapi and requests-gssapi as far as they are used: tickets with a life, tokens with a number."""

    def __init__(self) -> None:
        self.life = 3600
        self.fault = ""
        self.tickets: list[SimpleNamespace] = []
        self._tokens = itertools.count(1)

    def credentials(self, usage: str, name: object, store: dict[str, str] | None) -> SimpleNamespace:
        if self.fault:
            raise GSSError(self.fault)
        ticket = SimpleNamespace(lifetime=self.life, name=name, store=store)
        self.tickets.append(ticket)
        return ticket

    def signer(self, creds: SimpleNamespace, **settings: Any) -> Any:
        assert settings["opportunistic_auth"]

        def sign(request: Any) -> Any:
            request.headers["Authorization"] = f"Negotiate token-{next(self._tokens)}"
            return request

        class Signer:
            def __init__(self) -> None:
                self.creds = creds

            __call__ = staticmethod(sign)

        return Signer()


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Libraries]:
    found = Libraries()
    gssapi: Any = ModuleType("gssapi")
    gssapi.Credentials = found.credentials
    gssapi.Name = lambda text, kind: text
    gssapi.NameType = SimpleNamespace(kerberos_principal="principal")
    gssapi.exceptions = SimpleNamespace(GSSError=GSSError)
    requests_gssapi: Any = ModuleType("requests_gssapi")
    requests_gssapi.HTTPSPNEGOAuth, requests_gssapi.DISABLED = found.signer, 3
    monkeypatch.setitem(sys.modules, "gssapi", gssapi)
    monkeypatch.setitem(sys.modules, "requests_gssapi", requests_gssapi)
    yield found


def client(url: str) -> HttpClient:
    access = Access((url,), "horae", auth=KERBEROS, principal="horae@LAB", keytab="/etc/horae.keytab")
    return HttpClient(access, "ResourceManager")


def test_each_request_has_a_token_of_its_own_and_acts_for_the_owner(libraries: Libraries) -> None:
    with serving(lambda asked: Reply(body={})) as fake:
        http = client(fake.url)
        http.ask("GET", "/x", owner="alice")
        http.ask("GET", "/x")
        http.ask("GET", "/x", anonymous=True)
    sent = [asked.headers.get("Authorization") for asked in fake.asked]
    assert sent == ["Negotiate token-1", "Negotiate token-2", None]
    assert [asked.query for asked in fake.asked] == [{"doAs": "alice"}, {}, {}]
    (ticket,) = libraries.tickets
    assert ticket.name == "horae@LAB"
    assert ticket.store["client_keytab"] == "/etc/horae.keytab"
    assert ticket.store["ccache"].startswith("MEMORY:")


def test_requests_of_several_threads_do_not_share_an_exchange(
    libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the library: of a host it keeps the exchange that began last, and that takes one step."""
    exchanges: dict[str, list[int]] = {}

    def sign(request: Any) -> Any:
        number = next(libraries._tokens)
        exchanges["host"] = [number]
        time.sleep(0.01)  # the key distribution centre is asked
        request.headers["Authorization"] = f"Negotiate token-{exchanges['host'].pop()}"
        return request

    signer = libraries.signer

    def made(**settings: Any) -> Any:
        found = signer(**settings)
        type(found).__call__ = staticmethod(sign)
        return found

    monkeypatch.setattr(sys.modules["requests_gssapi"], "HTTPSPNEGOAuth", made)
    spnego = Spnego("horae@LAB", "/etc/horae.keytab")
    with ThreadPoolExecutor(8) as pool:
        words = list(pool.map(lambda _: spnego.word("http://nn1:9870/x"), range(24)))
    assert sorted(words) == sorted(f"Negotiate token-{number}" for number in range(1, 25))


def test_a_ticket_near_its_end_is_renewed_before_it_is_used(libraries: Libraries) -> None:
    with serving(lambda asked: Reply(body={})) as fake:
        http = client(fake.url)
        http.ask("GET", "/x")
        libraries.tickets[0].lifetime = 200
        http.ask("GET", "/x")
    assert len(libraries.tickets) == 2


@pytest.mark.parametrize(
    "refused",
    [
        Reply(401, {"message": "Authentication required"}),
        Reply(403, {"RemoteException": {"exception": "AuthenticationException", "message": "GSSException: stale"}}),
    ],
)
def test_a_refused_ticket_is_renewed_and_the_request_sent_once_more(libraries: Libraries, refused: Reply) -> None:
    def once(asked: Asked) -> Reply:
        return refused if len(fake.asked) == 1 else Reply(body={"ok": True})

    with serving(once) as fake:
        assert client(fake.url).ask("PUT", "/x", json={"a": 1}).get("x", "ok") is True
        assert [asked.json for asked in fake.asked] == [{"a": 1}, {"a": 1}]
        assert len(libraries.tickets) == 2
        fake.answers = lambda asked: refused
        fake.asked.clear()
        assert client(fake.url).ask("GET", "/x").status == refused.status
        assert len(fake.asked) == 2


def test_a_real_refusal_is_not_asked_again(libraries: Libraries) -> None:
    message = "User: horae@LAB is not allowed to impersonate bob"
    body = {"RemoteException": {"exception": "AuthorizationException", "message": message}}
    with serving(lambda asked: Reply(403, body)) as fake:
        answer = client(fake.url).ask("GET", "/x", owner="bob")
        with pytest.raises(FixConfiguration, match=r"hadoop\.proxyuser"):
            answer.check("asking")
    assert len(fake.asked) == 1


def test_a_server_without_a_principal_is_a_matter_of_configuration(libraries: Libraries) -> None:
    class SPNEGOExchangeError(requests.exceptions.RequestException):
        pass

    def refuse(request: Any) -> Any:
        raise SPNEGOExchangeError("Server HTTP/127.0.0.1@LAB not found in Kerberos database")

    libraries.signer = lambda creds, **settings: refuse  # type: ignore[method-assign]
    sys.modules["requests_gssapi"].HTTPSPNEGOAuth = libraries.signer  # type: ignore[attr-defined]
    with pytest.raises(FixConfiguration, match=r"no token for 127\.0\.0\.1:1 .*principal HTTP/127\.0\.0\.1,"):
        client("http://127.0.0.1:1").ask("GET", "/x")
    for signer in (libraries.signer, lambda creds, **settings: lambda request: request):  # raised, or left out
        sys.modules["requests_gssapi"].HTTPSPNEGOAuth = signer  # type: ignore[attr-defined]
        hdfs = Hdfs(Access(("http://127.0.0.1:1",), "horae", auth=KERBEROS))
        with pytest.raises(FixConfiguration, match=r"no token for 127\.0\.0\.1:1"):
            hdfs.entries("/user")


def test_the_namenode_is_shown_a_fresh_token_and_the_datanode_none(libraries: Libraries) -> None:
    with ExitStack() as stack:
        world = World(stack)
        access = Access((world.namenode.url,), "horae", auth=KERBEROS, principal="horae@LAB", keytab="/k")
        hdfs = Hdfs(access, {"datanode.invalid": "127.0.0.1"})
        stale = [Reply(401, {"message": "Authentication required"})]
        world.fault = lambda operation: stale.pop() if stale else None
        hdfs.as_user("alice").write("/user/alice/x", b"data")
        assert world.files == {"/user/alice/x": b"data"}
        shown = [asked.headers.get("Authorization") for asked in world.namenode.asked]
        assert shown == [f"Negotiate token-{number}" for number in range(1, len(shown) + 1)]
        assert len(libraries.tickets) == 2, "one more after the refusal"
        assert {asked.query["doas"] for asked in world.namenode.asked} == {"alice"}
        assert "Authorization" not in world.datanode.asked[0].headers


def test_no_ticket_and_an_expired_one_are_told(libraries: Libraries) -> None:
    libraries.fault = "keytab not found"
    with pytest.raises(FixConfiguration, match=r"no Kerberos ticket with keytab /k: keytab not found"):
        Spnego("horae@LAB", "/k").left_s()
    with pytest.raises(FixConfiguration, match="in the ticket cache"):
        Spnego().left_s()
    libraries.fault, libraries.life = "", 0
    with pytest.raises(FixConfiguration, match="has expired"):
        Spnego().left_s()
    libraries.life = 60
    assert Spnego().left_s() == 60


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(FixConfiguration, match=r"libkrb5-dev.*horae\[kerberos\]"):
        client("http://127.0.0.1:1").ask("GET", "/x")


def test_no_two_tickets_ever_share_a_cache(libraries: Libraries) -> None:
    """A cache in memory outlives whoever made it, and takes no other principal."""
    for number in range(50):
        Spnego(f"user{number}@LAB", "/etc/horae.keytab").left_s()
    assert len({ticket.store["ccache"] for ticket in libraries.tickets}) == 50
