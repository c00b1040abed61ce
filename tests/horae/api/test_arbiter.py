"""The API in front of a living arbiter (on the in-memory cluster): rights, views, histories, other users."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import PLACES, Client
from horae.api.errors import ApiError, Code
from horae.api.service import Service, check_policies, connect, socket_path, with_operators
from horae.arbiter.decide import powerless
from horae.config import ClusterForm
from horae.views import watch
from policy import catalogue
from policy.model import BadInput
from policy.text import instance
from tests.horae.api.conftest import Build, Caller, config
from tests.waiting import eventually

JOB = {"name": "digits", "command": ["python", "train.py"], "gpus": {"min": 1, "max": 4}, "checkpoint": "/ck"}


def refused(act: Callable[[], Any]) -> Code:
    with pytest.raises(ApiError) as error:
        act()
    assert error.value.message
    return error.value.code


def test_owners_act_on_their_own_jobs_only(build: Build, caller: Caller) -> None:
    client = build()
    caller.becomes("ann")
    [job] = client.submit([{**JOB, "tenant": "vision"}])
    caller.becomes("ben")
    for act in (client.cancel, client.hold, client.unhold, lambda j: list(client.log(j))):
        assert refused(lambda act=act: act(job)) is Code.NOT_ALLOWED
    assert client.job(job)["state"] not in ("cancelled", "held")
    caller.becomes("ann")
    assert client.cancel(job, "wrong data")["text"] == "is being ended"
    eventually(lambda: client.job(job)["state"] == "cancelled")
    assert client.cancel(job)["text"] == "is cancelled already"
    assert any(e["kind"] == "cancel-asked" and "wrong data" in e["text"] for e in client.history(job=job))


def test_a_job_that_ends_before_the_answer_is_written_was_not_over_already(build: Build, caller: Caller) -> None:
    client = build()
    caller.becomes("ann")
    [job] = client.submit([JOB])
    now = watch.job

    def later(*asked: Any) -> Any:
        eventually(lambda: now(*asked).state == "cancelled")
        return now(*asked)

    caller.monkeypatch.setattr(watch, "job", later)
    assert client.cancel(job)["text"] == "is being ended"
    eventually(lambda: client.cancel(job)["text"] == "is cancelled already")


def test_jobs_are_one_app_only_where_they_say_so(build: Build, caller: Caller) -> None:
    """Two runs of one script are nobody's sweep: to Themis they would share one app's fairness."""
    client = build()
    caller.becomes("ann")
    alike = {**JOB, "tenant": "vision"}
    first, second, third, fourth = client.submit([alike, alike, {**alike, "app": "tune"}, {**alike, "app": "tune"}])
    eventually(lambda: client.explain(fourth)["causes"])
    apps = [client.job(job)["app"] for job in (first, second, third, fourth)]
    assert len(set(apps)) == 3
    assert [row["app"] for row in client.apps()] == ["tune"]
    assert not any(cause["what"] == "app" for cause in client.explain(first)["causes"])


def test_operators_act_on_all_and_alone_on_the_cluster(build: Build, caller: Caller) -> None:
    client = build()
    caller.becomes("ann")
    [job] = client.submit([{**JOB, "tenant": "vision"}])
    for act in (client.release_all, client.snapshot, client.config, lambda: client.mode("main", "observe")):
        assert refused(act) is Code.NOT_ALLOWED
    caller.becomes("olga")
    assert client.about()["you"]["operator"]
    assert client.hold(job)["text"] == "is held"
    assert client.unhold(job)["text"] == "is not held"
    assert client.config()["operators"][0] == "olga"
    assert refused(lambda: client.mode("main", "boldly")) is Code.BAD_INPUT
    assert refused(lambda: client.mode("nowhere", "observe")) is Code.BAD_INPUT
    assert client.mode("main", "advise")["text"] == "mode is advise"
    assert client.status()["pools"][0]["mode"] == "advise"
    assert "1 job is being handed back" in client.release_all()["text"]
    assert client.status()["pools"][0]["mode"] == "observe"


def test_nothing_is_said_to_become_of_a_job_that_is_over(build: Build) -> None:
    client = build()
    [job] = client.submit([{**JOB, "iterations": 1}])
    eventually(lambda: client.job(job)["state"] == "completed")
    acts = (client.hold, client.unhold, client.cancel, lambda job: client.prioritise(job, -3))
    assert {act(job)["text"] for act in acts} == {"is completed already"}


def test_tenants_take_only_whom_they_list(build: Build, caller: Caller) -> None:
    client = build()
    caller.becomes("ann")
    both = [{**JOB, "tenant": "vision"}, {**JOB, "tenant": "speech"}]
    assert refused(lambda: client.submit(both)) is Code.NOT_ALLOWED
    assert client.status()["jobs"] == []
    assert client.submit([both[0], JOB]) == ["1", "2"]
    assert [j["tenant"] for j in client.status()["jobs"]] == ["vision", "vision"], "no share beside it"


def test_a_job_from_submission_to_its_end(build: Build, me: str) -> None:
    client = build()
    [job] = client.submit([{**JOB, "iterations": 40, "gpus": {"allowed": [2, 4]}, "tenant": "vision"}])
    eventually(lambda: client.job(job)["state"] == "running")
    status = client.status(losses=True)
    shown = status["jobs"][0]
    assert (shown["owner"], shown["tenant"], shown["range"], shown["starts"]) == (me, "vision", "2,4", 1)
    assert sum(n["held"] for n in status["nodes"]) == sum(shown["allocation"].values()) == 4
    tenants = {t["name"]: t for t in status["tenants"]}
    assert (tenants["vision"]["held"], tenants["vision"]["fair"], tenants["speech"]["fair"]) == (4, 4.0, 0.0)
    why = client.explain(job)
    assert why["causes"]
    assert why["policy"] == "fifo"
    eventually(lambda: client.job(job)["state"] == "completed")
    done = client.job(job)
    assert (done["ended"], done["exit_code"], done["step"], done["total"]) == (True, 0, 40.0, 40.0)
    assert client.status()["jobs"] == []
    kinds = [e["kind"] for e in client.history(job=job)]
    assert kinds[0] == "submitted"
    assert "ended" in kinds
    assert all(e["name"] == "digits" and e["text"] for e in client.history(job=job))
    assert client.history(since_s=0.0) == []
    newest = client.history()[-1]["seq"]
    assert client.history(after=newest) == []
    assert [e["seq"] for e in client.history(limit=1)] == [newest]
    assert b"[horae]" in b"".join(client.log(job))


def test_unknown_jobs_are_told(build: Build) -> None:
    client = build()
    for ask in (client.job, client.explain, client.cancel, client.hold, lambda j: client.history(job=j)):
        assert refused(lambda ask=ask: ask("4711")) is Code.NO_SUCH_JOB
    assert refused(lambda: list(client.log("4711"))) is Code.NO_SUCH_JOB


def test_a_snapshot_is_an_instance_that_reads_back(build: Build) -> None:
    client = build()
    [job] = client.submit([JOB])
    eventually(lambda: client.job(job)["state"] == "running")
    text = client.snapshot()
    snapshot = instance.parse(text, "snapshot.yaml")
    assert [j.name for j in snapshot.jobs] == [job]
    assert len(snapshot.cluster.nodes) == 4
    assert refused(lambda: client.snapshot("nowhere")) is Code.BAD_INPUT


def test_a_line_is_a_part_of_the_whole_row_for_owners_and_for_strangers(build: Build, caller: Caller) -> None:
    client = build()
    caller.becomes("ann")
    jobs = client.submit([{**JOB, "name": "one"}, {**JOB, "name": "two"}])
    for job in jobs:
        client.hold(job)
    eventually(lambda: {job["state"] for job in client.status()["jobs"]} == {"held"})
    for who, told in (("ann", {"checkpoint_trouble", "unused"}), ("ben", set[str]())):
        caller.becomes(who)
        whole, brief = client.status(), client.status(brief=True)
        assert [line["id"] for line in brief["jobs"]] == [row["id"] for row in whole["jobs"]] == jobs
        for line, row in zip(brief["jobs"], whole["jobs"], strict=True):
            assert line.items() <= row.items()
            assert {"name", "owner", "state", "range", "allocation", "why", "code"} | told <= set(line)
            assert not {"command", "env", "cwd", "checkpoint", "rho", "attained"} & set(line)
        assert {name: whole[name] for name in ("nodes", "tenants", "cluster")} == {
            name: brief[name] for name in ("nodes", "tenants", "cluster")
        }
    caller.becomes("olga")
    later = client.status(brief=True, starts=True)["jobs"]
    assert all("start_s" in line for line in later)


def test_with_several_pools_one_must_be_named(build: Build) -> None:
    pools = [
        {"name": "a", "nodes": "n[1-2]", "mode": "enforce", "policy": "fifo"},
        {"name": "b", "mode": "enforce", "policy": "fifo"},
    ]
    client = build(pools=pools)
    assert refused(client.snapshot) is Code.BAD_INPUT
    assert "schema: 1" in client.snapshot("b")
    assert {n["pool"] for n in client.status()["nodes"]} == {"a", "b"}


def test_metrics_count_what_the_status_shows(build: Build) -> None:
    client = build()
    [job] = client.submit([{**JOB, "gpus": 4}])
    eventually(lambda: client.job(job)["state"] == "running")
    assert sum(
        float(line.split()[-1])
        for line in client.metrics().splitlines()
        if line.startswith("horae_gpus{") and 'state="held"' in line
    ) == pytest.approx(4.0)


def test_an_arbiter_that_cannot_write_its_journal_is_shown_as_an_alert(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(config(folder))
    service.start()
    try:
        client, status = Client(service.socket, timeout_s=200), watch.status
        eventually(lambda: client.status()["nodes"])
        assert client.status()["alerts"] == []
        monkeypatch.setattr(watch, "status", lambda arbiter: replace(status(arbiter), stalled="the journal is full"))
        [alert] = client.status()["alerts"]
        assert (alert["what"], alert["text"]) == ("stalled", "nothing is done: the journal is full")
        assert "horae_alerts 1.0" in client.metrics()
    finally:
        service.stop()


# --- putting it together -----------------------------------------------------------------------------------


def test_a_policy_that_would_never_be_run_is_refused_at_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's own Python, which an account that owns nothing cannot read."""
    file = folder / "mine.py"
    file.write_text("def decide(*asked): ...\n")
    file.chmod(0o600)
    monkeypatch.setattr(catalogue, "_files", {})
    monkeypatch.setattr(powerless, "account", lambda: (None, Path("/root")))
    with pytest.raises(BadInput, match=r"is not run as root: .* cannot read /root") as error:
        Service(config(folder, pools=[{"policy": str(file)}]))
    assert error.value.field == "pools[0].policy"


def test_an_unknown_adapter_or_policy_is_told_with_what_there_is(folder: Path) -> None:
    with pytest.raises(BadInput) as adapter:
        connect(ClusterForm(adapter="slurmm", options={}))
    assert "local" in adapter.value.remedy
    with pytest.raises(BadInput) as policy:
        check_policies(config(folder, pools=[{"mode": "enforce", "policy": "fiffo"}]), "c.yaml")
    assert policy.value.field == "pools[0].policy"
    assert "fifo" in policy.value.remedy
    with pytest.raises(BadInput):
        Service(config(folder, pools=[{"mode": "enforce", "policy": "fiffo"}]))


def test_a_service_that_cannot_serve_leaves_the_journal_to_the_next(folder: Path) -> None:
    blocked = folder / "blocked"
    blocked.write_text("a file where a folder is needed")
    with pytest.raises(OSError, match="blocked"):
        Service(config(folder, api={"socket": str(blocked / "a.sock")}))
    service = Service(config(folder))  # the journal's lock is free again
    service.start()
    service.stop()


def test_the_socket_is_where_clients_look(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsaid = config(folder, api={})
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 0)
    assert socket_path(unsaid) == Path("/run/horae/api.sock")
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert socket_path(unsaid) == Path("/run/user/1000/horae/api.sock")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert socket_path(unsaid) == folder / "state" / "api.sock"
    monkeypatch.setenv("RUNTIME_DIRECTORY", "/run/horae:/run/other")  # the unit's, whatever its account
    assert socket_path(unsaid) == Path("/run/horae/api.sock")
    assert "/run/horae/api.sock" in PLACES


def test_root_and_whoever_runs_it_operate_it(folder: Path, me: str) -> None:
    assert set(with_operators(config(folder)).operators) == {"olga", "root", me}


# --- other users, really -----------------------------------------------------------------------------------

AS_ANOTHER = """
import os, sys, json
sys.path[:0] = json.loads(sys.argv[2])
from pathlib import Path
from horae.api.client import Client
from horae.api.errors import ApiError
os.setgroups([]); os.setgid(65534); os.setuid(65534)  # after the imports: an interpreter may live in root's home
client = Client(Path(sys.argv[1]))
out = {"you": client.about()["you"], "jobs": client.submit([{"command": ["true"], "gpus": 1}]), "1": client.job("1")}
for name, act in (("cancel", lambda: client.cancel("1")), ("release", client.release_all)):
    try:
        act()
    except ApiError as error:
        out[name] = error.code
print(json.dumps(out))
"""


@pytest.mark.root
def test_the_kernel_tells_users_apart(build: Build) -> None:
    client = build()
    client.submit([JOB])
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER, str(client.socket), json.dumps([p for p in sys.path if p])],
        capture_output=True, text=True, check=False, cwd="/", timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["you"]["uid"], said["you"]["operator"]) == (65534, False)
    assert client.job("2")["owner"] == said["you"]["user"] != client.job("1")["owner"]
    assert "command" not in said["1"]
    assert (said["cancel"], said["release"]) == ("not-allowed", "not-allowed")
    assert client.job("1")["state"] != "cancelled"
