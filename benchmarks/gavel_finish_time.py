"""How fast is Gavel's finish-time fairness, beside a bisection over warm-started LPs on bare HiGHS?

    python benchmarks/gavel_finish_time.py [--jobs 64,256,1024]

n jobs with random rates on three GPU types; the same rho asserted to one part in ten thousand.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import highspy
import numpy as np
from _record import record
from numpy.typing import NDArray

from policy.gavel.programs import Jobs, Solving, equal_share, finish_time

Matrix = NDArray[np.float64]


def instance(n: int) -> tuple[Jobs, Matrix, Matrix, Matrix]:
    random = np.random.default_rng(n)
    rate = 1 + random.random((n, 3)) * np.array([1.0, 4.0, 9.0])
    jobs = Jobs(rate, random.choice([1.0, 2.0, 4.0], n), np.array([n / 4, n / 4, n / 4]))
    left, elapsed = random.uniform(1e3, 1e5, n), random.uniform(0, 1e4, n)
    isolated = left / (equal_share(jobs) * np.minimum(1.0, jobs.gpus.sum() / n / jobs.gang))
    return jobs, left, elapsed, isolated


def bare(jobs: Jobs, left: Matrix, elapsed: Matrix, isolated: Matrix) -> float:
    """The smallest largest rho, by bisection; each LP maximises the common level and starts from the last basis."""
    n, k = jobs.rate.shape
    model: Any = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    inf = highspy.kHighsInf
    for _ in range(n * k):
        model.addCol(0, 0, inf, 0, [], [])
    model.addCol(-1, 0, 1e15, 0, [], [])
    for m in range(n):
        model.addRow(-inf, 1, k, list(range(m * k, m * k + k)), [1.0] * k)
    for t in range(k):
        model.addRow(-inf, jobs.gpus[t], n, list(range(t, n * k, k)), list(jobs.gang))
    for m in range(n):
        model.addRow(0, inf, k + 1, [*range(m * k, m * k + k), n * k], [*jobs.rate[m], -1.0])
    low = float(((elapsed + left / jobs.rate.max(axis=1)) / isolated).max())
    high, found = max(2 * low, 1.0), False
    while high - low > 1e-6 * high:
        middle = (low + high) / 2 if found else high
        room = middle * isolated - elapsed
        need = np.minimum(np.where(room > 0, left / np.where(room > 0, room, 1), 1e12), 1e12)
        for m in range(n):
            model.changeCoeff(n + k + m, n * k, -float(need[m]))
        model.run()
        if model.getSolution().col_value[n * k] >= 1 - 1e-9:
            high, found = middle, True
        elif found:
            low = middle
        else:
            low, high = high, 4 * high
    return high


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="64,256,1024")
    options = parser.parse_args()
    finish_time(*instance(8), Solving())
    table: list[dict[str, Any]] = []
    for n in map(int, options.jobs.split(",")):
        problem = instance(n)
        start = time.process_time()
        answer = finish_time(*problem, Solving(time_limit_s=600))
        seconds = time.process_time() - start
        start = time.process_time()
        rho = bare(*problem)
        floor = time.process_time() - start
        if abs(rho * answer.level - 1) > 1e-4:
            raise SystemExit(f"bare finds rho {rho}, ours {1 / answer.level}")
        row = {"jobs": n, "ours_s": round(seconds, 4), "bare_s": round(floor, 4), "ratio": round(seconds / floor, 2)}
        print(row, flush=True)
        table.append(row)
    record(Path(__file__), {"rows": table}, ["pulp", "highspy"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
