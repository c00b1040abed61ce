"""What is noted down while the demo plays: who held how much, when, and what was owed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.model import GpuSeconds, Seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster at one time: GPUs held, by tenant and by job."""

    at_s: Seconds  #: since the demo began
    tenants: Mapping[str, int]
    jobs: Mapping[str, int]


@dataclass(slots=True)
class ShareRecord:
    """Integrates statuses over time. `fair_gpu_s` is the integral of the shares that the arbiter says are fair."""

    began_s: Seconds | None = None
    last_s: Seconds | None = None
    moments: list[Moment] = field(default_factory=list)
    held_gpu_s: dict[str, GpuSeconds] = field(default_factory=dict)
    fair_gpu_s: dict[str, GpuSeconds] = field(default_factory=dict)
    gpu_s: GpuSeconds = 0.0  #: that the cluster had to give while somebody wanted it
    wanted_gpu_s: GpuSeconds = 0.0  #: of which jobs could have used so much

    def add(self, status: Mapping[str, Any]) -> None:
        """Note one status; the time since the one before is charged to what stands now."""
        now_s = status["now_s"]
        if self.began_s is None:
            self.began_s = now_s
        passed_s = 0.0 if self.last_s is None else max(now_s - self.last_s, 0.0)
        self.last_s = now_s
        held: dict[str, int] = {}
        for tenant in status["tenants"]:
            name = tenant["name"]
            held[name] = tenant["held"]
            self.held_gpu_s[name] = self.held_gpu_s.get(name, 0.0) + passed_s * tenant["held"]
            self.fair_gpu_s[name] = self.fair_gpu_s.get(name, 0.0) + passed_s * tenant["fair"]
        capacity = sum(n["gpus"] for n in status["nodes"] if n["health"] == "up")
        wanted = sum(t["fair"] for t in status["tenants"])
        if any(not j["ended"] for j in status["jobs"]):
            self.gpu_s += passed_s * capacity
            self.wanted_gpu_s += passed_s * min(wanted, capacity)
        jobs = {j["id"]: sum(j["allocation"].values()) for j in status["jobs"]}
        self.moments.append(Moment(now_s - self.began_s, held, jobs))

    @property
    def seconds(self) -> Seconds:
        return 0.0 if self.began_s is None or self.last_s is None else self.last_s - self.began_s
