"""What does a resize on the local cluster cost over doing the same by hand?

The same trainer, the same sizes in turn (2, 1, 2, ... ranks), the same checkpoints. From the request to leave until
the first step of the next size:

    by hand     USR1 to the ranks, wait for their exit, start them again in the new size: nothing can be faster
    horae       checkpoint_and_stop, observe until it is stopped, start: supervisor, fence, account, spool and all

Rounds of the two alternate, so that a busy machine slows both. Goal: less than 10 % over the floor.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from _record import record

from horae.elastic.supervisor.shape import local_members
from horae.local import connect
from horae.port import ClusterPort, JobState, TryLater, attend
from horae.spec import JobSpec
from policy.model import GpuRange

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "horae.demo.trainers.mlp", "--steps", "10000000", "--sample-ms", "0.2")
ENV = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
POLL_S = 0.002
PATIENCE_S = 120.0


class ByHand:
    """The floor: processes and signals, nothing else."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self._folder = folder
        self._epoch = 0
        self._ranks: list[subprocess.Popen[bytes]] = []

    def start(self, size: int) -> None:
        self._epoch += 1
        base = {**os.environ, **ENV, "HORAE_CHECKPOINT": str(self._folder / "ckpt"), "HORAE_EPOCH": str(self._epoch)}
        with self.log.open("ab") as out:
            for member in local_members(COMMAND, base, str(self._folder), {"n": size}):
                self._ranks.append(
                    subprocess.Popen(member.argv, env=member.env, cwd=member.cwd, stdout=out, stderr=subprocess.STDOUT)
                )

    def stop(self) -> None:
        for rank in self._ranks:
            rank.send_signal(signal.SIGUSR1)
        codes = [rank.wait(PATIENCE_S) for rank in self._ranks]
        self._ranks = []
        assert set(codes) == {86}, codes

    def end(self) -> None:
        self.stop()


class Horae:
    def __init__(self, folder: Path) -> None:
        self._port: ClusterPort = connect({"state": folder / "state", "nodes": "v100:1x2"})
        self._port.submit(
            "j",
            JobSpec(
                "j", COMMAND, GpuRange(1, 1, 2), env=ENV, cwd=str(folder), checkpoint=str(folder / "ckpt"), retries=0
            ),
        )
        self.log = folder / "state" / "jobs" / "j" / "output.log"
        self._epoch = 0

    def start(self, size: int) -> None:
        self._epoch += 1
        while True:
            try:
                return self._port.start("j", {"v100-1": size}, self._epoch)
            except TryLater:
                time.sleep(POLL_S)

    def stop(self) -> None:
        self._port.checkpoint_and_stop("j", 60.0)
        self._wait(JobState.STOPPED)

    def end(self) -> None:
        self._port.cancel("j")
        self._wait(JobState.CANCELLED)

    def _wait(self, state: JobState) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while attend(self._port).jobs[0].state is not state:
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(POLL_S)


def first_step(log: Path, world: int, since: int) -> None:
    """Until a step of the new size is in the log beyond byte `since`."""
    deadline = time.monotonic() + PATIENCE_S
    words = (b"[horae] step=", b"world=%d " % world)
    while True:
        data = log.read_bytes()[since:] if log.exists() else b""
        if any(all(word in line for word in words) for line in data.split(b"\n")):
            return
        assert time.monotonic() < deadline, data[-2000:]
        time.sleep(POLL_S)


def resize(who: ByHand | Horae, size: int) -> float:
    since = who.log.stat().st_size
    began = time.monotonic()
    who.stop()
    who.start(size)
    first_step(who.log, size, since)
    return time.monotonic() - began


def summary(times: Sequence[float]) -> Mapping[str, float]:
    return {
        "median_s": round(statistics.median(times), 4),
        "min_s": round(min(times), 4),
        "max_s": round(max(times), 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="horae-resize-") as folder:
        (Path(folder) / "hand").mkdir()
        sides: dict[str, ByHand | Horae] = {"by_hand": ByHand(Path(folder) / "hand"), "horae": Horae(Path(folder))}
        times: dict[str, list[float]] = {name: [] for name in sides}
        for side in sides.values():
            side.start(2)
            first_step(side.log, 2, 0)
        for i in range(rounds):
            for name, side in sides.items():
                times[name].append(resize(side, 1 + i % 2))
        for side in sides.values():
            side.end()
    floor, ours = statistics.median(times["by_hand"]), statistics.median(times["horae"])
    overhead, at_best = ours / floor - 1, min(times["horae"]) / min(times["by_hand"]) - 1
    print(
        f"by hand {floor:.3f} s, horae {ours:.3f} s: {overhead:+.1%} by medians, {at_best:+.1%} by the best of {rounds}"
    )
    result = {
        "question": "a resize on the local cluster over the same done by hand",
        "goal": "overhead below 0.10",
        "rounds": rounds,
        "by_hand": summary(times["by_hand"]),
        "horae": summary(times["horae"]),
        "overhead": round(overhead, 4),
        "overhead_of_the_best": round(at_best, 4),
        "times_s": {name: [round(each, 4) for each in found] for name, found in times.items()},
    }
    record(Path(__file__), result, ["numpy"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
