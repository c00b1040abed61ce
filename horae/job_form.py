"""What people send: one job, in the API's bodies and in the files that `horae submit --file` reads.

    name: resnet
    command: [python, train.py]
    gpus: {min: 1, max: 8}
    checkpoint: /home/ann/resnet/checkpoints

The same keys everywhere, the same errors everywhere (`policy.text.textform`): line, field, value, remedy.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from horae import visible
from horae.spec import JobSpec, program_of
from policy import bounds
from policy.model import GpuRange, Shape
from policy.text.forms import AtLeastOne, Curve, GpusForm, Priority, Size
from policy.text.textform import Document, Form, fit, load, wrong

#: Bytes; a specification is a page of text, and what is larger is a mistake or an attack.
LARGEST_BODY = 4 << 20
MOST_JOBS = 10_000
#: Bytes of a job's command and environment: what the kernel hands to a program at most, and half as much again.
MOST_WORDS_BYTES = 3 << 20
#: Seconds. A gang that needs days to checkpoint cannot be shared; a year is no limit.
LONGEST_GRACE_S = 7 * 86400.0
LONGEST_RUN_S = 10 * 366 * 86400.0
MOST_RETRIES = 1000


def _visible(text: str) -> str:
    found = visible.hidden(text)
    if found is not None:
        raise wrong(f"holds {visible.written(found)}, which no screen shows", "leave it out")
    return text


Text = Annotated[str, Field(max_length=65536, pattern=r"^[^\x00]*$")]
#: A path, a URL.
Word = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$"), AfterValidator(_visible)]
#: What others see beside the job.
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_visible)]
Title = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_visible)]
Why = Annotated[str, Field(max_length=1000), AfterValidator(_visible)]
#: What a shell would not take as a name of its own cannot be exported to the job.
Variable = Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Types = Annotated[list[Name], Field(max_length=256)]
Iterations = Annotated[float, Field(ge=bounds.LEAST_WORK, le=bounds.MOST_WORK)]
Cpus = Annotated[float, Field(gt=0, le=bounds.MOST_CPUS)]
Positive = Annotated[float, Field(ge=1e-9, le=bounds.MOST_GPU_S)]


def _or_none(data: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """No GPU, where it is said how many workers there are."""
    if isinstance(data, int) and data == 0 and not isinstance(data, bool) and info.data.get("workers"):
        return GpusForm.model_construct(requested=0, min=0, max=0, allowed=None)
    return read(data)


class TypesWish(Form):
    """GPU types: those that a job may run on, as a list of them; or in these words. A required one that no node has:
    the job can never run."""

    require: Types = Field(default_factory=list, description="one of these; none: any")
    prefer: Types = Field(default_factory=list, description="where there is room on these, before others")
    forbid: Types = Field(default_factory=list, description="never on these")

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, data: Any) -> Any:
        return {"require": data} if isinstance(data, list) else data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        listed = {"type": "array", "items": {"type": "string"}, "description": "as `require`"}
        return {"anyOf": [listed, handler(core_schema)]}

    @model_validator(mode="after")
    def _agree(self) -> TypesWish:
        if both := [t for t in (*self.require, *self.prefer) if t in self.forbid]:
            raise wrong(f"{both[0]} is forbidden, and wanted", "leave one of the two out")
        if self.require and (never := [t for t in self.prefer if t not in self.require]):
            raise wrong(f"{never[0]} is preferred, but not among those required", "require it too, or leave it out")
        return self


class JobForm(Form):
    """One job: a gang of workers, one a GPU."""

    name: Title | None = Field(None, description="default: the file that it runs, train.py of `python train.py`")
    command: list[Text] = Field(min_length=1, max_length=4096, description="run once a worker under horae-exec")
    workers: AtLeastOne | None = Field(
        None, description="processes that share the GPUs evenly, each on a node of its own; default: one a GPU"
    )
    gpus: Annotated[GpusForm, WrapValidator(_or_none)] = Field(
        description="a number (rigid), {min, max} or {allowed}; 0 where workers are said"
    )
    tenant: Name | None = Field(None, description="default: your user name")
    app: Name | None = Field(None, description="default: an app of its own")
    cwd: Word | None = Field(
        None, description="default: where you submit it from; over the API a full path, by default the job's own folder"
    )
    env: dict[Variable, Text] = Field(default_factory=dict, max_length=4096)
    typed: Word | None = Field(
        None, description="a file of yours with environment, umask and limits, by `horae submit`; on one machine"
    )
    elastic: bool = Field(True, description="false: started once at its requested size, never stopped by us")
    checkpoint: Word | None = Field(None, description="folder or URL; without one it cannot be resumed")
    gpu_types: TypesWish = Field(default_factory=TypesWish, description="those it may run on, or require/prefer/forbid")
    cpus_per_gpu: Cpus | None = None
    memory_per_gpu: Size | None = Field(None, description="bytes, or 64G")
    model: Name | None = Field(None, description="key under which profiles are shared")
    iterations: Iterations | None = Field(None, description="total work, if you know it")
    throughput: dict[Name, Curve] = Field(
        default_factory=dict, max_length=256, description="iterations/s by GPU type and GPU count; a number: of one GPU"
    )
    grace_s: float = Field(60.0, ge=0, le=LONGEST_GRACE_S, description="how long it may take to checkpoint and leave")
    time_limit_s: float | None = Field(None, gt=0, le=LONGEST_RUN_S, description="running time over all its starts")
    retries: int = Field(
        3, ge=0, le=MOST_RETRIES, description="failures (not resizes) after which it is failed for good"
    )
    extra: dict[Name, Text] = Field(default_factory=dict, max_length=256, description="the adapter's own options")
    priority: Priority = Field(0, description="among its tenant's jobs: higher stands earlier in line")

    @field_validator("command")
    @classmethod
    def _program(cls, command: list[str]) -> list[str]:
        if not command[0]:
            raise wrong("names no program", "put the program first")
        return command

    @model_validator(mode="after")
    def _agree(self) -> JobForm:
        words = sum(map(len, self.command)) + sum(len(k) + len(v) for k, v in self.env.items())
        if words > MOST_WORDS_BYTES:
            raise wrong(f"command and env hold {words} characters", f"at most {MOST_WORDS_BYTES}; put them into a file")
        self._check_workers()
        return self

    def _check_workers(self) -> None:
        gpus = gpu_range(self.gpus)
        if self.workers is None:
            return
        if not gpus.rigid or gpus.requested % self.workers:
            raise wrong(
                f"{self.workers} workers cannot share {range_text(gpus)} GPUs evenly",
                "a number of GPUs (rigid) that workers divides; or leave workers out",
            )
        if self.elastic:
            raise wrong("an elastic job has one worker a GPU", "say elastic: false, or leave workers out")

    def spec(self, *, owner: str, cwd: str = "") -> JobSpec:
        """The specification, on behalf of `owner`."""
        name = self.name or visible.neutral(program_of(self.command)[0] or self.command[0])[:128]
        return JobSpec(
            name=name,
            command=tuple(self.command),
            gpus=gpu_range(self.gpus),
            owner=owner,
            tenant=self.tenant or owner,
            app=self.app or "",
            cwd=self.cwd or cwd,
            env=dict(self.env),
            typed=self.typed,
            elastic=self.elastic,
            checkpoint=self.checkpoint,
            gpu_types=tuple(self.gpu_types.require),
            prefer_types=tuple(self.gpu_types.prefer),
            forbid_types=tuple(self.gpu_types.forbid),
            cpus_per_gpu=self.cpus_per_gpu,
            memory_per_gpu=self.memory_per_gpu,
            model=self.model,
            iterations=self.iterations,
            throughput={gpu_type: dict(curve) for gpu_type, curve in self.throughput.items()},
            grace_s=self.grace_s,
            time_limit_s=self.time_limit_s,
            retries=self.retries,
            workers=self.workers,
            shape=self._shape(),
            extra=dict(self.extra),
            priority=self.priority,
        )

    def _shape(self) -> Shape | None:
        if self.workers is None:
            return None
        each = gpu_range(self.gpus).requested // self.workers
        return Shape(nodes=self.workers, gpus_per_node=each) if each > 1 else None


class JobsForm(Form):
    """Many jobs in one request or file: all are taken, or none."""

    jobs: list[JobForm] = Field(min_length=1, max_length=MOST_JOBS)


def gpu_range(form: GpusForm) -> GpuRange:
    if form.allowed is not None:
        allowed = tuple(sorted(set(form.allowed)))
        return GpuRange(form.requested or allowed[-1], allowed[0], allowed[-1], allowed)
    low = 1 if form.min is None else form.min
    return GpuRange(form.requested or form.max or low, low, form.max)


def range_text(gpus: GpuRange) -> str:
    return str(gpus.requested) if gpus.rigid else f"{gpus.min} to {gpus.max or 'any number of'}"


def read_jobs(text: str | bytes, where: str) -> list[JobForm]:
    """One job, or `jobs:` with many, of a body or a file. Raises `BadInput`."""
    return fit_jobs(load(text, where))


def fit_jobs(document: Document) -> list[JobForm]:
    if isinstance(document.value, dict) and "jobs" in document.value:
        return fit(JobsForm, document).jobs
    return [fit(JobForm, document)]
