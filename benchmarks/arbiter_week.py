"""Does an arbiter grow while weeks go by: its memory, and its journal?

    python benchmarks/arbiter_week.py [--days 7] [--jobs 10000] [--keep-days 1] [--step 120]

A fake cluster on a clock of its own, the arbiter's core with its executor and the policy in one thread. Jobs arrive
evenly, run for about an hour each and end; the cluster forgets them an hour later, the arbiter after `--keep-days`, as
it drops events that are older. So what it keeps of jobs and events is full after twice that time, and from then on
nothing should grow. Once a day: resident memory (the fake cluster's share of it as well), what SQLite says of the
journal's size, events and jobs on record. At the end the journal is opened anew and one job's history read.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from _record import record

from horae.arbiter.admit.models import standard
from horae.arbiter.core import Core
from horae.arbiter.decide.policy_runner import Inline
from horae.arbiter.driver import Driver
from horae.arbiter.execute.executor import Executor
from horae.arbiter.observe.measurements import SdkProfiles
from horae.arbiter.requests.authority import Requester
from horae.arbiter.requests.commands import Commands
from horae.config import Config
from horae.fake import FakePort, Program, World
from horae.journal import Clock, Journal
from horae.spec import JobSpec
from policy.decide import decide
from policy.model import GpuRange, Node

DAY_S = 86_400.0
#: How long the cluster shows a job that has ended.
SHOWN_S = 3600.0
#: Of the benchmark's jobs, an iteration a second.
ITERATIONS = 3600


class Site:
    """One arbiter over a fake cluster, and the time that both go by."""

    def __init__(self, folder: Path, policy: str, keep_s: float, gpus: int) -> None:
        self.now_s = 1e6
        nodes = [Node(f"n{i}", "v100", 8, f"r{i // 16}") for i in range(-(-gpus // 8))]
        program = Program(steps=ITERATIONS, iteration_s=1.0, start_s=10.0, checkpoint_every=600, log_every=600)
        self.world = World(nodes, clock=self.time, program=program)
        history = {"keep_s": keep_s, "forget_s": keep_s, "compact_events": 5000}
        pools = [{"mode": "enforce", "policy": policy}]
        data = {"cluster": {"adapter": "fake"}, "state_dir": str(folder), "pools": pools, "history": history}
        self.config = Config.model_validate(data)
        self.journal = self.opened()
        self.core = Core(self.config, self.journal, standard())
        self.commands = Commands(self.core)
        executor = Executor(FakePort(self.world), SdkProfiles(), self.time)
        self.driver = Driver(self.core, executor, Inline(decide))

    def time(self) -> float:
        return self.now_s

    def opened(self) -> Journal:
        return Journal(self.config.state_dir, Clock(self.time, self.time))

    def forget(self) -> None:
        """As clusters do, the jobs that ended long ago."""
        jobs = self.world.jobs
        for name in [n for n, j in jobs.items() if j.state.ended and self.now_s - j.since_s > SHOWN_S]:
            del jobs[name]

    def days(self, days: int, jobs: int, step_s: float) -> Iterator[int]:
        """The day that is over, each time one is; `jobs` arrive in all."""
        began_s, every_s, handed_in = self.now_s, days * DAY_S / jobs, 0
        caller = Requester("root")
        for day in range(1, days + 1):
            while self.now_s < began_s + day * DAY_S:
                due = min(int((self.now_s - began_s) / every_s), jobs)
                for i in range(handed_in, due):
                    size, owner = GpuRange(1 + i % 4, 1, 4), f"user{i % 20}"
                    spec = JobSpec(f"job{i}", ("train",), size, owner=owner, checkpoint="ckpt", iterations=ITERATIONS)
                    self.commands.submit([spec], caller)
                handed_in = due
                self.driver.tick()
                self.now_s += step_s
            self.forget()
            yield day


def of_a_day(site: Site, day: int) -> dict[str, Any]:
    gc.collect()
    live = sum(1 for _ in site.core.ledger.live())
    return {
        "day": day,
        "rss_mib": round(psutil.Process().memory_info().rss / (1 << 20), 1),
        "journal_mib": round(sum(p.stat().st_size for p in site.journal.folder.glob("journal.db*")) / (1 << 20), 1),
        "jobs_on_record": len(site.core.ledger.jobs),
        "jobs_live": live,
        "cpu_s": round(time.process_time(), 1),
    }


def timed_s(started_s: float) -> float:
    return round(time.process_time() - started_s, 3)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--days", type=int, default=7)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--keep-days", type=float, default=1.0)
    options.add_argument("--step", type=float, default=120.0, help="seconds between two ticks")
    options.add_argument("--gpus", type=int, default=400)
    options.add_argument("--policy", default="max-min")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="horae-week-") as folder:
        site = Site(Path(folder) / "state", asked.policy, asked.keep_days * DAY_S, asked.gpus)
        found = []
        for day in site.days(asked.days, asked.jobs, asked.step):
            found.append(of_a_day(site, day))
            print(found[-1], flush=True)
        newest = max(site.core.ledger.jobs.values(), key=lambda job: job.submitted_s).id
        site.journal.close()
        started_s = time.process_time()
        journal = site.opened()
        start_s, started_s = timed_s(started_s), time.process_time()
        events = len(journal.history(job=newest))
        result = {
            "goal": "memory and journal flat once what is kept is full",
            "policy": asked.policy,
            "keep_days": asked.keep_days,
            "days": found,
            "start_cpu_s": start_s,
            "history_of_one_job": {"events": events, "cpu_s": timed_s(started_s)},
        }
        journal.close()
    record(Path(__file__), result, ("psutil",))


if __name__ == "__main__":
    main()
