"""`horae cancel`: end jobs for good."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.many import for_each
from horae.cli.options import JobArguments, Json, Socket, connect, example

SETTINGS = {"epilog": example("horae cancel 17 18 --why 'wrong data set'")}


def cancel(
    jobs: JobArguments,
    why: Annotated[str, typer.Option(help="Kept in the job's history.")] = "",
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """End jobs for good.

    The cluster stops them at once, without a last checkpoint. Several jobs: all are tried; the exit code is 1 if
    some could not be ended.
    """
    client = connect(socket)
    for_each(client, jobs, lambda job: client.cancel(job, why), as_json=as_json)
