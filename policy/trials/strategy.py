"""What a lie brings, in parts of the liar's fair share: one figure that means the same under every policy.

The policy is asked for `ROUNDS` rounds in a row under a steady load. The liar's value is its true normalised throughput
in their mean (`perturb.true_value`), and

    gain = (value with the lie - value with the truth) / value of its weighted 1/n of every GPU type

so that for one who gets everything instead of nothing it is told how much that is. `benchmarks/strategy.py` searches
for the worst.
"""

from __future__ import annotations

from dataclasses import dataclass

from policy.contract import Context, Entry
from policy.model import Snapshot
from policy.throughput import Throughput
from policy.trials.lies import Told
from policy.trials.perturb import true_value

ROUNDS = 6
#: policies that draw lots: seeds of a search, and of the judgement of what it found, which no search has seen
CHANCE = ("lottery", "lottery-backfill", "themis")
SEEDS, JUDGED, UNSEEN = 2, 48, 10**6


@dataclass(frozen=True, slots=True)
class Gain:
    """Values in fair shares of the liar."""

    truth: float
    lie: float

    @property
    def gain(self) -> float:
        return self.lie - self.truth


def gain(snapshot: Snapshot, tenant: str, lie: Told, entry: Entry, *, judged: bool = False) -> Gain:
    """`judged`: under many seeds that no search has seen, where the policy draws lots."""
    return Gain(
        value(snapshot, tenant, Told("", "the truth", snapshot), entry, judged=judged),
        value(snapshot, tenant, lie, entry, judged=judged),
    )


def value(snapshot: Snapshot, tenant: str, report: Told, entry: Entry, *, judged: bool = False) -> float:
    """The tenant's true value under its report, in fair shares."""
    judged = judged and entry.name in CHANCE
    seeds = JUDGED if judged else SEEDS if entry.name in CHANCE else 1
    options, speeds = entry.resolve({}), Throughput(snapshot.cluster)
    total = 0.0
    for n in range(seeds):
        context = Context(speeds, 1000 * n + (UNSEEN if judged else 0))
        total += true_value(snapshot, tenant, report, entry, options, context, ROUNDS)
    return total / seeds / fair(snapshot, tenant)


def fair(snapshot: Snapshot, tenant: str) -> float:
    """What its jobs would make of their equal parts of its weighted 1/n of every type; normalised throughput."""
    weights = {t.name: t.weight for t in snapshot.tenants}
    part = weights[tenant] / sum(weights.values())
    speeds = Throughput(snapshot.cluster)
    mine = [j for j in snapshot.jobs if j.tenant == tenant]
    total = 0.0
    for job in mine:
        share: dict[str, float] = {}
        for node in snapshot.cluster.nodes:
            share[node.gpu_type] = share.get(node.gpu_type, 0.0) + node.gpus * part / len(mine)
        usable = 1.0 if job.gpus.max is None else min(job.gpus.max / sum(share.values()), 1.0)
        total += speeds.of_share(job, {t: x * usable for t, x in share.items()})
    return total
