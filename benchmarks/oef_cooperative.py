"""How fast is cooperative OEF, beside bare row generation and the paper's formulation?

    python benchmarks/oef_cooperative.py [--tenants 100,300,1000] [--literal 300]

n tenants with distinct random rows on 10 GPU types. Three ways in one run, the same optimum asserted: ours
(policy.oef.envy_free through PuLP), the same row generation written on bare HiGHS, and Eq. 10 with all n^2 rows at once
on bare HiGHS (the paper's formulation, on a faster solver than its ECOS; up to --literal tenants). Then 26 models
shared by 1,000 tenants. CPU seconds of one thread; the growth exponent is fitted over n.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highspy
import numpy as np
from _record import record
from numpy.typing import NDArray

from policy.oef.envy_free import FIRST, _alike, _both_ways, _worst, cooperative
from policy.oef.shares import Users

Matrix = NDArray[np.float64]
Pairs = NDArray[np.intp]
TYPES = 10


def rows(n: int, seed: int = 0) -> tuple[Matrix, Matrix]:
    random = np.random.default_rng(seed)
    speed = np.sort(1 + 9 * random.random((n, TYPES)), axis=1)
    return speed / speed[:, :1], random.integers(5, 50, TYPES).astype(np.float64)


def ours(speed: Matrix, gpus: Matrix) -> float:
    n = len(speed)
    answer = cooperative(Users(speed, np.ones(n), np.full(n, np.inf), gpus), time_limit_s=3600)
    return float((answer.x * speed).sum())


class _Bare:
    """Eq. 10 without envy rows, on bare HiGHS."""

    def __init__(self, speed: Matrix, gpus: Matrix) -> None:
        self.speed, (self.n, self.k) = speed, speed.shape
        self.model: Any = highspy.Highs()
        self.model.setOptionValue("output_flag", False)
        self.model.setOptionValue("threads", 1)
        size, none = self.n * self.k, np.zeros(0)
        up = np.full(size, highspy.kHighsInf)
        empty = np.zeros(size, dtype=np.int32)
        self.model.addCols(size, -speed.ravel(), np.zeros(size), up, 0, empty, none.astype(np.int32), none)
        for j in range(self.k):
            index = np.arange(j, size, self.k, dtype=np.int32)
            self.model.addRow(-highspy.kHighsInf, gpus[j], self.n, index, np.ones(self.n))

    def no_envy(self, who: Pairs, other: Pairs) -> None:
        """Rows: each of `who` does not prefer the share of its `other`."""
        rows, k = len(who), self.k
        index = np.concatenate([p[:, None] * k + np.arange(k) for p in (who, other)], axis=1).astype(np.int32)
        values = np.concatenate([self.speed[who], -self.speed[who]], axis=1)
        starts = np.arange(0, rows * 2 * k, 2 * k, dtype=np.int32)
        up = np.full(rows, highspy.kHighsInf)
        self.model.addRows(rows, np.zeros(rows), up, index.size, starts, index.ravel(), values.ravel())

    def drop_slack(self) -> None:
        value = np.array(self.model.getSolution().row_value)[self.k :]
        dead = np.flatnonzero(np.abs(value) > 1e-6) + self.k
        if len(dead):
            self.model.deleteRows(len(dead), dead.astype(np.int32))

    def solve(self) -> Matrix:
        self.model.run()
        return np.array(self.model.getSolution().col_value).reshape(self.n, self.k)


def bare_generation(speed: Matrix, gpus: Matrix) -> float:
    """Row generation with everything that ours does, and no layer between: rows among tenants alike first, then the
    worst of all, slack rows dropped every second pass."""
    program, alike = _Bare(speed, gpus), _alike(speed)
    everyone = np.broadcast_to(np.arange(program.n), (program.n, program.n))
    program.no_envy(*np.array(_both_ways(alike[:, :FIRST])).T)
    for step in itertools.count(1):
        x = program.solve()
        worth = speed @ x.T
        envy = worth - np.diag(worth)[:, None]
        bound = 1e-7 * np.maximum(1.0, worth.max(axis=1))
        new = _worst(envy, bound, alike)
        new += _worst(envy, bound, everyone, np.setdiff1d(np.arange(program.n), [who for who, _ in new]))
        if not new:
            break
        if step % 2 == 0:
            program.drop_slack()
        program.no_envy(*np.array(new).T)
    return float((x * speed).sum())


def literal(speed: Matrix, gpus: Matrix) -> float:
    """The paper's formulation: all n (n - 1) rows at once."""
    program = _Bare(speed, gpus)
    who, other = np.nonzero(~np.eye(program.n, dtype=bool))
    program.no_envy(who, other)
    return float((program.solve() * speed).sum())


def timed(solve: Callable[[Matrix, Matrix], float], speed: Matrix, gpus: Matrix) -> tuple[float, float]:
    start = time.process_time()
    value = solve(speed, gpus)
    return time.process_time() - start, value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", default="50,100,300,1000")
    parser.add_argument("--literal", type=int, default=300, help="most tenants for the paper's formulation")
    parser.add_argument("--bare", type=int, default=1000, help="most tenants for bare row generation")
    options = parser.parse_args()
    ours(*rows(20))  # imports and first-use costs are not the question
    table: list[dict[str, Any]] = []
    for n in map(int, options.tenants.split(",")):
        speed, gpus = rows(n)
        seconds, value = timed(ours, speed, gpus)
        row: dict[str, Any] = {"tenants": n, "ours_s": round(seconds, 4)}
        others = (("bare_generation", bare_generation, options.bare), ("literal", literal, options.literal))
        for name, solve, most in others:
            if n <= most:
                other, same = timed(solve, speed, gpus)
                if abs(same - value) > 1e-5 * value:
                    raise SystemExit(f"{name} finds {same}, ours {value}: not the same optimum")
                row |= {f"{name}_s": round(other, 4), f"ours_over_{name}": round(seconds / other, 3)}
        print(row, flush=True)
        table.append(row)
    models, gpus = rows(26, seed=1)
    speed = models[np.arange(1000) % 26]
    shared, _ = timed(ours, speed, gpus)
    print(f"1,000 tenants of 26 models: {shared * 1000:.1f} ms")
    sizes, times = np.log([r["tenants"] for r in table]), np.log([r["ours_s"] for r in table])
    exponent = round(float(np.polyfit(sizes, times, 1)[0]), 2) if len(table) > 1 else None
    result = {
        "types": TYPES, "rows": table, "growth_exponent_in_n": exponent,
        "shared_models": {"tenants": 1000, "models": 26, "seconds": round(shared, 4)},
    }  # fmt: skip
    record(Path(__file__), result, ["pulp", "highspy", "numpy"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
