"""What a restart costs: a constant, or drawn from measured ones, the same for the same seed, job and start."""

from __future__ import annotations

import zlib
from random import Random

from horae.sim.engine.world import RestartCost
from policy.model import JobName, Seconds


def constant(seconds: Seconds) -> RestartCost:
    return lambda _job, _start: seconds


#: Seconds of a checkpoint and a resume on TACC, measured for Shockwave (NSDI 2023; uw-mad-dash/shockwave,
#: scheduler/scheduler.py, MIT): every tenth percentile of its 101.
MEASURED = (0.0, 2.0, 2.0, 2.0, 4.0, 6.0, 9.0, 13.0, 19.0, 29.0, 60.0)


def measured(seed: int) -> RestartCost:
    """Drawn from `MEASURED`, linearly between its points."""

    def cost(job: JobName, start: int) -> Seconds:
        at = Random(zlib.crc32(f"{seed}/{job}/{start}".encode())).random() * (len(MEASURED) - 1)
        low = int(at)
        return MEASURED[low] + (MEASURED[low + 1] - MEASURED[low]) * (at - low)

    return cost
