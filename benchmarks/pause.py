"""How long does a job stand still when it is resized, through the whole arbiter on the local cluster?

An arbiter with the ordinary times, two GPUs, one elastic job; a rigid one that comes takes a GPU from it. Measured is
the elastic job's own word: from its last step before to its first step after, and what lay between:

    leave      last step until the SDK begins to write; save: written, checked, published; exit: the process is gone
    start      until the next process runs: noticed, decided, launched; imports; load: verified, read, first step

Beside it the floor: `cp` of the same bytes, not in memory, onto the disk (and the sync of it), and the imports.

    python benchmarks/pause.py [--rounds 5] [--megabytes 10,1024] [--python P --module torch]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks._record import record
from horae.arbiter.requests.authority import Requester
from horae.arbiter.service import Arbiter
from horae.config import parse
from horae.local import connect
from horae.spec import JobSpec
from policy.model import GpuRange
from policy.text.textform import to_yaml

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60.0
Marks = dict[int, dict[str, float]]  #: epoch -> moment of each mark of rank 0; of steps the first and the last


def marks_of(path: Path) -> Marks:
    found: Marks = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        epoch, rank, what, at_s = line.split()
        if rank == "0":
            start = found.setdefault(int(epoch), {})
            start["first step" if what == "step" and "first step" not in start else what] = float(at_s)
    return found


def until(what: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it never came: " + why()
        time.sleep(0.05)


def parts(marks: Marks, before: int, after: int) -> dict[str, float]:
    old, new = marks[before], marks[after]
    last = old.get("step", old["first step"])
    return {
        "pause": new["first step"] - last,
        "leave": old["saving"] - last,
        "save": old["left"] - old["saving"],
        "of that the trainer's own": old["saved"] - old["saving"],
        "start": new["process"] - old["left"],
        "imports": new["imported"] - new["process"],
        "build": new["built"] - new["imported"],
        "verify": new["loading"] - new["built"],
        "load": new["loaded"] - new["loading"],
        "first step": new["first step"] - new["loaded"],
    }


class Stage:
    """An arbiter with one elastic job of `megabytes`, and a rigid one that comes and goes."""

    def __init__(self, folder: Path, megabytes: int, python: str, module: str) -> None:
        self.marks = folder / "marks"
        self._me = Requester("root" if os.geteuid() == 0 else Path.home().owner())
        self._command = (python, str(ROOT / "benchmarks" / "_pause_trainer.py"), str(self.marks), str(megabytes))
        self._command += (module,) * bool(module)
        self._env = {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("BENCH_PYTHONPATH", ""))))}
        self._env |= {"OMP_NUM_THREADS": "1"}
        self._folder = folder
        config = {
            "state_dir": str(folder / "arbiter"),
            "cluster": {"adapter": "local", "options": {"state": str(folder / "cluster"), "nodes": "v100:1x2"}},
            "pools": [{"name": "all", "mode": "enforce", "policy": "max-min"}],
            "guards": {"min_run_s": 0.0, "restarts_per_hour": 100000, "gain": 0.0},
        }
        text = to_yaml(config)
        read = parse(text, "pause")
        self.arbiter = Arbiter(read, connect(config["cluster"]["options"]))  # type: ignore[index]
        self.arbiter.start()
        self._guests = 0

    def elastic(self) -> None:
        spec = JobSpec("j", self._command, GpuRange(1, 1, 2), env=self._env, cwd=str(self._folder))
        self.arbiter.submit(self._checkpointing(spec), self._me)
        self._steps(1)

    def _checkpointing(self, spec: JobSpec) -> JobSpec:
        from dataclasses import replace

        return replace(spec, checkpoint=str(self._folder / "checkpoints"), retries=0)

    def resize(self) -> dict[str, float]:
        """A guest comes, or the one that is here goes."""
        before = max(marks_of(self.marks))
        if self._guests:
            self._cancel(self._guest)
            self._guests = 0
        else:
            spec = JobSpec("guest", ("sleep", "1000"), GpuRange(1, 1, 1), cwd=str(self._folder), app="guest")
            self._guest = self.arbiter.submit(spec, self._me)
            self._guests = 1
        self._steps(before + 1)
        return parts(marks_of(self.marks), before, max(marks_of(self.marks)))

    def _steps(self, epoch: int) -> None:
        until(
            lambda: any("step" in found for number, found in marks_of(self.marks).items() if number >= epoch), self.told
        )
        time.sleep(1.0)  # it trains for a while

    def told(self) -> str:
        """What the jobs said."""
        return "".join(log.read_text()[-2000:] for log in self._folder.glob("cluster/jobs/*/output.log"))

    def _cancel(self, job: str) -> None:
        self.arbiter.command(lambda commands: commands.cancel(job, self._me))

    def close(self) -> None:
        for job in [r.id for r in self.arbiter.view(lambda core: list(core.ledger.live()))]:
            self._cancel(job)
        until(lambda: not self.arbiter.view(lambda core: list(core.ledger.live())))
        self.arbiter.stop()


def cold_cp(folder: Path, megabytes: int) -> float:
    source, copy = folder / "bytes", folder / "copy"
    source.write_bytes(os.urandom(1 << 20) * megabytes)
    with source.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.perf_counter()
    subprocess.run(["cp", str(source), str(copy)], check=True)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    took = time.perf_counter() - begin
    source.unlink()
    copy.unlink()
    return took


def measured(megabytes: int, rounds: int, python: str, module: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="horae-pause-") as name:
        folder = Path(name)
        stage = Stage(folder, megabytes, python, module)
        try:
            stage.elastic()
            found, copies = [], []
            for _ in range(rounds):
                copies.append(cold_cp(folder, megabytes))
                found.append(stage.resize())
        finally:
            stage.close()
    medians = {what: round(statistics.median(each[what] for each in found), 3) for what in found[0]}
    copy = statistics.median(copies)
    return {
        "megabytes": megabytes,
        "cold_cp_s": round(copy, 3),
        "pause_s": medians["pause"],
        "pauses_s": [round(each["pause"], 3) for each in found],
        "parts_s": medians,
        "cold_cps_without_imports": round((medians["pause"] - medians["imports"]) / copy, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", default="10,1024")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--module", default="")
    asked = parser.parse_args()
    rows = [measured(int(size), asked.rounds, asked.python, asked.module) for size in asked.megabytes.split(",")]
    for row in rows:
        print(row)
    result = {
        "question": "how long a job stands still when it is resized, through the whole arbiter on the local cluster",
        "goal": "10 MB: 1.2 s; 1 GB: three times a cold cp of the bytes, plus the imports",
        "rounds": asked.rounds,
        "sizes": {f"{row['megabytes']} MB": row for row in rows},
    }
    record(Path(__file__), result, ["numpy"])


if __name__ == "__main__":
    main()
