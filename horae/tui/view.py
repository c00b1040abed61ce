"""What one picture of a cluster holds: values only, made from an answer of the API, drawn by `parts.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from policy.model import EMPTY, Allocation, Gpus, GpuSeconds, Seconds


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    gpu_type: str
    gpus: Gpus
    health: str = "up"
    foreign: Gpus = 0


@dataclass(frozen=True, slots=True)
class JobView:
    id: str
    name: str
    tenant: str
    state: str
    gpus: str  #: its range, as `horae submit --gpus` reads it
    allocation: Allocation = field(default_factory=lambda: EMPTY)
    submitted_s: Seconds = 0.0
    ran_s: Seconds = 0.0
    step: float | None = None
    total: float | None = None
    losses: tuple[tuple[float, float], ...] = ()  #: (iteration, loss)
    rho: float | None = None
    starts: int = 0
    reason: str = ""
    trouble: str = ""  #: that it cannot write checkpoints, or lets GPUs lie unused
    ended: bool = False

    @property
    def held(self) -> Gpus:
        return sum(self.allocation.values())

    @property
    def progress(self) -> float | None:
        """Part of the work that is done, None where nobody knows the whole."""
        if self.state == "completed":
            return 1.0
        if self.step is None or not self.total:
            return None
        return min(self.step / self.total, 1.0)

    @property
    def loss(self) -> float | None:
        return self.losses[-1][1] if self.losses else None


@dataclass(frozen=True, slots=True)
class TenantView:
    name: str
    weight: float = 1.0
    held: Gpus = 0
    fair: float = 0.0  #: GPUs it is owed now: weighted, and never more than its jobs can use
    gpu_s: GpuSeconds = 0.0  #: GPU time of all its jobs so far
    fair_gpu_s: GpuSeconds | None = None  #: what it was owed over the same time, where that was followed
    waiting: int = 0
    running: int = 0
    rho: float | None = None  #: worst of its apps


@dataclass(frozen=True, slots=True)
class TrialView:
    id: str
    state: str
    held: Gpus = 0
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class AppView:
    name: str
    tenant: str
    scheduler: str
    phase: str  #: "1/2 to 20": which of how many, and the iterations it ends at
    places: int | None  #: that go on after it
    trials: tuple[TrialView, ...] = ()
    best: str = ""  #: job and loss


@dataclass(frozen=True, slots=True)
class EventView:
    wall_s: Seconds
    text: str
    job: str = ""
    name: str = ""
    tenant: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class View:
    cluster: str
    policy: str
    mode: str
    wall_s: Seconds
    nodes: tuple[NodeView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    apps: tuple[AppView, ...] = ()  #: with a scheduler of their own, and jobs left to run
    events: tuple[EventView, ...] = ()  #: oldest first
    alerts: tuple[str, ...] = ()
    since_s: Seconds | None = None  #: how long this has been going on

    @property
    def gpus(self) -> Gpus:
        return sum(n.gpus for n in self.nodes if n.health != "down")

    @property
    def held(self) -> Gpus:
        return sum(j.held for j in self.jobs)

    def job(self, name: str) -> JobView | None:
        return next((j for j in self.jobs if j.id == name), None)


def palette(tenants: Iterable[str]) -> dict[str, str]:
    """A colour a tenant, the same in every part of the screen and from one picture to the next."""
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(sorted(set(tenants)))}


#: Apart from each other for eyes that see red and green alike; readable under black and under white text.
COLOURS: Sequence[str] = ("#4c9be8", "#f2a33a", "#3fbf8f", "#d66bb3", "#c9c23f", "#8f7fe8", "#e86a5c", "#6fc3d6")
