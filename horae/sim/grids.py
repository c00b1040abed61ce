"""Many simulations beside each other: a trace under every policy with every seed, each in a process of its own.

A cell that is done lies as a file in the folder of the results, with the plan that it is of: a grid that was cut short
goes on where it stopped, and a cell that fails costs nobody else anything.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from threading import Thread
from typing import Any

from horae import __version__
from horae.elastic.files import saved
from horae.sim import results
from horae.sim.engine.simulation import Simulated
from horae.sim.plans import Plan
from policy.decide import PolicyFailed
from policy.model import BadInput, Seconds

#: What a table and a CSV show of each cell: name -> where it stands in a result.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "jct_mean": ("jct", "mean"),
    "jct_p95": ("jct", "p95"),
    "wait_mean": ("queueing", "mean"),
    "rho_max": ("rho", "max"),
    "rho_jain": ("rho", "jain"),
    "utilisation": ("utilisation",),
    "resizes": ("resizes",),
    "makespan": ("makespan",),
    "seconds": ("seconds",),
}


@dataclass(frozen=True, slots=True)
class GridCell:
    """One simulation of a grid: its result, or why there is none. `known`: it was there already."""

    plan: Plan
    result: Mapping[str, Any] | None = None
    error: str = ""
    known: bool = False


def cells(plan: Plan, policies: Sequence[str], seeds: Sequence[int]) -> list[Plan]:
    """The grid, policy by policy."""
    return [dataclasses.replace(plan, policy=policy, seed=seed) for policy in policies for seed in seeds]


def run(
    plans: Sequence[Plan],
    folder: Path,
    workers: int,
    told: Callable[[GridCell, int, Seconds], None] | None = None,
    *,
    elsewhere: Callable[[Sequence[Plan], Path], Iterator[GridCell]] | None = None,
) -> list[GridCell]:
    """Every cell, in the order of `plans`. `told` hears of each as it is done, how many are left, and for about how
    long. `elsewhere` plays them instead of `workers` processes here. Raises OSError where the folder cannot
    be written."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {plan: GridCell(plan, result, known=True) for plan in plans if (result := _known(plan, folder)) is not None}
    missing = [plan for plan in plans if plan not in done]
    started = time.monotonic()
    cells = _each(missing, folder, workers) if elsewhere is None else elsewhere(missing, folder)
    for number, cell in enumerate(cells, 1):
        done[cell.plan] = cell
        left = len(missing) - number
        if told is not None:
            told(cell, left, (time.monotonic() - started) / number * left)
    return [done[plan] for plan in plans]


def _each(plans: Sequence[Plan], folder: Path, workers: int) -> Iterator[GridCell]:
    """As they are done. A process that dies takes its pool with it: what was not done is tried again, one at a time."""
    seen = set()
    try:
        with ProcessPoolExecutor(min(workers, len(plans)) or 1, initializer=_end_with_parent) as pool:
            futures = {pool.submit(cell, plan, folder): plan for plan in plans}
            for future in as_completed(futures):
                found = _found(futures[future], future)
                seen.add(found.plan)
                yield found
    except BrokenProcessPool:
        for plan in plans:
            if plan not in seen:
                yield _alone(plan, folder)


def _alone(plan: Plan, folder: Path) -> GridCell:
    try:
        with ProcessPoolExecutor(1, initializer=_end_with_parent) as pool:
            return _found(plan, pool.submit(cell, plan, folder))
    except BrokenProcessPool:
        return GridCell(plan, error="its process died: out of memory, perhaps")


def _found(plan: Plan, future: Future[GridCell]) -> GridCell:
    """Whatever became of it: memory that did not suffice, or a fault of ours, costs no other cell. Raises
    BrokenProcessPool."""
    failed = future.exception()
    if failed is None:
        return future.result()
    if isinstance(failed, BrokenProcessPool):
        raise failed
    return GridCell(plan, error=f"{type(failed).__name__}: {failed}")


def _end_with_parent() -> None:
    """Of a worker. Whoever asked may be killed without a word: nobody plays on then, where a next one writes."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def cell(plan: Plan, folder: Path) -> GridCell:
    """One simulation; its result, its jobs and its changes of GPUs lie in `folder` afterwards."""
    started = time.perf_counter()
    try:
        outcome, _ = plan.run(keep_changes=True)
    except (BadInput, PolicyFailed, OSError) as error:
        return GridCell(plan, error=str(error))
    result = results.summary(outcome, time.perf_counter() - started)
    name = name_of(plan)
    forget(plan, folder)
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        results.write_jobs(outcome, file)
    _write_changes(outcome, folder / f"{name}.gpus.csv")
    keep(plan, result, folder)
    return GridCell(plan, result)


def forget(plan: Plan, folder: Path) -> None:
    """That a cell of its name is done: its files are about to be written, and may be those of another plan."""
    (folder / f"{name_of(plan)}.json").unlink(missing_ok=True)


def keep(plan: Plan, result: Mapping[str, Any], folder: Path) -> None:
    """That this cell is done."""
    name = name_of(plan)
    part = folder / f"{name}.json.part"
    part.write_text(json.dumps({"plan": _plain(plan), "result": result}, indent=1) + "\n", encoding="utf-8")
    part.replace(folder / f"{name}.json")


def _write_changes(outcome: Simulated, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("at", "job", "gpus"))
        writer.writerows((f"{at_s:.6f}", job, gpus) for at_s, job, gpus in outcome.changes)


def name_of(plan: Plan) -> str:
    """What its files are called."""
    return f"{plan.policy}-{plan.seed}"


def _known(plan: Plan, folder: Path) -> Mapping[str, Any] | None:
    name = name_of(plan)
    try:
        data = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    whole = (folder / f"{name}.csv").exists() and (folder / f"{name}.gpus.csv").exists()
    if not whole or not isinstance(data, dict) or data.get("plan") != _plain(plan):
        return None
    result: Mapping[str, Any] = data["result"]
    return result


def _plain(plan: Plan) -> Any:
    """The plan, by which Horae, and which files it read: their sizes and times of change."""
    stats = [path.stat() for path in plan.files()]
    files = [[stat.st_size, stat.st_mtime_ns] for stat in stats]
    return json.loads(json.dumps({**dataclasses.asdict(plan), "horae": __version__, "files": files}, default=str))


def figures(found: GridCell) -> dict[str, float]:
    """The columns of a cell that has a result."""
    out = {}
    for name, place in COLUMNS.items():
        value: Any = found.result
        for key in place:
            value = value[key]
        out[name] = float(value)
    return out


def means(found: Sequence[GridCell]) -> dict[str, dict[str, float]]:
    """By policy, over the seeds whose cells have a result."""
    by_policy: dict[str, list[dict[str, float]]] = {}
    for one in found:
        if one.result is not None:
            by_policy.setdefault(one.plan.policy, []).append(figures(one))
    return {p: {c: results.mean([r[c] for r in rows]) for c in COLUMNS} for p, rows in by_policy.items()}


def write(found: Sequence[GridCell], path: Path) -> None:
    """One row a cell."""
    with saved(path) as beside, open(beside, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("policy", "seed", *COLUMNS, "error"))
        for one in found:
            numbers = figures(one) if one.result is not None else dict.fromkeys(COLUMNS, "")
            writer.writerow((one.plan.policy, one.plan.seed, *numbers.values(), one.error))
