"""The engine that is production: the arbiter's core, journal, admission and plan, over the simulated cluster.

At each moment the arbiter's rounds follow one another until nothing is asked of the cluster any more. Within a moment
the policy's first answer stands while it is carried out, as it does for the fast engine; nothing else differs from a
daemon but the clock, the journal (in memory) and how progress is read (from the world, not from logs). The guards of a
site are off: policies are compared as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from math import inf

from horae.arbiter.admit.models import standard
from horae.arbiter.core import Core, Stage
from horae.arbiter.decide.policy_runner import Answer, Question
from horae.arbiter.driver import Driver
from horae.arbiter.execute.executor import Executor
from horae.arbiter.observe.measurements import ReadLog
from horae.config import Config
from horae.journal import Clock, Draft, events
from horae.journal.measured import Measurement
from horae.port import JobId, Observation
from horae.sim.engine.asking import AskedPolicy, Settings
from horae.sim.engine.memory_journal import MemoryJournal
from horae.sim.engine.port import SimPort
from horae.sim.engine.reviews import next_review_s
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from horae.sim.traces.model import USUAL
from horae.spec import JobSpec
from policy.model import EMPTY, Certificate, Decision, Job, JobName, Proposal, Seconds, Snapshot, Worst

POOL = "main"
#: Rounds of one moment: what is not carried out after so many never will be.
MOST_ROUNDS = 100
#: Rounds that follow one another at once.
INSTANT = {"debounce_s": 0.0, "quiet_s": 1e-9}
_UNMEASURED = Certificate(True, True, Worst(1.0, None), Worst(0.0, None), None, {}, 0.0, None)


class ArbiterEngine:
    """See `moments.Engine`."""

    def __init__(self, asked: AskedPolicy, world: SimulatedWorld) -> None:
        self._asked, self._world, self._settings = asked, world, asked.settings
        self.port = SimPort(world, self._settings.cluster)
        self._active: dict[JobName, SimulatedJob] = {}
        self._config = config_of(asked.settings, INSTANT)
        self._now_s = 0.0
        clock = Clock(self._time, self._time)
        self.journal = MemoryJournal(clock)
        self._runner = _OneAnswer(asked)
        self.core = Core(self._config, self.journal, standard(), lambda _ledger, _pool: self._settings.apps)
        executor = Executor(self.port, WorldProgress(self._active, self._time), self._time)
        self._driver = Driver(self.core, executor, self._runner)

    def _time(self) -> Seconds:
        return self._now_s

    def arrived(self, run: SimulatedJob) -> None:
        job = run.plain
        self._now_s = self.port.now_s = max(self._now_s, job.submitted_s)
        self._active[job.name] = run
        self.core.write([submission(job, job.submitted_s)], durable=True)

    def decided(self, now_s: Seconds, over: Sequence[SimulatedJob]) -> Seconds:
        self._now_s = self.port.now_s = now_s
        self.port.over(over)
        for run in over:
            del self._active[run.plain.name]
        for _ in range(MOST_ROUNDS):
            before = (self.port.deeds, self._runner.asked)
            self.core.wake()
            self._driver.tick()
            assert self.core.stage is Stage.IDLE, f"the arbiter stands at {self.core.stage}"
            if (self.port.deeds, self._runner.asked) == before:
                break
        else:
            raise AssertionError(f"the arbiter does not come to rest at {now_s}")
        for run in over:
            self.port.forget(run.plain.name)
        for run in self.port.lost:
            del self._active[run.plain.name]
            self.port.forget(run.plain.name)
        self.port.lost.clear()
        last = self._runner.last
        if not self._active or last is None:
            return inf
        return next_review_s(self._settings, *last, self._seconds_left)

    def _seconds_left(self, name: JobName) -> Seconds:
        return self._active[name].seconds_left(self._asked.speeds)


def submission(job: Job, submitted_s: Seconds) -> Draft:
    """The event of a job that is handed in."""
    spec = JobSpec(
        job.name,
        ("train",),
        job.gpus,
        owner=job.tenant,
        tenant=job.tenant,
        app=job.app,
        checkpoint="sim",
        model=job.model,
        iterations=job.work.total,
        throughput=job.throughput,
    )
    app = job.app.removeprefix(f"{job.tenant}/")
    return events.Submitted(
        job.name, spec, pool=POOL, tenant=job.tenant, app=app, owner=job.tenant, submitted_s=submitted_s
    )


class _OneAnswer:
    """Asks the policy once a moment; the arbiter hears the same answer until it is carried out."""

    def __init__(self, asked: AskedPolicy) -> None:
        self._policy = asked
        self.asked = 0
        self.last: tuple[Snapshot, Proposal] | None = None

    def ask(self, question: Question) -> Answer:
        snapshot = question.snapshot
        if not snapshot.jobs:
            return Answer(decision_of(question, Proposal({}, state=snapshot.state)))
        if self.last is not None and self.last[1].cancel:
            self.last = _without_lost(*self.last, {job.name for job in snapshot.jobs})
        if self.last is None or not _same_moment(self.last[0], snapshot):
            self.asked += 1
            self.last = (snapshot, self._policy.about(snapshot))
        return Answer(decision_of(question, self.last[1]))

    def close(self) -> None:
        """Nothing is held open."""


def _same_moment(one: Snapshot, other: Snapshot) -> bool:
    return one.now_s == other.now_s and [j.name for j in one.jobs] == [j.name for j in other.jobs]


def _without_lost(snapshot: Snapshot, proposal: Proposal, live: Set[JobName]) -> tuple[Snapshot, Proposal]:
    """The same once jobs that it ends have ended."""
    lost = {name for name in proposal.cancel if name not in live}
    jobs = tuple(job for job in snapshot.jobs if job.name not in lost)
    left = tuple(name for name in proposal.cancel if name in live)
    return replace(snapshot, jobs=jobs), replace(proposal, cancel=left)


def decision_of(question: Question, proposal: Proposal) -> Decision:
    """The proposal as a policy's runner hands it in."""
    return Decision(
        question.policy,
        question.options,
        question.seed,
        proposal.allocation,
        {},
        _UNMEASURED,
        shares=proposal.shares,
        leases=proposal.leases,
        cancel=proposal.cancel,
        state=proposal.state,
    )


class WorldProgress:
    """How far jobs are, from the world itself."""

    def __init__(self, active: Mapping[JobName, SimulatedJob], now_s: Callable[[], Seconds]) -> None:
        self._active, self._now_s = active, now_s

    def read_s(self) -> Mapping[JobId, Seconds]:
        return EMPTY

    def update(self, observation: Observation, read_log: ReadLog) -> Mapping[JobId, Measurement]:
        return {name: self._of(run) for name, run in self._active.items() if run.starts or run.plain.slowdown != USUAL}

    def _of(self, run: SimulatedJob) -> Measurement:
        done = run.done_at(self._now_s())
        forecast = run.curve.forecast() if run.curve is not None and run.starts else None
        return Measurement(done=done, slowdown=run.plain.slowdown, loss=run.losses(done), loss_forecast=forecast)

    def restore(self, known: Mapping[JobId, Measurement]) -> None:
        """The world forgets nothing."""


def config_of(settings: Settings, rounds: Mapping[str, Seconds], min_run_s: Seconds = 0.0) -> Config:
    """One pool that is enforced, without the guards of a site but `min_run_s`."""
    pool = {
        "name": POOL,
        "mode": "enforce",
        "policy": settings.entry.name,
        "options": dict(settings.options),
        "seed": settings.seed,
    }
    return Config.model_validate(
        {
            "cluster": {"adapter": "simulated"},
            "state_dir": "/nonexistent/simulated",
            "pools": [pool],
            "rounds": dict(rounds),
            "guards": {"min_run_s": min_run_s, "gain": 0.0, "restarts_per_hour": 1_000_000},
            "probes": {"an_hour": 0.0},
            "history": {"forget_s": 1.0},
        }
    )
