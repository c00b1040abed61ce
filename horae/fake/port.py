"""One arbiter's connection to a fake world: the cluster port, with scripted faults in front of every call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from horae.fake.faults import Crash, Delay, Drop, Faults, LoseReply, Raise
from horae.fake.world import FakeJob, World
from horae.port import Capabilities, JobId, LogChunk, Never, Observation, PortError, TryLater
from horae.spec import JobSpec
from policy.model import Allocation, Health, Seconds

T = TypeVar("T")


class FakePort:
    def __init__(self, world: World, faults: Faults | None = None) -> None:
        self.world = world
        self.faults = faults or Faults()
        self.stale: Observation | None = None  #: shown instead of the truth while it is set

    # --- looking ------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        world = self.world
        return Capabilities(
            cluster=f"fake ({len(world.nodes)} nodes in memory)",
            limits=world.limits,
            owns_submission=world.owns_submission,
            order_lever="the order of a list in memory",
            restart_gap_s=world.restart_gap_s,
        )

    def observe(self) -> Observation:
        return self._ask("observe", None, lambda: self.stale or self.world.observe())

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        def read() -> LogChunk:
            fake = self._job(job)
            self.world.flush(fake)
            size, start = len(fake.log), offset
            identity = "1"
            if start > size:  # it must be another file
                start, identity = 0, "2"
            data = bytes(fake.log[start : start + limit])
            return LogChunk(data, start + len(data), identity, start + len(data) >= size)

        return self._ask("read_log", job, read)

    # --- the arbiter's life -------------------------------------------------------------------------------

    def claim(self, token: str) -> None:
        def claim() -> None:
            self.world.claim = token

        self._tell("claim", None, claim)

    def heartbeat(self) -> None:
        self._tell("heartbeat", None, lambda: None)  # nothing in this world looks for it

    def close(self) -> None:
        """Nothing is held open."""

    # --- acting on jobs -----------------------------------------------------------------------------------

    def submit(self, job: JobId, spec: JobSpec) -> None:
        def submit() -> None:
            known = self.world.jobs.get(job)
            if known is not None:
                if known.spec != spec:
                    raise Never(f"job {job} is known here with another specification")
                return
            if not self.world.owns_submission:
                raise Never("this cluster's own users submit")
            if spec.workers is not None:
                raise Never(f"{job}: there is one worker a GPU here; workers cannot be said")
            try:
                self.world.submit(job, spec)
            except ValueError as error:
                raise Never(f"fake.* options: {error}") from error

        self._tell("submit", job, submit)

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        def start() -> None:
            world, fake = self.world, self._job(job)
            if fake.state.ended:
                raise Never(f"job {job} is {fake.state}")
            if not allocation or any(gpus <= 0 for gpus in allocation.values()):
                raise Never("a start needs GPUs")
            for node, gpus in allocation.items():
                if node not in world.nodes:
                    raise Never(f"there is no node {node}")
                if gpus > world.nodes[node].gpus:
                    raise Never(f"{node} has {world.nodes[node].gpus} GPUs, not {gpus}")
            if epoch <= max(fake.epoch, fake.waiting[1] if fake.waiting else 0):
                return  # asked again, or late
            if not fake.state.startable:
                raise TryLater(f"job {job} is {fake.state}")
            self._check_free(allocation)
            world.grant(fake, allocation, epoch)

        self._judge(job, allocation, epoch)
        self._tell("start", job, start)

    def _judge(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """Note an arbiter that asks for GPUs in use: by what is true as it asks, not when a slow call takes effect."""
        world = self.world
        with world.lock:
            world.advance()
            fake = world.jobs.get(job)
            if fake is None or not fake.state.startable or epoch <= fake.epoch:
                return
            for node, gpus in allocation.items():
                if node in world.nodes and gpus > world.free(node):
                    world.refusals.append(f"{job} wants {gpus} GPUs of {node}, which has {world.free(node)} free")

    def _check_free(self, allocation: Allocation) -> None:
        world = self.world
        for node, gpus in allocation.items():
            if not world.queues_when_full and (gpus > world.free(node) or world.nodes[node].health is not Health.UP):
                raise TryLater(f"{node} ({world.nodes[node].health}) has {world.free(node)} GPUs free, not {gpus}")

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        def reshape() -> None:
            raise Never("this cluster cannot reshape a running job")

        self._tell("reshape", job, reshape)

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        self._tell("checkpoint_and_stop", job, lambda: self.world.stop(self._job(job), grace_s))

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, PortError]:
        failed: dict[JobId, PortError] = {}
        for job in jobs:
            try:
                self._tell("follow_up", job, lambda name=job: self._finish(name))  # type: ignore[misc]
            except PortError as error:
                failed[job] = error
        return failed

    def _finish(self, job: JobId) -> None:
        if self.world.unfinished.pop(job, None) is not None:
            self.world.followed.append(job)

    def cancel(self, job: JobId) -> None:
        self._tell("cancel", job, lambda: self.world.cancel(self._job(job)))

    def release(self, job: JobId) -> None:
        def release() -> None:
            fake = self.world.jobs.get(job)
            if fake is None:
                return
            if fake.allocation:
                fake.released = True
            else:
                del self.world.jobs[job]

        self._tell("release", job, release)

    def set_order(self, jobs: Sequence[JobId]) -> None:
        def order() -> None:
            self.world.order = tuple(jobs)

        self.world.order_asked = tuple(jobs)
        self._tell("set_order", None, order)

    def set_reason(self, job: JobId, text: str) -> None:
        def reason() -> None:
            self._job(job).reason = text

        self._tell("set_reason", job, reason)

    # --- shared -------------------------------------------------------------------------------------------

    def _job(self, job: JobId) -> FakeJob:
        fake = self.world.jobs.get(job)
        if fake is None or fake.released:
            raise Never(f"there is no job {job}")
        return fake

    def _ask(self, verb: str, job: JobId | None, answer: Callable[[], T]) -> T:
        with self.world.lock:
            fault = self.faults.next(verb, job)
            if isinstance(fault, Crash):
                fault.before()
            if isinstance(fault, (Raise, LoseReply)):
                raise fault.error
            self.world.advance()
            return answer()

    def _tell(self, verb: str, job: JobId | None, effect: Callable[[], None]) -> None:
        with self.world.lock:
            fault = self.faults.next(verb, job)
            if isinstance(fault, Crash):
                fault.before()
            self.world.advance()
            if isinstance(fault, Raise):
                raise fault.error
            if isinstance(fault, Drop):
                return
            if isinstance(fault, Delay):
                self.world.later(fault.seconds, _quietly(effect))
                return
            effect()
            if isinstance(fault, LoseReply):
                raise fault.error


def _quietly(effect: Callable[[], None]) -> Callable[[], None]:
    """A late effect has nobody left to complain to."""

    def run() -> None:
        try:
            effect()
        except (Never, TryLater):
            return

    return run
