"""The digits data set, read from scikit-learn's own file without importing scikit-learn (a second of start-up).

1797 images of 8 x 8 pixels, values 0..16; scikit-learn's copy of the test set of the UCI ML hand-written digits
(E. Alpaydin, C. Kaynak, 1998). Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 64
CLASSES = 10


def locate() -> Path:
    """Path of the data file. Raises FileNotFoundError, with what to do."""
    spec = importlib.util.find_spec("sklearn")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            return path
    raise FileNotFoundError("the digits data set comes with scikit-learn: pip install 'horae[demo]', or give --data")


def load(path: str | None = None) -> tuple[Any, Any]:
    """(images, labels): float64 of shape (1797, 64) in 0..1, int64 of shape (1797,)."""
    with gzip.open(path or locate(), "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float64)
    return table[:, :FEATURES] / 16.0, table[:, FEATURES].astype(np.int64)


def arguments(about: str | None, sample_ms: float) -> argparse.ArgumentParser:
    """What every classifier of the digits is told on its command line."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=32, help="size of the hidden layer; 0: softmax regression")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--sample-ms", type=float, default=sample_ms, help="time a sample would take on a GPU of speed 1"
    )
    parser.add_argument("--max-micro-batch", type=int, help="samples that fit a rank's memory at once")
    parser.add_argument("--checkpoint-every-s", type=float, default=5.0)
    parser.add_argument("--log-every-s", type=float, default=0.5)
    parser.add_argument("--data", help="digits.csv.gz; default: scikit-learn's")
    return parser
