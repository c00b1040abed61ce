"""Measured throughput tables that ship with Horae: `model: resnet50@gavel` in an instance or a trace.

A table is {model: {gpu_type: {gpus: iterations/s}}}. Sources and licences: `SOURCES.tsv`; how each was made: `make`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The tables that ship."""
    return sorted(p.stem for p in _FOLDER.glob("*.json"))


@lru_cache(maxsize=8)
def table(name: str) -> Mapping[str, Mapping[str, Mapping[int, float]]]:
    """A shipped table. Raises KeyError saying which there are."""
    if name not in names():
        raise KeyError(f"the tables are {', '.join(names())}; write model: KEY@TABLE")
    data = json.loads((_FOLDER / f"{name}.json").read_text())
    return {
        model: {t: {int(n): rate for n, rate in curve.items()} for t, curve in rates.items()}
        for model, rates in data.items()
    }
