"""The sweep file: one training goal, many settings.

    name: tune-resnet
    command: [python, train.py, --lr, "{lr}", --momentum, "{momentum}"]
    gpus: {min: 1, max: 4}
    checkpoint: checkpoints/{job}
    parameters:
      lr: [0.1, 0.03, 0.01]                  # a list: every value (or drawn from it, with samples)
      momentum: {low: 0.8, high: 0.99}       # a range: drawn, evenly; log: true draws the exponent
    samples: 8                               # jobs; without it the grid of all lists
    seed: 0
    scheduler: {kind: successive-halving, iterations: 200, eta: 2}
    # or {kind: hyperband, iterations: 81, eta: 3}, {kind: curve-stopping, iterations: 5000},
    #    {kind: external, iterations: 5000}

Braces in `command`, `checkpoint` and `env` name a parameter, or `{job}`; `{{` is a brace. Hyperband is one app a
bracket, and draws as many settings as its brackets need.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from horae.job_form import MOST_JOBS, Iterations, Name, Positive, Text, Variable, Word
from horae.sweeps.schedules import hyperband, successive_halving
from horae.sweeps.variable import MOST_PARAMETERS, VARIABLE, to_text
from policy.model import App, Phase
from policy.text.forms import AtLeastOne, GpusForm, Loss
from policy.text.textform import Document, Form, fit, wrong

Value = Loss | Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | Text | bool


class RangeForm(Form):
    """Values drawn between two numbers."""

    low: Loss
    high: Loss
    log: bool = False

    @model_validator(mode="after")
    def _agree(self) -> RangeForm:
        if self.low > self.high:
            raise wrong(f"low {self.low} is above high {self.high}", "swap them")
        if self.log and self.low <= 0:
            raise wrong("a logarithmic range starts above 0", "raise low, or drop log")
        return self


Values = Annotated[
    Annotated[list[Value], Field(max_length=MOST_JOBS), Tag("list")] | Annotated[RangeForm, Tag("range")],
    Discriminator(lambda value: "list" if isinstance(value, list) else "range"),
]


class SchedulerForm(Form):
    """How the app stops its losers."""

    kind: Literal["successive-halving", "hyperband", "curve-stopping", "external"]
    iterations: Iterations = Field(
        description="of the first phase; hyperband, curve stopping, external: the most a job runs"
    )
    eta: int = Field(2, ge=2, le=16, description="one in eta goes on")


class SweepForm(Form):
    """One training goal and the settings to try."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
    command: list[Text] = Field(min_length=1, max_length=4096)
    gpus: GpusForm
    parameters: dict[Variable, Values] = Field(min_length=1, max_length=MOST_PARAMETERS)
    scheduler: SchedulerForm
    samples: int | None = Field(None, ge=1, le=MOST_JOBS)
    seed: int = Field(0, ge=-(1 << 63), lt=1 << 63)
    checkpoint: Word | None = Field(None, description="with {job} in it; without one no loser's GPUs come back early")
    env: dict[Variable, Text] = Field(default_factory=dict, max_length=4096)
    cwd: Word | None = None
    tenant: Name | None = None
    model: Name | None = Field(None, description="key under which profiles are shared; default: the sweep's name")
    budget: Positive | None = Field(None, description="GPU-seconds of the whole app, where you know them")
    demand_max: AtLeastOne | None = Field(None, description="most GPUs the app can use")


@dataclass(frozen=True, slots=True)
class Setting:
    app: App
    job: str
    values: Mapping[str, Value]


def read(document: Document) -> list[dict[str, Any]]:
    """The jobs of a sweep file, as `horae submit --file` would have them. Raises BadInput."""
    form = fit(SweepForm, document)
    return [_job(form, setting, document) for setting in settings(form, document)]


def settings(form: SweepForm, document: Document) -> Iterator[Setting]:
    """Every job to be, with its app."""
    kind, eta, iterations = form.scheduler.kind, form.scheduler.eta, form.scheduler.iterations
    brackets: list[tuple[str, tuple[Phase, ...], int]]
    if kind == "hyperband":
        if form.samples is not None:
            raise document.bad(("samples",), "hyperband says itself how many jobs it starts", remedy="drop samples")
        found = hyperband(int(iterations), eta)
        brackets = [(f"{form.name}-{len(found) - 1 - i}", phases, phases[0].jobs) for i, phases in enumerate(found)]
        draws = _drawn(form, sum(n for _, _, n in brackets))
    else:
        draws = _drawn(form, form.samples) if form.samples is not None else _grid(form, document)
        phases = successive_halving(len(draws), iterations, eta) if kind == "successive-halving" else ()
        brackets = [(form.name, phases, len(draws))]
    if len(draws) > MOST_JOBS:
        raise document.bad(("parameters",), f"{len(draws)} jobs", remedy=f"at most {MOST_JOBS}")
    number = 0
    for name, phases, jobs in brackets:
        app = App(name, kind, form.budget, form.demand_max, phases)
        for i in range(jobs):
            yield Setting(app, f"{name}-{i:0{len(str(jobs - 1))}}", draws[number])
            number += 1


def _grid(form: SweepForm, document: Document) -> list[dict[str, Value]]:
    lists: dict[str, list[Value]] = {}
    for name, values in form.parameters.items():
        if isinstance(values, RangeForm):
            raise document.bad(
                ("parameters", name), "a range has no grid", remedy="say samples, or list the values to try"
            )
        if not values:
            raise document.bad(("parameters", name), "no values", remedy="list at least one")
        lists[name] = values
    if math.prod(len(v) for v in lists.values()) > MOST_JOBS:
        raise document.bad(("parameters",), "too many combinations", remedy=f"at most {MOST_JOBS}, or say samples")
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _drawn(form: SweepForm, samples: int) -> list[dict[str, Value]]:
    random = Random(form.seed)
    return [{name: _draw(values, random) for name, values in form.parameters.items()} for _ in range(samples)]


def _draw(values: list[Value] | RangeForm, random: Random) -> Value:
    if isinstance(values, list):
        return values[random.randrange(len(values))]
    if values.log:
        return math.exp(random.uniform(math.log(values.low), math.log(values.high)))
    return random.uniform(values.low, values.high)


def _job(form: SweepForm, setting: Setting, document: Document) -> dict[str, Any]:
    words = {**{n: _word(v) for n, v in setting.values.items()}, "job": setting.job}

    def filled(text: str, *place: str | int) -> str:
        try:
            return string.Formatter().vformat(text, (), words)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise document.bad(
                place,
                f"cannot be filled in: {error}",
                value=text,
                remedy=f"names in braces: {', '.join(words)}; a brace itself is {{{{ or }}}}",
            ) from None

    iterations = sum(p.iterations for p in setting.app.phases) or form.scheduler.iterations
    job: dict[str, Any] = {
        "name": setting.job,
        "app": setting.app.name,
        "command": [filled(w, "command", i) for i, w in enumerate(form.command)],
        "gpus": form.gpus.model_dump(exclude_none=True),
        "iterations": iterations,
        "model": form.model or form.name,
        "env": {
            **{n: filled(v, "env", n) for n, v in form.env.items()},
            VARIABLE: to_text(setting.app, setting.values),
        },
    }
    for key, value in (("checkpoint", form.checkpoint), ("cwd", form.cwd), ("tenant", form.tenant)):
        if value is not None:
            job[key] = filled(value, key)
    return job


def _word(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
