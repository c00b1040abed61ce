"""The API over a real unix socket: who may do and see what, what refusals look like, and what bad input gives."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae import job_form
from horae.api.client import PLACES, Client, Unreachable, find_socket
from horae.api.errors import ApiError, Code
from horae.api.privacy.access import AccessRules
from horae.api.routes import create_app, openapi
from horae.api.server import Server, SocketInUse, _answers, listen
from horae.port import FixConfiguration, Never, TryLater
from policy.model import BadInput
from tests.horae.api.backend import Book
from tests.horae.api.conftest import Caller, Serve

JOB = {"name": "digits", "command": ["python", "train.py"], "gpus": {"min": 1, "max": 8}}


def raw(client: Client, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """One request as bytes, whatever they are; the status and the JSON of the answer."""
    connection = http.client.HTTPConnection("x", timeout=300)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    connection.sock.connect(str(client.socket))
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    assert b"Traceback" not in text
    return response.status, json.loads(text) if response.headers["content-type"] == "application/json" else text


def test_a_submitted_job_belongs_to_the_caller(serve: Serve, me: str) -> None:
    book = Book()
    client = serve(book)
    assert client.submit([JOB, {**JOB, "gpus": 4}]) == ["1", "2"]
    spec = book.specs["1"]
    assert (spec.owner, spec.tenant, spec.app, spec.command) == (me, me, "", ("python", "train.py"))
    assert (spec.gpus.min, spec.gpus.max, spec.gpus.requested) == (1, 8, 8)
    assert book.specs["2"].gpus.rigid
    assert client.about()["you"] == {"user": me, "uid": os.getuid(), "operator": me == "root"}


@pytest.mark.parametrize("cwd", ["run1", "../x", "~/x"])
def test_a_folder_that_is_named_from_where_the_caller_is_is_refused(serve: Serve, cwd: str) -> None:
    book = Book()
    client = serve(book)
    for ask in (client.submit, client.dry_run):
        with pytest.raises(ApiError) as caught:
            ask([JOB, {**JOB, "cwd": cwd}])
        assert caught.value.more["field"] == "jobs[1].cwd" and "is no full path" in str(caught.value)
    assert not book.specs
    assert client.submit([{**JOB, "cwd": "/srv/run1"}]) == ["1"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--lr", "0.1"], "train.py"),
        (["/opt/env/bin/python3.11", "-u", "/home/ann/a/train.py"], "train.py"),
        (["torchrun", "--nproc-per-node=1", "-m", "zoo.train"], "zoo.train"),
        (["bash", "run.sh"], "run.sh"),
        (["python", "-c", "print(1)"], "python"),
        (["/usr/bin/sleep", "60"], "sleep"),
    ],
)
def test_a_job_is_named_after_what_it_runs_not_what_starts_it(serve: Serve, command: list[str], name: str) -> None:
    book = Book()
    serve(book).submit([{"command": command, "gpus": 1}])
    assert book.specs["1"].name == name


def test_nobody_can_claim_to_be_another(serve: Serve) -> None:
    client = serve(Book())
    status, answer = raw(client, "POST", "/v1/jobs", json.dumps({**JOB, "owner": "root"}).encode())
    assert status == 422
    assert answer["error"]["code"] == "bad-input"
    assert "owner" in answer["error"]["message"]


def test_what_others_run_is_hidden_unless_the_site_shows_it(serve: Serve, caller: Caller) -> None:
    book = Book(logs={"1": b"secret"})
    client, glass = serve(book), serve(book, show_others=True)
    caller.becomes("ann")
    client.submit([JOB])
    caller.becomes("ben")
    for job in (client.job("1"), client.explain("1"), client.status(losses=True)["jobs"][0]):
        assert job["name"] == "digits"
        assert "command" not in job
        assert "losses" not in job
    assert "data" not in client.history()[0]
    assert glass.job("1")["command"] == ["python", "train.py"]
    assert b"".join(glass.log("1")) == b"secret"
    caller.becomes("ann")
    assert client.job("1")["command"] == ["python", "train.py"]
    assert b"".join(client.log("1")) == b"secret"


def test_of_other_peoples_apps_losses_and_settings_are_hidden(serve: Serve, caller: Caller) -> None:
    client = serve(Book())
    caller.becomes("ann")
    client.submit([JOB])
    (mine,) = client.apps()
    assert mine["trials"][0]["loss"] == 0.5
    assert mine["trials"][0]["parameters"] == {"lr": 0.1}
    caller.becomes("ben")
    (theirs,) = client.apps()
    assert theirs["trials"][0]["rank"] == 1
    assert not {"loss", "parameters", "why"} & theirs["trials"][0].keys()


def test_numbers_of_losses_behind_a_cause_are_their_owners(serve: Serve, caller: Caller) -> None:
    class Told(Book):
        def explain(self, job: str, *, reader: str | None = None) -> dict[str, Any]:
            return {**self.job(job), "causes": [{"what": "app", "text": "x", "numbers": {"rank": 2, "loss": 0.3}}]}

    client = serve(Told())
    caller.becomes("ann")
    client.submit([JOB])
    assert client.explain("1")["causes"][0]["numbers"] == {"rank": 2, "loss": 0.3}
    caller.becomes("ben")
    assert client.explain("1")["causes"][0]["numbers"] == {"rank": 2}


def test_an_agent_speaks_as_its_caller_and_waits_for_news(serve: Serve, caller: Caller) -> None:
    book = Book()
    client = serve(book)
    caller.becomes("ann")
    assert client.register_agent("tune")["app"] == "tune"
    assert client.offer("tune", after=3, wait_s=20.0)["offer"]["number"] == 4, "it looked until there was a newer one"
    assert client.offer("tune", after=10**6)["offer"] is None
    assert client.bid("tune", 5, [{"nodes": {"n1": 2}, "rho": 1.0, "gpus": 2}])["rows"] == 1
    assert client.win("tune", len(book.asked) + 2, wait_s=20.0)["settled"]
    assert client.agent_instance("tune") == "schema: 1\n"
    assert client.leave_agent("tune")["app"] == "tune"
    assert {by for _, by in book.asked} == {"ann"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/agents", b"{}"),
        ("/v1/agents", b'{"app": ""}'),
        ("/v1/agents/bid", b'{"app": "a", "offer": 0, "bids": []}'),
        ("/v1/agents/bid", b'{"app": "a", "offer": 1, "bids": 3}'),
        ("/v1/agents/bid", b'{"app": "a", "offer": 1, "bids": [], "more": 1}'),
        ("/v1/agents/bid", b"nonsense"),
    ],
)
def test_what_an_agent_may_not_send_is_told(serve: Serve, path: str, body: bytes) -> None:
    status, answer = raw(serve(Book()), "POST", path, body)
    assert status == 422
    assert answer["error"]["message"]


@pytest.mark.parametrize("query", ["", "app=", "app=a&wait_s=99", "app=a&after=-1", "app=a&wait_s=nan"])
def test_questions_of_an_agent_that_make_no_sense_are_told(serve: Serve, query: str) -> None:
    status, answer = raw(serve(Book()), "GET", f"/v1/agents/offer?{query}")
    assert status == 422
    assert answer["error"]["code"] == "bad-input"


def test_unknown_jobs_and_paths_are_told_apart(serve: Serve) -> None:
    client = serve(Book())
    with pytest.raises(ApiError) as unknown:
        client.job("77")
    assert (unknown.value.code, unknown.value.status) == (Code.NO_SUCH_JOB, 404)
    status, answer = raw(client, "GET", "/v1/nothing")
    assert (status, answer["error"]["code"]) == (404, "not-found")
    assert raw(client, "DELETE", "/v1/status")[0] == 405


def test_a_key_of_a_job_that_an_older_arbiter_does_not_know_names_both_versions(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line says some by itself: who reads that `typed` is unknown has typed no such thing."""
    client, known = serve(Book()), job_form.JobForm.keys()
    monkeypatch.setattr(job_form.JobForm, "keys", lambda: known - {"typed"})
    job = {"name": "a", "command": ["true"], "gpus": 1}
    with pytest.raises(ApiError) as unknown:
        client.hand_in([{**job, "typed": "/home/ann/typed"}])
    assert unknown.value.code is Code.BAD_INPUT
    assert "does not know `typed` of a job" in unknown.value.message
    assert "restart it" in unknown.value.remedy
    with pytest.raises(ApiError, match="unknown key 'colour'"):
        client.hand_in([{**job, "colour": "blue"}])


def test_a_verb_that_an_older_arbiter_lacks_names_both_versions(serve: Serve) -> None:
    client = serve(Book())
    newer = replace(Client.prioritise.verb, path="/v1/jobs/{job}/newer")  # type: ignore[attr-defined]
    with pytest.raises(ApiError) as unknown:
        client.ask(newer, {"job": "1", "priority": 3})
    version = client.about()["version"]
    assert unknown.value.message == f"the arbiter at {client.socket} is Horae {version} and does not know `prioritise`"
    assert "restart it" in unknown.value.remedy


@pytest.mark.parametrize("job", ["", "..", "a/b", "%2e%2e", "\x00", "ü", "1" * 5000, "?", "#"])
def test_odd_job_names_are_no_such_job(serve: Serve, job: str) -> None:
    client = serve(Book())
    for ask in (client.job, client.explain, client.cancel):
        with pytest.raises(ApiError) as unknown:
            ask(job)
        assert unknown.value.code in (Code.NO_SUCH_JOB, Code.NOT_FOUND)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b"", "", "not JSON"),
        (b"{", "", ""),
        (b"\xff\xfe", "", ""),
        (b"[]", "", "not a mapping"),
        (b"null", "", ""),
        (b'{"command": [], "gpus": 1}', "command", ""),
        (b'{"command": ["a"], "gpus": 0}', "gpus", ""),
        (b'{"command": ["a"], "gpus": {"min": 4, "max": 2}}', "gpus", ""),
        (b'{"command": ["a"], "gpus": 1e400}', "gpus", ""),
        (b'{"command": ["a"], "gpus": 1, "grace_s": -1}', "grace_s", "greater"),
        (b'{"command": ["a"], "gpus": 1, "grace_s": NaN}', "", ""),
        (b'{"command": ["a\\u0000b"], "gpus": 1}', "command[0]", ""),
        (b'{"command": ["a"], "gpus": 1, "env": {"A=B": "x"}}', "env", ""),
        (b'{"command": ["a"], "gpus": 1, "tennant": "x"}', "tennant", "unknown key"),
        (b'{"command": ["a"], "gpus": 1, "gpus": 2}', "", ""),
        (b'{"jobs": []}', "jobs", ""),
        (b"{" * 100000, "", ""),
        (b"&a [*a, *a]", "", ""),
    ],
)
def test_bad_bodies_name_field_and_remedy(serve: Serve, body: bytes, field: str, words: str) -> None:
    book = Book()
    status, answer = raw(serve(book), "POST", "/v1/jobs", body)
    assert status == 422
    error = answer["error"]
    assert error["code"] == "bad-input"
    assert error.get("field", "").startswith(field)
    assert words in error["message"]
    assert not book.specs


def test_bodies_are_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_form, "LARGEST_BODY", 1000)
    book = Book()
    client = serve(book)
    big = json.dumps({**JOB, "env": {"A": "x" * 2000}}).encode()
    status, answer = raw(client, "POST", "/v1/jobs", big)
    assert (status, answer["error"]["code"]) == (413, "too-large")
    connection = http.client.HTTPConnection("x", timeout=300)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(client.socket))
    with contextlib.suppress(BrokenPipeError):  # it may have been refused before its last word
        connection.request(
            "POST", "/v1/jobs", iter([big]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
        )
    assert connection.getresponse().status == 400, "no length, no body"
    connection.close()
    assert not book.specs


def test_what_is_far_too_large_is_refused_in_words(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers and closes while most of the body still waits to be sent."""
    monkeypatch.setattr(job_form, "LARGEST_BODY", 1000)
    with pytest.raises(ApiError) as refused:
        serve(Book()).submit([{**JOB, "env": {"A": "x" * (16 << 20)}}])
    assert refused.value.code is Code.TOO_LARGE


def test_what_the_cluster_says_keeps_its_meaning(serve: Serve) -> None:
    book = Book()
    client = serve(book)
    for error, code, status in (
        (TryLater("slurmctld is busy", 7), Code.TRY_LATER, 503),
        (Never("no such partition"), Code.REFUSED, 409),
        (FixConfiguration("no right", "make it operator"), Code.CONFIGURATION, 503),
        (BadInput("is wrong", field="gpus", value=3, remedy="write 2"), Code.BAD_INPUT, 422),
    ):
        book.fail = error
        with pytest.raises(ApiError) as refused:
            client.submit([JOB])
        assert (refused.value.code, refused.value.status) == (code, status)
        assert refused.value.message in str(error)


def test_a_bug_is_told_by_number_alone(serve: Serve) -> None:
    book = Book(fail=ZeroDivisionError("secret detail"))
    with structlog.testing.capture_logs() as logged:
        status, answer = raw(serve(book), "POST", "/v1/jobs", json.dumps(JOB).encode())
    assert (status, answer["error"]["code"]) == (500, "bug")
    [told] = [entry for entry in logged if entry["event"] == "bug in the API"]
    assert told["number"] in answer["error"]["message"]
    assert "secret" not in json.dumps(answer)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/agents"])
@pytest.mark.parametrize(
    "sent",
    [
        rb'{"command": ["\ud800"], "gpus": 1}',
        rb'{"app": "\ud800"}',
        rb'{"\udfff": 1}',
        rb'{"command": ["x"], "env": {"\ud800": "x"}}',
    ],
)
def test_half_of_a_character_is_refused_and_not_a_bug(serve: Serve, path: str, sent: bytes) -> None:
    """The refusal quotes it, and must be sent all the same."""
    status, answer = raw(serve(Book()), "POST", path, sent)
    assert (status, answer["error"]["code"]) == (422, "bad-input")


def test_many_callers_at_once_lose_nothing(serve: Serve) -> None:
    book = Book()
    client = serve(book)
    numbers: list[str] = []
    threads = [
        threading.Thread(target=lambda: numbers.extend(client.submit([JOB, JOB])), daemon=True) for _ in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert sorted(map(int, numbers)) == list(range(1, 65))


def test_metrics_are_prometheus_text_with_our_prefix_only(serve: Serve) -> None:
    client = serve(Book())
    client.submit([JOB])
    text = client.metrics()
    names = {line.split("{")[0].split()[0] for line in text.splitlines() if line and not line.startswith("#")}
    assert names
    assert all(name.startswith("horae_") for name in names)
    assert 'horae_gpus{gpu_type="v100",state="idle"} 2.0' in text
    assert 'horae_jobs{state="queued"' in text


def test_history_and_logs_are_read_in_pieces(serve: Serve) -> None:
    book = Book(logs={"1": b"0123456789"})
    client = serve(book)
    client.submit([JOB] * 5)
    assert [e["seq"] for e in client.history(after=2)] == [3, 4, 5]
    assert [e["seq"] for e in client.history(limit=2)] == [4, 5]
    assert b"".join(client.log("1")) == b"0123456789"
    assert b"".join(client.log("1", offset=8)) == b"89"
    assert list(client.log("2")) == []


# --- the socket --------------------------------------------------------------------------------------------


def test_a_dead_servers_socket_is_replaced_and_a_living_ones_is_not(folder: Path) -> None:
    path = folder / "a.sock"
    first = Server(create_app(Book(), AccessRules()), path)
    first.start()
    Client(path).about()
    with pytest.raises(SocketInUse):
        listen(path)
    assert Client(path).about()["cluster"] == "book"
    first.stop()
    assert not path.exists()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    listen(path).close()
    assert not list(folder.glob("*.sock.*"))


def test_a_server_that_stops_leaves_the_next_ones_socket_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one may bind the name as soon as the first does not listen any more."""
    path = folder / "a.sock"
    first = Server(create_app(Book(), AccessRules()), path)
    first.start()
    Client(path).about()
    real, second = threading.Thread.join, []

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        real(self, timeout)
        if not second:
            second.append(listen(path))

    monkeypatch.setattr(threading.Thread, "join", join)
    first.stop()
    monkeypatch.undo()
    assert path.exists()
    second[0].close()


def test_a_socket_that_is_taken_away_meanwhile_is_nobodys(folder: Path) -> None:
    assert not _answers(folder / "gone.sock")


def test_a_path_too_long_for_a_socket_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        listen(tmp_path / ("x" * 120))
    assert "api.socket" in caught.value.field


def test_unreachable_arbiters_say_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable) as none:
        Client(folder / "none.sock").about()
    assert "horae serve" in none.value.remedy
    monkeypatch.setenv("HORAE_SOCKET", str(folder / "named.sock"))
    assert find_socket() == folder / "named.sock"
    monkeypatch.delenv("HORAE_SOCKET")
    monkeypatch.setattr("horae.api.client.PLACES", (str(folder / "nowhere"),))
    with pytest.raises(Unreachable):
        find_socket()


def test_no_socket_is_taken_for_an_arbiters_because_of_the_folder_one_is_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where XDG_RUNTIME_DIR is not set (sudo, cron) its name is one that anybody may give a folder."""
    for name in ("HORAE_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("horae.api.client.PLACES", PLACES[:1])
    (folder / PLACES[0]).parent.mkdir(parents=True)
    (folder / PLACES[0]).touch()
    with pytest.raises(Unreachable):
        find_socket()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "$XDG_RUNTIME_DIR"))
    assert find_socket() == folder / PLACES[0]


def test_on_a_host_of_two_arbiters_the_kind_of_cluster_names_the_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HORAE_SOCKET", raising=False)
    monkeypatch.setattr("horae.api.client.PLACES", (str(folder / "api.sock"),))
    for name in ("api.sock", "yarn.sock"):
        (folder / name).touch()
    assert find_socket() == find_socket(cluster="slurm") == folder / "api.sock"
    assert find_socket(cluster="yarn") == folder / "yarn.sock"


def test_an_arbiter_that_hangs_or_babbles_is_unreachable(folder: Path) -> None:
    path = folder / "odd.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with pytest.raises(Unreachable) as hangs:
        Client(path, timeout_s=0.2).about()
    assert "does not answer" in hangs.value.text

    def babble() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"hello\r\n")
            except ConnectionError:
                continue  # the caller has left already
            except OSError:
                return  # the test is over

    threading.Thread(target=babble, daemon=True).start()
    with pytest.raises(Unreachable):
        Client(path, timeout_s=5).about()
    listener.close()


# --- properties --------------------------------------------------------------------------------------------

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def _keys(schema: Mapping[str, Any]) -> list[str]:
    return sorted(schema["properties"])


ALMOST = st.dictionaries(st.sampled_from(_keys(job_form.JobForm.model_json_schema())), JSON, max_size=6)
PATHS = sorted((method.upper(), path) for path, ways in openapi()["paths"].items() for method in ways)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("s") / "a.sock"
    server = Server(create_app(Book(), AccessRules()), path)
    server.start()
    yield Client(path)
    server.stop()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_no_request_of_the_openapi_form_breaks_the_server(standing: Client, data: st.DataObject) -> None:
    """Any method and path the server knows, any body that is nearly right: an answer, never a 500."""
    method, path = data.draw(st.sampled_from(PATHS))
    path = path.replace("{job}", data.draw(st.sampled_from(["1", "0", "x", "%00"]))).replace("{pool}", "main")
    body = data.draw(
        st.none()
        | st.binary(max_size=60)
        | JSON.map(json.dumps).map(str.encode)
        | ALMOST.map(json.dumps).map(str.encode)
        | ALMOST.map(lambda j: json.dumps({"jobs": [j]}).encode())
    )
    query = data.draw(st.sampled_from(["", "?offset=-1", "?limit=x", "?after=1e9", "?ended=maybe", "?since_s=nan"]))
    status, answer = raw(standing, method, path + query, body)
    assert status < 500
    if status >= 400:
        assert set(answer) == {"error"}
        assert answer["error"]["code"] in set(Code)
        assert answer["error"]["message"]


def test_the_openapi_document_describes_every_route() -> None:
    document = openapi()
    for path, ways in document["paths"].items():
        for method, route in ways.items():
            assert route["summary"], (method, path)
            assert not (method == "post" and path == "/v1/jobs") or "requestBody" in route
