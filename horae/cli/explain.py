"""`horae explain`: why."""

from __future__ import annotations

import sys
from collections import deque
from typing import Annotated

import typer

from horae import visible
from horae.cli import names
from horae.cli.options import JobArgument, Json, Socket, connect, example
from horae.cli.output import TAB, Printed
from horae.tui import screen
from horae.tui.explained import page

SETTINGS = {"epilog": example("horae explain 17")}


def explain(
    job: JobArgument,
    log: Annotated[bool, typer.Option("--log", help="Show the end of its output too.")] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Say why a job holds what it holds, and what would change it.

    The strongest cause first: what was asked, what the cluster blocks, what a guard holds back, what the policy
    decided and by which numbers. Nothing is guessed: all of it is on record.
    """
    from rich.console import Console

    client = connect(socket)
    answer = names.meant(client, job, client.explain)
    if as_json:
        screen.emit_json(answer)
        return
    console = Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())
    console.print(page(answer))
    if log:
        console.print("\noutput", style="bold")
        reader, newest = Printed(), deque[str](maxlen=20)
        for data in client.log(answer["id"]):
            newest.extend(reader.feed(data))
        newest.extend(reader.end())
        for line in newest:
            console.print(f"  {visible.neutral(line, keep=TAB)}", markup=False)
