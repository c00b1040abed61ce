"""`horae wait`: until jobs have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from horae import job_number, visible
from horae.cli import exits, names
from horae.cli.options import JobArguments, Json, Socket, connect, example
from horae.tui import screen

if TYPE_CHECKING:
    from horae.api.client import Client
    from horae.arbiter.requests import answers

T = TypeVar("T")
SETTINGS = {"epilog": example("horae wait 17 18", "horae submit --wait -g 1 -- python train.py && ./evaluate")}

_LOOK_S = 1.0
#: An arbiter that is away so long is waited for.
_PATIENCE_S = 600.0


def wait(
    jobs: JobArguments,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Wait until jobs have ended, and end as they did.

    The exit code is the highest of the jobs' own: 0 when all completed, 128 + n for one that signal n ended, 1 for
    one that was cancelled before it ran. An arbiter that is away meanwhile is waited for, ten minutes long. Ctrl-C
    ends the waiting and no job.
    """
    raise typer.Exit(waited(connect(socket), jobs, as_json=as_json, quiet=as_json))


def waited(client: Client, jobs: Sequence[str], *, as_json: bool = False, quiet: bool = False) -> int:
    """Until all have ended: the highest of their exit codes. Says how each ended, unless `quiet`."""
    ended: dict[str, dict[str, Any]] = {}
    meant = {word: patiently(partial(names.job, client, word)) for word in jobs}
    for word, number in meant.items():
        try:
            job = until_ended(partial(client.job, number))
        except KeyboardInterrupt:
            left = " ".join(job_number(number) for word, number in meant.items() if word not in ended)
            screen.note(f"horae: no longer waiting, nothing is ended: `horae wait {left}` waits again")
            screen.note(f"       `horae cancel {left}` ends what has not ended")
            raise
        ended[word] = {"state": job["state"], "exit_code": code_of(job), "why": job.get("why", "")}
        if not quiet:
            state, why = job["state"], visible.neutral(job.get("why") or job["state"])
            print(f"Job {job_number(number)} {why if why.startswith(state) else f'{state}: {why}'}", flush=True)
    if as_json:
        screen.emit_json({"jobs": ended})
    return max((job["exit_code"] for job in ended.values()), default=exits.DONE)


def code_of(job: Mapping[str, Any]) -> int:
    """What a command that stands for this job, which has ended, ends with."""
    if job["state"] == "completed":
        return exits.DONE
    return int(job.get("exit_code") or exits.NO)


def until_ended(look: Callable[[], answers.JobAnswer]) -> answers.JobAnswer:
    """The job as it ended. Raises Unreachable, ApiError."""
    while not (job := patiently(look))["ended"]:
        time.sleep(_LOOK_S)
    return job


def patiently(ask: Callable[[], T]) -> T:
    """The answer. An arbiter that is away is told of once, and waited for. Raises Unreachable, ApiError."""
    from horae.api.client import Unreachable

    away_since: float | None = None
    while True:
        try:
            return ask()
        except Unreachable as error:
            if away_since is None:
                away_since = time.monotonic()
                screen.note(f"waiting for the arbiter: {error.text}")
            if time.monotonic() - away_since > _PATIENCE_S:
                raise
        time.sleep(_LOOK_S)
