"""A resized run learns what an unresized one learns: real ranks, real checkpoints, the same losses to rounding."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.horae.elastic.exec_job import ExecJob

Make = Callable[..., ExecJob]
STEPS = 60


def trainer(job: ExecJob, hidden: int, micro: int | None = None) -> None:
    words = [sys.executable, "-m", "horae.demo.trainers.mlp", "--steps", str(STEPS), "--hidden", str(hidden)]
    words += ["--sample-ms", "0.2", "--log-every-s", "0", "--global-batch", "50", "--rate", "0.1"]
    job.spec["command"] = words + (["--max-micro-batch", str(micro)] if micro else [])
    job.spec["env"] = {**job.spec["env"], "OMP_NUM_THREADS": "1"}  # type: ignore[dict-item]
    (job.path / "spec.json").write_text(json.dumps(job.spec))


def losses(job: ExecJob) -> dict[int, float]:
    """Loss by step; a step must not be done twice."""
    found: dict[int, float] = {}
    for match in re.finditer(r"\[horae\] step=(\d+)/\d+ loss=(\S+)", job.log):
        step = int(match[1])
        assert step not in found or found[step] == float(match[2]), f"step {step} was done twice"
        found[step] = float(match[2])
    return found


def run(job: ExecJob, sizes: list[int]) -> dict[int, float]:
    """Run to the end over these gang sizes, stopping after roughly equal parts."""
    for i, size in enumerate(sizes, start=1):
        job.start(gpus=size)
        if i < len(sizes):
            job.until_log(f"step={STEPS * i // len(sizes)}/")
            job.stop()
            assert job.wait() == 86
    assert job.wait() == 0
    return losses(job)


@pytest.mark.parametrize(("hidden", "micro"), [(0, None), (24, None), (24, 7)])
def test_a_resized_run_has_the_loss_curve_of_an_unresized_one(exec_job: Make, hidden: int, micro: int | None) -> None:
    """Printed to four decimals, so equal to 1e-4; rounding differs only in the order of sums."""
    still, moved = exec_job("", "still"), exec_job("", "moved")
    trainer(still, hidden)
    trainer(moved, hidden, micro)
    reference, resized = run(still, [1]), run(moved, [2, 3, 1, 2])
    assert sorted(reference) == sorted(resized) == list(range(1, STEPS + 1))
    assert [resized[step] for step in resized] == pytest.approx([reference[step] for step in reference], abs=1.01e-4)
    assert reference[STEPS] < 0.5 * reference[1]
    assert weights(moved) == pytest.approx(weights(still), rel=1e-9, abs=1e-12)


def test_no_step_takes_less_than_its_gpu_would(exec_job: Make) -> None:
    """Loading before the first one is no credit: its line would tell of a faster GPU than there is."""
    job = exec_job("", "slept")
    trainer(job, 0)
    job.spec["command"] = [*job.spec["command"], "--sample-ms", "2"]  # type: ignore[misc]
    (job.path / "spec.json").write_text(json.dumps(job.spec))
    run(job, [2, 2, 2, 2])
    took_s = [float(each) for each in re.findall(r"iter_s=(\S+)", job.log)]
    assert len(took_s) == STEPS
    assert min(took_s) >= 0.0499  # of 25 samples each


def weights(job: ExecJob) -> Any:
    """All parameters of the final checkpoint, flat."""
    import numpy as np

    from horae.elastic.stores import checkpoints
    from horae.elastic.stores.store import FolderStore

    store = FolderStore(str(job.checkpoints))
    mark = checkpoints.marks(store)[0]
    assert mark.step == STEPS
    with np.load(f"{store.fetch(mark.name)}/model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in sorted(arrays.files)])


def test_a_gang_larger_than_its_batch_is_refused_with_the_remedy(exec_job: Make) -> None:
    job = exec_job("from horae import elastic; elastic.Training(steps=1, global_batch=1)")
    job.start(gpus=2)
    assert job.wait() == 1
    assert "set gpus.max to at most 1" in job.log
