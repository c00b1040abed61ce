"""Who may call what, and what strangers learn: every route of the API by every kind of caller, secrets planted.

The rows are checked against the application's own routes: one without a row here fails the test.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from horae.api import peers, words
from horae.api.client import Client
from horae.api.errors import ApiError
from horae.api.privacy import access, public
from horae.api.routes import create_app
from horae.api.verbs import VERBS, Returns
from horae.arbiter.core import BUG, DISK
from horae.arbiter.observe import budgets
from horae.arbiter.requests import answers
from horae.fake.port import FakePort
from horae.journal import Kind
from policy.model import Code
from tests.horae.api.backend import Book
from tests.horae.api.conftest import Build, Caller, build
from tests.waiting import eventually

__all__ = ["build"]

OWNER, OTHER, OPERATOR, ROOT, NAMELESS = "ann", "ben", "olga", "root", "65534"
CALLERS = {OWNER: 54321, OTHER: 54322, OPERATOR: 54323, ROOT: 0, NAMELESS: 65534}
MAY_SEE = (OWNER, OPERATOR, ROOT)
SECRET = "SECRET-7f3a"
JOB = {
    "name": "digits", "command": ["python", f"{SECRET}-command"], "gpus": 1, "tenant": "vision", "app": "tune",
    "env": {"TOKEN": f"{SECRET}-env"}, "cwd": f"/{SECRET}-cwd", "checkpoint": f"/{SECRET}-checkpoint",
    "model": f"{SECRET}-model", "extra": {"note": f"{SECRET}-extra"}, "iterations": 1e6,
}  # fmt: skip
EVERYBODY = dict.fromkeys(CALLERS, 200)
OWN = {OWNER: 200, OTHER: 403, OPERATOR: 200, ROOT: 200, NAMELESS: 403}
OPERATED = {OWNER: 403, OTHER: 403, OPERATOR: 200, ROOT: 200, NAMELESS: 403}
#: A right that is there meets an offer that is not, or an agent that is not registered.
ASKED = {OWNER: 422, OTHER: 403, OPERATOR: 422, ROOT: 422, NAMELESS: 403}


@dataclass(frozen=True)
class Row:
    codes: dict[str, int]
    path: str = ""  #: where the route has something to fill in, or takes a question
    body: Any = None
    reads: bool = field(default=False)


ROWS: dict[tuple[str, str], Row] = {
    ("GET", "/v1/about"): Row(EVERYBODY, reads=True),
    ("GET", "/v1/status"): Row(EVERYBODY, "/v1/status?losses=true&ended=true", reads=True),
    ("GET", "/v1/apps"): Row(EVERYBODY, reads=True),
    ("GET", "/metrics"): Row(EVERYBODY, reads=True),
    ("GET", "/v1/jobs/{job}"): Row(EVERYBODY, "/v1/jobs/1", reads=True),
    ("GET", "/v1/jobs/{job}/explain"): Row(EVERYBODY, "/v1/jobs/1/explain", reads=True),
    ("GET", "/v1/history"): Row(EVERYBODY, "/v1/history?limit=100000", reads=True),
    ("GET", "/v1/jobs/{job}/log"): Row(OWN, "/v1/jobs/1/log", reads=True),
    ("GET", "/v1/snapshot"): Row(OPERATED, reads=True),
    ("GET", "/v1/config"): Row(OPERATED, reads=True),
    ("POST", "/v1/agents"): Row(OWN, body={"app": "vision/tune"}),
    ("GET", "/v1/agents/offer"): Row(OWN, "/v1/agents/offer?app=vision/tune", reads=True),
    ("GET", "/v1/agents/instance"): Row(OWN, "/v1/agents/instance?app=vision/tune", reads=True),
    ("POST", "/v1/agents/bid"): Row(ASKED, body={"app": "vision/tune", "offer": 10**6, "bids": []}),
    ("GET", "/v1/agents/win"): Row(OWN, "/v1/agents/win?app=vision/tune&offer=1", reads=True),
    ("POST", "/v1/agents/leave"): Row(OWN, body={"app": "vision/tune"}),
    ("POST", "/v1/jobs/{job}/hold"): Row(OWN, "/v1/jobs/1/hold", {"why": f"{SECRET}-why"}),
    ("POST", "/v1/jobs/{job}/unhold"): Row(OWN, "/v1/jobs/1/unhold", {}),
    ("GET", "/v1/jobs/{job}/report"): Row(OWN, "/v1/jobs/1/report", reads=True),
    ("POST", "/v1/jobs/{job}/priority"): Row(OWN, "/v1/jobs/1/priority", {"priority": -1}),
    ("POST", "/v1/jobs/{job}/cancel"): Row(OWN, "/v1/jobs/2/cancel", {"why": f"{SECRET}-why"}),
    ("POST", "/v1/jobs"): Row(OWN, body={**JOB, "name": "more"}),
    ("POST", "/v1/dry-run"): Row(OWN, body={**JOB, "name": "perhaps"}),
    ("POST", "/v1/pools/{pool}/mode"): Row(OPERATED, "/v1/pools/main/mode", {"mode": "enforce"}),
    ("POST", "/v1/release-all"): Row(OPERATED, body={"why": f"{SECRET}-why"}),
}


def routes() -> set[tuple[str, str]]:
    found = create_app(Book(), access.AccessRules()).routes
    return {(method, route.path) for route in found if isinstance(route, APIRoute) for method in route.methods}


def call(at: Path, method: str, path: str, body: Any = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("x", timeout=300)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    connection.sock.connect(str(at))
    connection.request(method, path, None if body is None else json.dumps(body).encode())
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def misfit(method: str, path: str, text: str) -> str:
    """Where an answer is not what `horae.answers` says of it; "": nowhere."""
    verb = next(each for each in VERBS if (each.method, each.path) == (method, path))
    if verb.returns is not Returns.JSON:
        return ""
    try:
        TypeAdapter(words.model(verb)).validate_python(json.loads(text), strict=True)
    except ValidationError as error:
        return str(error)
    return ""


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """No field but those that are named."""
    for each in vars(answers).values():
        if is_typeddict(each):
            monkeypatch.setattr(each, "__pydantic_config__", ConfigDict(extra="forbid"), raising=False)


def test_every_route_has_a_row() -> None:
    assert routes() == ROWS.keys()


def test_every_route_by_every_caller(build: Build, caller: Caller, exact: None) -> None:
    client = build(pools=[{"name": "main", "policy": "themis", "mode": "enforce"}])
    caller.becomes(OWNER, CALLERS[OWNER])
    client.submit([JOB, {**JOB, "name": "second"}])
    call(client.socket, "POST", "/v1/jobs/1/hold", {"why": f"{SECRET}-why"})
    call(client.socket, "POST", "/v1/jobs/1/unhold", {})
    eventually(lambda: client.job("1")["loss"] is not None and client.history(job="1"))
    eventually(lambda: any(e["kind"] == "measured" for e in client.history(job="1")))
    wrong = []
    for (method, path), row in ROWS.items():
        for name in sorted(CALLERS, key=lambda n: row.codes[n], reverse=True):  # the refused first
            caller.becomes(name, CALLERS[name])
            status, text = call(client.socket, method, row.path or path, row.body)
            if status != row.codes[name]:
                wrong.append(f"{method} {path} by {name}: {status} instead of {row.codes[name]}: {text[:200]}")
            if status == 200 and (unlike := misfit(method, path, text)):
                wrong.append(f"{method} {path} answers {name} otherwise than it says: {unlike}")
            if name not in MAY_SEE and (SECRET in text or "loss" in text):
                at = text.find(SECRET) if SECRET in text else text.find("loss")
                wrong.append(f"{method} {path} tells {name}: ...{text[max(at - 80, 0) : at + 80]}")
    assert not wrong, "\n".join(wrong)
    learnt = _reads(client, caller)
    for name in MAY_SEE:
        assert f"{SECRET}-command" in learnt[name], "what nobody sees proves nothing"


def _reads(client: Client, caller: Caller) -> dict[str, str]:
    found = {}
    for name, uid in CALLERS.items():
        caller.becomes(name, uid)
        found[name] = call(client.socket, "GET", "/v1/history")[1]
    return found


# --- default deny: whatever is new is private until it is listed ---------------------------------------------

POISON = {
    "surprise": SECRET,
    "text": SECRET,
    "native": SECRET,
    "why": SECRET,
    "notes": [SECRET],
    "numbers": {"x": SECRET},
}


@pytest.mark.parametrize("kind", [*(kind.value for kind in Kind), "a-kind-to-come"])
def test_no_event_tells_more_than_its_list(kind: str) -> None:
    data = {
        **POISON, "by": "ann", "mode": "enforce", "on": True, "number": 1, "gpus": {"n1": 1}, "asked": ["a"],
        "app": "a", "owner": "ann", "tenant": "t", "state": "running", "allocation": {"n1": 1}, "cap": 1,
        "node": "n1", "steps": [], "verb": "start", "epoch": 1, "targets": {"1": {"n1": 1}}, "jobs": [],
        "gpu_type": "v100", "done": 3.0, "loss": [[1, 0.125]], "spec": {"command": [SECRET]}, "rows": [SECRET],
        "fallback": SECRET, "guard": SECRET, "apps": {"a": {"text": SECRET}}, "blocked": {"text": SECRET},
        "error": SECRET, "what": SECRET,
    }  # fmt: skip
    if kind in ("avoided", "probed"):
        data["gpus"] = 2
    told = public.event({"seq": 1, "kind": kind, "job": "1", "owner": "ann", "data": data, **POISON})
    assert SECRET not in json.dumps(told)
    assert "0.125" not in json.dumps(told)
    assert told["text"]


@pytest.mark.parametrize("show", [public.job, public.about])
def test_no_new_field_is_shown(show: Callable[[Any], Any]) -> None:
    causes = [{"what": what, "text": SECRET, "change": SECRET, "numbers": {"code": "kept", "key": SECRET}}
              for what in ("policy", "profile", "app", "cluster", "a-cause-to-come", *public.CAUSES)]  # fmt: skip
    data = {
        "id": "1",
        "state": "running",
        "owner": "ann",
        "causes": causes,
        "headline": SECRET,
        "stalled": SECRET,
        **POISON,
    }
    assert SECRET not in json.dumps(show(data))


def test_no_new_part_of_a_status_is_shown() -> None:
    node = {"name": "n1", **POISON}
    pool = {"name": "main", "maintenance": SECRET, "decided": {"fallback": SECRET, "certificate": POISON, **POISON},
            "advised": [{"job": "1", **POISON}], **POISON}  # fmt: skip
    alerts = [{"what": "policy:main", "remedy": SECRET, **POISON}]
    told = public.status({"nodes": [node], "tenants": [node], "pools": [pool], "alerts": alerts, **POISON}, {"n1"})
    assert SECRET not in json.dumps(told)
    told = public.app({"name": "a", "trials": [{"id": "1", "loss": SECRET, "parameters": {"a": SECRET}}], **POISON})
    assert SECRET not in json.dumps(told)


def test_every_reason_of_a_policy_has_words_for_everybody() -> None:
    assert {code.value for code in Code} == public.REASONS.keys()


def test_every_alert_of_a_round_has_words_for_everybody() -> None:
    assert {BUG, DISK, "journal", "cluster", "policy", budgets.ALERT.removesuffix(":")} <= public.ALERTS.keys()


def test_every_event_has_words_for_everybody() -> None:
    assert {kind.value for kind in Kind} == public.EVENTS.keys()


# --- a cluster that hides one user's jobs from the others -----------------------------------------------------

#: What a stranger could learn a hidden job by, planted in all that people see of jobs.
HIDDEN_JOB = {**JOB, "name": "hidden-job", "app": "hidden-app", "tenant": "vision"}
SEES = (OWNER, OPERATOR, ROOT)


def hiding(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    real = FakePort.capabilities
    monkeypatch.setattr(FakePort, "capabilities", lambda port: replace(real(port), hides=words))


@pytest.mark.parametrize("words", [("jobs",), ("accounts", "usage"), ("users",)])
def test_what_the_cluster_hides_nobody_finds_by_any_route(
    build: Build, caller: Caller, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    hiding(monkeypatch, *words)
    api = {"socket": str(folder / "b.sock"), "show_others": True}
    client = build(pools=[{"name": "main", "mode": "enforce", "policy": "themis"}], api=api)
    caller.becomes(OWNER, CALLERS[OWNER])
    client.submit([{**HIDDEN_JOB, "gpus": 8}])
    call(client.socket, "POST", "/v1/agents", {"app": "vision/hidden-app"})
    caller.becomes(OTHER, CALLERS[OTHER])
    client.submit([{**JOB, "name": "mine", "app": "mine", "tenant": "speech", "gpus": 16}])
    eventually(lambda: client.explain("2")["causes"])
    caller.becomes(OPERATOR, CALLERS[OPERATOR])
    eventually(lambda: any(e["kind"] == "decided" for e in client.history()))
    wrong = []
    for (method, path), row in ROWS.items():
        if not row.reads:
            continue
        for name, uid in CALLERS.items():
            caller.becomes(name, uid)
            status, text = call(client.socket, method, (row.path or path).replace("vision/tune", "vision/hidden-app"))
            if name in SEES:
                continue
            told = [word for word in ("hidden-", OWNER, "vision") if word in text.replace("vision/hidden-app", "")]
            if told:
                wrong.append(f"{method} {path} tells {name} of {told}: {text[:300]}")
            if "{job}" in path and status != 404:
                wrong.append(f"{method} {path} by {name}: {status} as if there were a job")
    assert not wrong, "\n".join(wrong)
    for name in SEES:
        caller.becomes(name, CALLERS[name])
        assert [j["name"] for j in client.status()["jobs"]][:1] == ["hidden-job"], "owners and operators see it"
        assert "hidden-job" in call(client.socket, "GET", "/v1/history")[1]


def test_one_sees_ones_own_where_others_are_hidden(
    build: Build, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    hiding(monkeypatch, "jobs")
    client = build()
    caller.becomes(OWNER, CALLERS[OWNER])
    client.submit([{**HIDDEN_JOB, "gpus": 1} for _ in range(3)])
    caller.becomes(OTHER, CALLERS[OTHER])
    client.submit([{**JOB, "name": "mine", "app": "mine", "tenant": "speech", "gpus": 1}])
    eventually(lambda: client.job("4")["state"] == "running")
    status = client.status()
    assert [(j["name"], j["command"]) for j in status["jobs"]] == [("mine", JOB["command"])]
    [tenant] = status["tenants"]
    assert (tenant["name"], tenant["held"], tenant["running"]) == ("speech", 1, 1)
    [short] = client.status(brief=True)["tenants"]
    assert short["gpu_s"] >= tenant["gpu_s"] > 0
    assert client.explain("4")["ahead"] == []
    assert {e["job"] for e in client.history()} <= {None, "4"}
    assert 'horae_jobs{state="running",tenant="speech"} 1.0' in client.metrics()
    for act in (client.cancel, client.hold, client.unhold):
        with pytest.raises(ApiError) as refused:
            act("1")
        with pytest.raises(ApiError) as unknown:
            act("4711")
        assert refused.value.message.replace("1", "N") == unknown.value.message.replace("4711", "N")


def test_usage_alone_hides_the_others_tenants(build: Build, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    hiding(monkeypatch, "usage")
    client = build()
    caller.becomes(OWNER, CALLERS[OWNER])
    client.submit([HIDDEN_JOB])
    caller.becomes(OTHER, CALLERS[OTHER])
    assert [j["name"] for j in client.status()["jobs"]] == ["hidden-job"]
    assert client.status()["tenants"] == []
    assert 'horae_tenant_gpus{tenant="vision"}' not in client.metrics()


def test_whose_gpus_lie_unused_is_in_no_strangers_numbers(build: Build, caller: Caller) -> None:
    client = build()
    caller.becomes(OTHER, CALLERS[OTHER])
    client.submit([{**JOB, "tenant": "speech", "app": "mine"}])
    caller.becomes(OWNER, CALLERS[OWNER])
    client.submit([JOB])
    for name, tenants in ((OWNER, {"vision"}), (OTHER, {"speech"}), (OPERATOR, {"vision", "speech"})):
        caller.becomes(name, CALLERS[name])
        lines = [line for line in client.metrics().splitlines() if line.startswith("horae_gpus_unused{")]
        assert lines == [f'horae_gpus_unused{{tenant="{tenant}"}} 0.0' for tenant in sorted(tenants)]
        assert 'horae_jobs{state="' in client.metrics()


def test_who_holds_nothing_is_not_said_to_have_got_gpus() -> None:
    waits = {"id": "7", "state": "queued", "code": "granted", "why": "private", "allocation": {}, "ended": False}
    causes = [{"what": "policy", "text": "private", "numbers": {"code": "granted", "held": 0}}]
    assert public.job({**waits, "causes": causes})["why"] == "it is to get GPUs"
    assert public.job({**waits, "causes": causes})["causes"][0]["text"] == "it is to get GPUs"
    assert public.job({**waits, "state": "running", "allocation": {"n1": 2}})["why"] == "it got GPUs"


def test_a_tenants_budget_is_shown_to_whom_it_lists_before_their_first_job() -> None:
    rows = [{"name": name, "weight": 1.0, "budget": {"used": 3.0}} for name in ("vision", "speech")]
    data = {"cluster": {}, "now_s": 0.0, "jobs": [], "nodes": [], "tenants": rows, "pools": [], "alerts": []}
    rules = access.AccessRules(homes=lambda user: ["vision"] if user == "ann" else [])
    told = access.status(data, peers.Caller(1001, "ann", operator=False), rules)
    assert [row.get("budget") for row in told["tenants"]] == [{"used": 3.0}, None]
    told = access.status(data, peers.Caller(1002, "bob", operator=False), rules)
    assert [row.get("budget") for row in told["tenants"]] == [None, None]


def test_a_tenants_budget_is_shown_to_its_own_users() -> None:
    rows = [{"name": name, "weight": 1.0, "budget": {"used": 3.0}} for name in ("vision", "speech")]
    told = public.status(
        {"cluster": "c", "now_s": 1.0, "nodes": [], "tenants": rows, "pools": [], "alerts": []}, {"vision"}
    )
    assert [row.get("budget") for row in told["tenants"]] == [{"used": 3.0}, None]
