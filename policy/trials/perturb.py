"""Would a lie pay? One tenant's report is changed, the policy decides again, and the tenant's true gain is measured.

The policy sees the changed snapshot; what the tenant has from the decision is measured with the true one. `lies.py`
says which lies are tried, one at a time. A policy with chance in it is asked under several seeds, the same for truth
and lie, and the mean counts; so does the mean over rounds, where more than one is played (`rounds.py`: the load is
steady).

This samples lies; that none of them pays is no proof that none would. The measure is normalised throughput, as in the
certificate: of the fractional shares where a policy has them, else of the allocation. A gang smaller than a job's
smallest does no work, and GPUs beyond what it can use do none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policy.contract import Context, Entry
from policy.decide import choose, its_own, propose
from policy.model import EMPTY, BadInput, Proposal, Seconds, Snapshot
from policy.throughput import Throughput
from policy.trials.lies import Told, told
from policy.trials.rounds import after, quantum_of

#: A gain below this part of the truth is noise of solvers.
NOISE = 1e-6


@dataclass(frozen=True, slots=True)
class Lie:
    """What was reported instead of the truth, and what it brought."""

    kind: str  #: throughput, idle, work, range, demand, split
    what: str  #: in words
    value: float  #: the tenant's true normalised throughput under the lie
    gain: float  #: relative to the truth; 0.1 is 10 % more


@dataclass(frozen=True, slots=True)
class Judgement:
    policy: str
    tenant: str
    value: float  #: of the true report
    lies: tuple[Lie, ...]
    seeds: int

    @property
    def best(self) -> Lie | None:
        """The lie that pays most; None where no lie pays."""
        paying = [lie for lie in self.lies if lie.gain > NOISE]
        return max(paying, key=lambda lie: lie.gain, default=None)

    def to_plain(self) -> dict[str, Any]:
        def plain(lie: Lie) -> dict[str, Any]:
            return {"kind": lie.kind, "what": lie.what, "throughput": lie.value, "gain": lie.gain}

        return {
            "policy": self.policy,
            "tenant": self.tenant,
            "seeds": self.seeds,
            "throughput": self.value,
            "lies": [plain(lie) for lie in self.lies],
            "best": None if self.best is None else plain(self.best),
        }


def perturb(
    snapshot: Snapshot,
    tenant: str,
    policy: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    seeds: int = 1,
    time_limit_s: Seconds | None = None,
    solver: str | None = None,
    rounds: int = 1,
) -> Judgement:
    """Try every lie of `tenant`. Raises BadInput for a tenant without jobs."""
    entry, resolved = choose(snapshot, policy, options)
    snapshot = its_own(snapshot, entry)
    names = {j.tenant for j in snapshot.jobs if j.work.left != 0}
    if tenant not in names:
        raise BadInput(
            f"no tenant {tenant!r} has work", field="perturb", value=tenant, remedy=f"one of {', '.join(sorted(names))}"
        )

    def value(report: Told) -> float:
        total = 0.0
        for n in range(seeds):
            context = Context(Throughput(snapshot.cluster), seed + n, time_limit_s, solver)
            total += true_value(snapshot, tenant, report, entry, resolved, context, rounds)
        return total / seeds

    truth = value(Told("", "the truth", snapshot))
    lies = []
    for lie in told(snapshot, tenant):
        got = value(lie)
        gain = (got - truth) / truth if truth > 0 else (float(got > 0) if got > NOISE else 0.0)
        lies.append(Lie(lie.kind, lie.what, got, gain))
    return Judgement(entry.name, tenant, truth, tuple(lies), seeds)


def true_value(
    snapshot: Snapshot,
    tenant: str,
    report: Told,
    entry: Entry,
    options: Mapping[str, Any],
    context: Context,
    rounds: int = 1,
) -> float:
    """The tenant's true normalised throughput under its report, in the mean of so many rounds.

    `context`: of the first round; the seed of each later one is the next.
    """
    speeds, quantum_s = context.speeds, quantum_of(options)
    total, now = 0.0, report.seen
    for n in range(rounds):
        each = Context(speeds, context.seed + n, context.time_limit_s, context.solver)
        proposal = propose(now, entry, options, each)
        total += _worth(snapshot, tenant, proposal, report, speeds)
        if n + 1 < rounds:
            now = after(now, proposal, quantum_s, speeds)
    return total / rounds


def _worth(snapshot: Snapshot, tenant: str, proposal: Proposal, report: Told, speeds: Throughput) -> float:
    """What the tenant's jobs truly make of a proposal."""
    jobs = {j.name: j for j in snapshot.jobs if j.tenant == tenant}
    total = 0.0
    for name in (*jobs, *report.parts):
        job = jobs[report.parts.get(name, name)]
        if proposal.shares is not None:
            share = proposal.shares.get(name, EMPTY)
            useful = {t: x * report.used.get(t, 1.0) for t, x in share.items()}
            most = 1.0 if job.gpus.max is None else min(job.gpus.max / max(sum(share.values()), 1e-9), 1.0)
            total += speeds.of_share(job, useful) * most
            continue
        held = proposal.allocation.get(name, EMPTY)
        if job.gpus.at_most(sum(held.values())):
            busy = min(report.used.get(t, 1.0) for t in speeds.by_type(held))
            total += speeds.normalised(job, held) * busy
    return total
