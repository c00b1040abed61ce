"""Jobs that a policy cannot take are left out, and the others are decided about. Pure.

Two nets. `snapshot.py` leaves out a job that no picture can be made of, or whose numbers lie outside what numbers can
mean (`policy/bounds.py`). Where a policy raises, `culprits` halves the jobs again and again, in the policy's own
process and within its time, until those that it raises for are found. Where it takes its process along or does not
answer, each of these tries is made in a process of its own (`apart.py`). What a job left out holds stays its own: the
picture shows it as foreign use, as that of a held job. After AGAIN_S it is tried again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from horae.journal import Draft, Ledger, events
from policy.model import JobName, NodeName, Seconds, Snapshot

#: How long a job is left out before it is tried again.
AGAIN_S = 600.0
#: Jobs that are left out of one decision; more are the policy's fault, not theirs.
MOST = 1000


class Said(Exception):
    """What became of a try, in words that need no more."""


#: Raises for a snapshot that the policy cannot take.
Try = Callable[[Snapshot], object]


def without(snapshot: Snapshot, jobs: Collection[JobName]) -> Snapshot:
    """`snapshot` without these jobs; what they hold is foreign use."""
    if not jobs:
        return snapshot
    taken: Counter[NodeName] = Counter()
    for job in snapshot.jobs:
        if job.name in jobs:
            taken.update(job.allocation)
    nodes = tuple(
        replace(n, foreign=min(n.foreign + taken[n.name], n.gpus)) if taken[n.name] else n
        for n in snapshot.cluster.nodes
    )
    kept = tuple(j for j in snapshot.jobs if j.name not in jobs)
    tenants = {j.tenant for j in kept}
    return replace(
        snapshot,
        cluster=replace(snapshot.cluster, nodes=nodes),
        jobs=kept,
        tenants=tuple(t for t in snapshot.tenants if t.name in tenants),
    )


def culprits(tried: Try, snapshot: Snapshot, until: float) -> dict[JobName, str]:
    """The jobs that `tried` raises for, each with what was raised; none where it raises without any job too, or
    where no single job is to blame. Ends at `until` (monotonic) with those found so far."""
    names = [job.name for job in snapshot.jobs]

    def raised(jobs: Collection[JobName]) -> str | None:
        kept = set(jobs)
        try:
            tried(without(snapshot, [name for name in names if name not in kept]))
        except Exception as error:  # noqa: BLE001  (a policy is code of any origin)
            return str(error) if isinstance(error, Said) else f"{type(error).__name__}: {error}"
        return None

    if not names or raised(()) is not None:
        return {}
    found: dict[JobName, str] = {}
    waiting = [names]
    while waiting and time.monotonic() < until and len(found) < MOST:
        some = waiting.pop()
        why = raised(some)
        if why is None:
            continue
        if len(some) == 1:
            found[some[0]] = why
        else:
            waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
    return found if len(found) < MOST else {}


def drafts(
    ledger: Ledger, found: Mapping[JobName, str], now_s: Seconds, policy: str = "", remedy: str = ""
) -> list[Draft]:
    """What puts these jobs aside."""
    out: list[Draft] = []
    for job, why in found.items():
        record = ledger.jobs.get(job)
        if record is not None and record.live:
            out.append(events.PutAside(job, why[:500] + remedy, now_s + AGAIN_S, policy))
    return out
