"""Slices under Kerberos, with a real KDC, where there is no Services API: whole elastic jobs, and who gets what token.

Their owner is carol, who has no keytab anywhere: her workers write with the token of their slice.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.doctor import Verdict
from horae.port import FixConfiguration, JobState, ObservedJob, attend
from policy.model import Pinning
from tests.contract.harness import job_in, starts_in, steps_in
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import ALIVE, workers
from tests.real.kerberos import job_of, options_of, secured
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.jobs.record import encode_kept
from yarn_bridge.options import Options
from yarn_bridge.runtimes.slice_shapes import SLICE_KIND
from yarn_bridge.runtimes.slice_tokens import HdfsToken, SliceTokens, parse
from yarn_bridge.site.doctor import examine

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

OWNER = "carol"


@pytest.fixture(scope="module", params=["3.4.2", "3.3.6"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def lab(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hadoopkrbslices-")


@pytest.fixture(scope="module")
def options(lab: Path, release: str) -> Iterator[Options]:
    with secured(lab, {"yarn.webapp.api-service.enable": "false"}, release=release) as made:
        yield replace(options_of(made), slice_memory_mib=320)


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> dict[str, HdfsToken]:
    """What was submitted: node/GPUs of a slice -> its token."""
    submitted: dict[str, HdfsToken] = {}
    submit = ResourceManager.submit

    def remember(self: ResourceManager, body: Mapping[str, Any], owner: str) -> None:
        (entry,) = body["am-container-spec"]["credentials"]["tokens"]["entry"]
        submitted[body["application-name"].partition("/")[2]] = parse(entry["value"])
        submit(self, body, owner)

    monkeypatch.setattr(ResourceManager, "submit", remember)
    return submitted


@pytest.fixture
def port(options: Options) -> Iterator[YarnCluster]:
    made = YarnCluster(options)
    patiently(lambda: made.claim("the arbiter"))
    yield made
    made.close()


def job(port: YarnCluster, name: str) -> ObservedJob:
    found = job_in(attend(port).jobs, name)
    assert found is not None
    return found


def slices(port: YarnCluster) -> list[str]:
    """node/GPUs of every slice that has not ended."""
    return sorted(each.name.partition("/")[2] for each in port.manager.apps(kinds=(SLICE_KIND,), states=ALIVE))


def runs(port: YarnCluster, name: str, epoch: int) -> bool:
    """Its program, under this epoch."""
    if job(port, name).state is not JobState.RUNNING:
        return False
    return any(each.epoch == epoch for each in starts_in(port.read_log(name, 0, 1 << 26).data))


def status_with(token: HdfsToken, options: Options, path: str) -> tuple[int, str]:
    """What HDFS answers to who has nothing but this token."""
    http = HttpClient(options.access(options.webhdfs), "NameNode")
    try:
        query = {"op": "OPEN", "noredirect": "true", "delegation": token.word}
        answer = http.ask("GET", f"/webhdfs/v1{path}", query=query, anonymous=True)
        return answer.status, answer.refusal.message if answer.refusal else ""
    finally:
        http.close()


def test_an_elastic_job_of_an_owner_without_keytab(
    port: YarnCluster,
    options: Options,
    lab: Path,
    tmp_path: Path,
    tokens: dict[str, HdfsToken],
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = replace(job_of(OWNER, options, tmp_path), name="sliced", grace_s=60.0)
    hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).as_user(OWNER)
    capabilities = port.capabilities()
    assert "jobs run as slices: the Services API is off" in capabilities.notes
    assert capabilities.limits.pinning is Pinning.EXACT
    with caplog.at_level(logging.DEBUG, "horae"), caplog.at_level(logging.DEBUG, "yarn_bridge"):
        port.submit("sliced", spec)
        patiently(lambda: port.start("sliced", {"n1": 1}, 1))
        wait_for("it runs", lambda: runs(port, "sliced", 1), 300.0)
        assert {each.user for each in port.manager.apps(kinds=(SLICE_KIND,), states=ALIVE)} == {OWNER}
        first = workers(port, "sliced")
        wait_for("it checkpoints", lambda: bool(hdfs.entries("/user/carol/krb-checkpoints")), 180.0)
        assert {each.owner for each in hdfs.entries("/user/carol/krb-checkpoints")} == {OWNER}

        patiently(lambda: port.reshape("sliced", {"n1": 1, "n2": 2}, 2))
        wait_for("it has grown", lambda: runs(port, "sliced", 2), 300.0)
        assert (job(port, "sliced").allocation, slices(port)) == ({"n1": 1, "n2": 2}, ["n1/1", "n2/2"])
        assert workers(port, "sliced")[0] == first[0], "the survivor keeps its container"
        given = dict(tokens)
        assert given.keys() == {"n1/1", "n2/2"}
        assert len(set(_words(given.values()))) == 6, "a token a slice"

        patiently(lambda: port.reshape("sliced", {"n2": 2}, 3))
        wait_for("it has shrunk", lambda: runs(port, "sliced", 3), 300.0)
        wait_for("one slice is left", lambda: slices(port) == ["n2/2"])
        assert tokens == given, "what stays keeps its token"
        # YARN gives back the token of the slice that ended; the other one's serves on.
        wait_for("the first token is no more", lambda: "can't be found" in status_with(given["n1/1"], options, "/x")[1])
        assert status_with(given["n2/2"], options, "/x")[0] == 404
        # It is carol's, and no more than that: alice's keytab in the same HDFS stays shut.
        refused, words = status_with(given["n2/2"], options, "/user/alice/horae.keytab")
        assert (refused, "user=carol" in words) == (403, True)
        _nowhere(list(given.values()), lab, hdfs, port.files.folder("sliced"))
        record = port.files.record("sliced")
        assert record is not None
        account = encode_kept(record)
        assert OWNER.encode() in account
        assert not any(word.encode() in account for word in _words(given.values()))

        patiently(lambda: port.checkpoint_and_stop("sliced", 60.0))
        wait_for("it stops", lambda: job(port, "sliced").state is JobState.STOPPED, 180.0)
        stopped = job(port, "sliced")
        assert (stopped.exit_code, stopped.allocation, slices(port)) == (86, {}, [])
        assert stopped.checkpoint is not None
        patiently(lambda: port.start("sliced", {"n1": 1}, 4))
        wait_for("it runs on", lambda: runs(port, "sliced", 4), 300.0)
    log = port.read_log("sliced", 0, 1 << 26).data
    starts, steps = starts_in(log), steps_in(log)
    assert [(each.epoch, each.world) for each in starts] == [(1, 1), (2, 3), (3, 2), (4, 1)]
    assert starts[3].step == stopped.checkpoint.step
    assert steps == sorted(set(steps)), "a step was done twice although every stop was clean"

    patiently(lambda: port.cancel("sliced"))
    wait_for("it is cancelled", lambda: job(port, "sliced").state is JobState.CANCELLED, 180.0)
    wait_for("no slice is left", lambda: slices(port) == [])
    for token in (*given.values(), *tokens.values()):
        wait_for("its token is no more", lambda token=token: "can't be found" in status_with(token, options, "/x")[1])
    assert not any(word in caplog.text for word in _words([*given.values(), *tokens.values()]))


def _words(tokens: Iterable[HdfsToken]) -> list[str]:
    """What a token could be seen as."""
    return [form for each in tokens for form in (each.word, each.password.hex(), repr(each.password)[2:-1])]


def _nowhere(tokens: list[HdfsToken], lab: Path, hdfs: Hdfs, folder: str) -> None:
    """Neither in an argument of a process, nor in a daemon's or a container's log, nor in what a job keeps in HDFS."""
    secrets = [*(word.encode() for word in _words(tokens)), *(each.password for each in tokens)]
    looked = 0
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = line.read_bytes()
        except OSError:
            continue  # it ended, or is another user's
        looked += os.fsencode(lab) in said
        assert not any(secret in said for secret in secrets), f"{line.parent} has a token in its arguments"
    assert looked > 4, "the daemons and the workers are among them"
    # Not by `rglob`: folders of containers that end meanwhile are an error to it.
    below = [Path(folder, name) for folder, _, names in os.walk(lab) for name in names]
    logs = [path for path in below if path.is_file() and {"log", "logs"} & set(path.relative_to(lab).parts)]
    assert any("resourcemanager" in path.name for path in logs)
    assert any(path.name == "AppMaster.stderr" for path in logs)
    for path in logs:
        data = b""
        with suppress(FileNotFoundError):  # of a container that ended just now
            data = path.read_bytes()
        assert not any(secret in data for secret in secrets), f"{path} has a token"
    kept = {}
    for each in hdfs.entries(folder):
        path = f"{folder}/{each.name}"
        kept[each.name] = (hdfs.document(path) if each.folder else hdfs.read(path)) or b""
        assert not any(secret in kept[each.name] for secret in secrets), f"{each.name} has a token"
    assert b'"state": "open"' in kept["gate"]


def test_a_job_that_finishes_leaves_nothing(port: YarnCluster, options: Options, tmp_path: Path) -> None:
    spec = job_of(OWNER, options, tmp_path)
    spec = replace(spec, command=(*spec.command[:2], "finishes"), checkpoint=f"{spec.checkpoint}-short")
    port.submit("short", spec)
    patiently(lambda: port.start("short", {"n1": 1, "n2": 1}, 1))
    wait_for("it finishes", lambda: job(port, "short").state is JobState.COMPLETED, 300.0)
    assert (job(port, "short").exit_code, job(port, "short").allocation) == (0, {})
    wait_for("no slice is left", lambda: slices(port) == [])


def test_for_whom_the_bridge_may_not_act_there_is_no_token_and_no_slice(
    port: YarnCluster, options: Options, tmp_path: Path
) -> None:
    manager = ResourceManager(HttpClient(options.access(options.resource_manager), "ResourceManager"))
    made = SliceTokens(options, manager)
    refused = r"not allowed to impersonate bob.*hadoop.proxyuser"
    try:
        with pytest.raises(FixConfiguration, match=refused):
            made.get("bob")
        with pytest.raises(FixConfiguration, match=refused):
            port.submit("bobs", job_of("bob", options, tmp_path))
        with pytest.raises(FixConfiguration, match=refused):
            manager.new_application("bob")
    finally:
        made.close()
        manager.close()
    assert port.manager.apps(user="bob") == []


def test_doctor_says_how_jobs_run_and_who_renews_their_tokens(options: Options) -> None:
    checks = list(examine(options))
    assert [f"{each.name}: {each.text}" for each in checks if each.verdict is Verdict.FAIL] == []
    found = {check.name: check for check in checks}
    assert found["runtime"].text == "slices, on named nodes: the Services API is off"
    assert (found["Services API"].verdict, found["tokens of slices"].verdict) == (Verdict.WARN, Verdict.OK)
    assert "rm/lab@LAB renews them" in found["tokens of slices"].text
