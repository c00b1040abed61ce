"""What people type beside submitting and looking: logs, waiting, formats, dry runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from horae.api.client import Client
from horae.api.peers import user_name
from horae.cli import output, submit, wait
from horae.tui import formats
from horae.tui.trial import show_trial
from policy.errors import BadInput
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

ME = user_name(os.getuid())
TRAIN = ("--", "python", "train.py")
ENDLESS = ("--iterations", "100000", "--checkpoint", "ck", *TRAIN)


def running(site: Client, job: str) -> None:
    eventually(lambda: site.job(job)["state"] == "running")


def ended(site: Client, job: str) -> None:
    eventually(lambda: site.job(job)["ended"])


def test_logs_print_lines_of_all_ranks_or_of_one(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    horae("submit", "-g", "1", "--iterations", "5", *TRAIN)
    ended(site, "1")
    said = b"0: a\n1: b\n0: 10%\r20%\r\n1: 30%\r40%\n[horae-exec] c\n1: \x1b[31md"  # a bar has one rank before it
    monkeypatch.setattr(Client, "log_parts", lambda *_, offset=0: iter([(said[offset:], len(said))]))
    assert horae("logs", "1").lines == ["0: a", "1: b", "0: 20%", "1: 40%", "[horae-exec] c", "1: \\x1b[31md"]
    assert horae("logs", "1", "--rank", "1").lines == ["b", "40%", "\\x1b[31md"]
    none = horae("logs", "1", "--rank", "99")
    assert (none.code, none.lines) == (1, []) and "job 1 has no rank 99" in none.err
    assert horae("logs", "1", "--rank", "0").lines == ["a", "20%", "[horae-exec] c"]
    assert horae("logs", "1", "-n", "9" * 30).code == 2
    assert horae("logs", "1", "-n", "2").lines == ["[horae-exec] c", "1: \\x1b[31md"]
    assert horae("logs", "1", "-n", "1", "--json").lines == ['{"line": "1: \\u001b[31md"}']


def test_what_nothing_ends_is_shown_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept until a line's end, a gigabyte would be copied at each part of it; and a bar would show when it is over."""
    reader = output.Printed()
    assert [*reader.feed(b"1%\r2%\r3"), *reader.feed(b"%\r4%\n")] == ["4%"]
    monkeypatch.setattr(output, "_BAR_S", 0.0)
    assert [*reader.feed(b"5%\r6"), *reader.feed(b"%\r7%"), *reader.end()] == ["5%", "6%", "7%"]
    monkeypatch.setattr(output, "_LONGEST_LINE", 10)
    assert [*reader.feed(b"12345678"), *reader.feed(b"9012"), *reader.feed(b"3\n")] == ["123456789012", "3"]


def test_logs_follow_until_the_job_has_ended(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_LOOK_S", 0.01)
    horae("submit", "-g", "1", "--iterations", "20", "-c", "ck", *TRAIN)
    assert horae("logs", "9").code == 4
    said = horae("logs", "1", "-f")
    assert said.code == 0 and site.job("1")["ended"]
    assert "step=20/20" in said.lines[-1]


def test_who_waits_no_longer_is_told_that_the_job_goes_on(
    site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wait.time, "sleep", left)
    said = horae("submit", "--wait", "-g", "1", *ENDLESS)
    assert said.code == 130
    assert "nothing is ended: `horae wait 1` waits again" in said.err
    assert "`horae cancel 1` ends" in said.err


def test_waiting_ends_as_the_job_did(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "_LOOK_S", 0.02)
    said = horae("submit", "--wait", "-g", "1", "--iterations", "5", *TRAIN)
    assert (said.code, said.lines) == (0, ["Submitted job 1", "Job 1 completed"])
    horae("submit", "-g", "1", *ENDLESS)
    other = threading.Thread(target=lambda: (running(site, "2"), site.cancel("2", "enough")))
    other.start()
    said = horae("wait", "1", "2", "--json")
    other.join()
    assert said.code == 137
    assert said.json["jobs"]["2"] == {"state": "cancelled", "exit_code": 137, "why": "enough"}
    assert horae("wait", "9").code == 4


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"state": "completed", "exit_code": 0}, 0),
        ({"state": "failed", "exit_code": 137}, 137),
        ({"state": "failed", "exit_code": None}, 1),
        ({"state": "cancelled", "exit_code": 0}, 1),
    ],
)
def test_what_a_command_for_a_job_ends_with(job: dict[str, object], code: int) -> None:
    assert wait.code_of(job) == code


def test_status_formats_as_squeue_does(site: Client, horae: Horae) -> None:
    horae("submit", "-g", "2", "-t", "vision", "--name", "a-long-name", *ENDLESS)
    running(site, "1")
    said = horae("status", "-o", "%i|%.6j|%8t|%T|%b|%G", "-u", ME)
    assert said.lines == ["JOBID|  NAME|ST      |STATE|GPUS|RANGE", "1|a-long|R       |RUNNING|2|2"]
    assert horae("status", "--noheader", "-o", "%a", "-s", "RUNNING").lines == ["vision"]
    assert horae("status", "-u", f"daemon,{os.getuid()}", "-o", "%i", "--noheader").lines == ["1"]
    assert horae("status", "-u", "daemon", "-o", "%i", "--noheader").lines == []
    page = " ".join(horae("status", "--help").out.split())
    assert all(f"%{letter} " in page for letter in formats.LETTERS)
    for wrong in ("%q", "none"):
        said = horae("status", "-o", wrong)
        assert said.code == 3 and "--format" in said.err


def test_a_name_that_nobody_has_is_told(site: Client, horae: Horae) -> None:
    """An empty table would say that all is well."""
    horae("submit", "-g", "2", "-t", "vision", *ENDLESS)
    for users in ("nobody-such", f"{ME},nobody-such", "4294967290", "99999999999999999999"):
        said = horae("status", "-u", users)
        assert (said.code, said.lines) == (1, []) and f"there is no user '{users.split(',')[-1]}'" in said.err
    for verb in ("status", "history"):
        said = horae(verb, "-t", "visio")
        assert (said.code, said.lines) == (1, [])
        assert "there is no tenant 'visio'" in said.err and "speech, vision" in said.err
        assert horae(verb, "-t", "speech").code == 0
        assert horae(verb, "-t", "nobody").code == 0  # a user's own, who has no job yet


def test_priority_takes_no_option_for_a_job(site: Client, horae: Horae) -> None:
    said = horae("priority", "1", "--set", "5")
    assert said.code == 2 and "there is no option --set" in said.err


def test_what_is_refused_of_a_typed_job_names_the_option(site: Client, horae: Horae, tmp_path: Path) -> None:
    wrong = {"--memory": "16Q", "--cpus": "-1", "--time-limit": "0", "--name": "", "--retries": "-1",
             "--priority": "1000", "--key": "a\x1bb", "--iterations": "nan"}  # fmt: skip
    for option, value in wrong.items():
        for dry in ((), ("--dry-run",)):
            said = horae("submit", *dry, "-g", "1", f"{option}={value}", *TRAIN)
            assert said.code == 3 and f"{option}: " in said.err and "jobs[" not in said.err, said
            assert said.err.count(repr(value)) <= 1, said
    said = horae("submit", "-g", "a", *TRAIN)
    assert "got 'a'" in said.err
    with pytest.raises(BadInput, match="no such folder"):
        submit._try_folders([{"cwd": str(tmp_path / "none")}], must=True)
    submit._try_folders([{"cwd": str(tmp_path)}], must=True)
    submit._try_folders([{"cwd": str(tmp_path / "none")}], must=False)  # a node may have what this host has not


def test_status_tells_when_a_job_might_start(site: Client, horae: Horae) -> None:
    gpus = sum(node["gpus"] for node in site.status()["nodes"])
    horae("submit", "-g", str(gpus), "--time-limit", "2h", *TRAIN)
    running(site, "1")
    horae("submit", "-g", "1", "--time-limit", "1h", "--name", "second", *TRAIN)
    horae("submit", "-g", str(gpus), "--name", "third", *TRAIN)
    rows = {j["name"]: j["start_s"] - site.status()["now_s"] for j in horae("status", "--start", "--json").json["jobs"]}
    assert list(rows) == ["second", "third"]
    assert 7000 < rows["second"] <= 7200
    assert 10600 < rows["third"] <= 10800, "behind the second, whose limit is known too"
    said = horae("status", "--start")
    assert said.lines[0].split()[-2:] == ["START_TIME", "NODELIST(REASON)"]
    site.cancel("1")
    horae("submit", "-g", str(gpus + 1), "--name", "never", *TRAIN)
    eventually(lambda: "never" in horae("status", "--start").out)
    assert "N/A" in horae("status", "--start", "-o", "%j %S").out


def test_a_dry_run_tells_where_it_would_go_and_who_would_lose(site: Client, horae: Horae) -> None:
    gpus = sum(node["gpus"] for node in site.status()["nodes"])
    said = horae("submit", "--dry-run", "-g", "2", "--name", "new", *TRAIN)
    assert said.code == 0
    assert "new: would run at once with 2 GPUs on" in said.out
    assert "nobody else would hold other GPUs" in said.out and "nothing was handed in" in said.out
    assert site.status(ended=True)["jobs"] == []
    horae("submit", "-g", f"1:{gpus}", "-c", "ck", "--name", "wide", "--time-limit", "1h", *ENDLESS)
    running(site, "1")
    found = horae("submit", "--dry-run", "-g", str(gpus), "--json", *TRAIN).json
    (job,) = found["jobs"]
    assert job["allocation"] == {} and job["why"]
    assert 3000 < job["start_in_s"] <= 3600 and job["start_after"] == ["1"]
    never = horae("submit", "--dry-run", "-g", str(gpus + 1), *TRAIN)
    assert "never starts here" in never.out


def test_a_dry_run_names_whose_gpus_become_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    wide = {"id": "1", "name": "wide", "tenant": "vision", "gpus": 8, "without": 8, "with": 6}
    new = {"id": "2", "name": "new", "tenant": "t", "allocation": {"n1": 2}, "code": "granted", "why": "", "change": "",
           "start_in_s": None, "start_after": []}  # fmt: skip
    show_trial({"pool": "main", "mode": "observe", "policy": "max-min", "jobs": [new], "others": [wide]})
    said = capsys.readouterr().out
    assert "1 wide vision     8       8    6" in said
    assert "mode observe: Horae itself starts nothing there" in said


def test_a_dry_run_is_refused_like_a_submission(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    assert horae("submit", "--dry-run", "-g", "1", "--sbatch=--time=1", *TRAIN).code == 3
    assert horae("submit", "--dry-run", "-g", "0", *TRAIN).code == 3
    assert "is for one machine" in horae("submit", "--dry-run", "-g", "1", "--export", "NONE", *TRAIN).err
    monkeypatch.setattr("horae.cli.submit.kind_of_cluster", lambda *_: "local")
    for field, value in (("--checkpoint", "/proc/nope/ck"), ("--cwd", "/proc/nope"), ("--export", "NO_SUCH_NAME")):
        said = horae("submit", "--dry-run", "-g", "1", field, value, *TRAIN)
        assert (said.code, said.out) == (3, "") and said.err.startswith(f"horae: {field}: "), said
    assert horae("submit", "--dry-run", "-g", "1", "--export", "NONE", *TRAIN).code == 0


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_a_shell_made_nothing_of_is_refused_by_its_option(
    site: Client, horae: Horae, more: tuple[str, ...]
) -> None:
    """`-c "$CK"` of a variable that is not set made the working folder the checkpoint's."""
    said = horae("submit", *more, "-g", "1", "--checkpoint", "", *TRAIN)
    assert said.code == 3 and said.err.startswith("horae: --checkpoint: names no folder")
    said = horae("submit", *more, "-g", "1", "--", "")
    assert said.code == 3 and said.err.startswith("horae: command: names no program, got \"['']\"\n")
    assert site.status(ended=True)["jobs"] == []


def test_a_checkpoint_folder_is_tried_by_the_command(
    site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = horae("submit", "-g", "1", "-c", "/proc/nope/ck", *TRAIN)
    assert said.code == 0 and "/proc/nope/ck cannot be written here: No such file" in said.err
    monkeypatch.setattr("horae.cli.submit.kind_of_cluster", lambda *_: "local")
    said = horae("submit", "-g", "1", "-c", "/proc/nope/ck", *TRAIN)
    assert said.code == 3 and "--checkpoint: /proc/nope/ck cannot be written: No such" in said.err
    assert len(site.status(ended=True)["jobs"]) == 1


def test_waiting_again_at_the_limit_needs_both(site: Client, horae: Horae) -> None:
    said = horae("submit", "-g", "1", "--requeue-at-limit", "-c", "ck", *TRAIN)
    assert said.code == 3 and "--time-limit and --checkpoint" in said.err
    horae("submit", "-g", "1", "--requeue-at-limit", "--time-limit", "1h", *ENDLESS)
    assert site.job("1")["extra"] == {"requeue_at_limit": "true"}
