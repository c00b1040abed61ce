"""What does the bridge add to a resize, beside the same REST calls by hand?

On a real YARN, side by side in one run: the same gang is resized by hand (signal to each worker, its checkpoint in
HDFS, FLEX, the new members at the gate, the gate opened) and by the adapter. By hand a worker is a script that does
what must be done and nothing else (`_yarn_worker.py`). Both are measured from the request until every rank of the new
gang trains; both look ten times a second. One job alone, then several at once.

    python benchmarks/yarn_resize.py [--cycles 10] [--jobs 3] [--lab FOLDER]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import record
from _yarn import USER, ByHand, Moves, Wire, arguments, bridge, hadoop, spec, together, until

from horae.config import Rounds
from horae.port import JobState, attend
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop

SHAPES: tuple[dict[str, int], ...] = ({"n1": 1, "n2": 0}, {"n1": 1, "n2": 1})
WORKER = Path(__file__).with_name("_yarn_worker.py")

#: Sleeps, and tells of its first step by a file: `trainer.py MARKS`.
TRAINER = """import os, sys, time
from horae import elastic
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
mark = "%s/%s-%s" % (sys.argv[1], os.environ["HORAE_EPOCH"], os.environ["RANK"])
for step in elastic.Training(steps=10**9, global_batch=64, save=save, load=load, checkpoint_every_s=3600):
    time.sleep(0.02)
    done[0] += 1
    open(mark, "w").close()
    step.report(1.0)
"""


class Job:
    """One gang. `moves` is one resize, in steps: what it waits for is looked at between them."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.epoch = name, 0
        self.marks = folder / name
        self.marks.mkdir()
        self.took_s: list[float] = []

    def moves(self, shape: dict[str, int]) -> Moves:
        began = time.monotonic()
        self.epoch += 1
        yield from self.asked(shape)
        wanted = {f"{self.epoch}-{rank}" for rank in range(sum(shape.values()))}
        while not wanted <= {path.name for path in self.marks.iterdir()}:
            yield
        self.took_s.append(time.monotonic() - began)

    def asked(self, shape: dict[str, int]) -> Moves:
        raise RuntimeError("a job is one's or the other's")


class HandJob(Job):
    def __init__(self, name: str, folder: Path, hand: ByHand) -> None:
        super().__init__(name, folder)
        self.hand, self.shape = hand, dict.fromkeys(SHAPES[0], 0)
        self.base = f"/user/{USER}/by-hand/{name}"
        hand.put(f"{self.base}/worker.py", WORKER.read_bytes())

    def asked(self, shape: dict[str, int]) -> Moves:
        hand, words = self.hand, f"{self.hand.webhdfs}/webhdfs/v1{self.base} {self.marks}"
        if self.epoch == 1:
            command = f"exec {sys.executable} worker.py {words}"
            hand.create(self.name, shape, command, {"worker.py": f"{self.base}/worker.py"})
        else:
            for each in hand.containers(self.name):
                hand.signal(each["id"])
            while hand.hdfs("GET", f"{self.base}/checkpoint-{self.epoch - 1}", "GETFILESTATUS") is None:
                yield
            hand.flex(self.name, {node: count for node, count in shape.items() if count != self.shape[node]})
        self.shape = shape
        while True:
            there = sorted(each["id"] for each in hand.containers(self.name))
            if len(there) == sum(shape.values()) and set(there) <= hand.names(f"{self.base}/members"):
                break
            yield
        hand.put(f"{self.base}/gate", json.dumps({"epoch": self.epoch, "members": there}).encode())


class BridgeJob(Job):
    def __init__(self, name: str, folder: Path, looks: Looks, lab: PrivateHadoop) -> None:
        super().__init__(name, folder)
        self.looks, self.port = looks, looks.port
        trainer = folder / "trainer.py"
        trainer.write_text(TRAINER)
        self.port.submit(name, spec(lab, name, [sys.executable, str(trainer), str(self.marks)], (1, 2)))

    def asked(self, shape: dict[str, int]) -> Moves:
        allocation = {node: gpus for node, gpus in shape.items() if gpus}
        if self.epoch == 1:
            self.port.start(self.name, allocation, self.epoch)
        else:
            self.port.reshape(self.name, allocation, self.epoch)
        self.looks.soon()
        yield


class Looks:
    """The bridge's, each with what is due then: as often as those by hand while a job moves, and as seldom as the
    arbiter's once all of them run."""

    def __init__(self, port: YarnCluster) -> None:
        self.port, self._next_s = port, 0.0

    def soon(self) -> None:
        self._next_s = 0.0

    def __call__(self) -> None:
        if time.monotonic() >= self._next_s:
            seen = self.port.observe()
            if seen.due:
                self.port.follow_up([due.job for due in seen.due])
            jobs = [each for each in seen.jobs if not each.state.ended]
            rests = not seen.due and all(each.state is JobState.RUNNING for each in jobs)
            self._next_s = time.monotonic() + (Rounds().tick_s if rests else 0.0)


def side_by_side(executor: list[Job], ours: list[Job], wire: Wire, look: Callable[[], object], cycles: int) -> Any:
    requests: dict[str, list[dict[str, int]]] = {"by hand": [], "bridge": []}
    for cycle in range(cycles + 1):
        for name, jobs, between in (("by hand", executor, int), ("bridge", ours, look)):
            before = wire.now()
            together([job.moves(SHAPES[cycle % 2]) for job in jobs], each_look=between)
            requests[name].append(wire.since(before))
            time.sleep(1.0)
    result: dict[str, Any] = {"jobs": len(executor), "cycles": cycles}
    for name, jobs in (("by hand", executor), ("bridge", ours)):
        times = [job.took_s[1:] for job in jobs]  # the first is a start
        result[name] = {
            # not the median: there are as many long growths as short shrinks, and it falls between the two
            "mean_s": statistics.mean(one for each in times for one in each),
            "grow_s": statistics.median(one for each in times for one in each[::2]),
            "shrink_s": statistics.median(one for each in times for one in each[1::2]),
            "start_s": statistics.median(job.took_s[0] for job in jobs),
            "requests": {
                daemon: statistics.mean(each.get(daemon, 0) for each in requests[name][1:])
                for daemon in ("rm", "namenode", "datanode")
            },
            "all_s": times,
        }
    by_hand, bridge = result["by hand"], result["bridge"]
    result["ratio"] = {
        "grow": bridge["grow_s"] / by_hand["grow_s"],
        "shrink": bridge["shrink_s"] / by_hand["shrink_s"],
        "all": bridge["mean_s"] / by_hand["mean_s"],
    }
    return result


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=3)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with hadoop("bench-yarn-resize", options.lab) as lab, tempfile.TemporaryDirectory() as made:
        folder, mark = Path(made), int(time.time())
        wire, hand, port = Wire(lab), ByHand(lab), bridge(lab)
        looks = Looks(port)
        for name, count in (("one", 1), ("together", options.jobs)):
            executor: list[Job] = [HandJob(f"hand-{name}-{i}-{mark}", folder, hand) for i in range(count)]
            ours: list[Job] = [BridgeJob(f"ours-{name}-{i}-{mark}", folder, looks, lab) for i in range(count)]
            result[name] = side_by_side(executor, ours, wire, looks, options.cycles)
            for job in executor:
                hand.destroy(job.name)
            for job in ours:
                port.cancel(job.name)
            until("their containers are gone", lambda: (attend(port), hand.used() == 0)[1])
        port.close()
    record(Path(__file__), result, ("requests", "hdfs"))
    for name in ("one", "together"):
        found = result[name]
        print(name, {who: round(found[who]["mean_s"], 2) for who in ("by hand", "bridge")}, found["ratio"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
