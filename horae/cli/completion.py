"""`horae completion`: the script that teaches a shell to complete `horae`."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from horae.cli.options import example

SETTINGS = {"epilog": example("horae completion bash > ~/.local/share/bash-completion/completions/horae")}


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell to complete in.")]) -> None:
    """Print the completion script of a shell.

    Source it, or put it where the shell looks for such scripts.
    """
    from horae.cli.app import run

    os.environ["_HORAE_COMPLETE"] = f"source_{shell.value}"
    try:
        raise typer.Exit(run([]))
    finally:
        del os.environ["_HORAE_COMPLETE"]
