"""The open scontrol and scancel, over a scripted transport: whose error is whose, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from horae.port import FixConfiguration, PortError, TryLater
from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.scontrol import Scontrol
from slurm_plugin.errors import ControllerAway, Gone
from slurm_plugin.files.transport import Completed, Conversation, LocalFiles
from slurm_plugin.writes import release
from tests.slurm_plugin.boundary import NO_JOB, Boundary, job


class Talk:
    """scontrol as it answers: each word that it does not know and each refusal on the error output."""

    def __init__(self, refusals: dict[str, str], dies_at: str = "", late: bool = False) -> None:
        """`late`: its error output comes after all of its output, as it may through docker exec or sshd."""
        self._refusals, self._dies_at, self._late = refusals, dies_at, late
        self.heard: list[str] = []
        self._out = self._err = ""
        self.dead = self.closed = False

    def send(self, text: str) -> None:
        for line in text.splitlines():
            if line == self._dies_at:
                self.dead = True
                return
            self._out += f"scontrol: {line}\n"
            if line.startswith("show hostnames "):
                self._out += line.removeprefix("show hostnames ") + "\n"
            elif line.startswith("horaemark"):
                self._err += f"invalid keyword: {line}\n"
            else:
                self.heard.append(line)
                self._err += self._refusals.get(line, "")

    def receive(self, timeout_s: float) -> tuple[str, str]:
        step = 0 if self._late and self._out else 5
        out, err = self._out[:7], self._err[:step]  # in small pieces, as a pipe may give them
        self._out, self._err = self._out[7:], self._err[step:]
        if not (out or err) and self.dead:
            raise TryLater("scontrol has ended")
        return out, err

    def close(self) -> None:
        self.closed = True


class Script:
    """A transport whose scontrol is a `Talk`, and whose commands answer as told."""

    def __init__(self, *talks: Talk, answer: Completed | None = None) -> None:
        self.where, self.files = "a script", LocalFiles()
        self._talks, self._answer = list(talks), answer
        self.ran: list[Sequence[str]] = []

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 30.0,
        stdin: str | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Completed:
        self.ran.append(argv)
        assert self._answer is not None
        return self._answer

    def open(self, argv: Sequence[str]) -> Conversation:
        return self._talks.pop(0)

    def close(self) -> None:
        """Nothing is open."""


def kinds(answers: Sequence[PortError | None]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


def test_each_of_many_commands_has_its_own_error() -> None:
    talk = Talk({"release 2": "Invalid job id specified for job 2\nslurm_update error: Invalid job id specified\n"})
    client = CommandClient(Script(talk))
    answers = client.write_each([(release(job), f"starting {job}") for job in ("1", "2", "3")])
    assert talk.heard == ["release 1", "release 2", "release 3"]
    assert kinds(answers) == ["NoneType", "Gone", "NoneType"]
    assert answers[1] is not None
    assert answers[1].text.startswith("starting 2")
    assert client.ask("show config") == ""


def test_what_slurm_says_of_an_update_that_it_makes_is_no_error() -> None:
    """26.05, of a job that its partition cannot hold now: it would be written again in each round, and told as one."""
    pending = "Requested partition configuration not available now for job {}\n"
    denied = "Access/permission denied for job 3\n"
    talk = Talk({"release 2": pending.format(2), "release 3": pending.format(3) + denied})
    client = CommandClient(Script(talk))
    answers = client.write_each([(release(job), f"starting {job}") for job in ("1", "2", "3")])
    assert kinds(answers) == ["NoneType", "NoneType", "FixConfiguration"]
    client.write([release("2")], "starting 2")


def test_an_error_that_comes_late_is_not_taken_for_the_next_commands() -> None:
    gone = "slurm_update error: Invalid job id specified\n"
    client = CommandClient(Script(Talk({"release 2": gone, "show job 2": gone}, late=True)))
    assert kinds(client.write_each([(release(job), "starting") for job in "123"])) == ["NoneType", "Gone", "NoneType"]
    assert kinds(client.write_each([(release(job), "starting") for job in "13"])) == ["NoneType"] * 2
    with pytest.raises(Gone):
        client.ask("show job 2")
    assert client.ask("show config") == ""


def test_what_scontrol_did_not_answer_before_it_died_is_not_known() -> None:
    first, second = Talk({}, dies_at="release 3"), Talk({})
    client = CommandClient(Script(first, second))
    answers = client.write_each([(release(job), f"starting {job}") for job in "1234"])
    assert kinds(answers) == ["NoneType", "NoneType", "TryLater", "TryLater"]
    assert first.closed
    assert client.write_each([(release("9"), "starting 9")]) == [None], "by a new one"
    assert second.heard == ["release 9"]


def test_no_more_is_said_when_slurmctld_does_not_answer_the_first() -> None:
    away = "slurm_update error: Unable to contact slurm controller (connect failure)\n"
    talk = Talk({f"release {job}": away for job in range(99)})
    client = CommandClient(Script(talk))
    with pytest.raises(ControllerAway):
        client.write_each([(release(str(job)), "x") for job in range(99)])
    assert talk.heard == ["release 0"]


def test_slurmctld_lost_on_the_way_ends_the_conversation_soon() -> None:
    away = "slurm_update error: Unable to contact slurm controller (connect failure)\n"
    talk = Talk({f"release {job}": away for job in range(3, 99)})
    answers = CommandClient(Script(talk)).write_each([(release(str(job)), "x") for job in range(99)])
    assert kinds(answers[:4]) == ["NoneType"] * 3 + ["ControllerAway"]
    assert set(kinds(answers[4:])) == {"ControllerAway"}
    assert len(answers) == 99
    assert len(talk.heard) == 33, "one, and one lot"


def test_a_line_break_is_never_said() -> None:
    talk = Talk({})
    with pytest.raises(FixConfiguration):
        Scontrol(Script(talk), "scontrol", 5.0).ask_each(["release 1", "release 2\nshutdown"])
    assert talk.heard == []


def test_signals_go_by_one_command_and_array_tasks_by_their_own() -> None:
    script = Script(answer=Completed(0, "", "", 0.1))
    assert CommandClient(script).signal(["1", "4_2", "3", "4_7"], "USR1", "stopping") == {}
    assert [argv[argv.index("scancel") :] for argv in script.ran] == [  # type: ignore[attr-defined]
        ["scancel", "-b", "-s", "USR1", "1", "3"],
        ["scancel", "-b", "-s", "USR1", "4_2"],
        ["scancel", "-b", "-s", "USR1", "4_7"],
    ]
    limits_s = [int(argv[argv.index("-k") + 2]) for argv in script.ran]
    assert limits_s[0] >= 10 > limits_s[1], "it hangs for tasks of arrays alone; others need their time on a busy host"


@pytest.mark.parametrize(
    ("said", "whose"),
    [
        ("scancel: error: Kill job error on job id 3: Access/permission denied\n", {"3": FixConfiguration}),
        ("scancel: error: Kill job error on job id 3: Invalid job id specified\n", {}),
        ("scancel: error: Unable to contact slurm controller\n", dict.fromkeys(["1", "3", "33"], ControllerAway)),
        ("", dict.fromkeys(["1", "3", "33"], TryLater)),
    ],
)
def test_a_refused_signal_is_the_error_of_the_job_it_names(said: str, whose: dict[str, type[PortError]]) -> None:
    client = CommandClient(Script(answer=Completed(1, "", said, 0.1)))
    found = client.signal(["1", "3", "33"], "USR1", "stopping")
    assert {job: type(error) for job, error in found.items()} == whose
    assert Gone not in whose.values()


def test_jobs_are_cancelled_in_lots_and_who_is_gone_is_no_error() -> None:
    ids = [str(number) for number in range(70)] + ["4_2"]
    script = Script(answer=Completed(0, "", "", 0.1))
    assert CommandClient(script).cancel(ids, "cancelling") == {}
    assert [argv[argv.index("scancel") + 1 :] for argv in script.ran] == [ids[:32], ids[32:64], ids[64:]]  # type: ignore[attr-defined]
    said = "scancel: error: Kill job error on job id 3: Access/permission denied\n"
    said += "scancel: error: Kill job error on job id 1: Invalid job id specified\n"
    found = CommandClient(Script(answer=Completed(1, "", said, 0.1))).cancel(["1", "3", "33"], "cancelling")
    assert {job: type(error) for job, error in found.items()} == {"3": FixConfiguration}


def test_nothing_is_cancelled_where_slurmctld_is_away() -> None:
    script = Script(answer=Completed(1, "", "scancel: error: Unable to contact slurm controller\n", 0.1))
    with pytest.raises(ControllerAway):
        CommandClient(script).cancel([str(number) for number in range(70)], "cancelling")
    assert len(script.ran) == 1


def test_many_jobs_are_read_again_by_one_squeue_and_who_is_gone_is_left_out() -> None:
    slurm = Boundary(jobs={each: job(int(each)) for each in ("1", "2", "3")})
    client = CommandClient(slurm)
    found = client.those(["1", "3", "9"])
    assert {each: (row.held, row.reason) for each, row in found.items()} == dict.fromkeys("13", (True, "JobHeldUser"))
    assert [list(argv)[:1] for argv in slurm.ran] == [["squeue"]]
    gone = CommandClient(Script(answer=Completed(1, "", NO_JOB, 0.1)))
    assert gone.those(["9"]) == {}


def test_a_record_that_is_not_understood_is_left_out_too() -> None:
    slurm = Boundary(jobs={"1": job(1), "2": job(2, UserID="much")})
    client = CommandClient(slurm)
    assert list(client.those(["1", "2"])) == ["1"]
    assert any("set aside" in note for note in client.odd)
