"""`horae attach`: one job's live screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horae import job_number, visible
from horae.cli import names
from horae.cli.options import JobArgument, Json, Socket, connect, example
from horae.cli.wait import code_of, patiently
from horae.tui import screen

if TYPE_CHECKING:
    from horae.api.client import Client
    from horae.arbiter.requests import answers

SETTINGS = {"epilog": example("horae attach 17", "horae attach 17 --json | jq .progress.loss")}

#: Events of it that are shown from before.
_EARLIER = 200

#: A job, and what happened to it since the last look.
Look = tuple[Mapping[str, Any], list["answers.EventAnswer"]]


def attach(
    job: JobArgument,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")] = 1.0,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Watch one job live: its loss, its progress, what happens to it. Ends with the job, and as it did.

    Its owner and operators may. Ctrl-C ends the watching and no job. Off a terminal it prints a line for each event
    and each step that is seen; with --json these lines are JSON: {"event": ..} or {"progress": ..}. An arbiter that is
    away meanwhile is waited for, ten minutes long.
    """
    client = connect(socket)
    looks = _looks(client, patiently(partial(names.job, client, job)), interval)
    if as_json:
        last = _lines(looks, _json_event, _json_progress)
    elif sys.stdout.isatty():
        last = _live(looks)
    else:
        last = _lines(looks, _event, _progress)
    raise typer.Exit(code_of(last))


def _looks(client: Client, number: str, interval_s: float) -> Iterator[Look]:
    """Until one that shows its end. Raises ApiError for whom it is none of their business."""
    newest = 0
    while True:
        job = patiently(partial(client.job, number))
        _allowed(job)
        # Behind the job's own state: what led to its end is told with it.
        events = patiently(partial(client.history, job=number, after=newest, limit=1000 if newest else _EARLIER))
        newest = max((event["seq"] for event in events), default=newest)
        yield visible.deep(job), visible.deep(events)
        if job["ended"]:
            return
        time.sleep(interval_s)


def _allowed(job: answers.JobAnswer) -> None:
    from horae.api.errors import ApiError, Code

    if "losses" not in job:  # left out for strangers
        raise ApiError(
            403,
            Code.NOT_ALLOWED,
            f"job {job_number(job['id'])} is {job['owner']}'s",
            remedy="ask its owner or an operator",
        )


# --- line by line -------------------------------------------------------------------------------------------


def _lines(looks: Iterable[Look], tell_event: Any, tell_progress: Any) -> Mapping[str, Any]:
    """Each event, and the job whenever it has come further; how it ended."""
    told: tuple[Any, ...] = ()
    job: Mapping[str, Any] = {}
    for job, events in looks:
        for event in events:
            tell_event(event)
        now = tuple(job[key] for key in ("state", "step", "loss", "allocation"))
        if now != told:
            told = now
            tell_progress(job)
    return job


def _json_event(event: answers.EventAnswer) -> None:
    screen.emit_json_line({"event": event})


def _json_progress(job: Mapping[str, Any]) -> None:
    keys = ("state", "allocation", "step", "total", "loss", "rate", "starts", "ran_s", "exit_code", "ended", "why")
    screen.emit_json_line({"progress": {key: job[key] for key in keys}})


def _event(event: answers.EventAnswer) -> None:
    print(f"{time.strftime('%H:%M:%S', time.localtime(event['wall_s']))} {event['text']}", flush=True)


def _progress(job: answers.JobAnswer) -> None:
    from horae.tui.attached import said

    print(f"{time.strftime('%H:%M:%S')} {job['state']}, {said(job)}", flush=True)


# --- on a terminal ------------------------------------------------------------------------------------------


def _live(looks: Iterable[Look]) -> Mapping[str, Any]:
    """Drawn over itself; the last picture stays. How it ended."""
    from rich.console import Console
    from rich.live import Live

    from horae.tui.attached import picture

    # What people wrote is neutral by now; the cursor is moved by rich alone.
    out = sys.stdout.plain if isinstance(sys.stdout, visible.Guarded) else sys.stdout
    console = Console(file=out, highlight=False)
    happened: list[answers.EventAnswer] = []
    job: Mapping[str, Any] = {}
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        for job, events in looks:
            happened = (happened + events)[-_EARLIER:]
            live.update(picture(job, happened, console.width, console.height), refresh=True)
    return job
