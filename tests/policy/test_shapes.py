"""Rigid jobs that keep a shape of their own: placement obeys it, certificates judge by it, under every policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from policy import certificate
from policy.certificate.feasible import violations
from policy.decide import decide
from policy.model import BadInput, Cluster, Code, GpuRange, Job, Node, Shape, Snapshot
from policy.places.placement import Placer
from policy.text.instance import parse, to_text
from policy.throughput import Throughput
from tests.policy.worlds import NAMES, choosy, snapshots

NODES = """
schema: 1
cluster:
  nodes:
    - {name: a1, gpu_type: v100, gpus: 4, cpus: 16, memory: 64G, features: [ib]}
    - {name: a2, gpu_type: v100, gpus: 4, cpus: 16, memory: 64G}
    - {name: b1, gpu_type: k80, gpus: 4, cpus: 16, memory: 64G, features: [ib]}
    - {name: b2, gpu_type: k80, gpus: 4, cpus: 16, memory: 64G, foreign: 3}
  limits: {equal_gpus_per_node: true}
jobs:
"""


def instance(*jobs: str) -> Snapshot:
    return parse(NODES + "".join(f"  - {job}\n" for job in jobs))


def place(job: str, *others: str) -> dict[str, int] | None:
    snapshot = instance(job, *others)
    placer = Placer(snapshot)
    for other in snapshot.jobs[1:]:
        placer.take(other, other.allocation)
    found = placer.best(snapshot.jobs[0], snapshot.jobs[0].gpus.min)
    return None if found is None else dict(found)


@pytest.mark.parametrize(
    ("job", "found"),
    [
        ("{name: j, gpus: 2, shape: {nodes: 2, gpus_per_node: 1}}", 2),
        ("{name: j, gpus: 4, shape: {nodes: 4, gpus_per_node: 1}}", 4),
        ("{name: j, gpus: 4, shape: {nodes: 2}}", 2),
        ("{name: j, gpus: 8, shape: {nodes: 2, gpus_per_node: 4}}", 2),
        ("{name: j, gpus: 3, shape: {nodes: 2}}", 1),  # Slurm splits it; only the count is sure
        ("{name: j, gpus: 2, shape: {gpus_per_node: 2, cpus_per_node: 17}}", None),
        ("{name: j, gpus: 2, shape: {gpus_per_node: 2, memory_per_node: 65G}}", None),
        ("{name: j, gpus: 1, shape: {features: [nvme]}}", None),
        ("{name: j, gpus: 16, shape: {nodes: 4, gpus_per_node: 4}}", None),  # a foreign job is on one
    ],
)
def test_a_gang_has_the_shape_that_it_asks_for(job: str, found: int | None) -> None:
    got = place(job)
    assert (got and len(got)) == found


def test_features_and_types_choose_the_nodes() -> None:
    assert place("{name: j, gpus: 4, shape: {features: [ib]}, gpu_types: {forbid: [k80]}}") == {"a1": 4}
    assert place("{name: j, gpus: 4, gpu_types: {prefer: [k80]}}") == {"b1": 4}
    assert place("{name: j, gpus: 4, gpu_types: {require: [a100]}}") is None


def test_a_type_that_no_node_has_is_infeasible() -> None:
    decision = decide(instance("{name: j, gpus: 1, gpu_types: {require: [a100]}}"), "fifo")
    assert decision.reasons["j"].code is Code.INFEASIBLE


def test_who_shares_no_node_gets_idle_ones_and_keeps_others_off() -> None:
    held = "{name: h, gpus: 1, allocation: {a1: 1}}"
    alone = "{name: j, gpus: 2, shape: {nodes: 1, gpus_per_node: 2, exclusive: true}, gpu_types: {require: [v100]}}"
    assert place(alone, held) == {"a2": 2}
    snapshot = instance(alone, "{name: k, gpus: 2, gpu_types: {require: [v100]}}", held)
    placer = Placer(snapshot)
    placer.take(snapshot.jobs[2], {"a1": 1})
    placer.take(snapshot.jobs[0], {"a2": 2})
    assert placer.free_on("a2") == 0
    assert placer.best(snapshot.jobs[1], 2) == {"a1": 2}
    placer.give_back(snapshot.jobs[0])
    assert placer.free_on("a2") == 4


@pytest.mark.parametrize(
    ("allocation", "words"),
    [
        ({"j": {"a1": 2}}, "asks for 1 GPUs on each node"),
        ({"j": {"a1": 1, "a2": 1}}, ""),
        ({"j": {"a1": 1, "b1": 1}}, "rules out"),
        ({"j": {"a1": 1, "a2": 1}, "x": {"a2": 2}}, "shares a2 with others"),
    ],
)
def test_the_certificate_judges_by_the_shape(allocation: dict[str, dict[str, int]], words: str) -> None:
    snapshot = instance(
        "{name: j, gpus: 2, shape: {nodes: 2, gpus_per_node: 1, exclusive: true}, gpu_types: {forbid: [k80]}}",
        "{name: x, gpus: 2}",
    )
    found = " ".join(certificate.violations(snapshot, allocation))
    assert words in found
    assert bool(found) == bool(words)


def test_what_it_holds_already_is_as_the_cluster_gave_it() -> None:
    snapshot = instance("{name: j, gpus: 2, shape: {nodes: 2, gpus_per_node: 1}, allocation: {a1: 2}}")
    job = snapshot.jobs[0]
    assert Placer(snapshot).best(job, 2) == {"a1": 2}
    assert not list(certificate.violations(snapshot, {"j": {"a1": 2}}))


def test_idle_gpus_in_the_wrong_shape_are_not_wanted() -> None:
    snapshot = instance(
        "{name: j, gpus: 8, shape: {nodes: 2, gpus_per_node: 4}, gpu_types: {require: [v100]}}",
        "{name: h, gpus: 1, allocation: {a1: 1}}",
    )
    idle = certificate.feasible.idle_but_wanted(snapshot, {"h": {"a1": 1}}, Throughput(snapshot.cluster))
    assert idle is None
    free = replace(snapshot, jobs=snapshot.jobs[:1])
    assert certificate.feasible.idle_but_wanted(free, {}, Throughput(free.cluster)) == ("j", 8)


@pytest.mark.parametrize("policy", ["themis", "fifo", "oef-noncooperative", "gandiva-fair", "las", "max-min", "drf"])
def test_every_policy_keeps_it(policy: str) -> None:
    snapshot = instance(
        "{name: j, gpus: 4, shape: {nodes: 2, gpus_per_node: 2}, work: {total: 100}, "
        "throughput: {v100: {1: 1}, k80: {1: 1}}}",
        "{name: e, gpus: {min: 1, max: 8}, work: {total: 100}, throughput: {v100: {1: 1}, k80: {1: 1}}}",
    )
    decision = decide(snapshot, policy)
    assert decision.certificate.feasible
    got = decision.allocation["j"]
    assert not got or sorted(got.values()) == [2, 2]


def test_the_text_says_it_all() -> None:
    snapshot = instance(
        "{name: j, gpus: 8, shape: {nodes: 2, gpus_per_node: 4, cpus_per_node: 16, memory_per_node: 64G,"
        " features: [ib], exclusive: true, licences: {matlab: 1}}, gpu_types: {require: [v100], forbid: [k80]}}"
    )
    assert snapshot.jobs[0].shape is not None
    assert snapshot.jobs[0].shape.memory_per_node == 64 << 30
    for form in ("yaml", "json"):
        assert parse(to_text(snapshot, form)) == snapshot


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("{name: j, gpus: 4, shape: {nodes: 3, gpus_per_node: 2}}", "shape"),
        ("{name: j, gpus: 4, shape: {gpu_per_node: 2}}", "gpus_per_node"),
    ],
)
def test_a_shape_that_contradicts_itself_is_refused(job: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        instance(job)


def test_unshaped_jobs_are_placed_as_before() -> None:
    found: Any = place("{name: j, gpus: 8}")
    assert found == {"a1": 4, "a2": 4}


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(snapshots(), st.integers(0, 1_000), st.booleans())
def test_a_ledger_told_at_once_is_one_told_job_by_job(plain: Snapshot, seed: int, unshaped: bool) -> None:
    """`unshaped`: places that were found before anybody looked at shapes, some of which do not keep them."""
    snapshot = choosy(plain, seed)
    told, allocation = Placer(snapshot), Placer(plain if unshaped else snapshot)
    for job in (plain if unshaped else snapshot).jobs:
        allocation.take(job, allocation.best(job, job.gpus.min) or {})
    for job in sorted(snapshot.jobs, key=lambda j: j.shape is not None):
        now = allocation.taken.get(job.name, {})
        count = job if told.could_take(job, now) else replace(job, shape=None, gpu_types=None)
        assume(told.could_take(count, now))  # else it is told where somebody shares no node
        told.take(count, now)
    at_once = Placer(snapshot, taken=allocation.taken)
    assert at_once.taken == told.taken
    for job in snapshot.jobs:
        for node in snapshot.cluster.nodes:
            assert at_once.free_on(node.name) == told.free_on(node.name)
        if not allocation.taken.get(job.name):
            assert at_once.best(job, job.gpus.min) == told.best(job, job.gpus.min)
            assert at_once.why_not(job, job.gpus.min) == told.why_not(job, job.gpus.min)


def test_a_node_that_has_less_memory_than_a_job_holds_there_has_none_for_others_who_want_some() -> None:
    held = Job(
        "held", "t", "held", GpuRange(1, 1, 1), allocation={"a": 1}, shape=Shape(nodes=1, memory_per_node=1 << 30)
    )
    where = Cluster((Node("a", "k80", 2, memory=0),), gpu_types=("k80",))
    modest, hungry = Job("m", "t", "m", GpuRange(1, 1, 1)), replace(held, name="h", app="h", allocation={})
    placer = Placer(Snapshot(where, (held, modest, hungry)))
    placer.take(held, placer.best(held, 1) or {})
    assert placer.best(hungry, 1) is None
    placer.take(modest, placer.best(modest, 1) or {})
    assert placer.taken == {"held": {"a": 1}, "m": {"a": 1}}


BESIDE = """
cluster: {nodes: [{name: a, gpu_type: v, gpus: 4}, {name: b, gpu_type: v, gpus: 4}]}
jobs:
- {name: alone, gpus: 1, shape: {nodes: 1, gpus_per_node: 1, exclusive: true}, allocation: {a: 1}, throughput: {v: 1}}
- {name: x, gpus: {requested: 3, min: 1, max: 8}, submitted: 1, work: {total: 1000}, throughput: {v: 1}}
- {name: y, gpus: {requested: 3, min: 1, max: 8}, submitted: 2, work: {total: 1000}, throughput: {v: 1}}
- {name: z, gpus: 3, submitted: 3, work: {total: 1000}, throughput: {v: 1}}
"""


@pytest.mark.parametrize("policy", NAMES)
def test_nobody_comes_beside_a_job_that_runs_and_shares_no_node(policy: str) -> None:
    """It was kept off new nodes of such a job only: on those that it held already GPUs were given away that its cluster
    gives nobody, and what was asked again in the middle of it could not be."""
    snapshot = parse(BESIDE)
    decision = decide(snapshot, policy)
    assert decision.certificate.feasible
    alone, others = decision.allocation["alone"], [decision.allocation[name] for name in "xyz"]
    assert any(others) and not (alone and any(alone.keys() & place.keys() for place in others))
    stated = any(note.startswith("left idle (") for note in decision.certificate.notes)
    assert decision.certificate.work_conserving or stated
    stopped = replace(snapshot, jobs=(replace(snapshot.jobs[0], allocation={}), *snapshot.jobs[1:]), state={})
    for shown in (snapshot, stopped):
        first = decide(shown, policy)
        done = tuple(
            replace(j, allocation=first.allocation[j.name], lease_until=first.leases.get(j.name, {}))
            for j in shown.jobs
        )
        again = decide(replace(shown, jobs=done, state=first.state, now_s=1.0), policy)
        assert again.allocation == first.allocation


def test_the_certificate_says_who_is_joined_where_it_shares_no_node() -> None:
    snapshot = parse(BESIDE)
    joined: dict[str, dict[str, int]] = {"alone": {"a": 1}, "x": {"a": 1}, "y": {}, "z": {}}
    assert list(certificate.violations(snapshot, joined)) == [
        "alone is joined by others on a, where it asked for whole nodes"
    ]
    there = replace(
        snapshot, jobs=(snapshot.jobs[0], replace(snapshot.jobs[1], allocation={"a": 1}), *snapshot.jobs[2:])
    )
    assert not list(certificate.violations(there, joined)), "as its cluster gave it"


def test_who_left_a_node_that_it_does_not_share_comes_back_only_if_nobody_else_came() -> None:
    snapshot = parse(BESIDE)
    alone, x = snapshot.jobs[:2]
    placer = Placer(snapshot)
    assert placer.free() == 5 and placer.best(x, 6) is None
    placer.drop(alone)
    assert placer.free() == 8 and placer.keep(alone) == {"a": 1}
    placer.take(x, {"a": 1})
    assert placer.keep(alone) is None
    placer.give_back(x)
    placer.take(alone, {"a": 1})
    assert placer.free() == 4
    placer.give_back(alone)
    assert placer.free() == 5


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize(
    ("jobs", "to"),
    [
        # the cluster chose a node for a job of its own shape, while another was on its way there
        (
            (
                "{name: m, gpus: {min: 1, max: 6}}",
                "{name: x, gpus: 1, shape: {nodes: 1, gpus_per_node: 1, exclusive: true}, allocation: {a2: 1}}",
            ),
            "{a1: 3, a2: 3}",
        ),
        # and to where it was to be alone others came
        (
            (
                "{name: m, gpus: 1, shape: {nodes: 1, gpus_per_node: 1, exclusive: true}}",
                "{name: x, gpus: 1, shape: {nodes: 1, gpus_per_node: 1}, allocation: {a2: 1}}",
            ),
            "{a2: 1}",
        ),
        (("{name: m, gpus: 1, shape: {nodes: 1, gpus_per_node: 1, exclusive: true}}",), "{b2: 1}"),
    ],
)
def test_what_was_decided_is_given_up_where_a_node_is_a_jobs_alone_by_now(
    policy: str, jobs: tuple[str, ...], to: str
) -> None:
    lines = "".join(f"  - {job}\n" for job in jobs)
    snapshot = parse(f"{NODES}{lines}state:\n  carrying:\n    m: {{from: {{}}, to: {to}}}\n")
    decision = decide(snapshot, policy)
    assert list(violations(snapshot, decision.allocation)) == []


@pytest.mark.parametrize("anew", [True, False])
def test_what_shares_no_node_does_not_come_back_to_others(anew: bool) -> None:
    snapshot = instance(
        "{name: x, gpus: 1, shape: {nodes: 1, gpus_per_node: 1, exclusive: true}, allocation: {a2: 1}}",
        "{name: m, gpus: {min: 1, max: 6}}",
    )
    x, m = snapshot.jobs
    placer = Placer(snapshot)
    placer.take(x, {"b1": 1})
    if anew:
        placer = Placer(snapshot, taken=placer.taken)
    placer.take(m, {"a2": 3})
    placer.give_back(x)
    assert not placer.could_take(x, {"a2": 1})
    placer.give_back(m)
    assert placer.could_take(x, {"a2": 1})
