"""How well does the scaling fit tell a rate that was not measured, beside straight lines?

    python benchmarks/scaling_prediction.py [--out benchmarks/results/scaling_prediction.json]

Models of the AFS paper at 1, 2, 4, ... GPUs (tests/profiler/scaling). Between: each inner count is hidden and told
from all others, beside linear interpolation on the rate. Beyond: the first three, four, ... counts are known and the
next doubling and the one after it are told, beside CoDDL's rule (linear from the last point, the bare floor).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy

from profiler.estimates.scaling import Rate, Scaling, Source

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "profiler" / "scaling" / "afs.json"


def rates() -> dict[str, dict[int, float]]:
    models = json.loads(DATA.read_text(encoding="utf-8"))["models"]
    return {name: {int(n): 1e6 / us for n, us in row.items()} for name, row in models.items()}


def known(points: Mapping[int, float]) -> Scaling:
    return Scaling({n: Rate(r, Source.MEASURED, (r * 0.97, r * 1.03), 100) for n, r in points.items()})


def told(points: Mapping[int, float], gpus: int) -> Rate:
    rate = known(points).rate(gpus)
    if rate is None:
        raise ValueError("a scaling with points tells every count")
    return rate


def between(curve: Mapping[int, float]) -> list[tuple[float, float, bool]]:
    """(error of the fit, error of the line, inside the interval) of every inner count."""
    counts, rows = sorted(curve), []
    for i in range(1, len(counts) - 1):
        n, low, high = counts[i], counts[i - 1], counts[i + 1]
        made = told({m: curve[m] for m in counts if m != n}, n)
        line = curve[low] + (curve[high] - curve[low]) * (n - low) / (high - low)
        truth = curve[n]
        rows.append((abs(made.value / truth - 1), abs(line / truth - 1), made.interval[0] <= truth <= made.interval[1]))
    return rows


def beyond(curve: Mapping[int, float], doublings: int) -> list[tuple[float, float, bool]]:
    counts, rows = sorted(curve), []
    for i in range(3, len(counts) - doublings + 1):
        n, last = counts[i + doublings - 1], counts[i - 1]
        made = told({m: curve[m] for m in counts[:i]}, n)
        line, truth = curve[last] * n / last, curve[n]
        rows.append((abs(made.value / truth - 1), abs(line / truth - 1), made.interval[0] <= truth <= made.interval[1]))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "scaling_prediction.json")
    options = parser.parse_args()
    curves = rates().values()
    asked = {
        "between": [r for c in curves for r in between(c)],
        "one doubling beyond": [r for c in curves for r in beyond(c, 1)],
        "two doublings beyond": [r for c in curves for r in beyond(c, 2)],
    }
    summary = {
        name: {
            "asked": len(rows),
            "median error, fit": float(np.median([r[0] for r in rows])),
            "median error, line": float(np.median([r[1] for r in rows])),
            "90th percentile, fit": float(np.quantile([r[0] for r in rows], 0.9)),
            "90th percentile, line": float(np.quantile([r[1] for r in rows], 0.9)),
            "covered by the 90 % interval": sum(r[2] for r in rows) / len(rows),
        }
        for name, rows in asked.items()
    }
    for name, row in summary.items():
        print(name, "  ".join(f"{k} {v:.3g}" for k, v in row.items()))
    body = {
        "question": "error of a rate that was not measured, told from those that were",
        "command": "python benchmarks/scaling_prediction.py",
        "machine": {"processor": platform.machine(), "system": platform.system()},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "data": "tests/profiler/scaling/afs.json, provenance inside",
        "summary": summary,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
