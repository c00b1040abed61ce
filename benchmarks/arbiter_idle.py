"""What does the arbiter cost while nothing happens: 1,000 running jobs, ten minutes, the real daemon's threads?

The jobs have run for some hours by then (`--age`), and each adds a line to its log every ten seconds.

CPU seconds of the process (and of its policy process) per wall second, and resident memory at the start and at the
end. The fake cluster lives in the same process and its share is part of what is measured; the floor is the same
process without the arbiter, looking at the fake cluster as often and doing nothing with it. Memory grows at first by
what is kept of each job's log (the fake's text, and up to 200 points of its loss curve), which is bounded.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import psutil
from _record import record

from horae.arbiter.requests.authority import Requester
from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.fake import FakePort, Program, World
from horae.spec import JobSpec
from horae.views import watch
from policy.model import GpuRange, Node


def cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), psutil.Process().children()
    times = [child.cpu_times() for child in children]
    return own.ru_utime + own.ru_stime + sum(t.user + t.system for t in times)


def memory_mib() -> float:
    process = psutil.Process()
    return round(sum(p.memory_info().rss for p in (process, *process.children())) / (1 << 20), 1)


def age(world: World, by_s: float) -> None:
    """All that run have run for so much longer."""
    with world.lock:
        for job in world.jobs.values():
            assert job.run is not None
            job.since_s -= by_s
            job.run.since_s -= by_s


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--jobs", type=int, default=1000)
    options.add_argument("--policy", default="max-min")
    options.add_argument("--age", type=float, default=6 * 3600.0, help="seconds that the jobs have run by then")
    asked = options.parse_args()
    nodes = [Node(f"n{i}", "v100", 8, f"r{i // 16}") for i in range(-(-asked.jobs // 8))]
    world = World(nodes, program=Program(steps=10**7, iteration_s=1.0, start_s=0.1, checkpoint_every=600, log_every=10))
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate(
            {
                "cluster": {"adapter": "fake"},
                "state_dir": folder,
                "pools": [{"mode": "enforce", "policy": asked.policy}],
                "rounds": {"decide_s": 60.0},
            }
        )
        arbiter = Arbiter(config, FakePort(world))
        arbiter.start()
        spec = JobSpec("job", ("train",), GpuRange(1, 1, 1), checkpoint="ckpt", iterations=1e7)
        arbiter.submit_many([spec] * asked.jobs, Requester("root"))
        while watch.status(arbiter).running < asked.jobs:
            time.sleep(0.5)
        age(world, asked.age)
        time.sleep(300.0)  # what was written meanwhile is read: of a second a round 1,000 logs take some 200
        rounds, decisions = watch.status(arbiter).rounds, watch.status(arbiter).pools[0].decisions
        memory, cpu, began = memory_mib(), cpu_s(), time.perf_counter()
        time.sleep(asked.seconds)
        wall, cpu = time.perf_counter() - began, cpu_s() - cpu
        status = watch.status(arbiter)
        size = sum(part.stat().st_size for part in Path(folder).glob("journal.db*"))
        found = {
            "seconds": round(wall, 1),
            "jobs": status.running,
            "rounds": status.rounds - rounds,
            "decisions recorded": status.pools[0].decisions - decisions,
            "cpu_percent_of_one_core": round(100 * cpu / wall, 2),
            "cpu_ms_a_round": round(1000 * cpu / max(status.rounds - rounds, 1), 1),
            "memory_mib": {"start": memory, "end": memory_mib()},
            "journal_mib": round(size / (1 << 20), 2),
        }
        arbiter.stop()
    port = FakePort(world)
    looks, cpu = max(found["rounds"], 1), cpu_s()
    for _ in range(looks):
        port.observe()
    bare_ms = 1000 * (cpu_s() - cpu) / looks
    found["bare_look_ms"] = round(bare_ms, 2)
    found["round_over_bare_look"] = round(found["cpu_ms_a_round"] / max(bare_ms, 1e-6), 1)
    print(found)
    record(Path(__file__), {"policy": asked.policy, "idle": found})


if __name__ == "__main__":
    main()
