"""Time, from one moment that can change something to the next: an arrival, an end, or a policy's own change of mind."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import Protocol

from horae.sim.engine.asking import Settings
from horae.sim.engine.world import SimulatedJob, SimulatedWorld
from policy.model import Seconds

#: With nobody running and nobody to come, a policy that was asked so often in vain will not start anybody.
IN_VAIN = 1000


class Engine(Protocol):
    """Decides and carries out."""

    def arrived(self, run: SimulatedJob) -> None:
        """A job is handed in, at its own time."""
        ...

    def decided(self, now_s: Seconds, over: Sequence[SimulatedJob]) -> Seconds:
        """Decide, after these jobs have ended; returns when the next decision is due though nothing happens."""
        ...


def play(
    settings: Settings,
    world: SimulatedWorld,
    arrivals: Sequence[SimulatedJob],
    engine: Engine,
) -> int:
    """Move time until nothing can happen any more. `arrivals` in order of submission. Returns at how many
    moments something was decided."""
    coming, moments, in_vain, review_s = 0, 0, 0, inf
    while True:
        arrives_s = arrivals[coming].plain.submitted_s if coming < len(arrivals) else inf
        ends_s = world.next_end_s()
        happens_s = arrives_s if ends_s is None else min(arrives_s, ends_s)
        at_s = min(happens_s, review_s)
        in_vain = 0 if ends_s is not None or arrives_s < inf else in_vain + 1
        if at_s == inf or in_vain > IN_VAIN:
            return moments
        now_s = at_s if settings.ideal else ceil(at_s / settings.tick_s - 1e-9) * settings.tick_s
        if at_s == happens_s:
            now_s = max(now_s, at_s)  # a tick a rounding before it would come again and again
        while coming < len(arrivals) and arrivals[coming].plain.submitted_s <= now_s:
            run = arrivals[coming]
            world.jobs[run.plain.name] = run
            engine.arrived(run)
            coming += 1
        review_s = min(engine.decided(now_s, world.advance(now_s)), world.next_mark_s(now_s))
        assert review_s > now_s, "a review is later than the decision it follows"
        moments += 1
