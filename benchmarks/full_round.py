"""What does a whole round cost with 10,000 jobs on 10,000 GPUs: an observation in, actions out?

Half of the GPUs are held by running jobs, the others are free, and the remaining jobs wait. The parts are timed apart:
look (what changed), question (the snapshot), answer (the policy: model, certificate and reasons included), ruling
(guards, refit, record), plan (steps). The floor is a bare sort of the same jobs, which any scheduler does at least.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from _record import record

from horae.arbiter import round
from horae.arbiter.admit.models import standard
from horae.arbiter.decide.policy_runner import Inline
from horae.arbiter.decide.snapshot import View
from horae.arbiter.observe.reconcile import LastSeen, notice
from horae.config import Config, pools_by_node
from horae.journal import Clock, Journal
from horae.port import JobState, Observation, ObservedJob
from horae.spec import JobSpec
from policy.decide import decide
from policy.model import GpuRange, Limits, Node

POLICIES = ("fifo", "max-min", "afs-l")


def cluster(jobs: int, gpus: int) -> Observation:
    nodes = tuple(Node(f"n{i}", "v100" if i % 2 else "k80", 8, f"r{i // 16}") for i in range(gpus // 8))
    running = len(nodes) // 2
    found = []
    for i in range(jobs):
        spec = JobSpec(
            f"job{i}", ("train",), GpuRange(4, 1, 8), owner=f"user{i % 50}", checkpoint="ckpt", iterations=1e4 + i,
            throughput={"k80": {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.5}, "v100": {1: 3.0, 2: 5.7, 4: 10.0, 8: 16.0}},
        )  # fmt: skip
        state, allocation = (JobState.RUNNING, {f"n{i}": 8}) if i < running else (JobState.QUEUED, {})
        found.append(
            ObservedJob(str(i + 1), state, int(i < running), allocation, 1.0, spec=spec, submitted_s=1000.0 + i)
        )
    return Observation(1e5, nodes, tuple(found))


def one(policy: str, observation: Observation, folder: Path) -> dict[str, float]:
    """Seconds of each part, of a second round: everything is known, one job has just ended."""
    config = Config.model_validate(
        {
            "cluster": {"adapter": "fake"},
            "pools": [{"mode": "enforce", "policy": policy}],
            "rounds": {"decide_s": 600.0},
        }
    )
    journal, last = Journal(folder, Clock()), LastSeen()
    pools = pools_by_node(config, (n.name for n in observation.nodes))
    now_s = journal.clock.now_s()
    first = notice(journal.ledger, observation, last, config=config, pools=pools, now_s=now_s)
    journal.append(first)
    ended = replace(observation.jobs[0], state=JobState.COMPLETED, allocation={}, exit_code=0, since_s=9e4)
    later = replace(observation, now_s=observation.now_s + 5, jobs=(ended, *observation.jobs[1:]))
    times: dict[str, float] = {}

    def timed(name: str, started: float) -> float:
        times[name] = time.perf_counter() - started
        return time.perf_counter()

    at = time.perf_counter()
    drafts = notice(journal.ledger, later, last, config=config, pools=pools, now_s=now_s)
    journal.append(drafts)
    view = View(later, pools, Limits(), config, now_s)
    at = timed("look", at)
    asked = round.question(journal.ledger, config.pools[0], view)
    at = timed("question", at)
    answer = Inline(decide).ask(asked)
    at = timed("answer", at)
    if answer.decision is None:
        raise SystemExit(f"{policy}: {answer.why_not}")
    admitted = round.admission(journal.ledger, config.pools[0], view, asked, answer, standard())
    journal.append(admitted.drafts)
    at = timed("ruling and journal", at)
    _, steps = round.steps(journal.ledger, "main", view, restart_gap_s=0.0, reshape_in_place=False)
    timed("plan", at)
    times["whole"] = sum(times.values())
    at = time.perf_counter()
    sorted(asked.snapshot.jobs, key=lambda job: job.order)
    timed("bare sort", at)
    times["actions"] = sum(1 for s in steps if s.ready)
    journal.close()
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--gpus", type=int, default=10_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--policies", nargs="*", default=POLICIES)
    asked = options.parse_args()
    observation = cluster(asked.jobs, asked.gpus)
    found: dict[str, Any] = {}
    for policy in asked.policies:
        runs = []
        for _ in range(asked.times):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(one(policy, observation, Path(folder) / "state"))
        found[policy] = {name: round_(statistics.median(run[name] for run in runs)) for name in runs[0]}
        found[policy]["actions"] = int(found[policy]["actions"])
        found[policy]["arbiter_over_answer"] = round_(
            statistics.median((run["whole"] - run["answer"]) / run["answer"] for run in runs)
        )
        found[policy]["whole_over_bare_sort"] = round_(statistics.median(r["whole"] / r["bare sort"] for r in runs))
        print(policy, found[policy])
    record(Path(__file__), {"jobs": asked.jobs, "gpus": asked.gpus, "seconds": found})


def round_(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    main()
