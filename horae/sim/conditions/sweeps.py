"""Apps that end their worst jobs: the losses that jobs show, and the iterations at which phases end.

A job's loss after k iterations is `end + (start - end) / (1 + k / half)`, the law of SLAQ's and Optimus' papers. As in
Themis' simulator (§6.1) policies know the curve ahead. Which jobs an app ends follows from `policy.parts.sweeps`, the
same under every policy and in production.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from policy.model import App, BadInput, LossForecast, Phase

SCHEDULER = "successive-halving"
#: Points of a curve that are shown beside those at the ends of phases, evenly over what is done.
SHOWN = 8


@dataclass(frozen=True, slots=True)
class LossCurve:
    start: float
    end: float
    half: float  #: iterations after which half of the fall is done

    def at(self, iteration: float) -> float:
        return self.end + (self.start - self.end) / (1 + iteration / self.half)

    def forecast(self) -> LossForecast:
        fitted = {"origin": 0.0, "s": self.half, "scale": self.start - self.end, "asymptote": self.end}
        return LossForecast("inverse", fitted)


def seen(curve: LossCurve, ends: Sequence[float], done: float) -> tuple[tuple[float, float], ...]:
    """What has been logged after so many iterations."""
    if not done:
        return ()
    at = {done * n / SHOWN for n in range(1, SHOWN + 1)}
    at.update(end for end in ends if end <= done)
    return tuple((k, curve.at(k)) for k in sorted(at))


def ends_of(phases: Sequence[Phase]) -> tuple[float, ...]:
    """Iterations at which the phases end after which somebody ends: all but the last."""
    return tuple(accumulate(p.iterations for p in phases[:-1]))


def apps_of(phases: Mapping[str, tuple[Phase, ...]]) -> tuple[App, ...]:
    return tuple(App(name, SCHEDULER, phases=found) for name, found in phases.items())


def joined(known: dict[str, tuple[Phase, ...]], app: str, phases: tuple[Phase, ...], job: str, total: float) -> None:
    """Note what this job says of its app. Raises BadInput where another of its jobs says otherwise, or where it has
    less to do than its app's phases take."""
    whole = sum(p.iterations for p in phases)
    if total < whole * (1 - 1e-9):
        what = f"job {job} has {total:g} iterations, the phases of its app take {whole:g}"
        raise BadInput(what, field="phases", value=text(phases), remedy="shorter phases, or a longer job")
    if known.setdefault(app, phases) != phases:
        what = f"job {job} tells other phases of app {app} than the jobs before it"
        raise BadInput(what, field="phases", value=text(phases), remedy=f"{text(known[app])} for all of them")


def text(phases: Sequence[Phase]) -> str:
    return " ".join(f"{p.jobs}x{p.iterations:g}" for p in phases)
