"""The picture of a log: loss with its fit and interval, iteration time with warm-up, pauses and resizes marked.

Needs matplotlib (the `demo` extra); draws into a file, never on a screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from profiler.estimates.curves import loss_curve, validation_curves
from profiler.estimates.iteration import timing
from profiler.estimates.loss import forecast
from profiler.model import Run


class NoMatplotlib(ImportError):
    """matplotlib is not installed."""


def draw(runs: Sequence[Run], path: Path, title: str = "") -> None:
    """One row of two panels a run. Raises NoMatplotlib, OSError."""
    try:
        from matplotlib import rc_context
    except ImportError as e:
        raise NoMatplotlib("drawing needs matplotlib: pip install 'horae[demo]'") from e
    # What a log, or a file, calls itself is no formula.
    with rc_context({"text.parse_math": False}):
        _drawn(runs, path, title)


def _drawn(runs: Sequence[Run], path: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [r for r in runs if r.points] or list(runs)[:1]
    rows = max(len(shown), 1)
    figure = Figure(figsize=(12, 4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid: Any = figure.subplots(rows, 2, squeeze=False)
    for run, (left, right) in zip(shown, grid, strict=False):
        _loss(left, run)
        _times(right, run)
    if not shown:
        for panel in grid.flat:
            panel.text(0.5, 0.5, "no training found", ha="center", transform=panel.transAxes)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _loss(panel: Any, run: Run) -> None:
    curve = loss_curve(run)
    held, _ = validation_curves(run)
    panel.set_title(f"loss (lines {run.first_line}-{run.last_line}, {run.format or 'no format'})")
    if curve is None:
        panel.text(0.5, 0.5, "no training loss", ha="center", transform=panel.transAxes)
        return
    panel.plot(
        *zip(*curve.points, strict=True), ".", markersize=3, color="tab:blue", label=f"{curve.name} ({curve.kind})"
    )
    if held is not None and held.axis == curve.axis:
        panel.plot(
            *zip(*held.points, strict=True), "o", markersize=4, color="tab:orange", label=f"validation {held.name}"
        )
    made, _ = forecast(curve.points)
    if made is not None:
        end = (
            run.total_iterations if run.scope == "run" and curve.axis == "iteration" and run.total_iterations else None
        )
        end = max(end or made.last + 0.5 * (made.last - made.first), made.last)
        at = np.linspace(made.first, end, 200)
        panel.plot(at, [made.at(x) for x in at], "-", color="tab:red", label=f"fit: {made.law}")
        low, high = zip(*(made.interval(x) for x in at[at >= made.last]), strict=True)
        panel.fill_between(at[at >= made.last], low, high, color="tab:red", alpha=0.2, label="90 % of forecasts")
    panel.set_xlabel(curve.axis)
    panel.legend(fontsize="small")


def _times(panel: Any, run: Run) -> None:
    times = timing(run)
    panel.set_title("iteration time" + (f" ({times.iteration.source})" if times.iteration else ""))
    samples = times.samples
    if times.iteration is None or not samples:
        panel.text(0.5, 0.5, "no iteration time", ha="center", transform=panel.transAxes)
        return
    panel.plot([s.at for s in samples], [s.seconds for s in samples], ".", markersize=3, color="tab:blue")
    panel.axhline(times.iteration.median, color="tab:red", linewidth=1, label=f"median {times.iteration.median:.4g} s")
    if times.warm_up is not None:
        first = min(s.at for s in samples)
        panel.axvspan(first, first + times.warm_up.iterations, color="tab:gray", alpha=0.3, label="warm-up")
    sizes = [(p.iteration, p.world) for p in run.points if p.world is not None and p.iteration is not None]
    for (_, before), (at, after) in pairwise(sizes):
        if before != after:
            panel.axvline(at, color="tab:green", linewidth=1)
            panel.text(at, panel.get_ylim()[1], f" {after} ranks", va="top", fontsize="small", color="tab:green")
    panel.set_ylim(bottom=0)
    panel.set_xlabel("iteration")
    panel.set_ylabel("s")
    panel.legend(fontsize="small")
