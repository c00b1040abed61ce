"""Servers that never end their answers, send too much, or send us elsewhere: at the process boundary."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import stamina

from horae.elastic.stores import namenodes
from horae.port import FixConfiguration, TryLater
from tests.endless import ENDLESS, Says, raw
from tests.yarn_bridge.fake import Asked, Reply, serving
from yarn_bridge.clients import bodies
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import KERBEROS, TOKEN, Access, HttpClient
from yarn_bridge.clients.namenodes import told


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (bodies, namenodes):
        monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    with stamina.set_testing(True, attempts=1):
        yield


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bodies, namenodes):
        monkeypatch.setattr(module, "MOST_S", 0.2)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("says", ENDLESS)
def test_an_answer_without_an_end_is_given_up(says: Says) -> None:
    why = "takes longer than|answers with more than"
    with raw(says) as url:
        access = Access((url,), "horae", read_s=30.0)
        with pytest.raises(TryLater, match=why):
            HttpClient(access, "ResourceManager").ask("GET", "/ws/v1/cluster/apps")
        with pytest.raises(TryLater, match=why):
            Hdfs(access).entries("/jobs")
        with pytest.raises(TryLater, match=why + "|connection refused"):  # of where it sends on: its body is not read
            b"".join(Hdfs(access).pieces("/jobs/log", 0, 1 << 30))


def test_a_file_is_no_longer_than_was_asked_for() -> None:
    with serving(lambda asked: Reply(200, b"x" * 5000)) as fake:
        assert Hdfs(Access((fake.url,), "horae")).read("/jobs/log", 0, 1234) == b"x" * 1234


def test_an_answer_that_unpacks_to_more_is_counted_unpacked() -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    with serving(lambda asked: Reply(200, bomb, {"Content-Encoding": "gzip"})) as fake:
        http = HttpClient(Access((fake.url,), "horae"), "ResourceManager")
        with pytest.raises(TryLater, match="more than 1 MiB"):
            http.ask("GET", "/x")


@pytest.mark.parametrize(
    "location",
    [
        "",
        "file:///etc/passwd",
        "gopher://127.0.0.1/x",
        "//127.0.0.1/x",
        "/webhdfs/v1/x",
        "http://a:b@127.0.0.1/x",
        "http://[x",
    ],
)
def test_a_redirect_that_names_no_datanode_is_not_followed(location: str) -> None:
    with serving(lambda asked: Reply(307, None, {"Location": location})) as fake:
        with pytest.raises(TryLater, match="names no DataNode"):
            Hdfs(Access((fake.url,), "horae")).read("/jobs/log", 0, 10)
        assert len(fake.asked) == 1


def test_a_datanode_sends_nobody_on() -> None:
    with serving(lambda asked: Reply(200, b"stolen")) as stranger:
        with serving(lambda asked: Reply(307, None, {"Location": f"{stranger.url}/x?delegation=T"})) as datanode:
            to = {"Location": f"{datanode.url}/webhdfs/v1/jobs/log?op=OPEN&delegation=T"}
            with serving(lambda asked: Reply(307, None, to)) as namenode:
                hdfs = Hdfs(Access((namenode.url,), "horae"))
                with pytest.raises(TryLater, match="sends us elsewhere"):
                    hdfs.read("/jobs/log", 0, 10)
                with suppress(TryLater):
                    hdfs.write("/jobs/doc", b"data")
        assert stranger.asked == []


def test_no_token_and_no_ticket_goes_to_a_datanode() -> None:
    def answers(asked: Asked) -> Reply:
        return Reply(307, None, {"Location": f"{datanode.url}/webhdfs/v1/jobs/log?op=OPEN"})

    with serving(lambda asked: Reply(200, b"data")) as datanode, serving(answers) as namenode:
        access = Access((namenode.url,), "horae", auth=TOKEN, token="secret")
        assert Hdfs(access).read("/jobs/log", 0, 10) == b"data"
    (asked,) = datanode.asked
    assert "secret" not in str((asked.query, dict(asked.headers)))
    assert "user.name" not in asked.query


def test_https_never_goes_on_as_http() -> None:
    """A redirect's address holds a token."""
    answer = namenodes._Reply.__new__(namenodes._Reply)
    answer.status, answer._scheme = 307, "https"
    answer._response = SimpleNamespace(headers={"Location": "http://dn:9864/webhdfs/v1/x?op=OPEN&delegation=T"})
    with pytest.raises(FixConfiguration, match="from https to http, to dn"), told("reading"):
        answer.location()


def test_a_namenode_by_another_scheme_is_not_told_who_asks() -> None:
    """`http://nn:9871` is not the `https://nn:9871` that the site named."""
    with serving(lambda asked: Reply(200, b"data")) as fake:
        place = urlsplit(fake.url).netloc
        web = Hdfs(Access((f"https://{place}",), "horae", auth=TOKEN, token="secret"))._web
        web._one("GET", f"{fake.url}/webhdfs/v1/x?op=OPEN")
        assert "secret" not in str((fake.asked[0].query, dict(fake.asked[0].headers)))


def test_a_token_is_for_who_gave_it_alone() -> None:
    own = Access(("http://rm:8088",), "horae", auth=TOKEN, token="secret")
    assert own.elsewhere("http://n1:8042", 1.0, 1.0).token == ""
    assert replace(own, auth=KERBEROS).elsewhere("http://n1:8042", 1.0, 1.0).auth == KERBEROS
    with serving(lambda asked: Reply(200, {})) as node:
        HttpClient(own.elsewhere(node.url, 5.0, 5.0), "NodeManager").ask("GET", "/conf")
        assert "secret" not in str((node.asked[0].query, dict(node.asked[0].headers)))
