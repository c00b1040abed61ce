"""An app's scheduler as an object: the questions that Themis' agent asks it (Fig. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from policy.model import App, Gpus, Job, Seconds
from policy.throughput import Span, Throughput


class JobInfo(NamedTuple):
    """One job of a phase, as the agent sees it."""

    iterations_remaining: float
    seconds_per_iteration: Seconds  #: on one GPU
    locality_sensitivity: float  #: S across racks over S on one node


@runtime_checkable
class AppScheduler(Protocol):
    def get_num_phases(self) -> int: ...

    def get_jobs_in_phase(self, phase: int, gpu_alloc: Sequence[Gpus]) -> list[JobInfo]:
        """Jobs of phase 0, 1, ...; `gpu_alloc`: GPUs on each node of the allocation that is asked about."""
        ...

    def get_jobs_remaining(self, gpu_alloc: Sequence[Gpus]) -> list[JobInfo]: ...


@dataclass(frozen=True, slots=True)
class Sweep:
    """Successive halving, a Hyperband bracket, or curve stopping, over the app's jobs in a snapshot."""

    app: App
    jobs: tuple[Job, ...]
    speeds: Throughput

    def get_num_phases(self) -> int:
        return max(len(self.app.phases), 1)

    def get_jobs_in_phase(self, phase: int, gpu_alloc: Sequence[Gpus]) -> list[JobInfo]:
        """The current phase by its own jobs; later ones by the median job, since nobody knows who will be left."""
        if not self.app.phases:
            return self.get_jobs_remaining(gpu_alloc)
        ends = [sum(p.iterations for p in self.app.phases[: i + 1]) for i in range(len(self.app.phases))]
        if not 0 <= phase < len(ends):
            raise IndexError(f"{self.app.name} has phases 0 to {len(ends) - 1}, not {phase}")
        done = min((j.work.done for j in self.jobs), default=0.0)
        current = next((i for i, end in enumerate(ends) if done < end), len(ends))
        if phase < current:
            return []
        if phase == current:
            return [self._info(j, max(ends[phase] - j.work.done, 0.0)) for j in self.jobs]
        ordered = sorted(self.jobs, key=lambda j: (-self._serial_s(j), j.order))
        stated = self.app.phases[phase]
        return [self._info(ordered[(len(ordered) - 1) // 2], stated.iterations)] * stated.jobs if ordered else []

    def get_jobs_remaining(self, gpu_alloc: Sequence[Gpus]) -> list[JobInfo]:
        return [self._info(j, j.work_left or 0.0) for j in self.jobs if j.work_left != 0]

    def _info(self, job: Job, iterations: float) -> JobInfo:
        slow = self.speeds.slowdown(job, Span.CLUSTER) / self.speeds.slowdown(job, Span.NODE)
        return JobInfo(iterations, self._serial_s(job), slow)

    def _serial_s(self, job: Job) -> Seconds:
        rate = self.speeds.reference(job)
        return 1.0 / rate if rate else 1.0
