"""The demo as a picture in a file: GPUs over time by tenant, and every job's loss with its resizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from horae.demo.record import ShareRecord
from horae.tui.view import palette


def draw(summary: Mapping[str, Any], record: ShareRecord, path: Path) -> None:
    """Write a PNG (or what else the name's ending says and matplotlib can)."""
    from matplotlib.figure import Figure

    colours = palette(t["name"] for t in summary["tenants"])
    jobs = summary["jobs"]
    columns = 4
    rows = 1 + -(-len(jobs) // columns)
    figure = Figure(figsize=(12, 3 + 2.2 * (rows - 1)), layout="constrained")
    grid = figure.add_gridspec(rows, columns, height_ratios=[1.4, *[1.0] * (rows - 1)])
    _gpus(figure.add_subplot(grid[0, :]), summary, record, colours)
    for index, job in enumerate(jobs):
        _loss(figure.add_subplot(grid[1 + index // columns, index % columns]), job, colours[job["tenant"]])
    figure.suptitle(f"{summary['policy']} on {summary['cluster']}")
    figure.savefig(path, dpi=110)


def _gpus(axes: Any, summary: Mapping[str, Any], record: ShareRecord, colours: Mapping[str, str]) -> None:
    times = [m.at_s for m in record.moments]
    names = [t["name"] for t in summary["tenants"]]
    layers = [[m.tenants.get(name, 0) for m in record.moments] for name in names]
    axes.stackplot(times, layers, labels=names, colors=[colours[n] for n in names], step="post", alpha=0.9)
    axes.set_ylim(0, summary["gpus"])
    axes.set_xlim(0, max(times, default=1.0) or 1.0)
    axes.set_ylabel("GPUs held")
    axes.set_xlabel("seconds")
    axes.legend(loc="upper right", frameon=False)


def _loss(axes: Any, job: Mapping[str, Any], colour: str) -> None:
    """The curve over steps; each change of its GPUs is a dotted line with the new number."""
    points = job["losses"]
    axes.plot([p[0] for p in points], [p[1] for p in points], color=colour, linewidth=1.4)
    last = None
    for step, _, world in points:
        if world != last:
            axes.axvline(step, color="grey", linewidth=0.6, linestyle=":")
            axes.text(step, 1.0, f" {world}", transform=axes.get_xaxis_transform(), va="top", fontsize=7, color="grey")
        last = world
    axes.set_title(f"{job['name']} ({job['tenant']})", fontsize=9, parse_math=False)
    axes.tick_params(labelsize=7)
    axes.set_ylim(bottom=0)
