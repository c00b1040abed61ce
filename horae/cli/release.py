"""`horae release-all`: the way out, in one step."""

from __future__ import annotations

from typing import Annotated

import typer

from horae import visible
from horae.cli import exits
from horae.cli.options import Json, Socket, connect, example
from horae.tui import screen

SETTINGS = {"epilog": example("horae release-all --yes")}


def release_all(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    why: Annotated[str, typer.Option(help="Kept in the history.")] = "",
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Hand every job back to the cluster's own scheduler.

    Every pool steps back to `observe`: running jobs run on, waiting ones are the cluster's own again, nothing of
    ours stays outstanding. Operators only.
    """
    client = connect(socket)
    if not yes and not typer.confirm("Hand back every job and step back to observe?", err=True):
        raise exits.Failure(exits.NO, "nothing was changed")
    answer = client.release_all(why)
    if as_json:
        screen.emit_json(answer)
    else:
        print(visible.neutral(answer["text"]))
