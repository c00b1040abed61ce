"""One job's live screen: how far it is, its loss as a curve, what happens to it. Drawn of the API's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from horae import job_number
from horae.tui import forms
from horae.tui.parts import SPARKS, clock, progress_bar
from horae.tui.screen import STATE_STYLES

#: Of the screen, for the curve at most.
_ROWS = 12
_COLOUR = "#4c9be8"


def picture(job: Mapping[str, Any], events: Sequence[Mapping[str, Any]], width: int, height: int) -> Text:
    """As many lines as fit. What people wrote is neutral already."""
    lines = [_title(job), _progress(job, width)]
    rows = max(min(_ROWS, height - len(lines) - 6), 2)
    lines += _curve(job, width, rows)
    left = height - len(lines) - 2
    for event in events[-left:] if left > 0 else ():
        lines.append(Text.assemble((clock(event["wall_s"]), "dim"), " ", event["text"]))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True).join(lines)


def _title(job: Mapping[str, Any]) -> Text:
    held = sum(job["allocation"].values())
    on = f"{held} GPU{'' if held == 1 else 's'} on {forms.allocation(job['allocation'])}" if held else "no GPUs"
    return Text.assemble(
        (f"job {job_number(job['id'])} ", "bold"), (job["name"], "bold"), f"  {job['tenant']}  ",
        (job["state"], STATE_STYLES.get(job["state"], "")), f"  {on}  start {job['starts']}",
        f"  ran {forms.duration(job['ran_s'])}",
    )  # fmt: skip


def _progress(job: Mapping[str, Any], width: int) -> Text:
    part = min(job["step"] / job["total"], 1.0) if job["step"] is not None and job["total"] else None
    return Text.assemble(progress_bar(part, max(min(width - 40, 40), 10), _COLOUR), "  ", said(job))


def said(job: Mapping[str, Any]) -> str:
    """`step 40 of 100, loss 1.23, 3.1 a second`: as far as it is known."""
    parts = [f"step {job['step'] or 0:g}" + (f" of {job['total']:g}" if job["total"] else "")]
    if job["loss"] is not None:
        parts.append(f"loss {forms.number(job['loss'], 4)}")
    if job["rate"]:
        parts.append(f"{forms.number(job['rate'], 3)} a second")
    return ", ".join(parts)


def _curve(job: Mapping[str, Any], width: int, rows: int) -> list[Text]:
    """The losses that are remembered, oldest left, between the least and the most of them."""
    points = [(float(step), float(loss)) for step, loss in job["losses"]]
    if not points:
        return [Text("no loss is known yet", "dim")]
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    names = [forms.number(high, 4), *[""] * (rows - 2), forms.number(low, 4)]
    margin = max(map(len, names)) + 1
    cells = max(width - margin, 10)
    heights = [_height(points[cell * len(points) // cells][1], low, high, rows) for cell in range(cells)]
    lines = []
    for row in range(rows):
        base = (rows - 1 - row) * len(SPARKS)
        drawn = "".join(_cell(height - base) for height in heights)
        lines.append(Text.assemble((names[row].rjust(margin - 1) + " ", "dim"), (drawn, _COLOUR)))
    axis = f"{'':{margin}}step {points[0][0]:g}"
    last = f"{points[-1][0]:g}"
    return [*lines, Text(axis + last.rjust(max(width - len(axis), len(last) + 1)), "dim")]


def _height(loss: float, low: float, high: float, rows: int) -> int:
    """In eighths of a row, at least one."""
    part = (loss - low) / (high - low) if high > low else 0.0
    return 1 + round(part * (rows * len(SPARKS) - 1))


def _cell(eighths: int) -> str:
    return " " if eighths <= 0 else SPARKS[min(eighths, len(SPARKS)) - 1]
