"""How near is the profiler's time of a step to what each training noted itself, on a real GPU, framework by framework?

    python benchmarks/gpu_profiles.py [--python PYTHON] [--at-once 4] [--only hf_bar nano]     where there is a GPU
    python benchmarks/gpu_profiles.py --logs FOLDER                                            what was run elsewhere

The trainings are `_gpu_programs.py`'s: each prints as its framework does, and notes when each step of its optimiser
ended. PYTHON has PyTorch with CUDA, transformers, lightning, accelerate, JAX, PyTorch Geometric and GPyTorch. Several
run at once, which makes them slower and their notes no less true. Truth is the median of all intervals and the mean of
those after the first ten: a rate is right within 15 % of either, or between them. Of a log with two trainings the last
one's time counts. `floor`: what anybody has who divides the program's wall seconds by its steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from _record import record

from profiler.estimates.summary import summarise
from profiler.rules.book import load
from profiler.runs.reader import LogReader

PROGRAMS = Path(__file__).with_name("_gpu_programs.py")
WARM_UP = 10  #: steps
NEAR = 0.15
LIMIT_S = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--logs", type=Path, help="a folder with NAME.log and NAME.json of each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.logs or Path(scratch)
        if options.logs is None:
            run(options.python, folder, options.only or names(options.python), options.at_once)
        rows = {path.stem: compare(path) for path in sorted(folder.glob("*.log"))}
    told = [row for row in rows.values() if row["told_s"] is not None]
    counts = {"programs": len(rows), "told": len(told), "right": sum(row["right"] for row in told)}
    for name, row in rows.items():
        print(f"{name:18} true {row['true_s']} told {row['told_s']} floor {row['floor_s']}")
    print(counts)
    record(Path(__file__), {"gpu": gpu(folder), **counts, "rows": rows})


def names(python: str) -> list[str]:
    code = "import _gpu_programs as p; print(*p.PROGRAMS)"
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True, cwd=PROGRAMS.parent
    ).stdout.split()


def run(python: str, folder: Path, chosen: Sequence[str], at_once: int) -> None:
    def one(name: str) -> None:
        words = [python, str(PROGRAMS), name, str(folder / f"{name}.json")]
        with (folder / f"{name}.log").open("wb") as log:
            subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, check=True, cwd=folder, timeout=LIMIT_S)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, chosen))
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    (folder / "gpu.txt").write_text(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def gpu(folder: Path) -> str:
    path = folder / "gpu.txt"
    return path.read_text().strip() if path.exists() else "not noted"


def compare(log: Path) -> dict[str, Any]:
    """What one log tells of its last training, beside what that training noted."""
    ends = json.loads(log.with_suffix(".json").read_text())["ends"]
    gaps = [after - before for before, after in pairwise(ends)]
    true = sorted([statistics.median(gaps), (ends[-1] - ends[WARM_UP]) / (len(ends) - WARM_UP - 1)])
    reader = LogReader(load())
    reader.feed(log.read_bytes())
    runs = [summarise(run) for run in reader.runs()]
    time = runs[-1].iteration_time if runs else None
    told = None if time is None else time.median
    right = told is not None and (1 - NEAR) * true[0] <= told <= (1 + NEAR) * true[1]
    return {
        "steps": len(ends),
        "true_s": [round(seconds, 5) for seconds in true],
        "told_s": None if told is None else round(told, 5),
        "source": None if time is None else time.source,
        "right": right,
        "ratio": None if told is None else round(told / min(max(told, true[0]), true[1]), 3),
        "floor_s": round((ends[-1] - ends[0]) / (len(ends) - 1), 5),
    }


if __name__ == "__main__":
    main()
