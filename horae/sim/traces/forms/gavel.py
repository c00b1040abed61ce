"""Gavel's traces, and Shockwave's: tabs, no header, iterations of named models.

Seven columns in the simulator's, ten in those for a cluster, twelve in Shockwave's. Durations are those on V100s by
the shipped table `gavel`, but where the trace tells one.
"""

from __future__ import annotations

import re

from horae.sim.traces.forms.measured import seconds
from horae.sim.traces.lines import TraceLines
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Rows, by_row
from horae.sim.traces.table import Cells, Table
from horae.tables.make import key_of
from policy.bounds import MOST_WORK

_MODEL = re.compile(r"[A-Za-z0-9-]+(?: \(batch size [0-9]{1,9}\))?")
_SIMULATED = ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor")
_PHYSICAL = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "slo",
    "arrival_time",
)
_SHOCKWAVE = (*_PHYSICAL[:7], "mode", *_PHYSICAL[7:9], "duration", "arrival_time")


def rows(lines: TraceLines) -> Rows:
    names = {len(form): form for form in (_SIMULATED, _PHYSICAL, _SHOCKWAVE)}
    return by_row(Table(lines, separator="\t", names=names), _job, gpus="scale_factor", model="job_type")


def _job(cells: Cells, number: int) -> TraceJob:
    model, gpus = cells.word("job_type"), cells.count("scale_factor")
    if not _MODEL.fullmatch(model):
        raise cells.wrong("job_type", "is neither NAME nor NAME (batch size N)", model)
    key = key_of(model)
    iterations = cells.number("total_steps", most=MOST_WORK)
    measured = seconds(cells, "job_type", key, iterations, gpus, ("gavel", "v100"))
    told = cells.number("duration") if cells.has("duration") else measured
    return TraceJob(str(number), cells.number("arrival_time"), gpus, told, model=f"{key}@gavel", iterations=iterations)
