"""Pollux' workloads, and Sia's: `name,time,application,num_replicas,batch_size`.

The work of an application is the iterations of its full training at its initial batch size, as the repository of
Pollux (petuum/adaptdl, simulator/traces, Apache-2.0) records them; durations are those on T4s by the shipped table
`pollux`. The workloads tell no range of GPUs: jobs are rigid here.
"""

from __future__ import annotations

from horae.sim.traces.forms.measured import seconds
from horae.sim.traces.lines import TraceLines
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Rows, by_row
from horae.sim.traces.table import Cells, Table

#: Iterations of a full training: the last row of each application's `validation-BATCH.csv` at the smallest batch.
ITERATIONS = {
    "bert": 14774,
    "cifar10": 39062,
    "deepspeech2": 28536,
    "imagenet": 576525,
    "ncf": 194174,
    "yolov3": 103444,
}


def rows(lines: TraceLines) -> Rows:
    return by_row(
        Table(lines, needed=("name", "time", "application", "num_replicas")),
        _job,
        gpus="num_replicas",
        model="application",
    )


def _job(cells: Cells, number: int) -> TraceJob:
    model, gpus = cells.word("application"), cells.count("num_replicas")
    if model not in ITERATIONS:
        raise cells.wrong("application", f"is none of {', '.join(ITERATIONS)}", model)
    work = ITERATIONS[model]
    return TraceJob(
        cells.word("name"),
        cells.number("time"),
        gpus,
        seconds(cells, "application", model, work, gpus, ("pollux", "t4")),
        model=f"{model}@pollux",
        iterations=work,
    )
