"""A grid on a real Dask cluster of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.sim import clusters, grids
from horae.sim.plans import Plan


@pytest.mark.soak
def test_a_grid_on_a_real_dask_cluster_is_the_grid_of_here(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="pip install 'horae[dask]'")
    trace = tmp_path / "jobs.csv"
    trace.write_text("submitted,duration,gpus\n" + "".join(f"{9 * n},{n % 7 + 20},{n % 4 + 1}\n" for n in range(200)))
    plans = grids.cells(Plan(trace, "v100:1x4", ""), ["fifo", "srtf"], [1, 2])
    bad = Plan(trace, "v100:1x4", "fifo", seed=3, form="unheard")
    far, near = tmp_path / "far", tmp_path / "near"
    far.mkdir()
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        found = {cell.plan: cell for cell in clusters.each([*plans, bad], far, cluster.scheduler_address)}
        assert "unheard" in found.pop(bad).error
    assert [one.error for one in grids.run(plans, near, 1)] == [""] * 4
    for plan in found:
        name = f"{grids.name_of(plan)}.csv"
        assert (far / name).read_bytes() == (near / name).read_bytes()
