"""Jobs as people call them: by number, by the name that they gave, by a number or name that is nearly right."""

from __future__ import annotations

import pytest

from horae.api.client import Client
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

ENDLESS = ("--iterations", "100000", "--checkpoint", "ck", "--", "python", "train.py")
#: Every command that is about one job, or several.
VERBS = ("explain", "logs", "report", "history", "attach", "wait", "hold", "unhold", "cancel")


@pytest.fixture
def jobs(site: Client, horae: Horae) -> Client:
    """A resnet, which was started twice and ended once, and two berts."""
    for name in ("resnet", "resnet", "bert", "bert"):
        assert horae("submit", "-g", "1", "--name", name, *ENDLESS).code == 0
    site.cancel("1")
    eventually(lambda: site.job("1")["ended"])
    return site


def test_a_name_that_one_of_ones_jobs_has_is_as_good_as_its_number(jobs: Client, horae: Horae) -> None:
    eventually(lambda: jobs.job("2")["state"] == "running")
    assert horae("status", "resnet", "--json").json["jobs"][1]["id"] == "2"
    for verb in ("explain", "report", "history"):
        by_name, by_number = horae(verb, "resnet"), horae(verb, "2")
        assert by_name.code == 0 and by_name.lines[0] == by_number.lines[0]
        assert by_name.err == "horae: resnet is job 2\n" and by_number.err == ""
    assert horae("priority", "resnet", "-3").lines == ["job 2: priority is -3, among its tenant's jobs"]
    assert horae("logs", "resnet").code == 0
    assert horae("cancel", "resnet", "--json").json["jobs"]["resnet"]["job"] == "2"
    eventually(lambda: jobs.job("2")["ended"])
    assert horae("wait", "2").code == 137
    assert not jobs.job("3")["ended"]
    several = horae("explain", "resnet")  # both have ended by now
    assert several.code == 4 and "2 jobs of yours are named resnet: 2 (resnet, cancelled), 1 (" in several.err


def test_a_name_of_several_is_nobodys_and_a_near_one_a_question(
    jobs: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in VERBS:
        several, near, number = horae(verb, "bert"), horae(verb, "resnt"), horae(verb, "33")
        assert (several.code, several.out, near.code, number.code) == (4, "", 4, 4), verb
        assert "2 jobs of yours are named bert: 4 (bert, " in several.err and "say which, by its number" in several.err
        assert "there is no job resnt" in near.err and "do you mean 2 (resnet, " in near.err
        assert "do you mean 3 (bert, " in number.err
    assert "`horae status --all`" in horae("cancel", "4711").err
    # Who names a job 7 does not come between a script and the job 7 that it means.
    horae("submit", "-g", "1", "--name", "7", *ENDLESS)
    assert (horae("cancel", "7").code, horae("status", "7").code) == (4, 4)
    # Others' jobs are called by number alone, by operators too.
    about = Client.about
    monkeypatch.setattr(Client, "about", lambda self: {**about(self), "you": {"user": "ann", "uid": 7}})
    said = horae("cancel", "resnet")
    assert said.code == 4 and "do you mean 2 (resnet, " in said.err
    states = {number: jobs.job(number) for number in ("2", "3", "4", "5")}
    assert not [number for number, job in states.items() if job["ended"] or "held" in job["why"]]


def test_words_that_no_job_can_have_are_refused_in_words(site: Client, horae: Horae) -> None:
    for word in ("\udcff", "\x1b[31mred", "", "a" * 5000, "../../1", "1?x=2", "-1"):
        for verb in ("explain", "history", "status"):
            said = horae(verb, "--", word)
            assert said.code in (2, 3, 4), said
            assert "\x1b" not in said.err and "bug" not in said.err
