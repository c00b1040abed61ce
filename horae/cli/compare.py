"""`horae compare`: a trace under many policies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horae.cli import exits
from horae.cli.options import Json, example
from horae.cli.simulate import FormOf, Ideal, LieOf, Limit, Noise, Restart, SkipBad, SlowOf, Spec, Tables, TraceFile
from horae.tui import screen

if TYPE_CHECKING:
    from horae.sim.grids import GridCell
    from horae.sim.plans import Plan

SETTINGS = {
    "epilog": example("horae compare jobs.csv --cluster v100:8x4 --policies fifo,srtf,themis --seeds 1..3 --workers 4")
}


def compare(
    trace: TraceFile,
    cluster: Spec,
    policies: Annotated[str, typer.Option(metavar="A,B,C", help="Which to play; `horae policies` lists them.")],
    seeds: Annotated[str, typer.Option(metavar="1..5", help="Seeds: 1..5, or 1,3,7.")] = "0",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time.", show_default="as many as processors")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where results lie; what is there already is not played again.")
    ] = Path("horae-compare"),
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw pictures (needs horae[plot]).")] = True,
    ideal: Ideal = False,
    restart: Restart = None,
    limit: Limit = None,
    form: FormOf = "ours",
    skip_bad: SkipBad = False,
    throughputs: Tables = None,
    noise: Noise = 0.0,
    lie: LieOf = None,
    stragglers: SlowOf = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Play on this Dask cluster instead (needs horae[dask]).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Play a trace under each policy with each seed, in processes, and set the outcomes side by side.

    The folder gets `compare.csv` (a row a simulation), each one's jobs, and pictures: completion times, fairness, GPUs
    over time, who held them when. Stopped and called again it goes on where it was. Exit code 1: some failed.
    """
    from horae.sim import grids
    from horae.sim.plans import Plan
    from policy.catalogue import named

    names = [named(name.strip()).name for name in policies.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("names no policy; `horae policies` lists them", param_hint="--policies")
    plan = Plan(
        trace=trace,
        cluster=cluster,
        policy="",
        ideal=ideal,
        restart_s=restart,
        limit=limit,
        form=form,
        skip_bad=skip_bad,
        throughputs=throughputs,
        noise=noise,
        lies=tuple(lie or ()),
        stragglers=stragglers,
    )
    plan.conditions()  # all would fail over them

    def told(cell: grids.GridCell, left: int, eta_s: float) -> None:
        how = f"failed: {cell.error}" if cell.error else "done"
        screen.note(f"{cell.plan.policy}, seed {cell.plan.seed}: {how}; {left} left, about {eta_s:.0f} s")

    plans = grids.cells(plan, list(dict.fromkeys(names)), _seeds(seeds))
    cells = grids.run(plans, out, workers or os.cpu_count() or 1, told, elsewhere=_elsewhere(dask))
    grids.write(cells, out / "compare.csv")
    if plots and any(cell.result is not None for cell in cells):
        from horae.sim.pictures import draw

        draw(cells, out)
    means = grids.means(cells)
    failed = [{"policy": c.plan.policy, "seed": c.plan.seed, "error": c.error} for c in cells if c.error]
    if as_json:
        screen.emit_json({"policies": means, "failed": failed, "folder": str(out)})
    else:
        _show(means)
    if failed:
        raise exits.Failure(exits.NO, f"{len(failed)} of {len(cells)} simulations failed", str(failed[0]["error"]))


def _elsewhere(dask: str | None) -> Callable[[Sequence[Plan], Path], Iterator[GridCell]] | None:
    if dask is None:
        return None
    from horae.sim.clusters import each

    return partial(each, address=dask)


def _show(means: Mapping[str, Mapping[str, float]]) -> None:
    from horae.sim.grids import COLUMNS

    columns = (screen.Column("POLICY"), *(screen.Column(c.upper(), right=True) for c in COLUMNS))
    rows = []
    for name, row in means.items():
        numbers = [f"{value:.6g}" for value in row.values()]
        rows.append((name, *numbers))
    screen.table(columns, rows)


def _seeds(text: str) -> list[int]:
    low, dots, high = text.partition("..")
    try:
        found = list(range(int(low), int(high) + 1)) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found:
        raise typer.BadParameter("1..5, or 1,3,7", param_hint="--seeds")
    return list(dict.fromkeys(found))
