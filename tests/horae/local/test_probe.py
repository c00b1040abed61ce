"""A probe with real processes: a job is moved to another count, measured there, and the decision changes."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.decide.policy_runner import Inline
from horae.arbiter.observe.log_profiles import LogProfiles
from horae.arbiter.requests.authority import Requester
from horae.arbiter.service import Arbiter
from horae.journal import Kind
from horae.views import watch
from policy.model import Decision, GpuRange, Snapshot
from tests.horae.arbiter.site import answer, config, fill, room
from tests.horae.elastic.exec_job import counter, until
from tests.horae.local.cluster import Cluster

ME = Requester(getpass.getuser())
#: Ten times as fast on two GPUs as on one; the SDK prints it.
STEP = "time.sleep(0.2 if training.world == 1 else 0.02)"
PATIENCE_S = 150.0


def cautious(snapshot: Snapshot, policy: str, options: Mapping[str, Any], seed: int, limit_s: float) -> Decision:
    """One GPU a job, or two where it is known that they make it more than twice as fast."""
    free = {name: gpus for name, gpus in room(snapshot).items() if name.startswith("v100")}
    allocation = {}
    for one in sorted(snapshot.jobs, key=lambda j: j.order):
        rates = one.throughput.get("v100", {})
        fast = 2 in rates and rates[2] > 2.0 * rates.get(1, float("inf"))
        allocation[one.name] = fill(one, 2 if fast else 1, free)
    return answer(snapshot, allocation, policy)


@pytest.fixture
def arbiter(tmp_path: Path, cluster: Cluster) -> Iterator[Arbiter]:
    running = Arbiter(
        config(
            tmp_path / "arbiter",
            rounds={"tick_s": 0.5, "busy_s": 0.2, "debounce_s": 0.05, "quiet_s": 1.0},
            probes={"run_s": 1.0, "settle_s": 0.0},
        ),
        cluster.port,
        runner=Inline(cautious),
        profiles=LogProfiles(every_s=0.2, budget_s=60.0),
    )
    running.start()
    yield running
    running.stop()


def test_a_probe_on_the_local_cluster(arbiter: Arbiter, cluster: Cluster) -> None:
    source = counter(step_s=0.0, body=STEP)
    made = cluster.spec("train", source, gpus=GpuRange(1, 1, 2), gpu_types=("v100",))
    job = arbiter.submit(made, ME)

    def over() -> Mapping[str, Any] | None:
        assert watch.job(arbiter, job).state != "failed", watch.explain(arbiter, job).headline
        told = [e.data for e in arbiter.history(job) if e.kind is Kind.PROBED]
        return next((d for d in told if "over" in d), None)

    ended = until("the probe is over", over, PATIENCE_S)
    assert ended["over"].startswith("measured: ")
    assert ended["over"].endswith("2 v100")

    def settled() -> bool:
        row = watch.job(arbiter, job)
        return row.state == "running" and sum(row.allocation.values()) == 2

    until("it runs on two GPUs for good", settled, PATIENCE_S)
    assert any(c.what == "profile" and "probe is over" in c.text for c in watch.explain(arbiter, job).causes)
