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
Job = Mapping[str, Any]
Point = tuple[float, float]


def picture(
    job: Job,
    events: Sequence[Mapping[str, Any]],
    width: int,
    height: int,
) -> Text:
    """As many lines as fit. What people wrote is neutral already."""
    lines = [_title(job), _progress(job, width)]
    rows = min(_ROWS, height - len(lines) - 6)
    lines += _curve(job, width, max(rows, 2))
    left = height - len(lines) - 2
    if left > 0:
        lines += map(_event, events[-left:])
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True).join(lines)


def _event(event: Mapping[str, Any]) -> Text:
    line = Text(clock(event["wall_s"]), "dim")
    return Text.assemble(line, " ", event["text"])


def _title(job: Job) -> Text:
    state = job["state"]
    return Text.assemble(
        (f"job {job_number(job['id'])} ", "bold"),
        (job["name"], "bold"),
        f"  {job['tenant']}  ",
        (state, STATE_STYLES.get(state, "")),
        f"  {_held(job)}",
        f"  start {job['starts']}",
        f"  ran {forms.duration(job['ran_s'])}",
    )


def _held(job: Job) -> str:
    held = sum(job["allocation"].values())
    if not held:
        return "no GPUs"
    where = forms.allocation(job["allocation"])
    return f"{held} GPU{'' if held == 1 else 's'} on {where}"


def _progress(job: Job, width: int) -> Text:
    part = None
    if job["step"] is not None and job["total"]:
        part = min(job["step"] / job["total"], 1.0)
    bar = max(min(width - 40, 40), 10)
    return Text.assemble(
        progress_bar(part, bar, _COLOUR),
        "  ",
        said(job),
    )


def said(job: Job) -> str:
    """`step 40 of 100, loss 1.23, 3.1 a second`: as far as it is known."""
    step = f"step {job['step'] or 0:g}"
    if job["total"]:
        step += f" of {job['total']:g}"
    parts = [step]
    if job["loss"] is not None:
        loss = forms.number(job["loss"], 4)
        parts.append(f"loss {loss}")
    if job["rate"]:
        rate = forms.number(job["rate"], 3)
        parts.append(f"{rate} a second")
    return ", ".join(parts)


# --- the curve ----------------------------------------------------------------------------------------------


def _curve(job: Job, width: int, rows: int) -> list[Text]:
    """The losses that are remembered, oldest left, between the least and the most of them."""
    points: list[Point] = [(step, loss) for step, loss in job["losses"]]
    if not points:
        return [Text("no loss is known yet", "dim")]
    low = min(loss for _, loss in points)
    high = max(loss for _, loss in points)
    names = [""] * rows
    names[0] = forms.number(high, 4)
    names[-1] = forms.number(low, 4)
    margin = max(map(len, names)) + 1
    heights = [
        _height(loss, low, high, rows)  # one a cell
        for loss in _spread(points, max(width - margin, 10))
    ]
    lines = []
    for row, name in enumerate(names):
        base = (rows - 1 - row) * len(SPARKS)
        drawn = "".join(_cell(height - base) for height in heights)
        shown = name.rjust(margin - 1)
        lines.append(Text.assemble((f"{shown} ", "dim"), (drawn, _COLOUR)))
    lines.append(_axis(points, margin, width))
    return lines


def _spread(points: Sequence[Point], cells: int) -> list[float]:
    """A loss for each cell."""
    return [
        points[cell * len(points) // cells][1]  # the first that falls into it
        for cell in range(cells)
    ]


def _axis(points: Sequence[Point], margin: int, width: int) -> Text:
    first = f"{'':{margin}}step {points[0][0]:g}"
    last = f"{points[-1][0]:g}"
    room = max(width - len(first), len(last) + 1)
    return Text(first + last.rjust(room), "dim")


def _height(loss: float, low: float, high: float, rows: int) -> int:
    """In eighths of a row, at least one."""
    if high <= low:
        return 1
    most = rows * len(SPARKS) - 1
    part = (loss - low) / (high - low)
    return 1 + round(part * most)


def _cell(eighths: int) -> str:
    if eighths <= 0:
        return " "
    full = min(eighths, len(SPARKS))
    return SPARKS[full - 1]
