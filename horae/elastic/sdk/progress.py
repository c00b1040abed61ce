"""The SDK's lines. The progress line is a log format of its own, which Horae's profiler reads:

[horae] step=120/4000 loss=2.3100 iter_s=0.0123 samples_s=5203 world=4 epoch=2 t=1763.2

step: steps done (of how many, where known); loss: of the last step, as reported, and left out where none was (a loss
that is no number is told as such, and ends a training); iter_s: mean seconds a step since
the last line; world: ranks; epoch: which start of the job this is; t: seconds trained over all starts.
"""

import sys
import time
from typing import Any, Optional, TextIO


def say(text: str, stream: Optional[TextIO] = None) -> None:
    out = stream or sys.stdout
    out.write("[horae] %s\n" % text)
    out.flush()


class Progress:
    """Prints at most every `every_s`; the first and the last step always."""

    def __init__(self, total: Optional[int], global_batch: int, world: int, epoch: int, every_s: float) -> None:
        self.total = total
        self._batch = global_batch
        self._world = world
        self._epoch = epoch
        self._every_s = every_s
        self._last_step: Optional[int] = None
        self._last_s = time.monotonic()
        self._printed: Optional[int] = None

    def begin(self, step: int) -> None:
        self._last_step, self._last_s = step, time.monotonic()

    def step_done(self, step: int, loss: Optional[Any], trained_s: float, last: bool = False) -> None:
        if self._last_step is None:
            self.begin(step - 1)
        steps = step - (self._last_step or 0)
        due = self._printed is None or last or time.monotonic() - self._last_s >= self._every_s
        if not steps or step == self._printed or not due:
            return
        # PyTorch warns of a graph.
        told = "" if loss is None else " loss=%.4f" % float(getattr(loss, "detach", lambda: loss)())
        # Only now: a loss on a GPU is a promise, and a step is done when it is kept.
        now = time.monotonic()
        iter_s = (now - self._last_s) / max(1, steps)
        self._last_step, self._last_s, self._printed = step, now, step
        say(
            "step=%d%s%s iter_s=%.4f samples_s=%.0f world=%d epoch=%d t=%.1f"
            % (
                step,
                "" if self.total is None else "/%d" % self.total,
                told,
                iter_s,
                self._batch / iter_s if iter_s > 0 else 0.0,
                self._world,
                self._epoch,
                trained_s,
            )
        )
