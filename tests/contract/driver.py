"""The suite's hands: waiting, choosing shapes, reading logs, over any harness."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import pytest

from horae.port import ClusterPort, JobId, JobState, Observation, ObservedJob, PortError, TryLater, attend
from policy.model import Allocation, BadInput, Health, Node
from tests.contract.harness import Behaviour, Harness, Start, job_in, starts_in, steps_in
from tests.contract.waiting import BUSY, patiently

T = TypeVar("T")
#: after this long an arbiter asks again for a start that does not show, with the same epoch
ASK_AGAIN_S = 15.0
#: of the supervisor, where no try of a start came so far that a program began
NO_RANK = b"none of its ranks can begin in this start"


@dataclass
class _Asked:
    """A start that was accepted."""

    allocation: Allocation
    epoch: int
    at_s: float


class Driver:
    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._asked: dict[JobId, _Asked] = {}
        self._stopped_at: float | None = None  #: when a stop was last seen, for the mandatory restart gap

    @property
    def port(self) -> ClusterPort:
        return self.harness.port

    # --- looking ------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """One whole observation, and the invariants that hold for every observation of every cluster."""
        seen = self.patient(lambda: attend(self.port))
        names = [job.id for job in seen.jobs]
        assert len(names) == len(set(names)), "a job appears twice"
        nodes = {node.name: node for node in seen.nodes}
        assert len(nodes) == len(seen.nodes), "a node appears twice"
        for node in seen.nodes:
            assert 0 <= node.foreign <= node.gpus
        held: dict[str, int] = {}
        for job in seen.jobs:
            assert job.allocation == {} or job.state.holds, f"{job.id} is {job.state} and holds {job.allocation}"
            assert all(gpus > 0 for gpus in job.allocation.values())
            for name, gpus in job.allocation.items():
                held[name] = held.get(name, 0) + gpus
        for name, gpus in held.items():
            assert gpus + nodes[name].foreign <= nodes[name].gpus, f"{name} is over-allocated"
        return seen

    def job(self, job: JobId) -> ObservedJob:
        found = job_in(self.observe().jobs, job)
        assert found is not None, f"{job} is not in the observation"
        return found

    def node(self, name: str) -> Node:
        return next(node for node in self.observe().nodes if node.name == name)

    def log(self, job: JobId) -> bytes:
        data, offset = b"", 0
        while True:
            chunk = self.patient(lambda at=offset: self.port.read_log(job, at))  # type: ignore[misc]
            data, offset = data + chunk.data, chunk.next_offset
            if chunk.eof:
                return data

    def starts(self, job: JobId) -> list[Start]:
        return starts_in(self.log(job))

    def steps(self, job: JobId) -> list[int]:
        return steps_in(self.log(job))

    # --- waiting ------------------------------------------------------------------------------------------

    def patient(self, call: Callable[[], T]) -> T:
        return patiently(call, self.harness.patience_s, self.harness.pause)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """A cluster that does not answer now, to the port or to a command, shows nothing yet."""
        deadline, silent = time.monotonic() + BUSY * self.harness.patience_s, ""
        while True:
            try:
                if holds():
                    return
            except (TryLater, BadInput) as error:
                silent = f" ({error})"
            if time.monotonic() > deadline:
                pytest.fail(f"not within {BUSY * self.harness.patience_s:g} s: {what}{silent}")
            self.harness.pause()

    def wait(self, job: JobId, *states: JobState) -> ObservedJob:
        """The first observation in which `job` is in one of `states`."""
        seen: list[ObservedJob] = []

        def reached() -> bool:
            seen.append(self.job(job))
            if seen[-1].state.ended and seen[-1].state not in states:
                pytest.fail(f"{job} was to be {' or '.join(states)}, was {seen[-1].state} ({seen[-1].native})")
            if seen[-1].state in states:
                return True
            if not all(state.startable or state is JobState.CANCELLED for state in states):
                self._ask_again(seen[-1])
                self._start_anew(seen[-1])
            return False

        with self._telling(job):
            self.until(f"{job} {' or '.join(states)}", reached)
        if seen[-1].state in (JobState.STOPPED, JobState.LOST):
            self._stopped_at = time.monotonic()
        return seen[-1]

    def wait_progress(self, job: JobId, steps: int = 2) -> None:
        """Until its program has printed `steps` more steps than it has now."""
        before = len(self.steps(job))

        def progressed() -> bool:
            seen = self.job(job)
            if seen.state.ended:
                pytest.fail(f"{job} was to make progress")
            self._start_anew(seen)
            return len(self.steps(job)) >= before + steps

        with self._telling(job):
            self.until(f"{job} makes progress", progressed)

    @contextmanager
    def _telling(self, job: JobId) -> Iterator[None]:
        """A wait that fails shows the job and the end of its log."""
        try:
            yield
        except pytest.fail.Exception as failure:
            log = b""
            with suppress(PortError):
                log = self.log(job)
            tail = log[-2000:].decode(errors="replace")
            raise AssertionError(f"{failure}; it is {self.job(job)}; its log ends:\n{tail}") from None

    # --- choosing -----------------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """Healthy nodes of the GPU type that has at least two of them, by name."""
        seen = self.observe()
        up = [n for n in sorted(seen.nodes, key=lambda n: n.name) if n.health is Health.UP and n.gpus - n.foreign >= 2]
        for node in up:
            same = [n for n in up if n.gpu_type == node.gpu_type]
            if len(same) >= 2:
                return same
        raise AssertionError("the harness promised two nodes of one type with two free GPUs each")

    def one(self, gpus: int = 1) -> Allocation:
        """`gpus` GPUs on the first node."""
        return {self.nodes()[0].name: gpus}

    def other(self, gpus: int = 1) -> Allocation:
        """`gpus` GPUs on the second node."""
        return {self.nodes()[1].name: gpus}

    def spread(self, each: int = 1) -> Allocation:
        """`each` GPUs on each of two nodes."""
        return {node.name: each for node in self.nodes()[:2]}

    # --- acting -------------------------------------------------------------------------------------------

    def submit(self, name: str, behaviour: Behaviour = Behaviour.TRAINS, *, gpus: tuple[int, int] = (1, 4)) -> JobId:
        job = self.harness.submit(name, behaviour, gpus=gpus)
        self.wait(job, JobState.QUEUED)
        return job

    def start(self, job: JobId, allocation: Allocation, epoch: int = 1) -> None:
        """Start as the arbiter does: after the mandatory gap; and after another look where it says `TryLater`."""
        gap = self.port.capabilities().restart_gap_s
        if self._stopped_at is not None and gap:
            time.sleep(max(0.0, self._stopped_at + gap - time.monotonic()))
        self.start_at_once(job, allocation, epoch)

    def start_at_once(self, job: JobId, allocation: Allocation, epoch: int = 1) -> None:
        """Without the gap, which an adapter keeps by itself, too; with a look before it is asked again."""
        deadline = time.monotonic() + BUSY * self.harness.patience_s
        while True:
            try:
                self.port.start(job, allocation, epoch)
                break
            except TryLater:
                if time.monotonic() > deadline:
                    raise
                self.harness.pause()
                self.observe()  # GPUs that came free since the last look are seen by the next one
        self.asked(job, allocation, epoch)

    def asked(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """A start was accepted. It may be taken back (a slow cluster looks blocked): `wait` asks again then."""
        self._asked[job] = _Asked(allocation, epoch, time.monotonic())

    def _ask_again(self, seen: ObservedJob) -> None:
        """As the arbiter does: a start that the cluster took back, or that does not show, with the same epoch."""
        asked = self._asked.get(seen.id)
        if asked is None or not seen.state.startable or seen.epoch >= asked.epoch:
            return
        if seen.blocked is not None or time.monotonic() > asked.at_s + ASK_AGAIN_S:
            with suppress(TryLater):
                self.port.start(seen.id, asked.allocation, asked.epoch)
                asked.at_s = time.monotonic()

    def _start_anew(self, seen: ObservedJob) -> None:
        """As the arbiter does: where Slurm gave it none of its GPUs, the job has left for another start. (22.05 after
        `slurmctld -R`, of nodes that have not told of themselves yet.)"""
        asked = self._asked.get(seen.id)
        if asked is None or seen.state is not JobState.STOPPED or NO_RANK not in self.log(seen.id):
            return
        self._stopped_at = time.monotonic()
        self.start(seen.id, asked.allocation, asked.epoch + 1)

    def stop(self, job: JobId, grace_s: float) -> None:
        self._asked.pop(job, None)
        self.patient(lambda: self.port.checkpoint_and_stop(job, grace_s))

    def cancel(self, job: JobId) -> None:
        self._asked.pop(job, None)
        self.patient(lambda: self.port.cancel(job))

    def running(
        self,
        name: str,
        behaviour: Behaviour = Behaviour.TRAINS,
        allocation: Allocation | None = None,
        *,
        gpus: tuple[int, int] = (1, 4),
    ) -> JobId:
        """A job that runs and has printed a few steps."""
        job = self.submit(name, behaviour, gpus=gpus)
        self.start(job, self.one() if allocation is None else allocation)
        self.wait(job, JobState.RUNNING)
        self.wait_progress(job)
        return job

    def stopped(self, name: str, allocation: Allocation | None = None) -> JobId:
        job = self.running(name, allocation=allocation)
        self.stop(job, 60.0)
        self.wait(job, JobState.STOPPED)
        return job
