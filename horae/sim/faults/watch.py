"""What must hold on the worst of days, looked at after each event. The first that does not ends the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum, inf
from typing import Any, NamedTuple

from horae.journal import Ledger
from horae.port import JobId, JobState
from horae.sim.engine.world import SimulatedJob
from policy.model import Allocation, Gpus, NodeName, Seconds

#: A job that was asked to leave and holds its GPUs so much later will never have been asked in earnest.
LEAVES_S: Seconds = 1800.0
#: Progress is a sum of floats.
ROUNDING = 1e-6
#: So many starts, far more than there are jobs, or so many rounds in less than a second each, and nothing befell the
#: cluster: then something has been done.
STARTS, ROUNDS = 300, 2000


class InvariantBroken(Exception):
    """`rule`: lost, doubled, old-state, torn-state, gpu-twice, over-limit, intent, starved, disobeyed, progress."""

    def __init__(self, rule: str, at_s: Seconds, job: JobId, text: str) -> None:
        self.rule, self.at_s, self.job, self.text = rule, at_s, job, text
        super().__init__(f"{rule}: job {job} at {at_s:.3f} s: {text}")

    def plain(self) -> dict[str, Any]:
        return {"rule": self.rule, "at": round(self.at_s, 6), "job": self.job, "text": self.text}


class Milestone(NamedTuple):
    """Where everything stood when it was last asked whether anything gets done."""

    at_s: Seconds = 0.0
    rounds: int = 0
    starts: int = 0
    happened: int = 0
    done: float = 0.0  #: iterations, of all jobs


@dataclass(slots=True)
class Invariants:
    capacity: Mapping[NodeName, Gpus]
    #: stops on record that have not taken effect: (asked at, by the arbiter's clock; seen at, by the world's)
    _leaving: dict[JobId, tuple[Seconds, Seconds]] = field(default_factory=dict)
    #: since when a job is over for the arbiter by its owner's word, and not for the cluster
    _over: dict[JobId, Seconds] = field(default_factory=dict)
    #: what owners ordered and the arbiter took, and when: `cancel` or `hold`
    ordered: dict[JobId, tuple[str, Seconds]] = field(default_factory=dict)
    gone: set[JobId] = field(default_factory=set)  #: cancelled before the cluster knew them
    _free_s: Seconds = -inf  #: since when an arbiter can act
    _restored_s: Seconds = -inf  #: when its journal was lost last
    _starts: int = 0
    _started: JobId = ""  #: the last
    _milestone: Milestone = field(default_factory=Milestone)

    def starts(
        self, run: SimulatedJob, allocation: Allocation, held: Counter[NodeName], kept: float, now_s: Seconds
    ) -> None:
        """Before a job is started: from `run.done`, where `kept` is its newest complete checkpoint."""
        job, gpus, most = run.plain.name, sum(allocation.values()), run.plain.gpus.max
        if run.over_s is not None or job in self.gone:
            raise InvariantBroken("doubled", now_s, job, "it is started after its end")
        if run.allocation:
            raise InvariantBroken("doubled", now_s, job, "it is started while it runs")
        if most is not None and gpus > most:
            raise InvariantBroken("over-limit", now_s, job, f"it gets {gpus} GPUs and may have {most}")
        for node, wanted in allocation.items():
            if wanted > self.capacity[node]:
                text = f"it gets {wanted} GPUs of {node}, which has {self.capacity[node]}"
                raise InvariantBroken("over-limit", now_s, job, text)
            if wanted > self.capacity[node] - held[node]:
                text = f"it gets {wanted} GPUs of {node}, where others hold {held[node]} of {self.capacity[node]}"
                raise InvariantBroken("gpu-twice", now_s, job, text)
        if run.done < kept * (1 - ROUNDING):
            text = f"it is started from {run.done:g} iterations, its checkpoint holds {kept:g}"
            raise InvariantBroken("old-state", now_s, job, text)
        if run.done > kept * (1 + ROUNDING):
            text = f"it is started from {run.done:g} iterations, its newest complete checkpoint holds {kept:g}"
            raise InvariantBroken("torn-state", now_s, job, text)
        self._starts, self._started = self._starts + 1, job

    def gets_on(self, runs: Iterable[SimulatedJob], rounds: int, happened: int, now_s: Seconds) -> None:
        """After each event: the arbiter does not go round for nothing. `happened`: faults and arrivals so far."""
        was = self._milestone
        starts, passed = self._starts - was.starts, rounds - was.rounds
        if passed < ROUNDS and starts < STARTS:
            return
        done = fsum(run.done_at(now_s) for run in runs)
        self._milestone = Milestone(now_s, rounds, self._starts, happened, done)
        if happened != was.happened or self._free_s >= was.at_s:
            return
        restless = starts >= STARTS or now_s - was.at_s < ROUNDS
        if restless and abs(done - was.done) <= ROUNDING * done:
            text = f"{starts} starts in {passed} rounds, and nothing is done"
            raise InvariantBroken("progress", now_s, self._started, text)

    def hindered(self, now_s: Seconds) -> None:
        """Nobody can act now: what waits for it waits from then on."""
        self._free_s = now_s

    def restored(self, now_s: Seconds) -> None:
        """The journal is not what it was: what it knew is learnt anew from the cluster, what was ordered is void."""
        self._restored_s = now_s
        self.ordered.clear()
        self.gone.clear()

    def books(self, ledger: Ledger, active: Iterable[SimulatedJob], now_s: Seconds) -> None:
        """After each event: jobs that were taken in and have not ended are known and alive to the arbiter."""
        for run in active:
            job = run.plain.name
            record = ledger.jobs.get(job)
            if record is None:
                if now_s - max(self._restored_s, self._free_s) <= LEAVES_S and self._restored_s > -inf:
                    continue
                raise InvariantBroken("lost", now_s, job, "it was taken in, and the arbiter does not know it")
            if record.live:
                self._over.pop(job, None)
            elif record.cancel_by == record.owner and not self._runs_on(job, run, now_s):
                continue
            if not record.live:
                why = f"{record.ended}: {record.end_text}" if record.ended else "handed back"
                raise InvariantBroken("lost", now_s, job, f"it has not ended, and the arbiter has it as {why}")
            asked_s = record.stop_asked_s
            if asked_s is None or not run.allocation:
                self._leaving.pop(job, None)
                continue
            if self._leaving.get(job, (None,))[0] != asked_s:
                self._leaving[job] = asked_s, now_s
            if now_s - max(self._leaving[job][1], self._free_s) > LEAVES_S:
                raise InvariantBroken("intent", now_s, job, "it is to leave, and nobody asks it to")

    def _runs_on(self, job: JobId, run: SimulatedJob, now_s: Seconds) -> bool:
        """Its owner wanted no more of it; what the cluster still knows of it is asked to end before long. It may have
        been handed in anew to an arbiter without this journal, and run: it is reopened then."""
        since_s = self._over.setdefault(job, now_s)
        return bool(run.allocation) and now_s - max(since_s, self._free_s) > LEAVES_S

    def orders(self, ledger: Ledger, runs: Mapping[JobId, SimulatedJob], now_s: Seconds) -> None:
        """After each event: what an owner was told is done is on record, and is done before long."""
        for job, (what, told_s) in self.ordered.items():
            record, run = ledger.jobs.get(job), runs.get(job)
            if record is None or run is None or not record.live:
                continue
            if (record.cancel_why if what == "cancel" else record.hold_why) is None:
                raise InvariantBroken("disobeyed", now_s, job, f"its owner's {what} was taken, and is not on record")
            if run.allocation and now_s - max(told_s, self._free_s) > LEAVES_S:
                raise InvariantBroken("disobeyed", now_s, job, f"its owner's {what} was taken, and it runs")

    def at_the_end(
        self,
        ledger: Ledger,
        runs: Iterable[SimulatedJob],
        down: Collection[NodeName],
        now_s: Seconds,
        ending: Callable[[JobId], JobState],
    ) -> None:
        """Nothing has happened for so long that nothing will. `ending`: how a job that is over has ended."""
        # With nodes gone, only a job that fits on one node surely could: the others may need what is gone.
        there = [gpus for node, gpus in self.capacity.items() if node not in down]
        room = max(there, default=0) if down else sum(there)
        for run in runs:
            job, record = run.plain.name, ledger.jobs.get(run.plain.name)
            if run.over_s is None and job not in self.gone and run.plain.gpus.min <= room:
                raise InvariantBroken("starved", now_s, job, "it could start, and never does")
            if run.over_s is not None and record is not None:
                if record.grant is not None or record.stop_asked_s is not None:
                    raise InvariantBroken("intent", now_s, job, "it ended, and what was asked for it is open still")
                if record.ended is not ending(job):
                    text = f"it ended as {ending(job)}, and the arbiter has it as {record.state}"
                    raise InvariantBroken("lost", now_s, job, text)
