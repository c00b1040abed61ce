"""`horae top`: the live picture."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from horae import visible
from horae.cli.options import Json, Socket, connect, example
from horae.tui import screen

if TYPE_CHECKING:
    from horae.api.client import Client
    from horae.tui.view import View

SETTINGS = {"epilog": example("horae top", "horae top --once > picture.txt")}

#: Events asked for at each refresh: enough for the largest screen.
EVENTS = 200


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one picture and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between refreshes.")] = 1.0,
    all_: Annotated[bool, typer.Option("--all/--live", help="With jobs that ended, or only live ones.")] = True,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Watch jobs, nodes, shares and decisions live.

    Each cell of the node map is a GPU with the job that holds it, in its tenant's colour; each tenant's bar ends at
    what it holds and is marked where its fair share ends; the curves are training losses. Keys: ? explains it all.
    """
    client = connect(socket)
    if as_json:
        screen.emit_json(client.status(ended=all_, losses=True))
        return
    if once or not sys.stdout.isatty():
        show(fetch(client, ended=all_))
        return
    from horae.tui.app import LiveApp
    from horae.tui.explained import page

    LiveApp(lambda: fetch(client, ended=all_), lambda job: page(client.explain(job)), interval_s=interval).run()


def fetch(client: Client, *, ended: bool) -> View:
    """One picture's values."""
    from horae.tui.feed import view

    told = [client.status(ended=ended, losses=True), client.history(limit=EVENTS), client.apps()]
    status, events, apps = visible.deep(told)
    return view(status, events, apps=apps)


def show(view: View) -> None:
    """The picture as plain lines, as wide as the terminal or 120 columns."""
    from rich.console import Console

    from horae.tui import parts

    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False, width=None if terminal else 120)
    for alert in view.alerts:
        console.print(f"alert: {alert}", style="bold red", markup=False)
    console.print(parts.title(view, console.width))
    console.print(parts.node_map(view, console.width))
    console.print(parts.tenant_lines(view, console.width))
    if view.apps:
        console.print(parts.app_lines(view, console.width))
    header, rows = parts.job_rows(view, parts.shown_jobs(view), console.width)
    for line in (header, *rows):
        joined = line[0].copy()
        for cell in line[1:]:
            joined.append_text(cell)
        joined.rstrip()
        console.print(joined, soft_wrap=True)
    console.print(parts.event_lines(view, console.width, 8))
