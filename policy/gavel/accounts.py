"""What jobs have received of the fractions of time they are to spend on each GPU type, and are owed of earlier ones.

Fractions are worked out anew when jobs come and end, and when nodes and limits change. Then everybody's account begins
anew too, as in the authors' scheduler ("so that all jobs receive new fair allocation from here on out"): who had the
cluster to itself for a day is not to wait for days once others come. What a job was behind or ahead until then, in time
on each type, goes into its new account: else whoever comes would have a round before all others' next one, and so would
everybody at every arrival. It is bounded: a long outage is not repaid by a long monopoly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from policy.model import EMPTY, Gpus, GpuType, Job, JobName, Seconds, Snapshot

#: Quanta that a job can be behind or ahead on a type.
MOST_QUANTA = 10

Times = Mapping[GpuType, float]


@dataclass(frozen=True, slots=True)
class TimeAccount:
    at_s: Seconds  #: when it began
    attained: Times  #: GPU-s by then
    owed: Times  #: s on each type, of what came before; negative: ahead

    def received(self, job: Job, types: Collection[GpuType], size: Gpus, now_s: Seconds) -> float:
        """The fraction of the time since it began that the job has run on these types, as a gang of this size."""
        elapsed = now_s - self.at_s
        return self._ran_s(job, types, size) / elapsed if elapsed > 0 else 0.0

    def priority(self, job: Job, types: Collection[GpuType], size: Gpus, fraction: float, now_s: Seconds) -> float:
        """`fraction` over what was received, less what is owed; without limit where that is nothing."""
        ahead_s = -self.due_s(job, types, size)
        return fraction * (now_s - self.at_s) / ahead_s if ahead_s > 0 else inf

    def due_s(self, job: Job, types: Collection[GpuType], size: Gpus) -> Seconds:
        """What is left of what it is owed of earlier fractions."""
        return sum(self.owed.get(t, 0.0) for t in types) - self._ran_s(job, types, size)

    def _ran_s(self, job: Job, types: Collection[GpuType], size: Gpus) -> Seconds:
        return sum(max(job.attained.get(t, 0.0) - self.attained.get(t, 0.0), 0.0) for t in types) / size

    def closed(self, job: Job, fractions: Times, size: Gpus, now_s: Seconds, most_s: Seconds) -> TimeAccount:
        """The one that follows it, `fractions` having been the job's."""
        owed: dict[GpuType, Seconds] = {}
        for t in {*fractions, *self.owed, *job.attained}:
            due_s = fractions.get(t, 0.0) * (now_s - self.at_s)
            left_s = due_s + self.due_s(job, (t,), size)
            owed[t] = min(max(left_s, -most_s), most_s)
        return TimeAccount(now_s, job.attained, owed)


def opened(
    snapshot: Snapshot, jobs: Iterable[Job], sizes: Mapping[JobName, Gpus], shape: int, quantum_s: Seconds
) -> dict[JobName, TimeAccount]:
    """The accounts of `jobs` now; new ones where the `shape` of jobs, nodes and limits is not that of the state."""
    same = snapshot.state.get("turn", EMPTY).get("shape") == shape
    before: Mapping[JobName, Any] = snapshot.state.get("accounts", EMPTY)
    out = {}
    for job in jobs:
        told = before.get(job.name)
        if told is None:
            out[job.name] = TimeAccount(snapshot.now_s, job.attained, EMPTY)
            continue
        account = TimeAccount(told["at_s"], told["attained"], told["owed"])
        if not same:
            most_s = MOST_QUANTA * quantum_s
            account = account.closed(job, told["fractions"], sizes[job.name], snapshot.now_s, most_s)
        out[job.name] = account
    return out


def plain(accounts: Mapping[JobName, TimeAccount], fractions: Mapping[JobName, Times] = EMPTY) -> dict[str, Any]:
    """For the policy's state; `fractions`: what each job is to have from now on."""
    out = {}
    for name, account in accounts.items():
        out[name] = {
            "at_s": account.at_s,
            "attained": dict(account.attained),
            "owed": dict(sorted(account.owed.items())),
            "fractions": dict(fractions.get(name, EMPTY)),
        }
    return {"accounts": out}
