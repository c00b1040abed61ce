"""Nodes, and what jobs hold of them, from rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from horae.port import JobState, ObservedJob
from horae.spec import JobSpec
from policy.model import GpuRange, Health, Node, Shape
from slurm_plugin.clients.command_reading import most_of
from slurm_plugin.jobs.holdings import (
    between_two_reads,
    could_hold,
    health,
    held_gpus,
    nodes_of,
    unregistered,
    within_nodes,
)  # fmt: skip
from slurm_plugin.records import NodeRow, gpus_in_use
from slurm_plugin.records import gpus as gpu_types
from tests.slurm_plugin.rows import FACTS, GRANT, OWN, ROW, RUNNING


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ("idle", Health.UP), ("mixed", Health.UP), ("allocated", Health.UP), ("mixed-", Health.UP),
        ("idle*", Health.DOWN), ("down", Health.DOWN), ("inval", Health.DOWN), ("idle+not_responding", Health.DOWN),
        ("draining", Health.DRAIN), ("drained", Health.DRAIN), ("mixed$", Health.DRAIN), ("maint", Health.DRAIN),
        ("idle+maintenance+reserved", Health.DRAIN),
    ],
)  # fmt: skip
def test_node_states(state: str, found: Health) -> None:
    assert health(state) is found


def test_a_job_that_began_between_the_two_reads_is_not_stopped_for_its_own_gpus() -> None:
    def node(name: str, used: int) -> NodeRow:
        return NodeRow(name, {"v100": 4}, used, "mixed", 16, 16, 1 << 30, 0)

    granted, waits = {"7.abc": replace(GRANT, per_node=2)}, replace(ROW, priority=9, reason="None")
    jobs = {"7.abc": waits}
    assert between_two_reads(jobs, [node("n1", 4), node("n2", 4)], granted)
    assert between_two_reads(jobs, [node("n1", 2)], granted), "also where there would be room for it a second time"
    assert not between_two_reads(jobs, [node("n1", 1)], granted)
    assert not between_two_reads(jobs, [node("n1", 0), node("n2", 4)], granted)
    assert not between_two_reads(jobs, [node("n1", 4)], {})
    runs = replace(ROW, **RUNNING)
    assert not between_two_reads({"7.abc": runs}, [node("n1", 4)], granted)
    beside = {"7.abc": waits, "8.abc": replace(runs, gpus_per_node=2)}
    assert not between_two_reads(beside, [node("n1", 2)], granted), "those are of another job of ours"
    assert between_two_reads(beside, [node("n1", 4)], granted)
    assert not between_two_reads(jobs, [node("n1", 4)], {"7.abc": replace(GRANT, per_node=2, nodes=())})


def test_a_job_that_completes_holds_no_more_than_the_nodes_that_it_has_not_left() -> None:
    """squeue names the second of its two nodes alone, beside the six GPUs that it had on both."""
    leaving = replace(ROW, state="COMPLETING", nodes=("n2",), gpus_per_node=None, gpus_total=6)
    rows = {"7.abc": leaving, "8.abc": replace(ROW, **{**RUNNING, "nodes": ("n2",), "gpus_per_node": 1})}
    jobs = {
        "7.abc": ObservedJob("7.abc", JobState.STOPPING, allocation=held_gpus(leaving)),
        "8.abc": ObservedJob("8.abc", JobState.RUNNING, allocation={"n2": 1}),
    }
    found = within_nodes(jobs, rows, [Node("n1", "v100", 4), Node("n2", "v100", 4, foreign=1)])
    assert {name: dict(job.allocation) for name, job in found.items()} == {"7.abc": {"n2": 2}, "8.abc": {"n2": 1}}


def test_gpus_that_only_the_tag_tells_are_spread_evenly() -> None:
    row = replace(ROW, **{**RUNNING, "nodes": ("n1", "n2"), "gpus_per_node": None, "admin_comment": OWN})
    assert held_gpus(row) == {"n1": 2, "n2": 2}


@pytest.mark.parametrize("memory_counts", [False, True])
def test_a_job_that_ended_between_the_two_reads_leaves_the_node_as_it_is(memory_counts: bool) -> None:
    """What it had is idle by the second read, and its own by the first."""
    facts = replace(FACTS, select="CR_Core_Memory" if memory_counts else "CR_Core")
    runs = {"7.abc": replace(ROW, **{**RUNNING, "num_cpus": 2, "alloc_memory": 1 << 20})}
    before = NodeRow("n1", {"v100": 4}, 1, "mixed", 14, 16, 1 << 30, 1 << 20)
    after = replace(before, used=0, cpus_idle=16, memory_used=0)
    nodes = [nodes_of([row], runs, frozenset(runs), facts) for row in (before, after)]
    assert nodes[0] == nodes[1]
    assert (nodes[0][0].cpus, nodes[0][0].memory) == (16.0, 1 << 30 if memory_counts else None)


def test_a_partition_may_give_its_jobs_fewer_cpus_of_a_node_than_that_has() -> None:
    """`MaxCPUsPerNode`; of several partitions the most, for which of them a node is in is not told."""
    row = NodeRow("n1", {"v100": 4}, 0, "idle", 16, 16, 1 << 30, 0)
    facts = replace(
        FACTS, most_cpus=most_of("MaxCPUsPerNode", "PartitionName=a\n MaxCPUsPerNode=3 MaxCPUsPerSocket=1\n")
    )

    def cpus(*partitions: str) -> float | None:
        return nodes_of([row], {}, frozenset(), facts, (), partitions)[0].cpus

    assert (cpus("a"), cpus("a", "b"), cpus("b"), cpus()) == (3.0, 16.0, 16.0, 16.0)


@pytest.mark.parametrize(
    ("state", "is_"),
    [
        ("idle~+idle+cloud+powered_down", Health.UP),
        ("mixed#+mixed+cloud+not_responding+powering_up", Health.UP),
        ("alloc#+allocated+powering_up", Health.UP),
        ("idle%+idle+cloud+powering_down", Health.DRAIN),
        ("mixed!+mixed+power_down", Health.DRAIN),
        ("drained~+idle+cloud+drain+powered_down", Health.DRAIN),
        ("down~+down+cloud+powered_down", Health.DOWN),
        ("down#+down+powering_up", Health.DOWN),
        ("idle*+idle+not_responding", Health.DOWN),
        ("planned+planned", Health.UP),
    ],
)
def test_a_node_that_is_powered_down_is_capacity(state: str, is_: Health) -> None:
    """As sinfo of 24.11 says them: nothing ever woke such a node, and jobs waited for healthy ones."""
    assert health(state) is is_


def test_capacity_that_sleeps_costs_its_waking_and_comes_last() -> None:
    rows = [
        NodeRow(name, {"v100": 4}, 0, state, 16, 16, 1 << 30, 0)
        for name, state in (("c1", "idle~+idle+cloud+powered_down"), ("c2", "idle#+powering_up"), ("n1", "idle"))
    ]
    nodes = nodes_of(rows, {}, frozenset(), replace(FACTS, resume_s=180.0))
    assert [(node.name, node.health, node.wake_s) for node in nodes] == [
        ("n1", Health.UP, 0.0), ("c1", Health.UP, 180.0), ("c2", Health.UP, 180.0),
    ]  # fmt: skip


def test_only_a_node_that_is_up_and_awake_has_still_to_register() -> None:
    """One that sleeps, of a cloud, or that does not exist yet never did."""
    states = ("idle", "mixed", "idle~+idle+cloud+powered_down", "idle#+powering_up", "down*", "future", "drained")
    rows = [NodeRow(state, {"v100": 4}, 0, state, 16, 16, 1 << 30, 0, registered=False) for state in states]
    assert unregistered([*rows, replace(rows[0], name="n1", registered=True)]) == {"idle", "mixed"}


@pytest.mark.parametrize(
    ("shape", "types", "gpus", "fits"),
    [
        (Shape(nodes=1, gpus_per_node=4), (), 4, True),
        (Shape(nodes=2, gpus_per_node=4), (), 8, False),
        (Shape(), (), 7, True),
        (Shape(), (), 8, False),
        (Shape(nodes=1, gpus_per_node=1), ("p4",), 1, False),  # the lesser type of its node: nothing is planned of it
        (Shape(nodes=1, gpus_per_node=1), ("k80",), 1, True),
        (Shape(nodes=1, gpus_per_node=1, cpus_per_node=33), (), 1, False),
        (Shape(nodes=1, gpus_per_node=1, features=("ib",)), (), 1, True),
        (Shape(nodes=2, gpus_per_node=1, features=("ib",)), (), 2, False),
        (Shape(nodes=1, gpus_per_node=1, memory_per_node=2 << 30), (), 1, False),
        (Shape(nodes=1, gpus_per_node=4, features=("on n[1-2]",)), (), 4, True),
        (Shape(nodes=1, gpus_per_node=4, features=("on n2",)), (), 4, False),
        (Shape(nodes=1, gpus_per_node=4, features=("off n[1,3]",)), (), 4, False),
        (Shape(nodes=1, gpus_per_node=4, features=("any ib,nvme", "off n2")), (), 4, True),
        (Shape(nodes=2, gpus_per_node=1, features=("any ib,nvme",)), (), 2, False),
    ],
)
def test_what_fits_on_no_nodes_is_known(shape: Shape, types: tuple[str, ...], gpus: int, fits: bool) -> None:
    """Busy or down does not matter: that passes."""
    rows = [
        NodeRow("n1", {"v100": 4}, 4, "allocated", 0, 16, 1 << 30, 0, ("ib",)),
        NodeRow("n2", {"k80": 3, "p4": 1}, 0, "down*", 16, 16, 1 << 30, 0),
        NodeRow("n3", {}, 0, "idle", 16, 16, 1 << 30, 0, ("ib",)),
    ]
    spec = JobSpec("j", (), GpuRange(gpus, gpus, gpus), shape=shape, gpu_types=types)
    assert could_hold(spec, rows, True) is fits


@pytest.mark.parametrize(
    ("used", "gpus"),
    [
        ("gpu:v100:0(IDX:N/A),shard:v100:0(0/4,0/4,0/4,0/4)", 0),
        ("gpu:v100:1(IDX:0),shard:v100:5(0/4,4/4,1/4,0/4)", 3),
        ("gpu:v100:0(IDX:N/A),shard:v100:16(4/4,4/4,4/4,4/4)", 4),
        ("gpu:2,mps:100(0/100,0/100,100/100)", 3),
        ("gpu:v100:1(IDX:0),shard:3", 4),
        ("gpu:v100:0(IDX:N/A),shard:v100:0(IDX:N/A),mps:v100:0(IDX:N/A)", 0),  # 22.05, idle
        ("gpu:1g.10gb:2(IDX:0-1),gpu:3g.40gb:1(IDX:7)", 3),
    ],
)
def test_gpus_of_which_jobs_have_parts_are_not_idle(used: str, gpus: int) -> None:
    assert gpus_in_use(used) == gpus


def test_a_node_has_the_words_that_are_true_of_it() -> None:
    rows = [
        NodeRow(f"n{at}", {"v100": 4}, 0, "idle", 16, 16, 1 << 30, 0, (("ib",) if at == 1 else ())) for at in (1, 2)
    ]
    words = ("any ib,nvme", "off n1", "on n[2-3]", "on n[")
    assert [node.features for node in nodes_of(rows, {}, frozenset(), FACTS, words)] == [
        ("ib", "any ib,nvme"), ("off n1", "on n[2-3]"),
    ]  # fmt: skip


def test_instances_of_gpus_are_types() -> None:
    assert gpu_types("gpu:1g.10gb:7(S:0),gpu:a100:2,gpu:4") == {"1g.10gb": 7, "a100": 2, "gpu": 4}
