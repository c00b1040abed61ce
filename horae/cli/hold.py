"""`horae hold` and `horae unhold`: keep jobs from running for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.many import for_each
from horae.cli.options import JobArguments, Json, Socket, connect, example

SETTINGS = {"epilog": example("horae hold 17 --why 'data set is being mended'", "horae unhold 17")}


def hold(
    jobs: JobArguments,
    why: Annotated[str, typer.Option(help="Kept in the job's history.")] = "",
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Keep jobs from running until `horae unhold`.

    A running job checkpoints and leaves; one that cannot be resumed is refused.
    """
    client = connect(socket)
    for_each(client, jobs, lambda job: client.hold(job, why), as_json=as_json)


def unhold(jobs: JobArguments, socket: Socket = None, as_json: Json = False) -> None:
    """Let held jobs run again."""
    client = connect(socket)
    for_each(client, jobs, client.unhold, as_json=as_json)
