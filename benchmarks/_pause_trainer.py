"""What `pause.py` trains: a state of so many megabytes, and every moment that matters in a file of marks.

python _pause_trainer.py MARKS MEGABYTES [MODULE]      MODULE: imported first, as a framework would be
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

BEGAN = time.time()
STEP_S = 0.03


def main() -> None:
    marks = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def mark(what: str, at_s: float) -> None:
        os.write(marks, f"{os.environ['HORAE_EPOCH']} {os.environ['RANK']} {what} {at_s:.4f}\n".encode())

    mark("process", BEGAN)
    importlib.import_module("numpy")
    for module in sys.argv[3:]:
        importlib.import_module(module)
    import numpy as np

    from horae import elastic

    mark("imported", time.time())
    state = np.frombuffer(bytes(range(256)) * (int(sys.argv[2]) << 12), dtype=np.uint8)
    mark("built", time.time())

    def save(folder: str) -> None:
        mark("saving", time.time())
        np.save(Path(folder) / "state.npy", state)
        mark("saved", time.time())

    def load(folder: str) -> None:
        nonlocal state
        mark("loading", time.time())
        state = np.load(Path(folder) / "state.npy")
        mark("loaded", time.time())

    training = elastic.Training(save=save, load=load, global_batch=2, checkpoint_every_s=None)
    for _ in training:
        time.sleep(STEP_S / training.world)
        mark("step", time.time())


if __name__ == "__main__":
    try:
        main()
    finally:
        with open(sys.argv[1], "a") as out:
            out.write(f"{os.environ['HORAE_EPOCH']} {os.environ['RANK']} left {time.time():.4f}\n")
