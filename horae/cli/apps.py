"""`horae apps`: training goals of several jobs, their schedulers, trials and bids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from horae.cli import exits
from horae.cli.options import Json, Socket, connect, example
from horae.tui import forms, screen

if TYPE_CHECKING:
    from horae.arbiter.requests import answers

SETTINGS = {"epilog": example("horae apps", "horae apps tune")}

COLUMNS = (
    screen.Column("APP"),
    screen.Column("TENANT"),
    screen.Column("SCHEDULER"),
    screen.Column("PHASE"),
    screen.Column("R/W/C/E"),
    screen.Column("GPUS", right=True),
    screen.Column("WEIGHT", right=True),
    screen.Column("RHO", right=True),
    screen.Column("BEST"),
)
TRIALS = (
    screen.Column("JOBID", right=True),
    screen.Column("NAME"),
    screen.Column("ST"),
    screen.Column("GPUS", right=True),
    screen.Column("STEP", right=True),
    screen.Column("RANK", right=True),
    screen.Column("LOSS", right=True),
    screen.Column("SETTING"),
    screen.Column("WHY"),
)


def apps(
    name: Annotated[str | None, typer.Argument(help="Only this one, with its trials: APP or TENANT/APP.")] = None,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """List apps of several jobs: sweeps with their phase, trials by rank, and what their bids came to.

    R/W/C/E: trials that run, wait, completed, and were ended early. WEIGHT: its tenant's weight over the tenant's
    active apps, where the policy counts it.
    """
    found = connect(socket).apps()
    if name is not None:
        found = [a for a in found if name in (a["name"], a["app"])]
        if not found:
            raise exits.Failure(exits.NO_SUCH_JOB, f"there is no app {name}", "`horae apps` lists them")
    if as_json:
        screen.emit_json({"apps": found})
    elif name is None:
        screen.table(COLUMNS, [_row(a) for a in found])
    else:
        for app in found:
            _show(app)


def _row(app: answers.App) -> tuple[str, ...]:
    phase, best = app["phase"], next((t for t in app["trials"] if t["id"] == app["best"]), None)
    return (
        app["app"],
        app["tenant"],
        app["scheduler"] or "-",
        "-" if phase is None else f"{phase['number']}/{phase['of']} to {forms.number(phase['end'], 4)}",
        f"{app['running']}/{app['waiting']}/{app['completed']}/{app['ended_early']}",
        str(app["held"]),
        forms.number(app["weight"], 3),
        forms.number(app["rho"], 3),
        "-" if best is None else f"{best['id']} {forms.number(best.get('loss'), 3)}",
    )


def _show(app: answers.App) -> None:
    agent, bid = app["agent"], app["bid"]
    screen.print_pairs([
        ("app", app["name"]),
        ("scheduler", app["scheduler"] or ""),
        ("phase", _phase(app)),
        ("weight", "" if app["weight"] is None else forms.number(app["weight"], 4)),
        ("rho", "" if app["rho"] is None else forms.number(app["rho"], 4)),
        ("agent", "" if agent is None else f"of {agent['by']}, missed {agent['missed']} offers in a row"),
        ("bid", "" if bid is None else bid["text"]),
    ])  # fmt: skip
    print()
    best_first = sorted(app["trials"], key=lambda trial: (trial["rank"] is None, trial["rank"] or 0))
    screen.table(TRIALS, [_trial(trial) for trial in best_first])


def _phase(app: answers.App) -> str:
    phase = app["phase"]
    if phase is None:
        return ""
    places = "" if phase["places"] is None else f", the best {phase['places']} go on"
    return f"{phase['number']} of {phase['of']}, until {forms.number(phase['end'], 4)} iterations{places}"


def _trial(trial: answers.TrialAnswer) -> tuple[str, ...]:
    setting = ", ".join(
        f"{k}={forms.number(v, 4) if isinstance(v, float) else v}" for k, v in trial.get("parameters", {}).items()
    )
    return (
        trial["id"],
        trial["name"],
        screen.LETTERS.get(trial["state"], trial["state"]),
        str(trial["held"]),
        forms.number(trial["step"], 6),
        "-" if trial["rank"] is None else str(trial["rank"]),
        forms.number(trial.get("loss"), 4),
        setting or "-",
        trial.get("why", ""),
    )
