"""Does the model notice a resize? The loss curve of a resized run against one that was never resized.

The NumPy classifier on digits, the same seed and global batch: one rank from beginning to end, and the same run
stopped and resumed over several sizes. Losses are compared step by step, final weights number by number.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _record import record

from horae.elastic.stores import checkpoints
from horae.elastic.stores.store import FolderStore

ROOT = Path(__file__).resolve().parent.parent
ELASTIC = ROOT / "horae" / "elastic"
PATIENCE_S = 300.0


def run(folder: Path, steps: int, sizes: list[int]) -> dict[int, float]:
    """Train to the end over these sizes, stopped after equal parts; losses by step."""
    folder.mkdir()
    log = folder / ".horae" / "output.log"
    trainer = [sys.executable, "-m", "horae.demo.trainers.mlp", "--steps", str(steps), "--sample-ms", "0.05"]
    trainer += ["--log-every-s", "0", "--global-batch", "60"]
    for i, size in enumerate(sizes, start=1):
        process = subprocess.Popen(
            [sys.executable, str(ELASTIC), "--gpus", str(size), "--checkpoint", "ckpt", "--", *trainer],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        if i < len(sizes):
            deadline = time.monotonic() + PATIENCE_S
            while f"step={steps * i // len(sizes)}/" not in (log.read_text() if log.exists() else ""):
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.01)
            process.send_signal(signal.SIGUSR1)
        assert process.wait(PATIENCE_S) == (86 if i < len(sizes) else 0), log.read_text()[-2000:]
    found = re.findall(r"\[horae\] step=(\d+)/\d+ loss=(\S+)", log.read_text())
    assert len(found) == steps, "a step was lost or done twice"
    return {int(step): float(loss) for step, loss in found}


def weights(folder: Path) -> np.ndarray:
    store = FolderStore(str(folder / "ckpt"))
    with np.load(Path(store.fetch(checkpoints.marks(store)[0].name)) / "model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in sorted(arrays.files) if name.startswith("w")])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sizes", default="2,4,1,3,2")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="horae-loss-") as folder:
        still, moved = Path(folder) / "still", Path(folder) / "moved"
        reference, resized = run(still, options.steps, [1]), run(moved, options.steps, sizes)
        difference = weights(moved) - weights(still)
        relative = float(np.abs(difference).max() / np.abs(weights(still)).max())
    worst = max(abs(resized[step] - reference[step]) for step in reference)
    print(f"largest difference: loss {worst:.1e} (printed to 1e-4), weights {relative:.1e} relative")
    result = {
        "question": "a resized run's loss against an unresized one's",
        "goal": "equal to rounding",
        "steps": options.steps,
        "sizes": sizes,
        "first_loss": reference[1],
        "last_loss": {"unresized": reference[options.steps], "resized": resized[options.steps]},
        "largest_loss_difference": worst,
        "largest_relative_weight_difference": relative,
    }
    record(Path(__file__), result, ["numpy"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
