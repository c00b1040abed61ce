"""A grid as pictures: how long jobs took, how fair it was, who held GPUs when. Needs matplotlib (the `plot` extra)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from horae.sim.grids import GridCell, name_of

#: Jobs of a Gantt chart; more are lines that nobody can tell apart.
MOST_ROWS = 60


def draw(cells: Sequence[GridCell], folder: Path) -> list[Path]:
    """Write `jct.png`, `rho.png`, `gpus.png` (one seed a policy), and a Gantt chart a policy. Returns their paths."""
    done = [cell for cell in cells if cell.result is not None]
    first = list({cell.plan.policy: cell for cell in reversed(done)}.values())[::-1]
    jobs = {cell.plan: _rows(folder / f"{name_of(cell.plan)}.csv") for cell in done}
    times: dict[str, list[float]] = {}
    rhos: dict[str, list[float]] = {}
    for cell in done:
        over = [row for row in jobs[cell.plan] if row["finished"]]
        times.setdefault(cell.plan.policy, []).extend(float(r["finished"]) - float(r["submitted"]) for r in over)
        rhos.setdefault(cell.plan.policy, []).extend(float(r["rho"]) for r in over if r["rho"])
    changes = {cell.plan.policy: _rows(folder / f"{name_of(cell.plan)}.gpus.csv") for cell in first}
    paths = [
        _distribution(times, "completion time, s", folder / "jct.png"),
        _distribution(rhos, "finish-time fairness rho", folder / "rho.png"),
        _held(changes, folder / "gpus.png"),
    ]
    return paths + [_gantt(policy, rows, folder / f"gantt-{policy}.png") for policy, rows in changes.items()]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _distribution(values: Mapping[str, Sequence[float]], label: str, path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for policy, some in values.items():
        ordered = sorted(some)
        axes.plot(ordered, [(n + 1) / len(ordered) for n in range(len(ordered))], label=policy)
    axes.set(xlabel=label, ylabel="part of the jobs", xscale="log", ylim=(0, 1))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    return path


def _held(changes: Mapping[str, Sequence[Mapping[str, str]]], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for policy, rows in changes.items():
        held: dict[str, int] = {}
        total, times, sums = 0, [0.0], [0]
        for row in rows:
            total += int(row["gpus"]) - held.get(row["job"], 0)
            held[row["job"]] = int(row["gpus"])
            times.append(float(row["at"]))
            sums.append(total)
        axes.step(times, sums, where="post", label=policy, linewidth=1)
    axes.set(xlabel="seconds", ylabel="GPUs held")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    return path


def _gantt(policy: str, rows: Sequence[Mapping[str, str]], path: Path) -> Path:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["job"] for row in rows))[:MOST_ROWS]
    lines = {name: n for n, name in enumerate(names)}
    most = max((int(row["gpus"]) for row in rows), default=1) or 1
    figure = Figure(figsize=(10, 2 + len(names) / 8), layout="constrained")
    axes = figure.add_subplot()
    since: dict[str, tuple[float, int]] = {}
    for row in rows:
        job, at_s, gpus = row["job"], float(row["at"]), int(row["gpus"])
        if job not in lines:
            continue
        began, had = since.get(job, (at_s, 0))
        if had:
            axes.barh(
                lines[job], at_s - began, left=began, height=0.8, color="tab:blue", alpha=0.25 + 0.75 * had / most
            )
        since[job] = (at_s, gpus)
    axes.set_yticks(range(len(names)), names, fontsize=6, parse_math=False)
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title=f"{policy}: who held GPUs; the darker, the more (up to {most})")
    figure.savefig(path, dpi=110)
    return path
