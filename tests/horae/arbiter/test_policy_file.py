"""A pool whose policy is a file: the arbiter checks it, its policies' process runs it, and only there."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import textwrap
from pathlib import Path

import pytest

from horae import doctor
from horae.arbiter.decide.policy_runner import Worker
from horae.arbiter.round import question
from horae.config import parse
from horae.configured import check_policies
from horae.port import JobState
from policy import catalogue
from policy.decide import decide
from policy.model import BadInput
from tests.horae.arbiter.site import ANN, Site, spec

POLICY = '''\
"""Says where it runs."""

import os

from policy.contract import Option
from policy.model import Proposal

OPTIONS = (Option("give", int, 1, "GPUs of each job", low=0, high=1),)


def decide(snapshot, options, context):
    free = [node.name for node in snapshot.cluster.nodes for _ in range(node.gpus)]
    allocation = {job.name: {free.pop(): 1} for job in snapshot.jobs if options["give"]}
    return Proposal(allocation, state={"pid": os.getpid(), "uid": os.getuid()})
'''
BROKEN = POLICY.replace("free.pop()", "free.pop(9, 9)")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalogue, "_files", {})
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    path.chmod(0o600)
    return path


def site_of(folder: Path, file: Path, **options: object) -> Site:
    site = Site(folder, policy=decide, pools=[{"policy": str(file), "options": options}])
    check_policies(site.config)
    return site


def test_it_runs_in_the_policies_process_as_it_was_when_the_arbiter_began(tmp_path: Path, file: Path) -> None:
    site = site_of(tmp_path, file)
    file.write_text("1 / 0\n")
    (job,) = site.commands.submit([spec(gpus=1)], ANN)
    site.until(job, JobState.RUNNING)
    assert site.core.view is not None
    asked = question(site.core.ledger, site.config.pools[0], site.core.view)
    worker = Worker(rights=True)
    try:
        answer = worker.ask(asked)
        assert answer.decision is not None, answer.why_not
        assert answer.decision.state["pid"] not in (os.getpid(), None)
        assert worker._process is not None
        assert answer.decision.state["pid"] == worker._process.pid
        assert sum(answer.decision.allocation[job].values()) == 1
    finally:
        worker.close()


def test_what_it_raises_is_told_with_its_line(tmp_path: Path, file: Path) -> None:
    file.write_text(BROKEN)
    site = site_of(tmp_path, file)
    (job,) = site.commands.submit([spec(gpus=1)], ANN)
    site.run(5)
    aside = site.core.ledger.jobs[job].aside
    assert aside is not None
    assert f" at {file}:13; `horae decide " in aside.text
    assert f" --policy {file}` asks it again" in aside.text


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        ("mine.py", "{}", "is a file whose folder is not said"),
        ("FILE", "{given: 1}", "has no option 'given'"),
        ("FILE", "{give: 2}", "must be at most 1"),
        ("/nowhere/mine.py", "{}", "cannot be read"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_it_serves(file: Path, policy: str, options: str, said: str) -> None:
    text = (
        f"cluster: {{adapter: local}}\npools: [{{policy: {policy.replace('FILE', str(file))}, options: {options}}}]\n"
    )
    with pytest.raises(BadInput, match=said) as error:
        check_policies(parse(text))
    assert error.value.field.startswith("pools[0].")


def test_one_that_others_may_change_is_refused(file: Path) -> None:
    file.chmod(0o602)
    with pytest.raises(BadInput, match="can be changed by others"):
        check_policies(parse(f"cluster: {{adapter: local}}\npools: [{{policy: {file}}}]\n"))


@pytest.mark.root
def test_where_the_arbiter_is_root_it_is_nobody_and_needs_to_read_nothing(file: Path) -> None:
    """With a Python that everybody may read, and a file that only root may."""
    source = f"""
        from dataclasses import replace
        from horae.arbiter.decide.policy_runner import Worker
        from policy import catalogue
        from tests.horae.arbiter.misbehaving import question
        entry = catalogue.named({str(file)!r}, believed=False)
        worker = Worker()
        asked = replace(question(), policy=entry.name, source=catalogue.file(entry.name).source, options={{"give": 0}})
        answer = worker.ask(asked)
        worker.close()
        print(json.dumps(dict(answer.decision.state) if answer.decision else answer.why_not))
    """
    paths = [str(Path(__file__).parents[3]), sysconfig.get_path("purelib")]
    code = f"import json, sys; sys.path[:0] = {paths!r}\n{textwrap.dedent(source)}"
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", code], cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert isinstance(told, dict), told
    assert 61184 <= told["uid"] < 65520


def test_doctor_says_whose_rights_it_has(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse(f"cluster: {{adapter: local}}\npools: [{{policy: {file}}}]\n")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or 1000)
    (_, warned) = doctor.policies(config)
    assert warned.verdict == "warn"
    assert "runs with this account's rights" in warned.text
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    file.chmod(0o600)
    if os.getuid() == 0:
        assert [check.verdict for check in doctor.policies(config)] == ["ok"]


def test_doctor_says_that_weights_are_not_read() -> None:
    text = "cluster: {{adapter: local}}\npools: [{{policy: {}}}]\ntenants: [{{name: vision, weight: {}}}]\n"
    (_, warned) = doctor.policies(parse(text.format("afs-l", 1000)))
    assert warned.verdict == "warn"
    assert "reads none" in warned.text
    assert "max-min" in warned.remedy
    for policy, weight in (("max-min", 1000), ("afs-l", 1)):
        assert [check.verdict for check in doctor.policies(parse(text.format(policy, weight)))] == ["ok"]
