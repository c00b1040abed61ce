"""The variable of a sweep's jobs: their app's scheduler, and each job's own setting.

A user may set it to anything, in thousands of jobs, and it is asked for at every decision. So it is read once a job on
record (`Variables`), and what no scheduler has is refused before it is read: a list of lists costs fifty times as much
as its text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from horae.job_form import MOST_JOBS
from horae.journal import JobRecord, Ledger
from horae.port import JobId
from policy import bounds
from policy.model import EMPTY, App, BadInput, Phase

#: Its name.
VARIABLE = "HORAE_SWEEP"
#: Of one app; halving a million jobs takes twenty.
MOST_PHASES = 100
MOST_PARAMETERS = 100
SCHEDULERS = frozenset({"successive-halving", "hyperband", "curve-stopping", "external"})
#: What a sweep may choose for a job: a number, a word, yes or no.
Choice = float | int | str | bool
#: One that nobody closes goes to the end: each letter is looked at once.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class SweepWords:
    """What one job's variable says."""

    app: App | None = None  #: without its name; None: it is no scheduler
    why_not: str = ""
    parameters: Mapping[str, Choice] = field(default_factory=lambda: EMPTY)


def to_text(app: App, values: Mapping[str, Choice]) -> str:
    """The app, and the job's own setting for the trainer to read."""
    plain = {
        "scheduler": app.scheduler,
        "budget": app.budget,
        "demand_max": app.demand_max,
        "phases": [[p.jobs, p.iterations] for p in app.phases],
        "parameters": dict(values),
    }
    return json.dumps(plain, sort_keys=True)


def from_text(name: str, text: str) -> App:
    """The app that `to_text` wrote. Raises BadInput."""
    found = said(text)
    if found.app is None:
        raise BadInput(found.why_not, field=VARIABLE, value=text[:200], remedy="horae submit --sweep")
    return replace(found.app, name=name)


def said(text: str) -> SweepWords:
    """Of any text."""
    outside = _STRING.sub("", text)
    if outside.count("[") > MOST_PHASES + 1 or outside.count("{") > 2:
        return SweepWords(why_not="is no scheduler: it holds more lists than one has")
    try:
        plain = json.loads(text)
        app = _app(plain)
        parameters = _parameters(plain.get("parameters"))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        return SweepWords(why_not=f"is no scheduler: {error}")
    if not _possible(app):
        return SweepWords(why_not="has impossible phases", parameters=parameters)
    return SweepWords(app, parameters=parameters)


def _app(plain: Any) -> App:
    phases = tuple(Phase(int(jobs), float(iterations)) for jobs, iterations in plain["phases"])
    budget = None if plain["budget"] is None else float(plain["budget"])
    demand = None if plain["demand_max"] is None else int(plain["demand_max"])
    if plain["scheduler"] not in SCHEDULERS:
        raise ValueError(f"the kinds are {', '.join(sorted(SCHEDULERS))}")
    return App("", plain["scheduler"], budget, demand, phases)


def _possible(app: App) -> bool:
    return (
        len(app.phases) <= MOST_PHASES
        and all(_phase(phase) for phase in app.phases)
        and (app.budget is None or 0 < app.budget <= bounds.MOST_GPU_S)
        and (app.demand_max is None or 0 < app.demand_max <= bounds.MOST_GPUS)
    )


def _phase(phase: Phase) -> bool:
    return 0 < phase.jobs <= MOST_JOBS and bounds.LEAST_WORK <= phase.iterations <= bounds.MOST_WORK


def _parameters(plain: Any) -> Mapping[str, Choice]:
    """None where they are more, or other, than a sweep chooses: answers are made of them."""
    if not isinstance(plain, dict) or len(plain) > MOST_PARAMETERS:
        return EMPTY
    return plain if all(map(_setting, plain.values())) else EMPTY


def _setting(value: object) -> bool:
    if isinstance(value, int):  # yes and no among them
        return abs(value) < 1 << 63
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


class Variables:
    """What the jobs on record say, each read once. On the thread that holds the ledger."""

    def __init__(self) -> None:
        self._read: dict[JobId, tuple[str, SweepWords]] = {}

    def of(self, record: JobRecord) -> SweepWords | None:
        """None: the job has no such variable."""
        text = record.spec.env.get(VARIABLE)
        if text is None:
            return None
        known = self._read.get(record.id)
        if known is None or known[0] is not text:  # another specification, or another ledger
            known = self._read[record.id] = (text, said(text))
        return known[1]

    def forget(self, ledger: Ledger) -> None:
        """What is not on record any more, now and then."""
        if len(self._read) > 2 * len(ledger.jobs) + 1000:
            self._read = {job: known for job, known in self._read.items() if job in ledger.jobs}


#: Decisions and views ask for the same jobs.
VARIABLES = Variables()
