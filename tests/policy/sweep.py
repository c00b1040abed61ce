"""Every policy on snapshots from seeds that nobody has looked at: what holds for all of them, checked on each.

    python -m tests.policy.sweep FIRST COUNT [--policy NAME ...] [--kind everything|crowd|odd-rates|odd-holdings]

One line a fault: the kind of snapshot, its seed, the policy, what failed. The faults that were found this way are
mended, and their seeds stand in `test_sweep.py`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from policy import catalogue
from policy.decide import PolicyFailed, decide
from policy.idle import Idle
from policy.model import Decision, Snapshot
from policy.parts import carrying
from policy.text.answer import to_json
from policy.text.instance import parse, to_text
from tests.policy.carried import STAGES, at
from tests.policy.crowds import crowd
from tests.policy.everything import everything, leaving, odd_holdings, odd_rates

KINDS: dict[str, Callable[[int], Snapshot]] = {
    "everything": everything, "crowd": crowd, "odd-rates": odd_rates, "odd-holdings": odd_holdings,
}  # fmt: skip
#: On a busy machine the wall clock would end programs that their own limits let go on.
PATIENCE_S = 1800.0
#: Options that take other ways through a policy, on every other seed.
OTHERWISE: dict[str, dict[str, object]] = {
    "themis": {"fairness_knob": 0.0, "payment": "floor", "weigh": "tenants", "speedup": "paper"},
    "afs-l": {"network_packing": True},
    "oef-cooperative": {"demand_caps": False},
    "oef-noncooperative": {"demand_caps": False},
    "gandiva": {"variant": "themis"},
    "gandiva-fair": {"trading": False},
    "fifo-backfill": {"variant": "conservative"},
    "max-min": {"over": "job"},
    "las": {"scope": "app"},
}


def places(decision: Decision) -> dict[str, dict[str, int]]:
    return {job: dict(place) for job, place in decision.allocation.items()}


def said(decision: Decision) -> str:
    return re.sub(r'"seconds": ?[0-9.e-]+', '"seconds": 0', to_json(decision))


def faults(snapshot: Snapshot, policy: str, seed: int) -> Iterator[str]:
    """What does not hold of this policy on this snapshot."""
    options = OTHERWISE.get(policy, {}) if seed % 2 else {}
    try:
        decision = decide(snapshot, policy, options, seed=3, time_limit_s=PATIENCE_S)
    except PolicyFailed as error:
        yield str(error)
        return
    yield from idle_or_wrong(decision)
    if said(decide(parse(to_text(snapshot)), policy, options, seed=3, time_limit_s=PATIENCE_S)) != said(decision):
        yield "another answer to the same file"
    if places(decide(_shuffled(snapshot, seed), policy, options, seed=3, time_limit_s=PATIENCE_S)) != places(decision):
        yield "another answer when jobs, tenants and nodes are told in another order"
    yield from moved(snapshot, decision)


def idle_or_wrong(decision: Decision) -> Iterator[str]:
    certificate = decision.certificate
    if not certificate.feasible:
        yield f"not feasible: {certificate.notes}"
    if any("the clock ended" in note for note in certificate.notes):
        yield "the clock ended a program"
    if certificate.work_conserving:
        return
    stated = [n.partition("(")[2].partition(")")[0] for n in certificate.notes if n.startswith("left idle (")]
    if len(stated) != 1 or Idle(stated[0]) not in catalogue.find(decision.policy).idle:
        yield f"idle for no reason: {certificate.notes}"


def moved(snapshot: Snapshot, decision: Decision) -> Iterator[str]:
    """Stages of being carried out at which another answer is given."""
    now, gone = places(decision), leaving(snapshot)
    if any(gone & set(j.allocation) and now[j.name] != dict(j.allocation) for j in snapshot.jobs):
        return  # GPUs of such a node, once left, are nobody's: the cluster is another one then
    staying = replace(snapshot, jobs=tuple(j for j in snapshot.jobs if j.name not in decision.cancel))
    asked: list[Snapshot] = []
    for name, stage in STAGES.items():
        then = at(staying, decision, stage, 30.0)
        view = carrying.seen(then)
        if view in asked:
            continue
        asked.append(view)
        again = places(decide(then, decision.policy, decision.options, seed=decision.seed, time_limit_s=PATIENCE_S))
        if changed := {j.name: (now[j.name], again[j.name]) for j in staying.jobs if again[j.name] != now[j.name]}:
            yield f"not still, {name}: {changed}"
            return


def _shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    rng, jobs, tenants, nodes = Random(seed), list(snapshot.jobs), list(snapshot.tenants), list(snapshot.cluster.nodes)
    for listed in (jobs, tenants, nodes):
        rng.shuffle(listed)
    cluster = replace(snapshot.cluster, nodes=tuple(nodes))
    return replace(snapshot, cluster=cluster, jobs=tuple(jobs), tenants=tuple(tenants))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--policy", nargs="*", default=sorted(catalogue.entries()))
    parser.add_argument("--kind", choices=sorted(KINDS), default="everything")
    given = parser.parse_args()
    for seed in range(given.first, given.first + given.count):
        snapshot = KINDS[given.kind](seed)
        for policy in given.policy:
            for fault in faults(snapshot, policy, seed):
                print(given.kind, seed, policy, fault, flush=True)


if __name__ == "__main__":
    main()
