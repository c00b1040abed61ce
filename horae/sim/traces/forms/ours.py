"""Horae's own form: CSV with a header, in order of submission."""

from __future__ import annotations

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Rows, by_row
from horae.sim.traces.table import Cells, Table
from policy.bounds import MOST_WORK

COLUMNS = (
    "submitted", "duration", "gpus", "job", "tenant", "app", "min_gpus", "max_gpus", "model", "iterations", "known",
)  # fmt: skip


def rows(lines: TraceLines) -> Rows:
    table = Table(lines, needed=("submitted", "gpus"))
    if "duration" not in table.index and not {"iterations", "model"} <= table.index.keys():
        raise Malformed(
            lines.path, 1, "duration", "the header lacks this column, or iterations and model; it has",
            ", ".join(table.names),
        )  # fmt: skip
    newest = 0.0

    def ordered(cells: Cells, number: int) -> TraceJob:
        nonlocal newest
        job = _job(cells, number)
        if job.submitted < newest:
            what = f"out of order, {newest:g} stands before it; sort the rows"
            raise cells.wrong("submitted", what, cells.word("submitted"))
        newest = job.submitted
        return job

    return by_row(table, ordered)


def _job(cells: Cells, number: int) -> TraceJob:
    gpus = cells.count("gpus")
    least = cells.count("min_gpus") if cells.has("min_gpus") else gpus
    most = cells.count("max_gpus") if cells.has("max_gpus") else gpus
    if least > gpus:
        raise cells.wrong("min_gpus", f"is above gpus, {gpus}", least)
    if most < gpus:
        raise cells.wrong("max_gpus", f"is below gpus, {gpus}", most)
    iterations = cells.number("iterations", most=MOST_WORK) if cells.has("iterations") else None
    model = cells.word("model", "") or None
    duration = None
    if cells.has("duration") or iterations is None or model is None:
        duration = cells.number("duration")
    known = cells.word("known", "1")
    if known not in ("0", "1"):
        raise cells.wrong("known", "is neither 0 nor 1", known)
    return TraceJob(
        job=cells.word("job", "") or str(number),
        submitted=cells.number("submitted"),
        gpus=gpus,
        duration=duration,
        tenant=cells.word("tenant", "default"),
        app=cells.word("app", ""),
        min_gpus=least,
        max_gpus=most,
        model=model,
        iterations=iterations,
        known=known == "1",
    )
