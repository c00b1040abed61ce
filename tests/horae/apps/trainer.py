"""A tiny real trainer: gradient descent on (w - 3)^2 under the in-job SDK; the learning rate decides how fast."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from horae import elastic


def main(rate: float, steps: int, step_s: float) -> int:
    state = {"w": 0.0}

    def save(folder: str) -> None:
        Path(folder, "w").write_text(repr(state["w"]))

    def load(folder: str) -> None:
        state["w"] = float(Path(folder, "w").read_text())

    training = elastic.Training(
        steps=steps, global_batch=16, samples=1600, save=save, load=load, checkpoint_every_s=1.0, log_every_s=0.05
    )
    for step in training:
        for _ in step.micro_batches():
            pass
        time.sleep(step_s)
        step.report((state["w"] - 3.0) ** 2)
        state["w"] -= rate * 2 * (state["w"] - 3.0)
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
