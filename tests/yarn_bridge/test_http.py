"""The transport: who asks, which server, what a fault means, how often."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import requests
import stamina

from horae.port import FixConfiguration, Never, TryLater
from tests.yarn_bridge.fake import Answers, Asked, Fake, Reply, recorded, serving
from yarn_bridge.clients.errors import Exists, Gone, Powerless, refusal
from yarn_bridge.clients.http import TOKEN, TOKEN_HEADER, Access, HttpClient, Pace

FAST = {"connect_s": 5.0, "read_s": 30.0}


@pytest.fixture(autouse=True)
def no_waits_between_tries() -> Iterator[None]:
    with stamina.set_testing(True, attempts=3):
        yield


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def serve(stack: ExitStack, answers: Answers) -> Fake:
    return stack.enter_context(serving(answers))


def client(*fakes: Fake, **settings: object) -> HttpClient:
    return HttpClient(Access(tuple(fake.url for fake in fakes), "horae", **{**FAST, **settings}), "ResourceManager")  # type: ignore[arg-type]


def unused_port_url() -> str:
    fake = Fake(lambda asked: Reply())
    fake.close()
    return fake.url


def test_simple_authentication_sends_the_owners_name(stack: ExitStack) -> None:
    fake = serve(stack, lambda asked: Reply(body={}))
    http = client(fake)
    http.ask("GET", "/x")
    http.ask("GET", "/x", owner="alice")
    http.ask("GET", "/x", anonymous=True)
    assert [asked.query for asked in fake.asked] == [{"user.name": "horae"}, {"user.name": "alice"}, {}]


def test_with_the_proxy_user_filter_the_bridge_acts_for_the_owner(stack: ExitStack) -> None:
    fake = serve(stack, lambda asked: Reply(body={}))
    http = client(fake, doas=True)
    http.ask("GET", "/x", owner="alice")
    http.ask("GET", "/x", owner="horae")
    assert [asked.query for asked in fake.asked] == [{"user.name": "horae", "doAs": "alice"}, {"user.name": "horae"}]


def test_a_cookie_never_speaks_for_the_next_user(stack: ExitStack) -> None:
    cookie = {"Set-Cookie": 'hadoop.auth="u=alice&p=alice&t=simple&e=9999999999999&s=x"; Path=/'}
    fake = serve(stack, lambda asked: Reply(body={}, headers=cookie))
    http = client(fake)
    http.ask("GET", "/x", owner="alice")
    http.ask("GET", "/x", owner="bob")
    assert "Cookie" not in fake.asked[1].headers


def test_a_delegation_token_goes_in_its_header_and_not_with_probes(stack: ExitStack) -> None:
    fake = serve(stack, lambda asked: Reply(body={}))
    http = client(fake, auth=TOKEN, token="secret")
    http.ask("GET", "/x", owner="alice")
    http.ask("GET", "/x", anonymous=True)
    assert fake.asked[0].headers[TOKEN_HEADER] == "secret"
    assert fake.asked[0].query == {}
    assert TOKEN_HEADER not in fake.asked[1].headers
    assert "secret" not in repr(http.access)


def test_a_standbys_redirect_is_followed_and_remembered(stack: ExitStack) -> None:
    active = serve(stack, lambda asked: Reply(body={"who": "active"}))
    standby = serve(
        stack,
        lambda asked: Reply(
            307, "This is standby RM. The redirect url is: /ws/v1/cluster", {"Location": f"{active.url}{asked.path}"}
        ),
    )
    http = client(standby, active)
    assert http.ask("PUT", "/ws/v1/cluster/x", json={"a": 1}).get("x", "who") == "active"
    assert active.asked[0].json == {"a": 1}
    http.ask("GET", "/ws/v1/cluster/x")
    assert (len(standby.asked), len(active.asked)) == (1, 2)
    assert http.url == active.url


@pytest.mark.parametrize("settings", [{}, {"doas": True}, {"auth": TOKEN, "token": "secret"}])
def test_a_redirect_to_a_server_that_is_not_ours_is_not_followed(stack: ExitStack, settings: dict[str, object]) -> None:
    """Whoever can answer for a standby would else be sent the owner's name, ticket or token, and the request."""
    other = serve(stack, lambda asked: Reply(body={"who": "other"}))
    standby = serve(stack, lambda asked: Reply(307, None, {"Location": f"{other.url}{asked.path}"}))
    with pytest.raises(TryLater, match=r"names 127\.0\.0\.1:[0-9]+, which the configuration does not"):
        client(standby, **settings).ask("POST", "/ws/v1/cluster/apps", owner="alice", json={"a": 1})
    active = serve(stack, lambda asked: Reply(body={"who": "active"}))
    answer = client(standby, active, **settings).ask("GET", "/x", owner="alice")
    assert answer.get("x", "who") == "active", "the other configured servers are still tried"
    assert other.asked == []


@pytest.mark.parametrize("location", ["", "http://127.0.0.1:99999/x", "/ws/v1/cluster", "ftp://127.0.0.1/x"])
def test_a_redirect_to_nowhere_is_a_standby(stack: ExitStack, location: str) -> None:
    standby = serve(stack, lambda asked: Reply(307, None, {"Location": location}))
    with pytest.raises(TryLater, match="is in standby"):
        client(standby).ask("GET", "/x")


def test_the_next_server_is_tried_when_one_is_away_or_knows_no_active_one(stack: ExitStack) -> None:
    lost = serve(stack, lambda asked: Reply(200, "Can not find any active RM. Will retry in next 3 seconds"))
    active = serve(stack, lambda asked: Reply(body={"who": "active"}))
    access = Access((unused_port_url(), lost.url, active.url), "horae")
    http = HttpClient(access, "ResourceManager")
    assert http.ask("PUT", "/x", json={}).get("x", "who") == "active"
    http.ask("GET", "/x")
    assert len(lost.asked) == 1


def test_when_nobody_is_active_the_caller_waits_and_is_told_of_each(stack: ExitStack) -> None:
    lost = serve(stack, lambda asked: Reply(200, "Can not find any active RM. Will retry in next 3 seconds"))
    http = HttpClient(Access((unused_port_url(), lost.url)), "ResourceManager")
    with pytest.raises(TryLater, match=r"no ResourceManager answers: .*connection refused; .* is in standby$"):
        http.ask("GET", "/x")
    both = HttpClient(Access((lost.url, serve(stack, lost.answers).url)), "ResourceManager")
    with pytest.raises(TryLater, match=r"is in standby; .* is in standby\. None is elected: does ZooKeeper run\?$"):
        both.ask("GET", "/x")


def test_a_name_that_does_not_resolve_is_said() -> None:
    http = HttpClient(Access(("http://no-such-host.invalid:8088",)), "ResourceManager")
    with pytest.raises(TryLater, match="its name cannot be resolved"):
        http.ask("GET", "/x")


def test_an_answer_that_takes_too_long_is_waited_for_once_and_told(stack: ExitStack) -> None:
    release = threading.Event()

    def slow(asked: Asked) -> Reply:
        release.wait(60)
        return Reply(body={})

    fake = serve(stack, slow)
    http = client(fake, read_s=0.2)
    with pytest.raises(TryLater, match=r"did not answer within 0.2 s; it may be done all the same"):
        http.ask("PUT", "/x", json={})
    with pytest.raises(TryLater, match=r"within 0.2 s$"):
        http.ask("GET", "/x")
    release.set()
    deadline = time.monotonic() + 240
    while len(fake.asked) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)  # the server may have been kept from the processor for as long as the client waited
    assert len(fake.asked) == 2


def test_a_reading_request_survives_a_connection_that_was_closed_and_a_writing_one_is_not_repeated(
    stack: ExitStack,
) -> None:
    def once_closed(asked: Asked) -> Reply:
        return Reply(drop=len(fake.asked) == 1, body={"ok": True})

    fake = serve(stack, once_closed)
    assert client(fake).ask("GET", "/x").get("x", "ok") is True
    assert len(fake.asked) == 2
    fake.asked.clear()
    with pytest.raises(TryLater, match="may be done all the same"):
        client(fake).ask("POST", "/x", json={})
    assert len(fake.asked) == 1


def test_a_daemon_that_always_closes_is_given_up(stack: ExitStack) -> None:
    fake = serve(stack, lambda asked: Reply(drop=True))
    with pytest.raises(TryLater, match="closes connections"):
        client(fake).ask("GET", "/x")
    assert len(fake.asked) == 3


def test_an_answer_in_html_where_json_was_asked_for_is_one_sentence(stack: ExitStack) -> None:
    page = "<html><head><title>Login to the proxy</title></head><body><h1>no</h1></body></html>"
    fake = serve(stack, lambda asked: Reply(200, page, {"Content-Type": "text/html"}))
    with pytest.raises(TryLater, match=r"reading: the answer is not JSON: Login to the proxy$"):
        client(fake).ask("GET", "/x").get("reading")


def test_the_rate_is_bounded() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10.0, lambda: now[0], sleep)
    for _ in range(70):
        pace.wait()
    # 40 at once, the other 30 at 10 a second
    assert now[0] == pytest.approx(3.0)
    now[0] += 100.0
    slept.clear()
    for _ in range(40):
        pace.wait()
    assert slept == []


def test_an_untrusted_certificate_is_a_matter_of_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> requests.Response:
        raise requests.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED")

    http = HttpClient(Access(("https://rm:8090",)), "ResourceManager")
    monkeypatch.setattr(requests.Session, "request", refuse)
    with pytest.raises(FixConfiguration, match=r"rm:8090: its certificate is not trusted"):
        http.ask("GET", "/x")


HTML = b"""<html><head><meta http-equiv="Content-Type"/><title>Error 503 Service Unavailable</title></head>
<body><h2>HTTP ERROR 503 Service Unavailable</h2><table><tr><th>URI:</th><td>/ws/v1/cluster/info</td></tr>
<tr><th>MESSAGE:</th><td>Service &amp; all Unavailable</td></tr></table></body></html>"""
XML = b"""<?xml version="1.0" encoding="UTF-8"?><RemoteException><exception>NotFoundException</exception>
<message>java.lang.Exception: app with id: application_1_1 not found</message><javaClassName>x</javaClassName>
</RemoteException>"""

#: a file that is being written to, read while its DataNode is slow
BUSY = b"""{"RemoteException": {"exception": "CannotObtainBlockLengthException", "javaClassName": "x",
"message": "Cannot obtain block length for LocatedBlock{BP-1:blk_1; getBlockSize()=9; corrupt=false}"}}"""


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (503, HTML, TryLater, "Service & all Unavailable"),
        (404, XML, Gone, "app with id: application_1_1 not found"),
        (500, b"", TryLater, "no reason was given"),
        (400, b"\xff\xfe", Never, "HTTP 400"),
        (400, b"{not json", Never, "{not json"),
        (429, b"slow down", TryLater, "slow down"),
        (401, b"", FixConfiguration, "no valid credentials"),
        (403, b"<title>Forbidden</title>", FixConfiguration, "Forbidden"),
        (403, BUSY, TryLater, "Cannot obtain block length"),
    ],
)
def test_any_body_is_one_sentence_and_a_kind(status: int, body: bytes, kind: type[Exception], text: str) -> None:
    error = refusal(status, body).error("asking")
    assert type(error) is kind
    assert text in str(error)
    assert "\n" not in str(error)
    assert "<" not in str(error)


#: name of a recorded refusal -> what the caller does next, and words for people
MEANINGS = [
    ("3.4.2", "app-404", Gone, "app with id: application_1_0001 not found"),
    ("3.4.2", "svc-404", Gone, "Service none not found"),
    ("3.4.2", "svc-create-dup", Exists, "already taken"),
    ("3.4.2", "svc-flex-too-early", TryLater, "rec is at ACCEPTED state"),
    ("3.4.2", "flex-am-down", TryLater, "fl is at ACCEPTED state"),
    ("3.4.2", "svc-start-too-early", TryLater, "already exists"),
    ("3.4.2-queues", "unknown-queue", FixConfiguration, "unknown queue: nope"),
    ("3.4.2-lab", "setxattr-off", FixConfiguration, "dfs.namenode.xattrs.enabled to true"),
    ("3.4.2-lab", "setxattr-big", FixConfiguration, "raise dfs.namenode.fs-limits.max-xattr-size"),
    ("3.4.2-lab", "getxattrs-none", Gone, "was not found"),
    ("3.4.2-lab", "inactive-app", Gone, "app with id"),
    ("3.4.2", "svc-destroy-again", Gone, "doesn't exist"),
    ("3.4.2", "svc-flex-negative", Never, "Invalid number of containers"),
    ("3.4.2", "sched-conf-put-xml-bad", Never, "Illegal capacity"),
    ("3.4.2", "acl-bob-kill", FixConfiguration, "acl_administer_queue"),
    ("3.4.2", "acl-bob-sched-conf", FixConfiguration, "yarn.admin.acl"),
    ("3.4.2", "acl-bob-labels", FixConfiguration, "yarn.admin.acl"),
    ("3.4.2", "acl-bob-flex", Gone, "/user/bob/.yarn/services/sec"),
    ("3.4.2", "acl-bob-submit-themis", FixConfiguration, "HDFS home"),
    ("3.4.2", "acl-nobody-flex", FixConfiguration, "no valid credentials"),
    ("3.4.2", "acl-no-user-info", FixConfiguration, "Authentication required"),
    ("3.4.2", "delegation-token", FixConfiguration, "need Kerberos"),
    ("3.4.2", "signal-nope", Never, "Invalid command"),
    ("3.3.6", "svc-create-nodes", Never, "Tag(s) not specified"),
    ("3.3.6", "svc-flex-many", Gone, "File does not exist"),
    ("3.4.2-kerberos", "krb-svc-get-doas-not-granted", Powerless, "hadoop.proxyuser"),
    ("3.4.2-kerberos", "krb-svc-no-principal-flex", FixConfiguration, "No principal specified"),
    ("3.4.2-kerberos", "krb-get-k-host", FixConfiguration, "Kerberos"),
    ("3.4.2-kerberos", "krb-rm-token-cancelled-use", FixConfiguration, "get a new one"),
    ("3.4.2-kerberos", "http-hdfs-no-username-is-drwho", FixConfiguration, "Permission denied: user=dr.who"),
]


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Application application_1_49 submitted by user : horae to non-leaf queue : root.auto", "name a leaf queue"),
        (
            "Queue root.horae already has 1 applications, cannot accept submission of application: application_1_49",
            "maximum-applications",
        ),
        ("Queue root.horae is STOPPED. Cannot accept submission of application: application_1_21", "to RUNNING"),
        ("User alice does not have permission to submit application_1_2 to queue gpu", "acl_submit_applications"),
        ("User bob cannot submit applications to queue root.gpu", "acl_submit_applications"),
    ],
)
def test_what_a_queue_refuses_is_told_as_what_it_is(said: str, remedy: str) -> None:
    """As the Services API passes it on: each is an AccessControlException, and none a matter of HDFS."""
    text = f"Failed to submit application_1_21 to YARN : org.apache.hadoop.security.AccessControlException: {said}"
    error = refusal(500, json.dumps({"diagnostics": text}).encode()).error("creating h-x")
    assert isinstance(error, FixConfiguration)
    assert remedy in error.remedy


def test_an_application_that_yarn_has_refused_is_not_made_again_every_few_seconds() -> None:
    """Whatever its reason: each try is one more application that failed."""
    text = "Failed to submit application_1_21 to YARN : something that no table has"
    error = refusal(500, json.dumps({"diagnostics": text}).encode()).error("creating h-x")
    assert isinstance(error, FixConfiguration)


def test_a_host_that_may_act_for_nobody_is_a_matter_of_the_sites() -> None:
    said = "Unauthorized connection for super-user: horae from IP 10.0.0.1"
    body = json.dumps({"RemoteException": {"exception": "AuthorizationException", "message": said}}).encode()
    error = refusal(403, body).error("writing /hdfs/jobs/1/gate")
    assert isinstance(error, Powerless)
    assert "hadoop.proxyuser.BRIDGE.hosts" in error.remedy


def test_a_service_that_is_still_ending_is_asked_for_again() -> None:
    """As seen after ZooKeeper had come back; a cancelled job must not fail by it."""
    body = b'{"diagnostics":"Failed to destroy service h-x, because it is still running."}'
    assert type(refusal(400, body).error("destroying h-x")) is TryLater


@pytest.mark.parametrize(("lane", "name", "kind", "text"), MEANINGS, ids=[f"{m[0]}-{m[1]}" for m in MEANINGS])
def test_recorded_refusals_say_what_to_do(
    stack: ExitStack, lane: str, name: str, kind: type[Exception], text: str
) -> None:
    pair = recorded(lane)[name]
    fake = serve(stack, lambda asked: Reply(pair["status"], pair["response"]))
    error = client(fake).ask("GET", "/x").refusal
    assert error is not None
    told = error.error("asking")
    assert type(told) is kind
    assert text in str(told)
    assert "\tat " not in str(told)
    assert len(told.text) < 600
