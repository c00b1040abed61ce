"""Every command that there is, found by walking the tree of them: help with an example, JSON on success and failure."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from horae.api.client import Client
from horae.cli import app, exits, main, wait
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
Path_ = tuple[str, ...]


def leaves(command: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    below = getattr(command, "commands", {})
    for name, each in below.items():
        yield from leaves(each, (*path, name))
    if not below:
        yield path, command


COMMANDS: dict[Path_, Any] = dict(leaves(typer.main.get_command(app.application())))
#: What has no --json of its own, and why.
WITHOUT = {
    ("completion",): "a script for a shell",
    ("schema",): "JSON Schema as it is",
    ("submarine",): "Submarine's own words; `job run --json` and its like are tried in test_submarine.py",
    ("lab", "demo"): "a show; what it says is for people, its exit code says whether all held",
}
#: Words of the required arguments, where "1" is none; and an option without which nothing is done.
WORDS = {
    ("priority",): ["1", "5"],
    ("config", "mode"): ["main", "observe"],
    ("submit",): ["-g", "1", "--", "true"],
    ("release-all",): ["--yes"],
}
SPOKEN = [
    path
    for path, command in COMMANDS.items()
    if path not in (*WITHOUT, ("doctor",)) and any("--socket" in parameter.opts for parameter in command.params)
]
#: Words that only this house uses, or uses in a sense of its own: who meets one in a command's help finds it explained.
HOUSE = (
    "arbiter", "tenant", "app", "gang", "guard", "rho", "lease", "certificate", "snapshot", "pool", "perturb", "grace",
    "instance file", "model key", "envy", "allocation", "bid", "elastic", "rigid", "round", "supervisor",
)  # fmt: skip


def named(path: Path_) -> str:
    return " ".join(path)


def test_what_has_no_json_says_why() -> None:
    lacking = {path for path, command in COMMANDS.items() if not any("--json" in p.opts for p in command.params)}
    assert lacking == set(WITHOUT)


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_its_help_ends_with_an_example_of_it(path: Path_, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    _, example, told = re.sub(r"\s+", " ", capsys.readouterr().out).partition("Example: ")
    assert example
    assert f"horae {named(path)}" in told


def test_a_word_of_the_house_in_any_help_stands_in_the_glossary() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    explained = {word.strip() for row in rows for word in row.split(",")}
    used = {
        word
        for command in COMMANDS.values()
        for text in (command.help, *(getattr(p, "help", "") for p in command.params))
        for word in HOUSE
        if re.search(rf"\b{word}s?\b", text or "")
    }
    assert len(used) > len(HOUSE) // 2
    assert used - explained == set()


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in WITHOUT], ids=named)
def test_wrong_words_are_told_as_one_json_document(path: Path_, horae: Horae) -> None:
    said = horae(*path, "--json", "--no-such-option")
    assert said.code == exits.USAGE
    assert said.json["error"]["code"] == "usage"
    assert said.json["error"]["exit_code"] == exits.USAGE
    assert "--no-such-option" in said.json["error"]["message"]
    assert "--no-such-option" in said.err


@pytest.mark.parametrize("path", SPOKEN, ids=named)
def test_an_arbiter_that_is_not_there_is_told_as_one_json_document(
    path: Path_, tmp_path: Path, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(wait, "_LOOK_S", 0.0)
    required = ["1" for parameter in COMMANDS[path].params if parameter.required]
    said = horae(*path, "--json", "--socket", str(tmp_path / "none.sock"), *WORDS.get(path, required))
    assert said.code == exits.UNREACHABLE
    assert said.json["error"]["code"] == "unreachable"
    assert said.json["error"]["message"] in said.err.replace("\n       ", "")


def test_no_such_job_is_told_as_one_json_document(site: Client, horae: Horae) -> None:
    for words in (("explain", "9"), ("report", "9"), ("attach", "9"), ("logs", "9"), ("wait", "9"), ("cancel", "9"),
                  ("hold", "9"), ("unhold", "9"), ("priority", "9", "1"), ("history", "9")):  # fmt: skip
        said = horae(words[0], "--json", *words[1:])
        assert (said.code, said.json["error"]["code"]) == (exits.NO_SUCH_JOB, "no-such-job"), words
    said = horae("status", "--json", "9")
    assert (said.code, said.json["jobs"]) == (exits.NO_SUCH_JOB, [])


def test_what_went_well_is_one_json_document(site: Client, horae: Horae, tmp_path: Path) -> None:
    """All that speaks with an arbiter, and whatever needs nothing else."""
    assert horae("submit", "--json", "-g", "1", "--iterations", "5", "--", "true").json == {"jobs": ["1"]}
    eventually(lambda: site.job("1")["ended"])
    waiting = horae("submit", "--json", "-g", "1", "--iterations", "9e9", "-c", "ck", "--", "true").json["jobs"][0]
    done = {
        named(words): horae(*words, "--json")
        for words in (
            ("status",), ("status", "-N"), ("status", "-T"), ("status", "--start"), ("top",), ("apps",),
            ("explain", "1"), ("report", "1"), ("wait", "1"), ("history",), ("priority", waiting, "3"),
            ("hold", waiting), ("unhold", waiting), ("cancel", waiting), ("snapshot",), ("policies",), ("lab", "list"),
            ("config", "show"), ("config", "init"), ("config", "mode", "main", "observe"), ("doctor",),
            ("release-all", "--yes"),
        )
    }  # fmt: skip
    assert {words: said.code for words, said in done.items() if said.code} == {}
    for words, said in done.items():
        assert isinstance(said.json, dict | list), words
    lines = horae("attach", "1", "--json").lines
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_a_question_that_nobody_answers_is_told_as_one_json_document(
    site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    said = horae("release-all", "--json")
    assert (said.code, said.json["error"]["code"]) == (exits.NO, "no")
    assert "--yes" in said.json["error"]["remedy"]
