"""What must hold on the worst of days, looked at after each event. The first that does not ends the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from horae.journal import Ledger
from horae.port import JobId, JobState
from horae.sim.engine.world import SimulatedJob
from policy.model import Allocation, Gpus, NodeName, Seconds

#: A job that was asked to leave and holds its GPUs so much later will never have been asked in earnest.
LEAVES_S: Seconds = 1800.0
#: Progress is a sum of floats.
ROUNDING = 1e-6


class InvariantBroken(Exception):
    """`rule`: lost, doubled, old-state, gpu-twice, over-limit, intent, starved."""

    def __init__(self, rule: str, at_s: Seconds, job: JobId, text: str) -> None:
        self.rule, self.at_s, self.job, self.text = rule, at_s, job, text
        super().__init__(f"{rule}: job {job} at {at_s:.3f} s: {text}")

    def plain(self) -> dict[str, Any]:
        return {"rule": self.rule, "at": round(self.at_s, 6), "job": self.job, "text": self.text}


@dataclass(slots=True)
class Invariants:
    capacity: Mapping[NodeName, Gpus]
    #: stops on record that have not taken effect: (asked at, by the arbiter's clock; seen at, by the world's)
    _leaving: dict[JobId, tuple[Seconds, Seconds]] = field(default_factory=dict)

    def starts(
        self, run: SimulatedJob, allocation: Allocation, held: Counter[NodeName], kept: float, now_s: Seconds
    ) -> None:
        """Before a job is started: from `run.done`, where `kept` is its newest complete checkpoint."""
        job, gpus, most = run.plain.name, sum(allocation.values()), run.plain.gpus.max
        if run.finished_s is not None:
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

    def books(self, ledger: Ledger, active: Iterable[SimulatedJob], now_s: Seconds) -> None:
        """After each event: jobs that were taken in and have not ended are known and alive to the arbiter."""
        for run in active:
            job = run.plain.name
            record = ledger.jobs.get(job)
            if record is None:
                raise InvariantBroken("lost", now_s, job, "it was taken in, and the arbiter does not know it")
            if not record.live:
                why = f"{record.ended}: {record.end_text}" if record.ended else "handed back"
                raise InvariantBroken("lost", now_s, job, f"it has not ended, and the arbiter has it as {why}")
            asked_s = record.stop_asked_s
            if asked_s is None or not run.allocation:
                self._leaving.pop(job, None)
                continue
            if self._leaving.get(job, (None,))[0] != asked_s:
                self._leaving[job] = asked_s, now_s
            if now_s - self._leaving[job][1] > LEAVES_S:
                raise InvariantBroken("intent", now_s, job, "it is to leave, and nobody asks it to")

    def at_the_end(
        self, ledger: Ledger, runs: Iterable[SimulatedJob], down: Collection[NodeName], now_s: Seconds
    ) -> None:
        """Nothing has happened for so long that nothing will."""
        # With nodes gone, only a job that fits on one node surely could: the others may need what is gone.
        there = [gpus for node, gpus in self.capacity.items() if node not in down]
        room = max(there, default=0) if down else sum(there)
        for run in runs:
            job, record = run.plain.name, ledger.jobs.get(run.plain.name)
            if run.finished_s is None and run.plain.gpus.min <= room:
                raise InvariantBroken("starved", now_s, job, "it could start, and never does")
            if run.finished_s is not None and record is not None:
                if record.grant is not None or record.stop_asked_s is not None:
                    raise InvariantBroken("intent", now_s, job, "it ended, and what was asked for it is open still")
                if record.ended is not JobState.COMPLETED:
                    raise InvariantBroken("lost", now_s, job, f"it completed, and the arbiter has it as {record.state}")
