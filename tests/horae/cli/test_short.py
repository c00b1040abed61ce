"""The short way to a command: the same as typer's, or none."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from horae.cli import main, short
from horae.cli.status import status
from horae.cli.submit import submit

WORDS = (
    *("-a", "--all", "-N", "-T", "-t", "--tenant", "vision", "-s", "R", "-u", "ann", "-l", "-o", "%i %T", "7", "8"),
    *("--json", "--socket", "/run/a.sock", "--noheader", "--start", "-al", "--tenant=vision", "--bogus", "--", "-", ""),
)


def by_typer(words: list[str]) -> dict[str, Any] | None:
    """What typer calls the command with; None: it refuses."""
    seen: list[dict[str, Any]] = []
    app = typer.Typer()

    def called(**found: Any) -> None:
        seen.append(found)

    called.__signature__ = inspect.signature(status, eval_str=True)  # type: ignore[attr-defined]
    called.__annotations__ = {name: p.annotation for name, p in called.__signature__.parameters.items()}  # type: ignore[attr-defined]
    app.command()(called)
    CliRunner().invoke(app, words)
    return seen[0] if seen else None


@pytest.mark.parametrize("socket", ["", "/run/horae/b.sock"])
def test_what_it_answers_is_what_typer_answers(monkeypatch: pytest.MonkeyPatch, socket: str) -> None:
    monkeypatch.setenv("HORAE_SOCKET", socket)
    dice, plain = random.Random(7), 0
    for _ in range(200):
        words = [dice.choice(WORDS) for _ in range(dice.randint(0, 5))]
        found = short.values(status, words)
        if found is not None:
            plain += 1
            expected = by_typer(words)
            assert expected is not None, words
            assert {k: v or None for k, v in found.items()} == {k: v or None for k, v in expected.items()}, words
    assert plain > 50


def test_what_is_not_plain_is_typers() -> None:
    for words in (["--help"], ["-t"], ["-t", "-l"], ["--tenant=vision"], ["-al"], ["--bogus"], ["--", "7"]):
        assert short.values(status, words) is None, words
    assert short.values(submit, []) is None, "it has options of other kinds"


def test_a_process_that_has_not_met_typer_yet_reads_every_option() -> None:
    """Typer notes names in what it has read: one that read the command before would hide that some are not known."""
    words = ["status", "--all", "--state", "R", "--noheader", "--json", "--socket", "/nonexistent/api.sock"]
    program = f"import sys; from horae.cli import main; print(main({words!r}), 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "6 False"


def test_the_version_is_told_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    at_once = capsys.readouterr().out
    assert main(["--version", "status"]) == 0
    assert capsys.readouterr().out == at_once
