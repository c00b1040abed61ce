"""Hostile words from every source on every page: none reaches a screen, and JSON escapes them."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from horae import visible
from horae.api.client import Client
from horae.cli import main
from horae.job_form import read_jobs
from horae.tui import screen
from policy.model import BadInput
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

EVIL = "\x1b]0;PWNED\x07\x1b[2J\x9b31m\u202e\u2066\u200b\ufeff\x00\x7f\nfake row"
#: What a program switches on, and what a client sends back; no stranger chooses it.
CLOSED = {"id", "state", "health", "kind", "mode", "code", "what", "job", "allocation", "target", "attained", "version"}
STYLE = re.compile(r"\x1b\[[0-9;]*m")
#: How a page that is drawn in place of the one before goes up to its first line.
DRAWN = re.compile(r"\x1b\[(?:\?25[lh]|1A|2K)|\r")
PAGES = [
    ("status",), ("status", "--long"), ("status", "--all"), ("status", "--nodes"), ("status", "--tenants"),
    ("explain", "1"), ("history",), ("history", "1"), ("apps",), ("top", "--once"), ("hold", "1"), ("unhold", "1"),
    ("cancel", "1"), ("status", "-o", "%i %j %a %u %P %T %R %r"), ("status", "--start"), ("logs", "1"),
    ("wait", "1", "--json"), ("report", "1"), ("attach", "1"),
    ("priority", "1", "2"), ("submit", "--dry-run", "--gpus", "1", "--", "true"),
]  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def poisoned(value: Any, key: str = "") -> Any:
    if key in CLOSED:
        return value
    if isinstance(value, dict):
        return {k: poisoned(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, key) for v in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


def reaches(text: str) -> set[str]:
    """The characters in `text` that a screen would obey or hide."""
    rest = STYLE.sub("", text).replace("\n", "")
    return {c for c in rest if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")}


@pytest.fixture
def evil_site(site: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The arbiter's answers with hostile words behind every text."""
    job = {"name": "evil", "command": ["x", EVIL.replace("\x00", "")], "gpus": 1, "iterations": 1e6}
    site.submit([job])
    eventually(lambda: site.job("1")["state"] == "running")

    def wrap(name: str) -> None:
        real: Callable[..., Any] = getattr(Client, name)
        monkeypatch.setattr(Client, name, lambda self, *a, **k: poisoned(real(self, *a, **k)))

    for name in (
        "about",
        "status",
        "job",
        "explain",
        "history",
        "apps",
        "report",
        "hold",
        "unhold",
        "cancel",
        "prioritise",
    ):
        wrap(name)
    return site


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_no_page_hands_on_what_a_screen_obeys(
    evil_site: Client, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    told = {}
    for words in PAGES:
        out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        main(list(words))
        text = out.getvalue() + err.getvalue()
        if words[0] == "attach" and terminal:
            text = DRAWN.sub("", text)
        told[words] = text
        assert not reaches(text), f"{words}: {reaches(text)!r}"
        assert not [line for line in STYLE.sub("", text).splitlines() if line.startswith("fake row")], words
    assert any(r"\x1b]0;PWNED" in STYLE.sub("", text).replace("\n", "") for text in told.values())


def test_json_escapes_them_and_means_the_same(evil_site: Client, horae: Horae) -> None:
    for words in (("status", "--all"), ("explain", "1"), ("history",), ("apps",)):
        said = horae(*words, "--json")
        assert said.out.isascii()
        assert not reaches(said.out), words
        assert words == ("apps",) or EVIL in json.dumps(said.json, ensure_ascii=False) or "PWNED" in said.out


def test_what_only_an_error_or_a_note_says_is_neutral_too(
    horae: Horae, capsys: pytest.CaptureFixture[str], site: Client
) -> None:
    for words in (("explain", EVIL.replace("\x00", "")), ("submit", "--gpus", "1", "--name", EVIL, "--", "x")):
        said = horae(*words)
        assert said.code
        assert not reaches(said.out + said.err), words
    screen.note(EVIL)
    assert not reaches(capsys.readouterr().err)


@pytest.mark.parametrize("field", ["name", "app", "tenant", "model", "checkpoint", "cwd"])
@pytest.mark.parametrize(
    "bad", ["\x1b[2J", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\n", "\x7f", "\u2028", "\U000e0041"]
)
def test_no_new_name_holds_them(field: str, bad: str) -> None:
    job = {"command": ["x"], "gpus": 1, field: f"a{bad}b"}
    with pytest.raises(BadInput) as refused:
        read_jobs(json.dumps(job), "body.json")
    assert refused.value.field == field
    assert not reaches(str(refused.value))


def test_words_of_every_language_stay_as_they_are() -> None:
    for text in ("résumé", "日本語", "עברית", "café e\u0301", "Ωμέγα", "😀", "n[1-4]:4 → 8"):
        assert visible.neutral(text) == text
        assert visible.hidden(text) is None


def test_what_is_said_on_standard_error_is_guarded_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever writes it: a message of ours, a library's warning, a log line."""

    def run(arguments: list[str]) -> int:
        print(EVIL, file=sys.stderr)
        warnings.warn(EVIL, stacklevel=1)
        return 0

    monkeypatch.setattr("horae.cli.app.run", run)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda text, *_, **__: sys.stderr.write(f"{text}\n"))
        main(["status"])
    said = capsys.readouterr().err
    assert said.count(r"\x1b]0;PWNED\x07\x1b[2J\x9b31m\u202e\u2066") == 2
    assert not reaches(said)


def test_the_guard_lets_styles_pass_and_nothing_else() -> None:
    out = Terminal()
    visible.Guarded(out).write("\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;x\x07\tend\n")
    assert out.getvalue() == "\x1b[1;31mred\x1b[0m \\x1b[2J\\x1b]0;x\\x07\tend\n"
