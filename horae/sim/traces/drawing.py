"""Another trace out of a trace: some of its rows, or more of the same over the same time."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from horae.sim.traces.describing import Numbers
from horae.sim.traces.forms.ours import COLUMNS
from horae.sim.traces.lines import TraceLines
from horae.sim.traces.reading import rows
from horae.sim.traces.writing import line, plain, written
from policy.model import BadInput

#: A larger trace than this nobody can play.
MOST_JOBS = 100_000_000


def sample(path: Path, form: str, count: int, seed: int, *, skip_bad: bool = False) -> tuple[str, TraceLines]:
    """`count` rows drawn without replacement, unchanged and in the file's order under its header, as text.

    Where a form takes several lines a job, a job's stay together. The file is read twice, so it need not fit in
    memory. Raises BadInput where there are fewer rows, Malformed.
    """
    there = sum(1 for _ in rows(TraceLines(path, skip_bad=skip_bad), form))
    if count > there:
        remedy = f"at most {there}"
        raise BadInput(f"{count} rows of a trace that has {there}", where=str(path), field="N", remedy=remedy)
    chosen = set(random.Random(seed).sample(range(there), count))
    lines = TraceLines(path, skip_bad=skip_bad, copied=True)
    found = rows(lines, form)
    taken: list[tuple[int, str]] = []
    for number, row in enumerate(found):
        if number in chosen:
            taken += [(row.line, row.text), *row.more]
    taken.sort(key=lambda one: one[0])
    head = [] if found.header is None else [found.header + "\n"]
    body = found.between.join(text for _, text in taken) + found.end if taken else ""
    return "".join([*head, body]), lines


def scale(
    path: Path, form: str, factor: float, seed: int, *, skip_bad: bool = False
) -> tuple[Iterator[str], TraceLines]:
    """round(factor x jobs) jobs over the same span, as text of the form `ours`, line by line.

    Each is a job of the trace drawn whole (duration, GPUs, tenant, model together), at a time drawn along the trace's
    own profile: its distribution of arrivals, joined by straight lines, from the first to the last. A trace of ours
    keeps its columns; `job` and `app` become numbers in order of submission. Raises BadInput, Malformed.
    """
    if not 0 < factor < float("inf"):
        raise BadInput(f"{factor:g} times as many jobs", field="F", value=factor, remedy="a number above 0")
    lines = TraceLines(path, skip_bad=skip_bad)
    found = rows(lines, form)
    ours = form == "ours" and found.header is not None
    header = _cells(found.header.removesuffix("\r")) if ours and found.header else list(COLUMNS)
    kept = [(row.job.submitted, _cells(row.text.removesuffix("\r")) if ours else written(row.job)) for row in found]
    times = np.sort(np.array([at for at, _ in kept]))
    if not ours:
        times -= times[:1]
    count = round(factor * len(kept))
    if count > MOST_JOBS:
        what = f"{factor:g} times {len(kept):,} jobs are more than {MOST_JOBS:,}"
        raise BadInput(what, field="F", value=factor, remedy="a smaller number")
    return chain((line(header),), _scaled(header, [cells for _, cells in kept], times, count, seed)), lines


def _scaled(header: list[str], kept: list[list[str]], times: Numbers, count: int, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    at = _arrivals(times, np.array([chance.random() for _ in range(count)]))
    named = [name.strip() for name in header]
    place = {name: named.index(name) for name in ("submitted", "job", "app") if name in named}
    whole, rest = divmod(count, len(kept)) if kept else (0, 0)
    # Every job as often as every other, and the rest drawn: the load grows by the factor, not only on average.
    order = [*range(len(kept))] * whole + chance.sample(range(len(kept)), rest)
    chance.shuffle(order)
    for number, (submitted, chosen) in enumerate(zip(at.tolist(), order, strict=True), 1):
        cells = list(kept[chosen])
        cells[place["submitted"]] = plain(submitted)
        for name in ("job", "app"):
            if name in place:
                cells[place[name]] = str(number)
        yield line(cells)


def _arrivals(times: Numbers, chances: Numbers) -> Numbers:
    """In order, s: the first and the last of two or more are the trace's own, so that the span is."""
    if not chances.size:
        return chances
    at = np.round(np.sort(np.interp(chances, np.linspace(0, 1, times.size), times)), 3)
    if at.size > 1:
        at[0], at[-1] = times[0], times[-1]
    return np.clip(at, times[0], times[-1])


def _cells(text: str) -> list[str]:
    return next(csv.reader([text]))
