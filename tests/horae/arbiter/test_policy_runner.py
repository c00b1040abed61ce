"""Policies in a process of their own: whatever they do, the arbiter gets an answer in time or the reason why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from horae.arbiter.decide import powerless, replies
from horae.arbiter.decide.policy_runner import Worker
from policy import catalogue
from policy.contract import Entry
from policy.decide import decide
from tests.horae.arbiter.misbehaving import SNAPSHOT, question


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    made = Worker(f"tests.horae.arbiter.misbehaving:{request.param}")
    yield made
    made.close()


def use(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("worker", [name], indirect=True)


@use("well")
def test_one_process_answers_many_questions(worker: Worker) -> None:
    answers = [worker.ask(question()) for _ in range(3)]
    assert [a.decision.allocation if a.decision else a.why_not for a in answers] == [{"1": {"n1": 2}}] * 3
    assert worker._process is not None


@use("prints")
def test_what_a_policy_prints_is_no_answer(worker: Worker) -> None:
    assert worker.ask(question()).decision is not None


@use("forgetful")
def test_what_it_remembered_of_another_version_is_left_out_and_told(worker: Worker) -> None:
    remembers = replace(question(), snapshot=replace(SNAPSHOT, state={"turn": 7}))
    decision = worker.ask(remembers).decision
    assert decision is not None
    assert decision.allocation == {"1": {"n1": 2}}
    assert decision.certificate.notes[0] == "what test remembered is left out: is none that it goes on from"


@pytest.mark.parametrize("worker", ["forever", "deaf"], indirect=True)
def test_a_policy_that_overruns_is_ended_at_its_deadline(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.arbiter.decide.policy_runner.SLACK_S", 0.0)
    process = worker._running()
    answer = worker.ask(question(limit_s=3.0))
    assert answer.decision is None
    assert "did not answer within 3 s and was ended" in answer.why_not
    assert process.returncode == -signal.SIGKILL


@use("exits")
def test_after_an_upgrade_no_policy_is_blamed(worker: Worker) -> None:
    """The process is of what is installed now, and the arbiter of what was."""
    assert "installed anew" not in worker.ask(question()).why_not
    worker._installed = [None]
    assert "restart `horae serve`" in worker.ask(question()).why_not


@use("exits")
def test_a_policy_that_takes_its_process_down_costs_one_answer(worker: Worker) -> None:
    for _ in range(2):
        answer = worker.ask(question())
        assert answer.decision is None
        assert "gave no answer" in answer.why_not


@use("unsendable")
def test_an_answer_that_cannot_be_sent_says_so(worker: Worker) -> None:
    assert "cannot be sent" in worker.ask(question()).why_not


@use("exhausts")
def test_a_policy_out_of_memory_is_an_answer_too(worker: Worker) -> None:
    assert "raised MemoryError" in worker.ask(question()).why_not


def test_a_policy_module_that_is_not_there_is_said() -> None:
    worker = Worker("tests.horae.arbiter.nowhere:decide")
    try:
        assert "gave no answer" in worker.ask(question()).why_not
    finally:
        worker.close()


@use("deaf")
def test_the_process_is_gone_after_the_arbiter_closes_it(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.arbiter.decide.policy_runner.SLACK_S", 0.0)
    process = worker._running()
    assert psutil.pid_exists(process.pid)
    worker.ask(question(limit_s=1.0))
    until = time.monotonic() + 240
    while psutil.pid_exists(process.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not psutil.pid_exists(process.pid)


def test_a_processs_start_is_not_counted_against_the_policys_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the imports alone take longer than a policy may."""
    monkeypatch.setenv("SLOW_TO_IMPORT_MARK", str(tmp_path / "imported"))
    worker = Worker("tests.horae.arbiter.slow_to_import:well", rights=True)
    try:
        worker._running()
        assert (tmp_path / "imported").exists()
        assert worker.ask(question()).decision is not None
    finally:
        worker.close()


def test_a_process_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.arbiter.decide.policy_runner.START_S", 0.0)
    worker = Worker("tests.horae.arbiter.misbehaving:well")
    assert "did not start within 0 s" in worker.ask(question()).why_not
    assert worker._process is None


def test_the_folder_that_the_arbiter_was_started_in_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be anybody's, and the arbiter be root."""
    for name in ("ctypes", "importlib", "pickle", "signal", "horae", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", ".", *sys.path])
    worker = Worker("tests.horae.arbiter.misbehaving:well")
    try:
        assert worker.ask(question()).decision is not None
    finally:
        worker.close()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("worker", "said"),
    [("attacks", "Attack has no plain form"), ("attacks_on_the_wire", "gave no answer: ValueError")],
    indirect=["worker"],
)
def test_an_answer_runs_nothing_in_the_arbiter(
    worker: Worker, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTACK_MARK", str(tmp_path / "ran"))
    answer = worker.ask(question())
    assert answer.decision is None
    assert said in answer.why_not
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"policy": 1}, "0.policy: Input should be a valid string"),
        ({"certificate": {}}, "0.certificate.feasible: Field required"),
        ({"more": 1}, "0.more: Unexpected keyword argument"),
        ({"state": []}, "0.state: Input should be a valid dictionary"),
        ({"reasons": [["granted"], [1], [{}], [""]]}, "0.reasons.1.0: Input should be a valid string"),
        ({"reasons": [["bought"], ["x"], [{}], [""]]}, "that is not there: 'bought'"),
        ({"reasons": [["granted"], ["x"], [1], [""]]}, "the numbers of a reason are no mapping"),
        ({"whose": {"1": 7}}, "that is not there: list index out of range"),
        ({"whose": {"1": -1}}, "0.whose.1: Input should be greater than or equal to 0"),
    ],
)
def test_an_answer_of_another_form_is_none(changed: dict[str, object], said: str) -> None:
    sent, why_not, aside = json.loads(replies.dumps((decide(SNAPSHOT, "fifo"), "", {})))
    assert replies.loads(json.dumps([sent, why_not, aside]).encode())[0] == decide(SNAPSHOT, "fifo")
    with pytest.raises(ValueError, match="its answer is not of the form") as raised:
        replies.loads(json.dumps([{**sent, **changed}, why_not, aside]).encode())
    assert said in str(raised.value)


@use("boasts")
def test_an_answer_without_bounds_is_not_read(worker: Worker) -> None:
    assert "are the most" in worker.ask(question()).why_not


def test_an_answer_for_many_jobs_may_be_as_long_as_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gandiva-fair's of 100,000 jobs has 42 MB: with half as many more, each of its answers was refused."""
    monkeypatch.setattr(replies, "MOST_BYTES", 1 << 12)
    jobs = tuple(replace(SNAPSHOT.jobs[0], name=str(i)) for i in range(1000))
    many = replace(question(), snapshot=replace(SNAPSHOT, jobs=jobs), policy="fifo")
    worker = Worker()
    answer = worker.ask(many)
    worker.close()
    assert answer.decision is not None, answer.why_not
    assert set(answer.decision.reasons) == {job.name for job in jobs}


def test_what_would_run_as_root_is_horaes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Entry("mine", "The author's own.", "mylab.mine:decide", "-", "-")
    known = {"mine": mine, **catalogue.entries()}
    monkeypatch.setattr(catalogue, "entries", lambda: known)
    assert "cannot read /root" in powerless.barred("mine", Path("/root"))
    assert [powerless.barred("mine", None), powerless.barred("fifo", Path("/root"))] == ["", ""]


@pytest.mark.root
def test_where_the_arbiter_is_root_a_policy_is_nobody(tmp_path: Path) -> None:
    """With a Python that everybody may read; it can do nothing to the arbiter, and sees nothing of its environment."""
    source = """
        from tests.horae.arbiter.misbehaving import question
        from horae.arbiter.decide.policy_runner import Worker
        worker = Worker("tests.horae.arbiter.misbehaving:tells_who_it_is")
        answer = worker.ask(question())
        worker.close()
        print(json.dumps(answer.decision.state if answer.decision else answer.why_not))
    """
    paths = [str(Path(__file__).parents[3]), sysconfig.get_path("purelib")]
    code = f"import json, sys; sys.path[:0] = {paths!r}\n{textwrap.dedent(source)}"
    env = {"PATH": os.environ["PATH"], "SECRET": "token"}
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", code], cwd="/", env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert isinstance(told, dict), told
    (uid,) = told.pop("uids")
    assert 61184 <= uid < 65520
    assert told == {"groups": [], "reached": [], "rights": 0, "no_new": "1", "secret": None}
