"""The manual page `horae(1)`, made from the commands themselves, so that it cannot say anything else than they do."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import typer

from horae import __version__
from horae.cli import COMMANDS, GROUPS
from horae.cli.app import application

_EXITS = (
    ("0", "done"), ("1", "the answer is no, or some inputs were bad"), ("2", "usage"), ("3", "bad input file or value"),
    ("4", "no such job"), ("5", "not allowed"), ("6", "arbiter or cluster out of reach: try again"),
    ("70", "a bug; a report was written to a file"), ("130", "interrupted"),
)  # fmt: skip
_FILES = (
    ("/etc/horae/config.yaml", "the arbiter's configuration; $HORAE_CONFIG names another"),
    ("/run/horae/api.sock", "where the arbiter answers; $HORAE_SOCKET names another"),
    ("/var/lib/horae", "the arbiter's journal"),
)


def page() -> str:
    """roff, for `man`."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    root: Any = typer.main.get_command(application(_here()))
    yield f'.TH HORAE 1 "" "horae {__version__}" "User Commands"'
    yield ".SH NAME\nhorae \\- fair, elastic GPU scheduling of deep\\-learning training"
    yield ".SH SYNOPSIS\n.B horae\n.I COMMAND\n[OPTIONS]"
    yield ".SH COMMANDS"
    ordered = [name for _, names in GROUPS for name in names]
    for name in [*ordered, *(name for name in COMMANDS if name not in ordered)]:
        yield from _command(root.commands[name], name)
    yield ".SH EXIT STATUS"
    for code, meaning in _EXITS:
        yield f".TP\n.B {code}\n{_text(meaning)}"
    yield ".SH FILES"
    for path, meaning in _FILES:
        yield f".TP\n.I {_text(path)}\n{_text(meaning)}"


def _here() -> list[str]:
    """Commands whose optional parts are installed; of the others the page has the one line."""
    found = []
    for name, (module, _) in COMMANDS.items():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        found.append(name)
    return found


def _command(command: Any, name: str) -> Iterator[str]:
    words = " ".join(_word(p) for p in command.params if not p.opts[0].startswith("-"))
    yield f".SS horae {_text(name)} {_text(words)}".rstrip()
    yield _text(command.help or "")
    for parameter in command.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False) or not parameter.help:
            continue
        title = ", ".join(parameter.opts) if parameter.opts[0].startswith("-") else _word(parameter)
        yield f".TP\n.B {_text(title)}\n{_text(parameter.help)}"
    for child, below in getattr(command, "commands", {}).items():
        yield from _command(below, f"{name} {child}")


def _word(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _text(words: str) -> str:
    """Plain words as roff: hyphens stay hyphens, and no line begins with a control character."""
    plain = re.sub(r"\[/?(?:bold|dim)\]", "", words).replace("\\", "\\e").replace("-", "\\-")
    lines = (line.strip() for line in plain.strip().splitlines())
    return "\n".join("\\&" + line if line[:1] in {".", "'"} else line or ".PP" for line in lines)
