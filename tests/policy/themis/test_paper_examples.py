"""The worked examples of the Themis paper, and where their own numbers do not add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.contract import Context
from policy.model import App, Phase, Slowdown, Snapshot
from policy.themis.auction.valuation import Valuation, valuations
from policy.themis.options import Options
from policy.themis.round import bids
from policy.themis.schedule import Task, schedule
from policy.themis.shapes import Chunk, canonical
from policy.throughput import Throughput
from tests.policy.themis.worlds import decide, job, node, nodes, world

FLAT = Slowdown(1.0, 1.0, 1.0)


def sweep(**more: Any) -> Snapshot:
    """§4.3.3: 16 GPUs, four jobs of 80, 100, 100, 120 s an iteration, three other apps."""
    times = {"h80": 80.0, "h100": 100.0, "h101": 100.0, "h120": 120.0}
    jobs = [job(n, (1, 8), total=60, rate=1 / s, app="sweep", tenant="us", slowdown=FLAT) for n, s in times.items()]
    others = [job(f"other{i}", (1, 8), submitted=1.0) for i in range(3)]
    app = App("sweep", "successive-halving", 10_000.0, None, (Phase(4, 8), Phase(2, 16), Phase(1, 36)))
    return world(nodes(4, 4, racks=2), [*jobs, *others], apps=[app], **more)


def valuation(snapshot: Snapshot, app: str, **options: Any) -> Valuation:
    return valuations(snapshot, Options(**options), Throughput(snapshot.cluster))[app]


def on(gpus: int) -> tuple[Chunk, ...]:
    return canonical([Chunk("v100", "r", gpus)])


@pytest.mark.parametrize("speedup", ["table", "paper"])
def test_table_3(speedup: str) -> None:
    """rho of 4, 2, 1, .5, .34 on 1, 2, 4, 8 and 16 GPUs (§4.3.3, Table 3)."""
    value = valuation(sweep(), "sweep", speedup=speedup)
    assert value.ideal_s == pytest.approx(10_000 * 4 / 16)
    rho = {gpus: value.rho(on(gpus)) for gpus in (1, 2, 4, 8, 16)}
    assert rho == pytest.approx({1: 4.0, 2: 2.0, 4: 1.0, 8: 0.5, 16: 0.34})


def test_table_3_needs_jobs_one_after_the_other() -> None:
    """Equal splits inside a phase, as the text around Eq. 2 suggests, give other numbers than the table prints."""
    value = valuation(sweep(), "sweep")
    seconds = {80: 8 * 80, 100: 8 * 100, 120: 8 * 120}
    for gpus, printed, equal in ((4, 1.0, 1.064), (8, 0.5, 0.532), (16, 0.34, 0.356)):
        first = max(seconds.values()) / (gpus // 4)  # four jobs at the same time
        second = 100 * 16 / min(gpus // 2, 8)
        third = 100 * 36 / min(gpus, 8)
        assert (first + second + third) / 2500 == pytest.approx(equal, abs=5e-4)
        assert value.rho(on(gpus)) == pytest.approx(printed)


def test_two_gpus_in_the_first_phase_take_1600_s() -> None:
    value = valuation(sweep(), "sweep")
    phases = [schedule(phase, on(2), value.gangs).seconds for phase in value.phases]
    assert phases == pytest.approx([1600, 1600, 1800])


def test_slower_survivors_raise_the_estimate() -> None:
    """§4.3.3 prints 3200 s for 120 s x 16 iterations, which is 1920 s; one after the other on both GPUs, as Table 3
    needs it, the two survivors take 1760 s. The last phase is 2160 s, as printed: of two, the slower is the median.
    """
    before = sweep()
    jobs = [replace(j, work=replace(j.work, done=8.0 if j.app == "sweep" else 0.0)) for j in before.jobs]
    after = replace(before, jobs=tuple(j for j in jobs if j.name not in ("h80", "h100")))
    value = valuation(after, "sweep")
    phases = [schedule(phase, on(2), value.gangs).seconds for phase in value.phases]
    assert 120 * 16 == 1920
    assert phases == pytest.approx([(100 + 120) * 16 / 2, 120 * 36 / 2])


def test_successive_halving_has_one_phase_more_than_printed() -> None:
    """§4.3.2 says log2(n) phases; from n jobs down to one it is log2(n) + 1 (the paper's example: 4 jobs, 3)."""
    app = sweep().apps[0]
    assert [p.jobs for p in app.phases] == [4, 2, 1]
    assert len(app.phases) == 2 + 1


def test_table_2() -> None:
    """rho of 1/2 on either of two GPUs and 1/4 on both: 200 s of serial work, T_id of 400 s."""
    jobs = [job("a", (1, 2), total=200, slowdown=FLAT), *[job(f"b{i}", (1, 2), submitted=1.0) for i in range(3)]]
    value = valuation(world([node("x", 1), node("y", 1)], jobs), "a")
    assert value.ideal_s == pytest.approx(400.0)
    assert value.rho(on(1)) == pytest.approx(0.5)
    assert value.rho(canonical([Chunk("v100", "r", 1), Chunk("v100", "r", 1)])) == pytest.approx(0.25)


def test_equation_1_term_by_term() -> None:
    jobs = [
        job("a", (1, 4), total=1000, done=400, rate={"v100": {1: 2.0, 2: 3.0, 4: 4.0}}, submitted=100.0),
        job("b", (1, 4), submitted=0.0),
    ]
    here = world(nodes(2, 4, racks=2), jobs, now=300.0, active=[(0.0, 3), (200.0, 5)])
    across = canonical([Chunk("v100", "r0", 1), Chunk("v100", "r1", 1)])
    n_avg = (100 * 3 + 100 * 5) / 200
    table = valuation(here, "a")
    assert table.ideal_s == pytest.approx(1000 / 4.0 * n_avg)
    assert table.rho(across) == pytest.approx((200 + 600 / (3.0 / 1.3)) / table.ideal_s)
    paper = valuation(here, "a", speedup="paper")
    assert paper.ideal_s == pytest.approx(1000 / (2.0 * 4) * n_avg)
    assert paper.rho(across) == pytest.approx((200 + 600 * 1.3 / (2.0 * 2)) / paper.ideal_s)
    assert paper.rho(on(8)) == pytest.approx((200 + 600 / (2.0 * 4)) / paper.ideal_s)  # job_demand_max


def test_figure_5_instance_2() -> None:
    """§3.1.2: the app that needs one machine (VGG16) gets it, the one that does not care gets the two halves."""
    vgg = Slowdown(1.0, 103.6 / 80.4, 103.6 / 80.4)
    inception = Slowdown(1.0, 1.0, 1.0)
    jobs = [job("inception", 4, rate=242 / 4, slowdown=inception), job("vgg", 4, rate=103.6 / 4, slowdown=vgg)]
    machines = [node("whole", 4), node("half1", 2), node("half2", 2)]
    decision = decide(world(machines, jobs), fairness_knob=0.0)
    assert decision.allocation["vgg"] == {"whole": 4}
    assert decision.allocation["inception"] == {"half1": 2, "half2": 2}


def test_bid_table_of_the_example() -> None:
    """`horae decide --bids`: one row a GPU count, and Table 3's values in it."""
    snapshot = sweep()
    context = Context(Throughput(snapshot.cluster))
    table = {row["gpus"]: row for row in bids(snapshot, {"fairness_knob": 0.0}, context, "sweep")}
    assert {g: table[g]["rho"] for g in (1, 2, 4, 8, 16)} == pytest.approx({1: 4, 2: 2, 4: 1, 8: 0.5, 16: 0.34})
    assert all(sum(row["nodes"].values()) == gpus for gpus, row in table.items())


def test_the_evaluation_cluster_has_168_gpus() -> None:
    """§6.1 speaks of 256 GPUs; footnote 6 lists machines with 168."""
    assert 16 * 8 + 6 * 4 + 16 * 1 == 168


def test_phase_tasks_left_shrink_with_progress() -> None:
    jobs = [job(f"j{i}", (1, 4), total=28, done=i, app="s", tenant="t") for i in range(3)]
    app = App("s", "successive-halving", None, None, (Phase(3, 4), Phase(1, 8)))
    value = valuation(world(nodes(1, 4), jobs, apps=[app]), "s")
    assert [t.iterations for t in value.phases[0]] == [4, 3, 2]
    assert [t.iterations for t in value.phases[1]] == [8]
    assert Task(jobs[0], 4.0) == value.phases[0][0]
