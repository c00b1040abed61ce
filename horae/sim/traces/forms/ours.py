"""Horae's own form: CSV with a header, in order of submission."""

from __future__ import annotations

import re
from itertools import pairwise

from horae.sim.conditions.sweeps import LossCurve
from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import USUAL, TraceJob
from horae.sim.traces.rows import Rows, by_row
from horae.sim.traces.table import NUMBER, Cells, Table
from policy.bounds import MOST_WORK
from policy.model import Phase, Slowdown

COLUMNS = (
    "submitted",
    "duration",
    "gpus",
    "job",
    "tenant",
    "app",
    "min_gpus",
    "max_gpus",
    "model",
    "iterations",
    "known",
    "slowdown",
    "loss",
    "phases",
)

_PHASE = re.compile(r"([0-9]{1,6})x([0-9]{1,12}(?:\.[0-9]{1,9})?)")


def rows(lines: TraceLines) -> Rows:
    table = Table(lines, needed=("submitted", "gpus"), by_hand=True)
    if "duration" not in table.index and not {"iterations", "model"} <= table.index.keys():
        raise Malformed(
            lines.path,
            1,
            "duration",
            "the header lacks this column, or iterations and model; it has",
            ", ".join(table.names),
        )
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
        slowdown=_slowdown(cells) if cells.has("slowdown") else USUAL,
        loss=_loss(cells) if cells.has("loss") else None,
        phases=_phases(cells) if cells.has("phases") else (),
    )


def _numbers(cells: Cells, name: str, what: str) -> tuple[float, float, float]:
    """Three of them, with slashes between."""
    parts = cells.word(name).split("/")
    if len(parts) != 3 or not all(map(NUMBER.fullmatch, parts)):
        raise cells.wrong(name, f"is not {what}", cells.word(name))
    a, b, c = map(float, parts)
    if not all(0 <= x <= MOST_WORK for x in (a, b, c)):
        raise cells.wrong(name, f"is not {what}, each from 0 to {MOST_WORK:g}", cells.word(name))
    return a, b, c


def _slowdown(cells: Cells) -> Slowdown:
    found = _numbers(cells, "slowdown", "NODE/RACK/CLUSTER (1/1.1/1.3)")
    if not 1 <= found[0] <= found[1] <= found[2]:
        raise cells.wrong("slowdown", "is below 1, or falls with the distance", cells.word("slowdown"))
    return Slowdown(*found)


def _loss(cells: Cells) -> LossCurve:
    start, end, half = _numbers(cells, "loss", "START/END/HALF (2.3/0.4/500)")
    if end > start or half <= 0:
        raise cells.wrong("loss", "rises, or never falls by half", cells.word("loss"))
    return LossCurve(start, end, half)


def _phases(cells: Cells) -> tuple[Phase, ...]:
    out = []
    for part in cells.word("phases").split():
        found = _PHASE.fullmatch(part)
        if found is None or not int(found[1]) or not float(found[2]):
            raise cells.wrong("phases", "is not JOBSxITERATIONS ... (8x1000 4x2000)", cells.word("phases"))
        out.append(Phase(int(found[1]), float(found[2])))
    if any(after.jobs >= before.jobs for before, after in pairwise(out)):
        raise cells.wrong("phases", "keeps as many jobs after a phase as before it", cells.word("phases"))
    return tuple(out)
