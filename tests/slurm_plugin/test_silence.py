"""Silence is not absence: whatever becomes of an answer on its way, no job that Slurm has is told to be over."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae.port import JobState, PortError, TryLater, attend
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.base import ClientAway
from slurm_plugin.clients.choose import choose
from slurm_plugin.clients.pyslurm import PyslurmClient
from slurm_plugin.files.transport import Completed
from slurm_plugin.options import Options
from tests.slurm_plugin.boundary import Boundary, cut, job, running, shown
from tests.slurm_plugin.broken import REST, Child, rest

#: What slurmctld says while it cannot tell, on each release that does
NOT_READY = (
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
    "slurm_load_jobs error: Socket timed out on send/recv operation\n",
    "slurm_load_jobs error: Unexpected message received\n",
    "slurm_load_jobs error: Zero Bytes were transmitted or received\n",
    "slurm_load_jobs error: Slurm backup controller in standby mode\n",
    "slurm_load_jobs error: Protocol authentication error\n",
    "slurm_load_jobs error: Access/permission denied\n",
    "slurm_load_jobs error: Invalid partition name specified\n",
    "",
)


class Site:
    """Two jobs that run, one that waits and is known, and an adapter that saw them."""

    def __init__(self, folder: Path) -> None:
        self.slurm = Boundary({"1": job(1), "2": job(2), "3": job(3, Comment="horae:min=1")})
        self.options = Options(partitions=("dl",), spool=str(folder / "spool"), state=str(folder / "memory"))
        self.begin()
        for number, node in (("1", "n1"), ("2", "n2")):
            attend(self.port)
            assert not self.port.start_many([(f"{number}.n{number}", {node: 1}, 1)])
            self.slurm.jobs[number] = running(int(number), node)
        assert [each.state for each in attend(self.port).jobs].count(JobState.RUNNING) == 2

    def begin(self) -> None:
        """An arbiter, of which an earlier one left its memory."""
        self.port = SlurmCluster(self.options, self.slurm, choose(self.options, self.slurm))
        self.port.claim("me")

    def ended(self) -> list[str]:
        """Jobs that a look tells to be over; a look that fails tells nothing."""
        self.port.client._away.until_s = 0.0  # the pause after a slurmctld that was away
        try:
            return [each.id for each in attend(self.port).jobs if each.state.ended]
        except PortError:
            return []

    def close(self) -> None:
        self.slurm.spoil = lambda command, answer: answer
        assert self.ended() == []
        seen = attend(self.port)
        assert {each.id: each.state for each in seen.jobs}["1.n1"] is JobState.RUNNING
        self.port.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("silence"))


def on(command: str, spoilt: Callable[[Completed], Completed]) -> Callable[[str, Completed], Completed]:
    return lambda name, answer: spoilt(answer) if name.startswith(command) else answer


def test_an_answer_that_is_cut_anywhere_ends_nobody(site: Site) -> None:
    whole: dict[str, str] = {}

    def listen(command: str, answer: Completed) -> Completed:
        whole[command] = answer.out
        return answer

    site.slurm.spoil = listen
    attend(site.port)
    for command in ("squeue", "sinfo"):
        text = whole[command]
        ends = [at for at in range(len(text) + 1) if text[at - 1 : at] == "\n"]
        for at in sorted({*range(0, len(text), 23), *ends, *(end + 1 for end in ends), len(text) - 1}):
            site.slurm.spoil = on(command, cut(at))
            assert site.ended() == [], f"{command} cut after {at} characters"
    site.close()


@pytest.mark.parametrize("said", NOT_READY)
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("command", ["squeue", "sinfo", "scontrol show job", "sacct"])
def test_a_refusal_with_or_without_a_part_of_the_answer_ends_nobody(
    site: Site, command: str, said: str, partial: bool
) -> None:
    def refused(answer: Completed) -> Completed:
        return replace(answer, rc=1, out=answer.out[: len(answer.out) // 2] if partial else "", err=said)

    lost = replace_rows(site, keep="3")
    site.slurm.spoil = lambda name, answer: on(command, refused)(name, lost(name, answer))
    assert site.ended() == []
    site.close()


def replace_rows(site: Site, keep: str) -> Callable[[str, Completed], Completed]:
    """squeue's answer with one job of many, ended as it should be."""

    def spoil(name: str, answer: Completed) -> Completed:
        if name != "squeue":
            return answer
        heading, *rows = answer.out.split("\n")
        return replace(answer, out="\n".join([heading, *(row for row in rows if row.startswith(keep)), ""]))

    return spoil


def test_a_job_that_the_read_left_out_and_slurm_has_is_shown_as_last_seen(site: Site) -> None:
    site.slurm.spoil = replace_rows(site, keep="3")
    seen = attend(site.port)
    assert {each.id: each.state for each in seen.jobs if each.allocation} == {
        "1.n1": JobState.RUNNING, "2.n2": JobState.RUNNING,
    }  # fmt: skip
    assert any("taken as last seen" in note for note in seen.notes)
    site.close()


#: ends of the lines that scontrol shows of a job
LINES = [at + 1 for at, char in enumerate(shown(running(1, "n1"))) if char == "\n"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keep=st.sets(st.integers(0, 3)),
    at=st.one_of(st.integers(0, 400), st.sampled_from(LINES)),
    command=st.sampled_from(["scontrol show job", "sacct"]),
)
def test_answers_cut_at_once_in_several_places_end_nobody(site: Site, keep: set[int], at: int, command: str) -> None:
    def spoil(name: str, answer: Completed) -> Completed:
        if name == "squeue":
            heading, *rows = answer.out.split("\n")
            return replace(answer, out="\n".join([heading, *(row for n, row in enumerate(rows[:-1]) if n in keep), ""]))
        return cut(at)(answer) if name.startswith(command) else answer

    site.slurm.spoil = spoil
    assert site.ended() == []


def test_what_is_hidden_from_us_is_not_gone(tmp_path: Path) -> None:
    """The right to see others' jobs is taken away: then every job looks as if there were none."""
    site = Site(tmp_path)
    site.slurm.private = "jobs"
    rest, site.slurm.jobs = site.slurm.jobs, {}
    site.port._observer._facts = None  # the site has just been reconfigured

    def demoted(name: str, answer: Completed) -> Completed:
        return replace(answer, out=answer.out.replace("Operator", "None")) if "assoc_mgr" in name else answer

    site.slurm.spoil = demoted
    assert site.ended() == []
    site.slurm.jobs, site.slurm.private = rest, "none"
    site.port._observer._facts = None
    site.close()


def test_a_job_that_slurm_says_it_has_not_is_over_as_slurmdbd_tells(tmp_path: Path) -> None:
    """The control: what is gone is told, at once where slurmdbd knows, and not before it does."""
    site = Site(tmp_path)
    del site.slurm.jobs["1"], site.slurm.jobs["2"]
    site.slurm.ended = {"1": "1|REQUEUED|0:0|7|1699999200|horae=n1\n1|COMPLETED|0:0|9|1699999300|horae=n1\n"}
    seen = {each.id: each for each in attend(site.port).jobs}
    assert (seen["1.n1"].state, seen["1.n1"].exit_code) == (JobState.COMPLETED, 0)
    assert seen["1.n1"].since_s == 1699999300.0, "not when it was asked about"
    assert "2.n2" not in seen
    site.slurm.ended = {"2": "2|FAILED|7:0|11|1699999300|horae=n2"}  # cut
    assert "2.n2" not in {each.id for each in attend(site.port).jobs}
    site.slurm.ended = {"2": "2|FAILED|7:0|11|Unknown|horae=n2\n"}
    seen = {each.id: each for each in attend(site.port).jobs}
    assert (seen["2.n2"].state, seen["2.n2"].exit_code) == (JobState.FAILED, 7)
    site.port.close()


def test_a_number_that_was_given_to_another_job_says_that_ours_is_gone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.slurm.jobs["1"] = job(1, admin_comment="horae=other,gpus=1,nodes=1")
    site.slurm.ended = {"1": "1|CANCELLED by 0|0:15|9|1699999300|horae=n1\n1|COMPLETED|0:0|12|1699999900|horae=other\n"}
    seen = {each.id: each.state for each in attend(site.port).jobs}
    assert seen["1.n1"] is JobState.CANCELLED
    assert seen["1.other"] is JobState.QUEUED
    site.port.close()


@pytest.mark.parametrize(
    ("again", "same"),
    [
        ({}, True),
        ({"RestartCnt": "1", "SubmitTime": "1700000200", "State": "SPECIAL_EXIT", "NodeList": ""}, True),
        ({"SubmitTime": "1700000200"}, False),  # its number was given to another
        ({"UserID": "1001", "UserName": "eve"}, False),
    ],
)
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_job_whose_mark_an_administrator_wrote_over_is_known_still(
    tmp_path: Path, again: dict[str, str], same: bool, meanwhile: bool
) -> None:
    """Else it would be told as failed while it runs, and between two shapes be held by nobody for ever. `meanwhile`:
    while no arbiter looked."""
    site = Site(tmp_path)
    if meanwhile:
        site.port.close()
    site.slurm.jobs["1"] |= {"admin_comment": "seen by the desk", **again}
    if meanwhile:
        site.begin()
    for _ in range(2):
        seen = attend(site.port)
        assert ("1.n1" in {job.id for job in seen.jobs}) is same
        assert any("AdminComment='seen by the desk horae=n1,gpus=1,nodes=1'" in note for note in seen.notes) is same
    assert (site.port.start_many([("1.n1", {"n1": 1}, 2)]) == {}) is ("SPECIAL_EXIT" in again.values())
    site.port.close()


def test_a_job_that_never_ran_and_lost_its_mark_while_nobody_looked_waits_for_us_still(tmp_path: Path) -> None:
    """Nobody else would ever start it. Whoever hands back without us knows it, too; and an answer about it alone, when
    a read leaves it out, says that it is there."""
    site = Site(tmp_path)
    site.port.close()
    site.slurm.jobs["3"]["admin_comment"] = "seen by the desk"
    site.begin()
    assert {job.id: job.state for job in attend(site.port).jobs}["3.n3"] is JobState.QUEUED
    site.port.heartbeat()
    assert (tmp_path / "spool/marks").read_text() == "3 1700000000 0 horae=n3,gpus=1,nodes=1\n"
    assert site.port.start_many([("3.n3", {"n1": 1}, 1)]) == {}
    site.slurm.jobs["3"] |= running(3, admin_comment="seen by the desk")
    attend(site.port)
    site.slurm.spoil = replace_rows(site, keep="1")
    assert "3.n3" not in site.ended()
    site.slurm.jobs["3"] |= {"UserID": "1001", "UserName": "eve"}
    site.slurm.ended = {"3": "3|FAILED|1:0|12|1699999900|horae=n3\n"}
    assert "3.n3" in site.ended(), "the number is another's now"
    site.slurm.spoil = lambda name, answer: answer
    site.slurm.jobs["3"] = job(3)
    attend(site.port)
    site.port.heartbeat()
    assert (tmp_path / "spool/marks").read_text() == ""
    site.port.close()


# --- slurmrestd, pyslurm ---


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_a_body_of_slurmrestd_that_is_cut_is_no_list_of_jobs(part: float) -> None:
    text = json.dumps(REST["jobs"])
    headers = {"content-type": "application/json"}
    client = rest(lambda request: httpx.Response(200, text=text[: int(part * len(text))], headers=headers))
    with pytest.raises(TryLater):
        client.jobs(["dl"])


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, {}), (200, {"jobs": None}), (200, {"jobs": {}}), (200, []), (503, {"jobs": []}), (500, {}), (200, None)],
)
def test_an_answer_of_slurmrestd_without_its_list_is_an_error(status: int, body: Any) -> None:
    for read in ("jobs", "nodes"):
        client = rest(lambda request: httpx.Response(status, json=body))
        with pytest.raises(PortError):
            getattr(client, read)(["dl"])


def test_a_list_of_slurmrestd_with_errors_beside_it_is_an_error() -> None:
    errors = [{"error": "Unable to contact slurm controller (connect failure)", "error_number": 1800}]
    client = rest(lambda request: httpx.Response(200, json={**REST["jobs"], "jobs": [], "errors": errors}))
    with pytest.raises(PortError):
        client.jobs(["dl"])


@pytest.mark.parametrize("answer", [{}, {"ok": None}, {"ok": {}}, '{"id": @, "ok": [', '{"id": @}\n', "[]\n", "\n"])
def test_an_answer_of_the_child_with_pyslurm_without_its_list_is_an_error(answer: Mapping[str, Any] | str) -> None:
    class Here(Boundary):
        def open(self, argv: Sequence[str]) -> Any:
            return Child(answer)

    with pytest.raises(ClientAway):
        PyslurmClient(Here(), "python").jobs(["dl"])
