"""`horae hold` and `horae unhold`: keep jobs from running for a while."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.many import for_each
from horae.cli.options import Json, Socket, connect, example, job_names

SETTINGS = {"epilog": example("horae hold 17 --why 'data set is being mended'", "horae unhold 17")}
Jobs = Annotated[list[str], typer.Argument(help="Numbers of jobs.", metavar="JOBID...", autocompletion=job_names)]


def hold(
    jobs: Jobs,
    why: Annotated[str, typer.Option(help="Kept in the job's history.")] = "",
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Keep jobs from running until `horae unhold`.

    A running job checkpoints and leaves; one that cannot be resumed is refused.
    """
    client = connect(socket)
    for_each(jobs, lambda job: client.hold(job, why), as_json=as_json)


def unhold(jobs: Jobs, socket: Socket = None, as_json: Json = False) -> None:
    """Let held jobs run again."""
    for_each(jobs, connect(socket).unhold, as_json=as_json)
