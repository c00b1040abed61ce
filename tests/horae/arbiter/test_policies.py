"""The arbiter with the policies that ship: every job comes to its end, and nothing is asked for that is in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.arbiter.decide.policy_runner import Worker
from horae.arbiter.service import Arbiter
from horae.fake import FakePort, Program, World
from horae.port import JobState
from horae.views import watch
from policy import catalogue
from policy.decide import decide
from policy.model import Health
from tests.horae.arbiter.site import ANN, BEN, NODES, QUICK, Site, config, spec
from tests.waiting import eventually

TABLE = {"k80": {1: 2.0, 2: 3.8, 4: 7.0, 8: 12.0}, "v100": {1: 6.0, 2: 11.0, 4: 20.0, 8: 34.0}}


@pytest.mark.parametrize("policy", list(catalogue.entries()))
def test_every_policy_runs_a_small_site_to_its_end(tmp_path: Path, policy: str) -> None:
    site = Site(
        tmp_path,
        policy=decide,
        pools=[{"mode": "enforce", "policy": policy}],
        guards={"min_run_s": 5.0},
        rounds={"quiet_s": 20.0},
    )
    jobs = list(site.commands.submit([spec(f"a{i}", (1, 4), steps=200, throughput=TABLE) for i in range(4)], ANN))
    site.run(20)
    jobs += site.commands.submit([spec(f"b{i}", (2, 8), steps=300, throughput=TABLE) for i in range(3)], BEN)
    site.run(15)
    site.world.set_health("n4", Health.DOWN)
    site.run(20)
    site.world.set_health("n4", Health.UP)
    for job in jobs:
        site.until(job, JobState.COMPLETED, patience_s=3000)
    assert site.world.refusals == []
    assert [what for what in site.core.ledger.alerts if what.startswith("policy")] == []


def test_the_daemon_asks_its_policy_in_another_process(tmp_path: Path) -> None:
    world = World(NODES, program=Program(iteration_s=0.01, start_s=0.05, stop_s=0.02))
    arbiter = Arbiter(
        config(tmp_path, pools=[{"mode": "enforce", "policy": "fifo"}], **QUICK), FakePort(world), runner=Worker()
    )
    arbiter.start()
    try:
        job = arbiter.submit(spec("train", 2, steps=30), ANN)
        eventually(lambda: watch.job(arbiter, job).state == "completed", patience_s=200.0)
        decision = arbiter.decision("main")
        assert decision is not None and decision.policy == "fifo"
        assert watch.status(arbiter).alerts == {}
    finally:
        arbiter.stop()
