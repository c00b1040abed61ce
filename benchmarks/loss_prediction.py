"""How well is a loss curve predicted after 10, 25, 50 and 75 % of it, and what do the intervals cover?

    python benchmarks/loss_prediction.py [--out benchmarks/results/loss_prediction.json]

Every curve under tests/profiler/curves (real training logs, provenance beside them) is cut; the rest is averaged
into 8 bins, and each method says what they are. The error is the mean absolute error over the bins, relative to
their mean. Beside `profiler.estimates.loss`:

* last: the mean of the last twentieth stays (the bare floor);
* optimus: 1 / (b0 k + b1) + b2 as in its paper (EuroSys '18, §3.1): losses normalised by their maximum, points
  outside the range of their neighbourhood replaced by its mean, then non-negative least squares on 1 / (l - b2) for
  a grid of b2;
* slaq: the better, in sample, of 1 / (a k^2 + b k + c) + d and mu^(k - b) + c, with weights that fall
  exponentially into the past (SoCC '17, §4).

Coverage is the share of bins inside the 50, 80 and 90 % intervals. Forecasts that are None are counted, and left
out of every method's mean in the row "where forecast", so that all are compared on the same curves.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.optimize import nnls

from profiler.estimates.laws import LAWS, fit
from profiler.estimates.loss import Z, forecast

ROOT = Path(__file__).resolve().parent.parent
CURVES = ROOT / "tests" / "profiler" / "curves"
CUTS = (0.10, 0.25, 0.50, 0.75)
FEWEST = 6
Array = NDArray[np.float64]


def load(path: Path) -> tuple[Array, Array]:
    with path.open(encoding="utf-8") as f:
        rows = np.array([[float(x) for x in row] for row in list(csv.reader(f))[1:]])
    return rows[:, 0], rows[:, 1]


def last(k: Array, y: Array, at: Array) -> Array:
    return np.full(len(at), y[-max(len(y) // 20, 1) :].mean())


def optimus(k: Array, y: Array, at: Array) -> Array:
    if float(y.min()) < 0:
        return last(k, y, at)
    scale = float(y.max())
    cleaned = _without_outliers(y / scale)
    step = float(np.median(np.diff(k)))
    x = k - k[0] + step
    best: tuple[float, Array, float] | None = None
    for b2 in np.concatenate(([0.0], np.linspace(0.0, 0.999, 60) * float(cleaned.min()))):
        target = 1 / np.maximum(cleaned - b2, 1e-9)
        weights = 1 / target  # least squares on the loss, not on its inverse
        solution, _ = nnls(np.stack([x * weights, weights], axis=1), target * weights)
        if not solution.any():
            continue
        made = 1 / (solution[0] * x + solution[1]) + b2
        error = float(((made - cleaned) ** 2).sum())
        if best is None or error < best[0]:
            best = (error, solution, float(b2))
    if best is None:
        return last(k, y, at)
    _, (b0, b1), b2 = best
    return np.asarray(scale * (1 / (b0 * (at - k[0] + step) + b1) + b2))


def _without_outliers(y: Array, width: int = 5) -> Array:
    out = y.copy()
    for i in range(len(y)):
        near = np.concatenate((y[max(i - width, 0) : i], y[i + 1 : i + 1 + width]))
        if len(near) and not float(near.min()) <= y[i] <= float(near.max()):
            out[i] = near.mean()
    return out


def slaq(k: Array, y: Array, at: Array) -> Array:
    origin = float(k[0] - np.median(np.diff(k)))
    weights = np.exp(-3.0 * (1 - np.arange(1, len(k) + 1) / len(k)))
    floor = 0.0 if float(y.min()) >= 0 else None
    made = [fit(LAWS[law], k, y, weights, origin=origin, floor=floor) for law in ("inverse-quadratic", "exponential")]
    fitted = [m for m in made if m is not None]
    return min(fitted, key=lambda m: m.error)(at) if fitted else last(k, y, at)


METHODS: dict[str, Callable[[Array, Array, Array], Array]] = {"last": last, "optimus": optimus, "slaq": slaq}


def one(k: Array, y: Array, cut: float) -> dict[str, Any] | None:
    seen = int(len(k) * cut)
    if seen < FEWEST:
        return None
    parts = [i for i in np.array_split(np.arange(seen, len(k)), 8) if len(i)]
    at, truth = np.array([k[i].mean() for i in parts]), np.array([y[i].mean() for i in parts])
    size = float(np.abs(truth).mean())
    row: dict[str, Any] = {}
    for name, method in METHODS.items():
        row[name] = float(np.abs(method(k[:seen], y[:seen], at) - truth).mean()) / size
    began = time.perf_counter()
    made, why = forecast(list(zip(k[:seen].tolist(), y[:seen].tolist(), strict=True)))
    row["seconds"] = time.perf_counter() - began
    if made is None:
        return {**row, "horae": None, "why": why}
    guess = np.array([made.at(float(p)) for p in at])
    row["horae"] = float(np.abs(guess - truth).mean()) / size
    row["law"] = made.law
    for level in Z:
        inside = [low <= t <= high for p, t in zip(at, truth, strict=True) for low, high in [made.interval(p, level)]]
        row[f"inside {level}"] = [int(sum(inside)), len(inside)]
    halves = np.array([made.interval(float(p), 0.9)[1] for p in at]) - guess
    row["misses"] = [float(m) for m in Z[0.9] * np.abs(guess - truth) / np.maximum(halves, 1e-300)]
    low, high = made.interval(float(at[-1]), 0.9)
    row["width 0.9 at the end"] = (high - low) / size
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    told = [r for r in rows if r["horae"] is not None]
    out: dict[str, Any] = {"curves": len(rows), "no forecast": len(rows) - len(told)}
    out["where forecast"] = {
        name: {
            "median": float(np.median([r[name] for r in told])),
            "mean": float(np.mean([r[name] for r in told])),
            "90th percentile": float(np.quantile([r[name] for r in told], 0.9)),
        }
        for name in ("horae", *METHODS)
    }
    out["better than"] = {name: sum(r["horae"] < r[name] for r in told) / max(len(told), 1) for name in METHODS}
    out["coverage"] = {
        str(level): sum(r[f"inside {level}"][0] for r in told) / max(sum(r[f"inside {level}"][1] for r in told), 1)
        for level in Z
    }
    out["coverage of 90 % with the factor set on all other curves"] = left_out(told)
    out["median width of the 90 % interval at the end"] = float(np.median([r["width 0.9 at the end"] for r in told]))
    out["milliseconds a forecast"] = 1000 * float(np.median([r["seconds"] for r in rows]))
    return out


def left_out(rows: list[dict[str, Any]], level: float = 0.9) -> float:
    """Coverage when the interval's factor is the quantile of the other curves' misses, not of the curve's own."""
    hit = asked = 0
    for i, row in enumerate(rows):
        others = np.concatenate([r["misses"] for j, r in enumerate(rows) if j != i])
        factor = float(np.quantile(others, level))
        hit += sum(bool(m <= factor) for m in row["misses"])
        asked += len(row["misses"])
    return hit / max(asked, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "loss_prediction.json")
    options = parser.parse_args()
    by_cut: dict[str, dict[str, Any]] = {}
    detail: dict[str, dict[str, Any]] = {}
    for cut in CUTS:
        rows = []
        for path in sorted(CURVES.glob("*.csv")):
            row = one(*load(path), cut)
            if row is not None:
                rows.append(row)
                detail.setdefault(path.stem, {})[f"{cut:.0%}"] = row
        by_cut[f"{cut:.0%}"] = summary(rows)
        s = by_cut[f"{cut:.0%}"]
        medians = "  ".join(f"{n} {v['median']:.3f}" for n, v in s["where forecast"].items())
        covered = "  ".join(f"{level}: {share:.2f}" for level, share in s["coverage"].items())
        print(
            f"{cut:4.0%}  {s['curves']} curves, {s['no forecast']} without; median error {medians}; covered {covered}"
        )
    for rows_of in detail.values():
        for row in rows_of.values():
            row.pop("misses", None)
    body = {
        "question": "error of the predicted loss over the rest of a curve, and coverage of the intervals",
        "command": "python benchmarks/loss_prediction.py",
        "machine": {"processor": platform.machine(), "system": platform.system()},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__},
        "data": "tests/profiler/curves, provenance in its PROVENANCE.tsv",
        "summary": by_cut,
        "curves": detail,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(body, indent=1, sort_keys=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
