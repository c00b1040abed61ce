"""`horae cancel`: end jobs for good."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horae.cli import exits, screen
from horae.cli.options import Json, Socket, connect, example, job_names

SETTINGS = {"epilog": example("horae cancel 17 18 --why 'wrong data set'")}


def cancel(
    jobs: Annotated[list[str], typer.Argument(help="Numbers of jobs.", metavar="JOBID...", autocompletion=job_names)],
    why: Annotated[str, typer.Option(help="Kept in the job's history.")] = "",
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """End jobs for good.

    The cluster stops them at once, without a last checkpoint. Several jobs: all are tried; the exit code is 1 if
    some could not be ended.
    """
    from horae.api.errors import ApiError

    client = connect(socket)
    answers: dict[str, Any] = {}
    for job in jobs:
        try:
            answers[job] = client.cancel(job, why)
        except ApiError as error:
            if len(jobs) == 1:
                raise
            answers[job] = {"error": {"code": error.code.value, "message": error.message}}
    if as_json:
        screen.emit_json({"jobs": answers})
    for job, answer in answers.items():
        if "error" in answer:
            exits.say(f"{job}: {answer['error']['message']}")
        elif not as_json:
            print(f"job {job}: {answer['text']}")
    if any("error" in answer for answer in answers.values()):
        raise typer.Exit(exits.NO)
