"""What is written to Slurm about a job, free of its spelling: each client says it in its own words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policy.model import Gpus


class Verb(StrEnum):
    UPDATE = "update"
    RELEASE = "release"
    HOLD = "hold"
    REQUEUE_HOLD = "requeuehold"


@dataclass(frozen=True, slots=True)
class Change:
    """New values of a pending job's request; None leaves one as it is."""

    start_now: bool = False
    start_s: float | None = None  #: not before then
    nodes: int | None = None  #: exactly so many
    tasks: int | None = None
    cpus_per_task: int | None = None
    cpus: int | None = None
    node_list: tuple[str, ...] | None = None  #: empty: any nodes
    gpus_per_node: Gpus | None = None
    memory_mb: int | None = None  #: a node
    limit_min: int | None = None
    site_factor: int | None = None
    partitions: tuple[str, ...] | None = None
    mail: tuple[str, ...] | None = None  #: what its user is written about; also of a running job

    @property
    def sets_begin(self) -> bool:
        """Whether it writes over whatever begin time is there."""
        return self.start_now or self.start_s is not None


@dataclass(frozen=True, slots=True)
class Write:
    verb: Verb
    job: str  #: JobId, or ARRAY_TASK
    change: Change | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.job}"


def update(job: str, change: Change) -> Write:
    return Write(Verb.UPDATE, job, change)


def release(job: str) -> Write:
    return Write(Verb.RELEASE, job)


def hold(job: str) -> Write:
    return Write(Verb.HOLD, job)


def requeue_hold(job: str) -> Write:
    return Write(Verb.REQUEUE_HOLD, job)
