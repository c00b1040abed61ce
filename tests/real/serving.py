"""What the tests of the whole program share: an arbiter as a process of its own, and a training it can resize."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HORAE = [sys.executable, "-c", "from horae.cli import main; raise SystemExit(main())"]


def trainer(steps: int, step_s: float = 0.05) -> str:
    """The source of an elastic training of so many steps, each of which takes at least that long.

    Called as `patient` its first start goes on until it is resized, however slow the machine is; but not for ever.
    """
    return f"""import sys, time
from horae import elastic
done, resumed = [0], []
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
    resumed.append(folder)
for step in elastic.Training(steps={steps}, global_batch=64, save=save, load=load, checkpoint_every_steps=20,
                             log_every_s=0.0):
    waits = "patient" in sys.argv and not resumed and done[0] > {steps} - 60
    time.sleep(1.0 if waits else {step_s})
    done[0] += 1
    step.report(1.0 / done[0])
"""


@contextmanager
def arbiter(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`horae serve` by `config.yaml` in that folder; its words go to `serve.log` there."""
    with (folder / "serve.log").open("ab") as log:
        process = subprocess.Popen([*HORAE, "serve", str(folder / "config.yaml")], stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
