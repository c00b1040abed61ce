"""`horae demo`: a small cluster, three tenants, real training jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from horae.cli import exits
from horae.cli.options import drawn, example
from horae.tui import screen

SETTINGS = {"epilog": example("horae demo", "horae demo --policy afs-l --seconds 60 --headless --json")}


def demo(
    policy: Annotated[str, typer.Option("--policy", "-p", help="Who decides: see `horae policies`.")] = "max-min",
    seconds: Annotated[
        float, typer.Option("--seconds", "-s", min=5, max=86400, help="It ends by then; arrivals and work scale.")
    ] = 90.0,
    headless: Annotated[
        bool, typer.Option("--headless", help="No live picture: a line when something happens.")
    ] = False,
    framework: Annotated[str, typer.Option(help="What trains: numpy or torch.")] = "numpy",
    nodes: Annotated[
        str | None,
        typer.Option(help="Another cluster, such as v100:2x4,k80:2x2, or auto for the GPUs of this machine."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw GPUs over time and loss curves into this PNG.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder with journal, logs and checkpoints.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the account as JSON.")] = False,
) -> None:
    """Watch real training jobs share a small cluster on this machine.

    Seven jobs of three tenants learn handwritten digits on twelve emulated GPUs of two types (the real ones, where
    nvidia-smi shows some). They start, grow, shrink by checkpoint and restart, and finish. At the end: who got what,
    what resizes cost, and whether anything was lost (then the exit code is 1). Ctrl-C ends it early.
    """
    from horae.demo.run import run
    from horae.sim.traces.writing import writable

    writable(plot, "--plot", ())
    live = not headless and not as_json and sys.stdout.isatty()
    outcome = run(
        policy=policy, seconds=seconds, live=live, framework=framework, nodes=nodes, keep=keep, tell=screen.note
    )
    if plot is not None:
        from horae.demo.plot import draw

        with drawn(plot) as beside:
            draw(outcome.summary, outcome.record, beside)
    if as_json:
        screen.emit_json(outcome.summary)
    else:
        from rich.console import Console

        from horae.demo.page import show

        show(outcome.summary, Console(file=sys.stdout, highlight=False))
    if not outcome.summary["ok"]:
        raise typer.Exit(exits.NO)
    if outcome.summary["interrupted"]:
        raise typer.Exit(exits.INTERRUPTED)
