"""What the pages tell people to type: each `horae ...` on them is a command that there is, with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException

from horae.cli import app

TREE = Path(__file__).parents[2]
PAGES = sorted([TREE / "README.md", TREE / "CONTRIBUTING.md", TREE / "SECURITY.md", *(TREE / "docs").rglob("*.md")])
LISTING = re.compile(r"^ *```(\w*).*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
#: Begins a command, in a listing and in a sentence.
LINE = re.compile(r"^ *(?:\$ |sudo )?(?:\.venv/bin/)?horae +([a-z-].*)$", re.MULTILINE)
SAID = re.compile(r"`(?:\.venv/bin/)?horae +([^`]+)`")
#: What is said of one beside it.
ASIDE = re.compile(r"\s{2,}\S.*")
#: Ends one: another program's part.
ENDS = frozenset("| ; > < & && ||".split())


def typed(text: str) -> Iterator[list[str]]:
    """The words behind `horae`; no forms of use (`[--seconds N]`), and what is left out (`...`) is left out."""
    text = text.replace("\\\n", " ")
    listings = "".join(body for language, body in LISTING.findall(text) if language in ("", "console", "sh", "bash"))
    for words in LINE.findall(listings) + SAID.findall(LISTING.sub("", text)):
        if "[" not in words:
            parts = shlex.shlex(ASIDE.sub("", words.replace("\n", " ")), posix=True, punctuation_chars="|;<>&")
            parts.whitespace_split = True
            yield [word for word in takewhile(lambda word: word not in ENDS, parts) if word != "..."]


def wrong(command: Any, words: list[str]) -> str:
    """What the command line has against them; "": nothing but that a page leaves out one that is required, or the value
    of an option that it names."""
    while (below := getattr(command, "commands", {})) and words and not words[0].startswith("-"):
        if words[0] not in below:
            return f"there is no {words[0]}"
        command, words = below[words[0]], words[1:]
    try:
        command.make_context(command.name, list(words))
    except (typer.Exit, TyperException) as said:  # `--version`, and its like, are done at once
        told = getattr(said, "format_message", str)()
        return "" if told.startswith("Missing ") or told.endswith("requires an argument.") else told
    return ""


@pytest.fixture(scope="module")
def horae() -> Any:
    return typer.main.get_command(app.application())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TREE)))
def test_every_command_on_a_page_is_one(page: Path, horae: Any) -> None:
    found = {" ".join(words): why for words in typed(page.read_text()) if (why := wrong(horae, words))}
    assert found == {}


def test_most_commands_are_told_somewhere_and_a_wrong_one_is_found(horae: Any) -> None:
    told = {words[0] for page in PAGES for words in typed(page.read_text()) if words}
    assert told >= set(horae.commands) - {"completion"}
    page = "Say `horae stauts`, or\n\n```\nhorae status --no-such   # why\nhorae config check a.yaml   fine\n```\n"
    assert [bool(wrong(horae, words)) for words in typed(page)] == [True, False, True]
