"""A small site for tests: a fake cluster, a clock that only moves when told, and an arbiter driven in one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from horae.arbiter.admit.models import Models, standard
from horae.arbiter.core import Core
from horae.arbiter.decide.policy_runner import Decide, Inline
from horae.arbiter.driver import Driver
from horae.arbiter.execute.executor import Executor
from horae.arbiter.observe.measurements import Profiles, SdkProfiles
from horae.arbiter.requests.authority import Requester
from horae.arbiter.requests.commands import Commands
from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.fake import FakePort, Program, World
from horae.journal import Clock, JobRecord, Journal
from horae.port import ClusterPort, JobState
from horae.spec import JobSpec
from policy.model import (
    EMPTY,
    Allocation,
    Certificate,
    Code,
    Decision,
    GpuRange,
    Job,
    Node,
    Reason,
    Snapshot,
    Worst,
)

ROOT, ANN, BEN = Requester("root"), Requester("ann"), Requester("ben")
NODES = tuple(Node(f"n{i}", "k80" if i < 3 else "v100", 4) for i in range(1, 5))


class Time:
    """Wall and monotonic time in one hand; the wall can be stepped."""

    def __init__(self, start_s: float = 1_000_000.0) -> None:
        self.now, self.wall_offset = start_s, 0.0
        self.boot = f"the host's start {id(self)}"  #: by which an arbiter knows that `monotonic` went on without it

    def wall(self) -> float:
        return self.now + self.wall_offset

    def monotonic(self) -> float:
        return self.now


def config(folder: Path, **changes: Any) -> Config:
    """Pools enforce unless they say otherwise."""
    data: dict[str, Any] = {
        "cluster": {"adapter": "fake"},
        "state_dir": str(folder),
        "guards": {"min_run_s": 0.0, "gain": 0.0, "restarts_per_hour": 1000},
        "tenants": [{"name": "ann"}, {"name": "ben"}],
        **changes,
    }
    data["pools"] = [{"mode": "enforce", **pool} for pool in data.get("pools", [{"name": "main"}])]
    return Config.model_validate(data)


def spec(
    name: str = "job", gpus: int | tuple[int, int] = 1, *, owner: str = "", steps: int = 1000, **changes: Any
) -> JobSpec:
    least, most = (gpus, gpus) if isinstance(gpus, int) else gpus
    values: dict[str, Any] = {"checkpoint": "ckpt", "iterations": float(steps), "grace_s": 10.0, **changes}
    return JobSpec(name, ("train",), GpuRange(most, least, most), owner=owner, **values)


class Site:
    """`policy`: what decides. The default gives every job, in order, as much as fits."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: Sequence[Node] = NODES,
        policy: Decide | None = None,
        time: Time | None = None,
        world: World | None = None,
        port: ClusterPort | None = None,
        program: Program | None = None,
        models: Models | None = None,
        profiles: Callable[[], Profiles] = SdkProfiles,
        world_options: Mapping[str, Any] = EMPTY,
        **changes: Any,
    ) -> None:
        self.time = time or Time()
        self.world = world or World(
            nodes,
            clock=self.time.monotonic,
            program=program or Program(iteration_s=0.5, start_s=1.0, stop_s=0.5, log_every=10),
            **world_options,
        )
        self.fake = FakePort(self.world)
        self.port: ClusterPort = port or self.fake
        self.config = config(folder, **changes)
        self.policy, self.models, self.profiles = policy or first_come, models or standard(), profiles
        self.open()

    def open(self) -> None:
        """Start an arbiter on whatever the state folder holds."""
        self.journal = self.open_journal()
        self.core = Core(self.config, self.journal, self.models)
        self.commands = Commands(self.core)
        executor = Executor(self.port, self.profiles(), self.time.monotonic)
        self.driver = Driver(self.core, executor, Inline(self._decide))

    def _decide(self, *asked: Any) -> Decision:
        return self.policy(*asked)

    def open_journal(self) -> Journal:
        return Journal(self.config.state_dir, Clock(self.time.wall, self.time.monotonic, self.time.boot))

    def close(self) -> None:
        self.journal.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    # --- time ---------------------------------------------------------------------------------------------

    def run(self, seconds: float, step_s: float = 0.25) -> None:
        until = self.time.now + seconds
        while self.time.now < until:
            self.driver.tick()
            self.time.now += step_s

    def until(self, job: str, *states: JobState, patience_s: float = 120.0) -> JobRecord:
        until = self.time.now + patience_s
        while self.job(job).state not in states and self.job(job).ended not in states:
            assert self.time.now < until, f"job {job} is {self.job(job)}"
            self.run(0.25)
        return self.job(job)

    def job(self, job: str) -> JobRecord:
        return self.core.ledger.jobs[job]


# --- policies ---------------------------------------------------------------------------------------------


def answer(snapshot: Snapshot, allocation: Mapping[str, Allocation], name: str = "test", **changes: Any) -> Decision:
    reasons = {
        job.name: Reason(
            Code.GRANTED if allocation.get(job.name) else Code.WAITS_CAPACITY, f"{job.name}: by the test's policy"
        )
        for job in snapshot.jobs
    }
    certificate = Certificate(
        feasible=True,
        work_conserving=True,
        sharing_incentive=Worst(1.0, None),
        envy=Worst(0.0, None),
        pareto=None,
        rho={},
        throughput=0.0,
        optimal_throughput=None,
    )
    return Decision(name, {}, 0, allocation, reasons, certificate, **changes)


def fill(job: Job, gpus: int, free: dict[str, int]) -> Allocation:
    """`gpus` GPUs where the job is first, then wherever there are some; takes them from `free`."""
    out: dict[str, int] = {}
    for node in sorted(free, key=lambda n: (-job.allocation.get(n, 0), n)):
        take = min(free[node], gpus - sum(out.values()))
        if take > 0:
            out[node] = take
    if sum(out.values()) < gpus:
        return {}
    for node, taken in out.items():
        free[node] -= taken
    return out


def room(snapshot: Snapshot) -> dict[str, int]:
    return {n.name: n.gpus - n.foreign for n in snapshot.cluster.nodes if n.health == "up"}


def first_come(snapshot: Snapshot, policy: str, options: Mapping[str, Any], seed: int, limit_s: float) -> Decision:
    """Every job in order gets the most that fits."""
    free = room(snapshot)
    allocation = {
        job.name: fill(job, job.gpus.at_most(sum(free.values())), free)
        for job in sorted(snapshot.jobs, key=lambda j: j.order)
    }
    return answer(snapshot, allocation, policy)


def equal_shares(snapshot: Snapshot, policy: str, options: Mapping[str, Any], seed: int, limit_s: float) -> Decision:
    """Every job gets the same number of GPUs: an arrival shrinks the others."""
    free, jobs = room(snapshot), sorted(snapshot.jobs, key=lambda j: j.order)
    each = max(sum(free.values()) // max(len(jobs), 1), 1)
    allocation = {job.name: fill(job, job.gpus.at_most(each), free) for job in jobs}
    return answer(snapshot, allocation, policy)


QUICK = {"rounds": {"tick_s": 0.2, "busy_s": 0.05, "debounce_s": 0.01}}


def serve(folder: Path, world: World | None = None, **changes: Any) -> Arbiter:
    world = world or World(NODES, program=Program(iteration_s=0.01, start_s=0.05, stop_s=0.02))
    return Arbiter(config(folder, **{**QUICK, **changes}), FakePort(world), runner=Inline(first_come))
