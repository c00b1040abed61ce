"""`horae history`: what happened."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from horae import job_number
from horae.cli import names
from horae.cli.options import Json, Socket, connect, example, job_names
from horae.tui import forms, screen
from horae.tui.screen import Column

if TYPE_CHECKING:
    from horae.arbiter.requests import answers

SETTINGS = {"epilog": example("horae history 17", "horae history --since 2h --follow")}

COLUMNS = (Column("TIME"), Column("JOBID", right=True), Column("NAME"), Column("EVENT"), Column("WHAT"))


def history(
    job: Annotated[
        str | None, typer.Argument(help="Of this job only.", metavar="[JOB]", autocompletion=job_names)
    ] = None,
    since: Annotated[str | None, typer.Option(help="Of the last so long: 90s, 5m, 2h, 1d, D-HH:MM:SS.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Of this tenant's jobs only.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=100_000, help="At most so many, the newest.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen; Ctrl-C ends it.")] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """List what happened to a job, a tenant or the cluster.

    Every decision that changed something, every action with its outcome, and what the cluster showed; oldest first.
    """
    client = connect(socket)
    since_s = None if since is None else forms.parse_duration(since, "--since")
    if job is not None:
        job = names.job(client, job)
    events = [e for e in client.history(job=job, since_s=since_s, limit=lines) if _of(e, tenant)]
    if tenant is not None and not events:
        names.check_tenant(tenant, client.status(ended=True, brief=True))
    if as_json and not follow:
        screen.emit_json({"events": events})
        return
    _show(events, as_json, header=True)
    newest = max((e["seq"] for e in events), default=0)
    while follow:
        time.sleep(1.0)
        events = client.history(job=job, after=newest)
        newest = max((e["seq"] for e in events), default=newest)
        _show([e for e in events if _of(e, tenant)], as_json, header=False)


def _of(event: answers.EventAnswer, tenant: str | None) -> bool:
    return tenant is None or event.get("tenant") == tenant


def _show(events: list[answers.EventAnswer], as_json: bool, *, header: bool) -> None:
    if as_json:
        for event in events:
            screen.emit_json_line(event)
    elif events or header:
        screen.table(
            COLUMNS,
            ([_stamp(e), job_number(e["job"] or ""), e["name"], e["kind"], e["text"]] for e in events),
            header=header,
        )


def _stamp(event: answers.EventAnswer) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(event["wall_s"]))
