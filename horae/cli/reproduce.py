"""`horae reproduce`: a figure or table of a paper, computed again."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from horae.cli.options import Json, example
from horae.tui import screen

SETTINGS = {"epilog": example("horae reproduce --list", "horae reproduce gandiva-fair-table-3")}


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which; --list shows them.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything left to chance.")] = 0,
    as_json: Json = False,
) -> None:
    """Compute a figure or table of a paper again, by the policies that run in production, and compare.

    Prints what the paper says beside what comes out here, and a verdict: reproduced, close, or differs, and why.
    `inputs` is all that it takes to check the numbers by hand.
    """
    from horae.sim.reproductions import catalogue

    if listed or name is None:
        found = [
            {"name": r.name, "paper": r.paper, "what": r.what, "seconds": r.seconds} for r in catalogue.every().values()
        ]
        if as_json:
            screen.emit_json(found)
            return
        columns = (screen.Column("NAME"), screen.Column("SECONDS", right=True), screen.Column("WHAT"))
        screen.table(columns, [(str(r["name"]), str(r["seconds"]), str(r["what"])) for r in found])
        return
    result = catalogue.reproduce(name, seed)
    if as_json:
        screen.emit_json(result)
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    print(f"{result['name']}: {result['verdict']}" + (f": {result['why']}" if result["why"] else ""))
    print(f"inputs: {json.dumps(result['inputs'])}\n")
    columns = (screen.Column("WHAT"), screen.Column("PAPER", right=True), screen.Column("HERE", right=True))
    paper, here = _flat(result["paper"]), _flat(result["here"])
    screen.table(columns, [(key, _text(paper[key]), _text(value)) for key, value in here.items()])


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    if not isinstance(value, dict | list):
        return {key: value}
    items = value.items() if isinstance(value, dict) else enumerate(value, 1)
    return {k: v for name, inner in items for k, v in _flat(inner, f"{key} {name}".strip()).items()}


def _text(value: Any) -> str:
    return "picture" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
