"""The frame of the command line: help, exit codes, and no traceback whatever happens."""

from __future__ import annotations

import ast
import inspect
import io
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import typer

from horae.cli import COMMANDS, GROUPS, app, exits, main, overview
from horae.port import FixConfiguration, Never, TryLater
from horae.tui import screen
from policy.model import BadInput

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """`horae WORDS` as a person starts it."""
    command = [sys.executable, "-c", "import sys; from horae.cli import main; sys.exit(main())", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_overview_lists_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    for name, (_, line) in COMMANDS.items():
        assert len(re.findall(rf"^  {re.escape(name)} +{re.escape(line)}$", page, re.MULTILINE)) == 1
    assert max(map(len, page.splitlines())) <= 116
    assert {name for _, names in GROUPS for name in names} <= set(COMMANDS)
    assert "\x1b" in overview(colour=True)


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from horae.cli import main; main(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("typer", "rich", "pydantic", "numpy", "yaml", "fastapi", "textual"):
        assert f"'{heavy}'" not in done.stderr


def test_what_people_type_all_day_loads_neither_model_nor_port() -> None:
    code = "import sys; from horae.cli import main; main(sys.argv[1:]); print(sorted(sys.modules), file=sys.stderr)"
    words = ["status", "--socket", "/nonexistent/api.sock"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stderr.splitlines()[-1])
    assert "horae.cli.status" in loaded
    assert not {"policy.model", "horae.port", "horae.spec", "rich", "yaml", "horae.cli.submit"} & set(loaded)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    page = capsys.readouterr().out
    assert "Example" in page
    assert f"horae {name}" in re.sub(r"\s+", " ", page)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_is_shown_as_it_is_written(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No bracket is taken for a colour, and no line ends but where the terminal's do."""
    monkeypatch.setenv("COLUMNS", "80")
    command = typer.main.get_command(app.application({name}, among={name})).commands[name]
    assert main([name, "--help"]) == 0
    page = capsys.readouterr().out
    shown = re.sub(r"[\s│]", "", page)
    for text in filter(None, (command.help, *(getattr(each, "help", None) for each in command.params))):
        assert re.sub(r"\s", "", text) in shown or "[" not in text
    lines = [line.strip() for line in page.split("╭")[0].splitlines()]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        wrapped = textwrap.wrap(paragraph.replace("\n", " "), 78, break_on_hyphens=False)
        assert set(wrapped) <= set(lines) or max(map(len, paragraph.split())) > 78


#: Commands with commands of their own.
GROUPED: dict[str, tuple[tuple[str, ...], ...]] = {
    "config": (("show",),),
    "lab": (("up",),),
    "submarine": (("job", "run"),),
    "trace": (("describe",), ("sample",), ("scale",), ("fit",)),
}


def test_every_command_that_people_are_told_to_type_exists() -> None:
    told = set()
    for room in ("horae", "policy", "profiler", "slurm_plugin", "yarn_bridge", "docs"):
        for path in (ROOT / room).rglob("*"):
            if path.suffix in (".py", ".md"):
                told |= set(re.findall(r"`horae ([a-z][a-z-]+)", path.read_text()))
    assert told - set(COMMANDS) == set()


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"completion", "schema"}))
def test_every_command_speaks_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([name], *([name, *child] for child in GROUPED.get(name, ()))):
        assert main([*words, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_a_mistyped_command_is_a_usage_error_with_a_suggestion() -> None:
    done = run("statsu")
    assert done.returncode == exits.USAGE
    assert "status" in done.stderr


def test_completion_offers_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_HORAE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "horae st")
    monkeypatch.setenv("COMP_CWORD", "1")
    app.run([])
    assert capsys.readouterr().out.split() == ["status"]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (exits.Failure(exits.NO_SUCH_JOB, "no job 7", "horae status"), 4, "no job 7"),
        (
            BadInput("not a number", where="a.yaml", line=3, field="gpus", value="x", remedy="write 4"),
            3,
            "a.yaml:3",
        ),
        (BadInput("no such thing; is it vision?", field="tenant", value="visio", remedy=""), 3, "got 'visio'"),
        (TryLater("slurmctld is busy", 5), 6, "try again in 5 s"),
        (FixConfiguration("no right to hold jobs", "make it operator"), 6, "make it operator"),
        (Never("no such partition"), 1, "no such partition"),
        (FileNotFoundError(2, "No such file or directory", "x.yaml"), 3, "x.yaml: No such file"),
        (PermissionError(13, "Permission denied", "x.yaml"), 5, "x.yaml: Permission denied"),
    ],
)
def test_foreseen_failures_have_codes_and_words(
    error: Exception, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exits.explain(error, ["status"]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_bug_leaves_a_report_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(app, "_invoke", lambda _: 1 // 0)
    assert app.run(["status", "--json"]) == exits.BUG
    said = capsys.readouterr().err
    assert "Traceback" not in said
    [report] = tmp_path.glob("horae-bug-*.txt")
    assert str(report) in said
    text = report.read_text()
    assert "horae status --json" in text
    assert "ZeroDivisionError" in text
    assert report.stat().st_mode & 0o777 == 0o600


def test_a_report_that_is_sent_on_holds_no_word_of_a_users_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(app, "_invoke", lambda _: 1 // 0)
    words = "submit -g4 --name=SECRET --cwd /home/SECRET --env KEY=SECRET -- python train.py --key=SECRET SECRET"
    assert app.run(words.split()) == exits.BUG
    [report] = tmp_path.glob("horae-bug-*.txt")
    text = report.read_text()
    assert "SECRET" not in text
    assert "command: horae submit -g --name --cwd ... --env ... ...\n" in text


def test_a_bug_on_a_full_disk_is_still_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(app, "_invoke", lambda _: 1 // 0)
    assert app.run(["top"]) == exits.BUG
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_who_reads_no_more_is_no_failure_and_a_full_disk_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["policies"], ["policies", "--help"], ["config", "init"], ["--help"], ["--version"], []):
        reader, writer = os.pipe()
        os.close(reader)
        with monkeypatch.context() as patch, open(writer, "w") as left, open("/dev/full", "w") as full:
            patch.setattr(sys, "stdout", left)
            assert main(words) == exits.DONE
            patch.setattr(sys, "stdout", full)
            assert main(words) == exits.BAD_FILE
        assert "the output cannot be written: No space left on device" in capsys.readouterr().err


def test_any_locale_and_no_output_at_all_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["profile", "--explain", "épôque 1 | loss 2.31"]) == exits.DONE
    assert raw.getvalue().isascii()
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["policies"]) == exits.DONE


def test_tables_are_plain_and_whole_away_from_a_terminal() -> None:
    out = io.StringIO()
    columns = [screen.Column("JOBID", right=True), screen.Column("NODELIST(REASON)")]
    screen.table(columns, [["7", screen.state("running")], ["12", "x" * 300]], file=out)
    assert out.getvalue().splitlines() == ["JOBID NODELIST(REASON)", "    7 running", "   12 " + "x" * 300]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    screen.table([screen.Column("JOBID"), screen.Column("REASON")], [["7", "x" * 300]], file=out)
    assert "\x1b[" in out.getvalue()
    assert all(len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= 40 for line in out.getvalue().splitlines())


def test_columns_that_do_not_fit_a_terminal_are_whole_but_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    stamp, number, name = "2026-11-23T02:59:31", "123456_4294967294", "ab" * 9
    titles = [screen.Column(title) for title in ("TIME", "JOBID", "NAME", "WHAT")]
    screen.table(titles, [[stamp, number, name, "words " * 50], [stamp, "7", "n" * 300, ""]], file=out)
    first, second = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in out.getvalue().splitlines()[1:]]
    assert first.split()[:3] == [stamp, number, name]
    assert first.endswith("words words words w…")
    assert second.split()[2] == "n" * 39 + "…"


def test_a_width_of_nothing_is_one_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As emulators, and `docker exec`, tell of a terminal whose size they were not told."""
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setenv("LINES", "0")
    monkeypatch.setenv("TERM", "xterm")
    for words in (["policies"], ["policies", "--help"], ["config", "check", "--help"]):
        monkeypatch.setattr(sys, "stdout", out := Terminal())
        assert main(words) == exits.DONE
        assert len(out.getvalue().split()) > 20, words


@pytest.mark.parametrize(("typed", "here"), sorted(app.ELSEWHERE.items()))
def test_words_of_other_schedulers_are_told_what_they_are_here(
    typed: str, here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed not in COMMANDS
    assert here.split(maxsplit=1)[0] in {*COMMANDS, "--help", "--version"}
    assert app.run([typed, "17"]) == 2
    assert f"`horae {here}` does that" in capsys.readouterr().err
