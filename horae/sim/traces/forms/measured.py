"""Seconds of a job whose form tells iterations of a public model: by the shipped tables of measured throughput."""

from __future__ import annotations

from horae.sim.traces.table import Cells
from horae.tables import table


def seconds(cells: Cells, name: str, key: str, iterations: float, gpus: int, where: tuple[str, str]) -> float:
    """On `gpus` GPUs of the type, both in `where`: (shipped table, GPU type).

    Above what was measured, at the rate a GPU of the largest number that was. Raises Malformed, column `name`, for a
    model that the table lacks.
    """
    shipped, gpu_type = where
    rates = table(shipped).get(key, {}).get(gpu_type)
    if not rates:
        known = ", ".join(sorted(table(shipped)))
        raise cells.wrong(name, f"is no model of the table {shipped} (which has {known})", cells.word(name))
    nearest = max((n for n in rates if n <= gpus), default=min(rates))
    return iterations / (rates[nearest] * gpus / nearest)
