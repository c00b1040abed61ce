"""`horae policies`: what can decide, by which paper, with which options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from horae.cli.options import Json
from horae.tui import screen

SETTINGS = {"epilog": "Example:  `horae policies`;  `horae policies afs-l`"}


def policies(
    name: Annotated[str | None, typer.Argument(help="Only this one, with its options.")] = None, as_json: Json = False
) -> None:
    """List the policies: paper, section, what each needs and guarantees, its options."""
    from policy.catalogue import entries, named

    if name is not None:
        entry = _plain(named(name))
        if as_json:
            screen.emit_json(entry)
        else:
            _show(entry)
        return
    found = [_plain(e) for e in entries().values()]
    if as_json:
        screen.emit_json(found)
        return
    columns = (screen.Column("POLICY"), screen.Column("NEEDS"), screen.Column("WHAT IT DOES"))
    screen.table(columns, [(e["name"], ", ".join(e["needs"]) or "-", e["summary"]) for e in found])


def _plain(entry: Any) -> dict[str, Any]:
    return {
        "name": entry.name,
        "summary": entry.summary,
        "paper": entry.paper,
        "section": entry.section,
        "needs": list(entry.needs),
        "guarantees": list(entry.guarantees),
        "notes": list(entry.notes),
        "weights": entry.weighs,
        "rounds": entry.quantum,
        "bids": entry.bids is not None,
        "options": [
            {
                "name": o.name,
                "type": o.kind.__name__,
                "default": o.default,
                "text": o.text,
                "unit": o.unit,
                "choices": list(o.choices),
                "min": o.low,
                "max": o.high,
            }
            for o in entry.options
        ],
    }


def _show(entry: dict[str, Any]) -> None:
    screen.print_pairs(
        [
            ("policy", entry["name"]),
            ("", entry["summary"]),
            ("paper", f"{entry['paper']}, {entry['section']}".removesuffix(", -")),
            ("needs", "; ".join(entry["needs"]) or "nothing but GPU counts"),
            *(("holds", g) for g in entry["guarantees"]),
            *(("note", n) for n in entry["notes"]),
            ("weights", {True: "tenants' weights count", False: "not read", None: ""}[entry["weights"]]),
            ("rounds", "works in quanta: horae decide --rounds N" if entry["rounds"] else ""),
            ("bids", "horae decide --bids APP" if entry["bids"] else ""),
        ]
    )
    if entry["options"]:
        print()
        columns = (screen.Column("OPTION"), screen.Column("DEFAULT"), screen.Column("VALUES"), screen.Column("WHAT"))
        rows = [(o["name"], str(o["default"]), _values(o), o["text"]) for o in entry["options"]]
        screen.table(columns, rows)


def _values(option: dict[str, Any]) -> str:
    if option["choices"]:
        return "|".join(option["choices"])
    words = [str(option["type"])]
    low, high = option["min"], option["max"]
    if low is not None or high is not None:
        words.append(f"{'' if low is None else f'{low:g}'}..{'' if high is None else f'{high:g}'}")
    return " ".join([*words, option["unit"]]).strip()
