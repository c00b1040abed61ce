"""Cells of a grid on a Dask cluster that is there already. Needs distributed (the `dask` extra).

Its workers have Horae and nothing else: the trace travels to them, and what a cell leaves comes back, so that no file
system needs to be shared. A cell is handed to few workers in turn where they die of it, and then has failed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from horae.sim import grids
from horae.sim.grids import GridCell
from horae.sim.plans import Plan
from policy.model import BadInput

#: Seconds within which a scheduler answers.
ANSWERS_S = 15
#: Seconds within which the first of its workers is there.
WORKERS_S = 30


def each(plans: Sequence[Plan], folder: Path, address: str) -> Iterator[GridCell]:
    """As they are done. Raises BadInput where nobody answers at the address, or no worker comes."""
    from distributed import Client, as_completed

    if not plans:
        return
    client = _client(Client, address)
    try:
        files = {
            path: client.scatter(path.read_bytes(), hash=False) for path in {p for plan in plans for p in plan.files()}
        }
        futures = {}
        for plan in plans:
            needed = [(path, files[path]) for path in plan.files()]
            names, data = [path for path, _ in needed], [held for _, held in needed]
            futures[client.submit(played, plan, names, *data, pure=False)] = plan
        for future in as_completed(futures):
            yield _found(futures[future], future, folder)
    finally:
        client.close()


def _client(make: Any, address: str) -> Any:
    try:
        client = make(address, timeout=ANSWERS_S)
    except (OSError, ValueError, ImportError, TypeError) as error:
        remedy = "the address that `dask scheduler` prints (tcp://HOST:8786)"
        raise BadInput(f"no Dask scheduler answers: {error}", field="--dask", value=address, remedy=remedy) from error
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError as error:
        client.close()
        remedy = f"start some: dask worker {address}"
        raise BadInput("the Dask cluster has no worker", field="--dask", value=address, remedy=remedy) from error
    return client


def played(plan: Plan, names: Sequence[Path], *data: bytes) -> tuple[GridCell, dict[str, bytes]]:
    """On a worker: one cell, and the files that it leaves by their names."""
    with tempfile.TemporaryDirectory() as room:
        moved: dict[str, Path] = {}
        for number, (path, content) in enumerate(zip(names, data, strict=True)):
            moved[str(path)] = Path(room) / f"{number}-{path.name}"
            moved[str(path)].write_bytes(content)
        there = replace(
            plan,
            trace=moved.get(str(plan.trace), plan.trace),
            cluster=str(moved.get(plan.cluster, plan.cluster)),
            throughputs=None if plan.throughputs is None else str(moved.get(plan.throughputs, plan.throughputs)),
        )
        out = Path(room) / "out"
        out.mkdir()
        cell = grids.cell(there, out)
        left = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".json"}
        error = cell.error
        for name, path in moved.items():
            error = error.replace(str(path), name)
        return replace(cell, plan=plan, error=error), left


def _found(plan: Plan, future: Any, folder: Path) -> GridCell:
    if future.status != "finished":
        failed = future.exception()  # none of one whose scheduler went away
        why = "Dask's scheduler is gone" if failed is None else f"its worker died or failed: {failed}"
        return grids.GridCell(plan, error=why)
    cell, left = future.result()
    if left:
        grids.forget(plan, folder)
    for name, content in left.items():
        (folder / name).write_bytes(content)
    if cell.result is not None:
        grids.keep(plan, cell.result, folder)
    found: GridCell = cell
    return found
