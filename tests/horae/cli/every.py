"""Every command that there is, found by walking the tree of them: a new one is in it by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from horae.cli import app

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


def named(path: Path_) -> str:
    return " ".join(path)


def of(words: Path_) -> Path_:
    """The command that they call."""
    return next(path for path in COMMANDS if words[: len(path)] == path)
