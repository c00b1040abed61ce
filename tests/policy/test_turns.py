"""A round that lasts a quantum: what ends it, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.decide import decide
from policy.model import Snapshot, Tenant
from tests.policy.worlds import cluster, job, world

GAVEL = ("gavel-max-min", "gavel-finish-time", "gavel-makespan", "gavel-fifo")
TABLE = {"v": {1: 1.0}}


def amid(policy: str, **node: object) -> tuple[str, str]:
    """Who has the one GPU that two jobs share over rounds: at first, and amid the round, when it is owed to the other
    and `node` has changed."""
    jobs = tuple(job(name, 1, throughput=TABLE, cpus_per_gpu=1.0, memory_per_gpu=1 << 30) for name in "xy")
    asked = world(cluster("a v 1"), *jobs)
    asked = _with(asked, cpus=16.0, memory=64 << 30)
    first = decide(asked, policy)
    (runs,) = (name for name, place in first.allocation.items() if place)
    served = tuple(
        replace(j, allocation=first.allocation[j.name], attained={"v": 20.0} if j.name == runs else {}) for j in jobs
    )
    again = decide(_with(replace(asked, jobs=served, state=first.state, now_s=20.0), **node), policy)
    (goes_on,) = (name for name, place in again.allocation.items() if place)
    return runs, goes_on


def _with(snapshot: Snapshot, **node: object) -> Snapshot:
    nodes = tuple(replace(n, **node) for n in snapshot.cluster.nodes)  # type: ignore[arg-type]
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))


@pytest.mark.parametrize("policy", (*GAVEL, "oef-cooperative", "oef-noncooperative"))
def test_what_is_free_of_a_nodes_cores_and_memory_ends_no_round(policy: str) -> None:
    """They come and go with others' jobs and with what the cluster itself runs for ours."""
    for node in ({"cpus": 15.0}, {"memory": 60 << 30}, {"cpus": None, "memory": None}):
        runs, goes_on = amid(policy, **node)
        assert goes_on == runs, node


@pytest.mark.parametrize("policy", (*GAVEL, "oef-cooperative", "oef-noncooperative"))
def test_a_job_above_a_limit_that_came_later_ends_no_round_by_leaving(policy: str) -> None:
    """Stopped, it could have nothing: it is no job of the round any more, by the round's own decision."""
    above = job("above", 4, tenant="t", throughput=TABLE, submitted_s=9.0, allocation={"a": 4})
    rest = tuple(job(name, 1, tenant=name[0], throughput=TABLE) for name in ("t1", "x1", "y1", "y2", "y3"))
    tenants = (Tenant("t", cap=1), Tenant("x"), Tenant("y"))
    asked = world(cluster("a v 4"), above, *rest, tenants=tenants)
    first = decide(asked, policy)
    stops = not first.allocation["above"]
    jobs = tuple(replace(j, allocation={} if stops else first.allocation[j.name]) for j in asked.jobs)
    again = decide(replace(asked, jobs=jobs, state=first.state, now_s=20.0), policy)
    assert stops, "or there is nothing to see here"
    assert again.state["turn"]["at_s"] == first.state["turn"]["at_s"]
