"""`horae priority`: which of a tenant's jobs stand first in line."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.many import for_each
from horae.cli.options import Json, Socket, connect, example, job_names
from policy import bounds

MOST = bounds.MOST_PRIORITY
SETTINGS = {
    "context_settings": {"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
    "epilog": example("horae priority 17 10", "horae priority 17 18 -5", "horae priority 17 1 --across"),
}


def priority(
    words: Annotated[
        list[str],
        typer.Argument(
            help=f"Jobs, by number or by name, then the priority, from {-MOST} to {MOST}.",
            metavar="JOB... PRIORITY",
            autocompletion=job_names,
        ),
    ],
    across: Annotated[
        bool, typer.Option("--across", help="Among all jobs, whoever owns them; operators may say so.")
    ] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Move jobs in line: those of a higher priority stand before others of their tenant; 0 is where jobs begin.

    A tenant's jobs keep the places that they have in line together, so nobody else loses by it. A policy whose paper
    says who is first says it still; the line decides among its equals, and who waits first where it says nothing.
    """
    *jobs, last = words
    try:
        wanted = int(last)
    except ValueError:
        raise typer.BadParameter(f"{last!r} is no whole number", param_hint="PRIORITY") from None
    if options := [word for word in jobs if word.startswith("-")]:
        raise typer.BadParameter(f"there is no option {options[0]}; write horae priority 17 10", param_hint="JOB")
    if not jobs:
        raise typer.BadParameter("name a job, then its priority: horae priority 17 10", param_hint="JOB")
    client = connect(socket)
    for_each(client, jobs, lambda job: client.prioritise(job, wanted, across=across), as_json=as_json)
