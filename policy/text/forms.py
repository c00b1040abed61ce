"""The instance file as a form: which keys it has, what each may hold, and what it becomes when left out.

Only what one value can be is checked here; what values say about each other (an allocation on a node that does not
exist) is checked in `policy/text/instance.py`, which turns these forms into a `Snapshot`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic_core import CoreSchema

from policy import bounds
from policy.model import SCHEMA
from policy.text.textform import Form, wrong

Name = Annotated[str, Field(min_length=1, max_length=256)]
Count = Annotated[int, Field(ge=0, le=bounds.MOST_GPUS)]
AtLeastOne = Annotated[int, Field(ge=1, le=bounds.MOST_GPUS)]
Cpus = Annotated[float, Field(ge=0, le=bounds.MOST_CPUS)]
Time = Annotated[float, Field(ge=-bounds.MOST_S, le=bounds.MOST_S)]
Duration = Annotated[float, Field(ge=0, le=bounds.MOST_S)]
GpuTime = Annotated[float, Field(ge=0, le=bounds.MOST_GPU_S)]
Done = Annotated[float, Field(ge=0, le=bounds.MOST_WORK)]
Loss = Annotated[float, Field(ge=-bounds.MOST_LOSS, le=bounds.MOST_LOSS)]
Slowdown = Annotated[float, Field(ge=1, le=bounds.MOST_SLOWDOWN)]
#: Points of one curve, names in one list: more are a mistake.
MOST_POINTS = 10_000
#: Jobs, nodes, tenants of one file.
MOST_ROWS = 1_000_000


def _not_vanishing(least: float) -> AfterValidator:
    def check(value: float) -> float:
        if 0 < value < least:
            raise wrong(f"must be at least {least:g} (it is {value:g})", "correct the value")
        return value

    return AfterValidator(check)


Iterations = Annotated[Done, _not_vanishing(bounds.LEAST_WORK)]
Weight = Annotated[float, Field(gt=0, le=bounds.MOST_WEIGHT), _not_vanishing(bounds.LEAST_WEIGHT)]
Rate = Annotated[float, Field(ge=0, le=bounds.MOST_RATE), _not_vanishing(bounds.LEAST_RATE)]

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([kmgtp]?)(?:i?b)?\s*", value.lower())
        if match is None:
            raise wrong("is not a size", "write bytes, or a number with K, M, G, T (powers of 1024), such as 64G")
        return round(float(match[1]) * _UNITS[match[2]])
    return value


def _count_key(value: Any) -> Any:
    """JSON has text keys only: "4" is 4."""
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) else value


def _curve(value: Any) -> Any:
    """A bare number is the rate of one GPU; the throughput model scales it linearly."""
    return {1: value} if isinstance(value, int | float) and not isinstance(value, bool) else value


_SIZE_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9.]+ ?[KMGTPkmgtp]?i?[Bb]?$"}]
}
Size = Annotated[int, BeforeValidator(_bytes), Field(ge=0, le=bounds.MOST_BYTES), WithJsonSchema(_SIZE_SCHEMA)]
CountKey = Annotated[int, BeforeValidator(_count_key), Field(ge=1, le=bounds.MOST_GPUS)]

_CURVE_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": bounds.MOST_RATE},
        {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]+$"},
            "additionalProperties": {"type": "number", "minimum": 0, "maximum": bounds.MOST_RATE},
            "minProperties": 1,
        },
    ]
}
Curve = Annotated[
    dict[CountKey, Rate],
    BeforeValidator(_curve),
    Field(min_length=1, max_length=MOST_POINTS),
    WithJsonSchema(_CURVE_SCHEMA),
]


Priority = Annotated[int, Field(ge=-bounds.MOST_PRIORITY, le=bounds.MOST_PRIORITY)]


class AwayForm(Form):
    """A time known ahead in which a node is away."""

    name: Name
    from_: Time = Field(alias="from")
    to: Time
    leave: Time | None = Field(None, description="jobs that can be resumed leave from then on; default: from")
    reason: str = Field("", max_length=1000)


class NodeForm(Form):
    """One node."""

    name: Name
    gpu_type: Name
    gpus: Count
    rack: Name | None = Field(None, description="nodes without one count as one rack")
    health: Literal["up", "drain", "down"] = Field("up", description="drain: keeps what runs there, takes nothing new")
    foreign: Count = Field(0, description="GPUs held by jobs that are not ours")
    cpus: Cpus | None = Field(None, description="CPUs for our jobs; null: not a constraint")
    memory: Size | None = Field(None, description="bytes (or 64G) for our jobs; null: not a constraint")
    features: list[Name] = Field(default_factory=list, description="what jobs may ask for by name")
    wake_s: Duration = Field(0.0, description="powered down: how long a job waits there before it runs")
    away: list[AwayForm] = Field(default_factory=list, max_length=MOST_POINTS)


class GroupForm(Form):
    """`count` equal nodes, named GPU_TYPE-1, GPU_TYPE-2, ... or NAME1, NAME2, ..."""

    count: AtLeastOne
    gpu_type: Name
    gpus: Count
    racks: AtLeastOne | None = Field(None, description="spread over so many racks, in blocks")
    name: Name | None = Field(None, description="what their names begin with")
    cpus: Cpus | None = None
    memory: Size | None = None


class LimitsForm(Form):
    """What the cluster's adapter can carry out."""

    equal_gpus_per_node: bool = False
    one_type_per_job: bool = False
    pinning: Literal["exact", "type", "none"] = "exact"


class ClusterForm(Form):
    nodes: list[NodeForm] = Field(default_factory=list, max_length=MOST_ROWS)
    groups: list[GroupForm] = Field(default_factory=list, max_length=MOST_POINTS, description="the short form of nodes")
    limits: LimitsForm = LimitsForm()
    gpu_types: list[Name] | None = Field(None, description="slowest first; default: order of first appearance")


class TenantForm(Form):
    name: Name
    weight: Weight = 1.0
    cap: Count | None = Field(None, description="most GPUs it may hold now")
    beyond: Literal["idle", "wait"] | None = Field(
        None, description="its budget is used up: it gets what others leave idle, or starts nothing"
    )


class MatchForm(Form):
    """Whom a quota binds: who is named by job, by tenant or by app."""

    jobs: list[Name] = Field(default_factory=list, max_length=MOST_ROWS)
    tenant: Name | None = None
    app: Name | None = None


class QuotaForm(Form):
    """A limit of the site's on some jobs together, less what others use of it."""

    name: Name
    gpus: Count | None = Field(None, description="most that they may hold")
    jobs: Count | None = Field(None, description="most of them that may hold GPUs at a time")
    nodes: Count | None = Field(None, description="most that each of them may be on")
    gpus_per_node: Count | None = Field(None, description="most that each of them may hold on a node")
    least: Count | None = Field(None, description="fewest that each of them may hold, where it holds any")
    match: MatchForm


class GpusForm(Form):
    """Which GPU counts a job can use."""

    requested: AtLeastOne | None = Field(None, description="default: max, or min without one")
    min: AtLeastOne | None = Field(None, description="default: 1")
    max: AtLeastOne | None = Field(None, description="null: no limit")
    allowed: list[AtLeastOne] | None = Field(
        None, max_length=MOST_POINTS, description="the only counts that run; instead of min and max"
    )

    @model_validator(mode="before")
    @classmethod
    def _rigid(cls, data: Any) -> Any:
        if isinstance(data, int) and not isinstance(data, bool):
            return {"requested": data, "min": data, "max": data}
        return data

    @model_validator(mode="after")
    def _agree(self) -> GpusForm:
        if self.allowed is None:
            self._agree_on_range()
        else:
            self._agree_on_list(self.allowed)
        return self

    def _agree_on_list(self, allowed: Sequence[int]) -> None:
        if not allowed:
            raise wrong("allowed is empty", "list at least one GPU count")
        if self.min is not None or self.max is not None:
            raise wrong("has allowed and also min or max", "allowed is the whole truth: drop min and max")
        if self.requested is not None and self.requested not in allowed:
            raise wrong(f"requested {self.requested} is not in allowed", f"one of {sorted(set(allowed))}")

    def _agree_on_range(self) -> None:
        if self.min is None and self.max is None:
            raise wrong(
                "says neither min, max nor allowed", "write a whole number for a rigid gang, or {min: 1, max: 8}"
            )
        low, high = 1 if self.min is None else self.min, inf if self.max is None else self.max
        if low > high:
            raise wrong(f"min {low} is above max {self.max}", "swap them, or raise max")
        if self.requested is not None and not low <= self.requested <= high:
            raise wrong(f"requested {self.requested} is outside min..max", "a count between min and max")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "integer", "minimum": 1, "description": "a rigid gang"}, handler(core_schema)]}


class WorkForm(Form):
    total: Iterations | None = Field(None, description="iterations; null: the length is unknown to everybody")
    done: Done = 0.0

    @model_validator(mode="after")
    def _agree(self) -> WorkForm:
        if self.total is not None and self.done > self.total:
            raise wrong(f"done {self.done:g} is above total {self.total:g}", "raise total, or lower done")
        return self


class SlowdownForm(Form):
    node: Slowdown = 1.0
    rack: Slowdown = 1.1
    cluster: Slowdown = 1.3


class _PerGpu(Form):
    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        return {"per_gpu": data} if isinstance(data, int | float | str) and not isinstance(data, bool) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        bare = {"type": ["number", "string"], "description": "a bare value is per GPU"}
        return {"anyOf": [bare, handler(core_schema)]}


class JobCpusForm(_PerGpu):
    per_gpu: Cpus


class JobMemoryForm(_PerGpu):
    per_gpu: Size


class LossForecastForm(Form):
    law: Name
    parameters: dict[str, Loss]
    interval: Annotated[list[Loss], Field(min_length=2, max_length=2)] | None = None


def _lease(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _ends(v) for k, v in value.items()}
    return {"": [value]} if _ends(value) is not value else value


def _ends(value: Any) -> Any:
    """A number alone is a list of one."""
    if isinstance(value, bool):
        return value
    return [value] if isinstance(value, int | float) else value


_LEASE_SCHEMA = {
    "description": "s; for all GPUs held, or by node one time a GPU",
    "anyOf": [
        {"type": "number"},
        {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]},
        },
    ],
}


class ShapeForm(Form):
    """What a rigid job asked for and keeps; every key is optional."""

    nodes: AtLeastOne | None = None
    gpus_per_node: AtLeastOne | None = None
    cpus_per_node: Cpus | None = None
    memory_per_node: Size | None = Field(None, description="bytes, or 64G")
    features: list[Name] = Field(default_factory=list, description="every node has all of them")
    exclusive: bool = Field(False, description="nobody else on its nodes")
    licences: dict[str, AtLeastOne] = Field(default_factory=dict, description="counted by the cluster itself")


class TypesForm(Form):
    """GPU types that a job may run on. A required type that no node has: the job can never run."""

    require: list[Name] = Field(default_factory=list, description="one of these; empty: any")
    prefer: list[Name] = Field(default_factory=list)
    forbid: list[Name] = Field(default_factory=list)


class JobForm(Form):
    name: Name
    tenant: Name | None = Field(None, description="default: the job's name")
    app: Name | None = Field(None, description="default: the job's name")
    submitted: Time = 0.0
    gpus: GpusForm
    work: WorkForm = Field(default_factory=lambda: WorkForm(total=None))
    throughput: dict[str, Curve] = Field(
        default_factory=dict,
        description="iterations/s by GPU type and GPU count, at best placement; types not in it cannot be used",
    )
    provenance: dict[str, Literal["stated", "measured", "fit", "prior"]] = Field(default_factory=dict)
    model: Name | None = Field(None, description="key of a profile, or KEY@TABLE of a shipped throughput table")
    slowdown: SlowdownForm = SlowdownForm()
    attained: dict[str, GpuTime] = Field(default_factory=dict, description="GPU-s so far, by GPU type")
    allocation: dict[str, AtLeastOne] = Field(default_factory=dict, description="GPUs held now, by node")
    lease_until: Annotated[dict[str, list[Time]] | None, BeforeValidator(_lease), WithJsonSchema(_LEASE_SCHEMA)] = None
    cpus: JobCpusForm | None = None
    memory: JobMemoryForm | None = None
    known: bool = Field(True, description="false: policies must not read work.total")
    loss: list[Annotated[list[Loss], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list, max_length=MOST_ROWS
    )
    loss_forecast: LossForecastForm | None = None
    restart_cost: Duration | None = None
    shape: ShapeForm | None = None
    gpu_types: TypesForm | None = None
    stays: bool = Field(False, description="once it runs it cannot be stopped and resumed")
    time_left: Duration | None = Field(None, description="running time left of its time limit; null: no limit")
    priority: Priority = Field(0, description="among its tenant's jobs: higher stands earlier in line")
    precedence: Priority = Field(0, description="the same among all jobs; operators set it")


class PhaseForm(Form):
    jobs: AtLeastOne
    iterations: Done


class AppForm(Form):
    name: Name
    scheduler: Literal["successive-halving", "hyperband", "curve-stopping", "external"]
    budget: GpuTime | None = None
    demand_max: AtLeastOne | None = None
    phases: list[PhaseForm] = Field(default_factory=list)


class HistoryForm(Form):
    active_apps: list[Annotated[list[Time], Field(min_length=2, max_length=2)]] = Field(default_factory=list)


class PolicyForm(Form):
    name: Name
    options: dict[str, Any] = Field(default_factory=dict)


class CarriedForm(Form):
    """Of one job, what a decision that is being carried out changes (`policy/parts/carrying.py`)."""

    from_: dict[str, AtLeastOne] = Field(alias="from")
    to: dict[str, AtLeastOne]
    leases: dict[str, list[Time]] = Field(default_factory=dict)


class InstanceForm(Form):
    """One decision, fully specified."""

    schema_: int = Field(SCHEMA, alias="schema", description="version of this form")
    now: Time = Field(0.0, description="s")
    cluster: ClusterForm
    tenants: list[TenantForm] | None = Field(None, description="default: every tenant named by a job, weight 1")
    quotas: list[QuotaForm] = Field(default_factory=list, max_length=MOST_ROWS, description="limits of the site")
    jobs: list[JobForm] = Field(default_factory=list, max_length=MOST_ROWS)
    apps: list[AppForm] = Field(default_factory=list, description="apps with a scheduler of their own")
    history: HistoryForm = HistoryForm()
    state: dict[str, Any] = Field(
        default_factory=dict,
        description="of the policy named here, as an earlier answer returned it; another one begins without it",
    )
    policy: PolicyForm | None = None
