"""What one job's output tells about its life: where each start took up, what was lost or done twice, the loss curve.

Reads the SDK's lines only (`horae/elastic/sdk/progress.py`):

    [horae] start step=120 world=4 epoch=2 checkpoint=step-000000000120.epoch-00000001
    [horae] step=121/4000 loss=2.3100 iter_s=0.0123 samples_s=5203 world=4 epoch=2 t=12.3
    [horae] stopped at step 250
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

_START = re.compile(r"^(?:\d+: )?\[horae\] start step=(\d+) world=(\d+) epoch=(\d+)(?: checkpoint=(\S+))?$")
_STEP = re.compile(r"^(?:\d+: )?\[horae\] step=(\d+)(?:/(\d+))? loss=(\S+) .*\bworld=(\d+) epoch=(\d+)\b")
_STOPPED = re.compile(r"^(?:\d+: )?\[horae\] stopped at step (\d+)$")


@dataclass(frozen=True, slots=True)
class Point:
    step: int
    loss: float
    world: int
    epoch: int


@dataclass(slots=True)
class Start:
    """One start of the job: the step it took up at and the last step that is known to have been done in it."""

    epoch: int
    world: int
    first: int
    last: int
    stopped: int | None = None  #: the step it checkpointed at when it was asked to leave


@dataclass(slots=True)
class Story:
    starts: list[Start] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    total: int | None = None
    last_words: list[str] = field(default_factory=list)  #: the newest lines that are not the SDK's

    @property
    def done(self) -> int:
        """Steps that are done for good."""
        return max((s.last for s in self.starts), default=0)

    @property
    def worlds(self) -> list[int]:
        return [s.world for s in self.starts]

    @property
    def repeated(self) -> int:
        """Steps that were done more than once: a start took up before the step that its predecessor had reached."""
        return sum(max(a.last - b.first, 0) for a, b in pairwise(self.starts))

    @property
    def skipped(self) -> int:
        """Steps that nobody did: a start took up after what its predecessor had reached."""
        return sum(max(b.first - max(a.last, a.stopped or 0), 0) for a, b in pairwise(self.starts))

    @property
    def forgotten(self) -> int:
        """Starts that took up before the checkpoint that was written last: the one thing that must never happen."""
        kept, wrong = 0, 0
        for start in self.starts:
            wrong += start.first < kept
            kept = max(kept, start.stopped or 0)
        return wrong

    def jumps(self) -> list[float]:
        """For each resize, by how much the loss moved over it, in units of the curve's own usual movement nearby.

        About 1: a resize looks like any other stretch of the curve. Only resizes with three points on both sides.
        """
        out = []
        for before, after in pairwise(self.starts):
            left = [p.loss for p in self.points if p.epoch == before.epoch][-4:]
            right = [p.loss for p in self.points if p.epoch == after.epoch][:4]
            if len(left) < 3 or len(right) < 3:
                continue
            usual = median(abs(b - a) for side in (left, right) for a, b in pairwise(side))
            out.append(abs(right[0] - left[-1]) / max(usual, 1e-3 * abs(left[-1]), 1e-6))
        return out


def read(log: str) -> Story:
    """The story that `log` tells; lines of other programs are passed over."""
    lines = log.splitlines()
    story = Story(last_words=[line for line in lines if line.strip() and "[horae]" not in line][-3:])
    for line in lines:
        if match := _START.match(line):
            first = int(match[1])
            story.starts.append(Start(int(match[3]), int(match[2]), first, first))
        elif match := _STEP.match(line):
            step, epoch = int(match[1]), int(match[5])
            story.total = int(match[2]) if match[2] else story.total
            if story.starts and story.starts[-1].epoch == epoch:
                story.starts[-1].last = max(story.starts[-1].last, step)
            story.points.append(Point(step, float(match[3]), int(match[4]), epoch))
        elif (match := _STOPPED.match(line)) and story.starts:
            story.starts[-1].stopped = int(match[1])
            story.starts[-1].last = max(story.starts[-1].last, int(match[1]))
    return story
