"""The fast engine: the policy alone over state that is kept, not rebuilt.

A job that nothing happened to is the same object in the next snapshot; one that runs is made anew only for policies
that read how far it is or what it has had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from horae.journal.codec import plain
from horae.journal.folds.accounts import KEPT_APP_COUNTS
from horae.sim.engine.asking import AskedPolicy
from horae.sim.engine.reviews import next_review_s
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from policy.model import EMPTY, Allocation, Job, JobName, NodeName, Seconds, Snapshot, Tenant, Work

#: Policies that read of a job neither its progress nor its service.
BLIND = frozenset(("fifo", "max-min", "drf"))


class Fast:
    """See `moments.Engine`."""

    def __init__(self, asked: AskedPolicy, world: SimulatedWorld, *, shortcuts: bool = True) -> None:
        """`shortcuts` False: the policy itself is asked also where it tells sizes alone."""
        self._world = world
        self._about = (asked.in_one_pool() if shortcuts else None) or asked.about
        self._settings, self._speeds = asked.settings, asked.speeds
        self._blind = self._settings.entry.name in BLIND and not self._settings.apps
        self._active: dict[JobName, SimulatedJob] = {}
        self._jobs: dict[JobName, Job] = {}
        self._attained: dict[JobName, dict[str, float]] = {}
        self._leases: dict[JobName, Mapping[NodeName, Sequence[Seconds]]] = {}
        self._tenants: dict[str, int] = {}
        self._apps = ActiveApps()
        self._state: Mapping[str, object] = EMPTY

    def arrived(self, run: SimulatedJob) -> None:
        job = run.plain
        self._active[job.name], self._jobs[job.name] = run, job
        self._tenants[job.tenant] = self._tenants.get(job.tenant, 0) + 1
        self._apps.came(job.app, job.submitted_s, self._oldest_s)

    def decided(self, now_s: Seconds, over: Sequence[SimulatedJob]) -> Seconds:
        for run in over:
            self._left(run.plain, now_s)
        if not self._active:
            return inf
        snapshot = self._snapshot(now_s)
        proposal = self._about(snapshot)
        if proposal.cancel:
            snapshot = replace(snapshot, jobs=tuple(j for j in snapshot.jobs if j.name not in proposal.cancel))
        for name in proposal.cancel:
            run = self._active[name]
            self._world.lose(run, now_s)
            self._left(run.plain, now_s)
        self._carry_out(proposal.allocation, now_s)
        self._state = plain(proposal.state) if proposal.state else EMPTY
        if proposal.leases or self._leases:
            self._leases = {name: nodes for name, nodes in proposal.leases.items() if nodes}
        return next_review_s(self._settings, snapshot, proposal, self._seconds_left)

    def _left(self, job: Job, now_s: Seconds) -> None:
        self._apps.went(job.app, now_s, self._oldest_s)
        for known in (self._active, self._jobs, self._attained, self._leases):
            known.pop(job.name, None)
        self._tenants[job.tenant] -= 1
        if not self._tenants[job.tenant]:
            del self._tenants[job.tenant]

    def _oldest_s(self) -> Seconds:
        return next((job.submitted_s for job in self._jobs.values()), 0.0)

    def _seconds_left(self, name: JobName) -> Seconds:
        return self._active[name].seconds_left(self._speeds)

    # --- the picture --------------------------------------------------------------------------------------

    def _snapshot(self, now_s: Seconds) -> Snapshot:
        jobs = self._jobs
        if not self._blind:
            for name, run in self._active.items():
                if run.allocation:
                    jobs[name] = self._shown(run, now_s)
        return Snapshot(
            cluster=self._settings.cluster,
            jobs=tuple(jobs.values()),
            tenants=tuple(Tenant(name) for name in sorted(self._tenants)),
            now_s=now_s,
            apps=self._settings.apps,
            active_apps=self._apps.history,
            state=self._state,
        )

    def _shown(self, run: SimulatedJob, now_s: Seconds) -> Job:
        """The job as it is now. What it holds is charged from when it got it."""
        job = run.plain
        attained: Mapping[str, float] = self._attained.get(job.name, EMPTY)
        if run.allocation:
            elapsed_s, charged = now_s - run.held_s, dict(attained)
            for gpu_type, gpus in self._speeds.by_type(run.allocation).items():
                charged[gpu_type] = charged.get(gpu_type, 0.0) + gpus * elapsed_s
            attained = charged
        done, total = run.done_at(now_s), job.work.total
        if total is not None and done >= total:
            total = done + 1  # it has not ended, so something is left
        leases = {
            node: tuple(sorted(times))[-gpus:]
            for node, gpus in run.allocation.items()
            if (times := self._leases.get(job.name, EMPTY).get(node))
        }
        return Job(
            job.name,
            job.tenant,
            job.app,
            job.gpus,
            job.submitted_s,
            Work(total, done),
            job.throughput,
            job.provenance,
            job.model,
            job.slowdown,
            attained,
            run.allocation,
            leases or EMPTY,
            loss=run.losses(done),
            loss_forecast=None if run.curve is None or not run.starts else run.curve.forecast(),
        )

    # --- the way there ------------------------------------------------------------------------------------

    def _carry_out(self, allocation: Mapping[JobName, Allocation], now_s: Seconds) -> None:
        """GPUs are released before they are given."""
        changed: list[tuple[SimulatedJob, Allocation]] = []
        for name, run in self._active.items():
            to = allocation.get(name, EMPTY)
            if to != run.allocation:
                changed.append((run, to))
        for run, _ in changed:
            if run.allocation:
                held = self._speeds.by_type(run.allocation)
                books, elapsed_s = self._attained.setdefault(run.plain.name, {}), now_s - run.held_s
                for gpu_type, gpus in held.items():
                    books[gpu_type] = books.get(gpu_type, 0.0) + gpus * elapsed_s
                self._world.stop(run, now_s)
        for run, to in changed:
            if to:
                self._world.start(run, dict(to), now_s)
            self._jobs[run.plain.name] = self._shown(run, now_s)


class ActiveApps:
    """How many apps were active since when: what Themis' N_avg is made of, as the arbiter's ledger counts them."""

    def __init__(self) -> None:
        self._jobs: dict[str, int] = {}
        self._counts: list[tuple[Seconds, int]] = []
        self._shown: tuple[tuple[Seconds, int], ...] | None = ()

    @property
    def history(self) -> tuple[tuple[Seconds, int], ...]:
        """(time, apps from then on)."""
        if self._shown is None:
            self._shown = tuple(self._counts)
        return self._shown

    def came(self, app: str, at_s: Seconds, oldest_s: Callable[[], Seconds]) -> None:
        """`oldest_s`: submission of the oldest job that lives, this one among them."""
        known = self._jobs.get(app, 0)
        self._jobs[app] = known + 1
        if not known:
            self._note(at_s, oldest_s)

    def went(self, app: str, at_s: Seconds, oldest_s: Callable[[], Seconds]) -> None:
        """Likewise."""
        self._jobs[app] -= 1
        if not self._jobs[app]:
            del self._jobs[app]
            self._note(at_s, oldest_s)

    def _note(self, at_s: Seconds, oldest_s: Callable[[], Seconds]) -> None:
        self._shown, counts = None, self._counts
        if counts and counts[-1][0] == at_s:
            counts.pop()
        counts.append((at_s, len(self._jobs)))
        if len(counts) > KEPT_APP_COUNTS:
            oldest = oldest_s()
            first = next((i for i, (t, _) in enumerate(counts) if t > oldest), len(counts))
            self._counts = counts[max(first - 1, len(counts) - KEPT_APP_COUNTS // 2) :]
