"""Active profiling: which jobs to run for a moment somewhere else, because knowing would change the decision.

CoDDL (AFS §4.5) measures a job at the counts below its share when it arrives; Gandiva-fair (§3.4) runs jobs for a
while on other GPU types; OEF (§4.1) has one representative job a tenant and type profiled. All three are one
question here: is the information worth the restart?

For a job that holds n GPUs, each other place (type, count) that it may have and could get now is a candidate, if
its rate there is not measured. What is known there is an interval. With the gain of moving

    g(r) = (r - r_now) / r_now * n  -  price * (count - n)        GPUs' worth, r uniform in the interval

the decision without the probe is worth max(E g, 0), with it E max(g, 0); the difference is what a probe can gain a
second, for as long as the key's jobs still run (at most `horizon_s`), for every job of the key. `price` is what a
GPU is worth to the others (1 = as much as in linear scaling). It costs two restarts and a slower time at the new
place, in GPU-seconds. Suggested is what nets most, one probe a key at a time, within a budget of probes an hour.

Pure: a view in, suggestions with their arithmetic out. Nothing acts here; in `observe` and `advise` the arbiter
does not ask unless told to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profiler.estimates.scaling import Source

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a rate (iterations/s) at one place."""

    value: float
    low: float
    high: float
    source: Source | str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running job as the planner sees it. `places`: every (type, count) it may have, what is known of it."""

    job: str
    key: str
    gpu_type: str
    gpus: int
    places: Mapping[tuple[str, int], Known]
    restart_cost_s: float
    left_s: float | None = None  #: seconds it still runs at this rate; None: unknown
    movable: bool = True  #: can be checkpointed and is not in a grace period
    since_resize_s: float = float("inf")


@dataclass(frozen=True, slots=True)
class Budget:
    probes_an_hour: float = 4.0
    probe_s: float = 120.0  #: running time at the new place that is enough for a measurement
    horizon_s: float = 4 * HOUR_S
    #: what an idle GPU is worth to the other jobs, 1 being as much as in linear scaling
    price: float = 0.5
    settle_s: float = 300.0  #: a job that was moved less than this ago is left alone


@dataclass(frozen=True, slots=True)
class Suggestion:
    job: str
    key: str
    gpu_type: str
    gpus: int
    gain: float  #: GPU-seconds expected from knowing
    cost: float  #: GPU-seconds
    text: str

    @property
    def net(self) -> float:
        return self.gain - self.cost


@dataclass(frozen=True, slots=True)
class ProbePlan:
    suggestions: tuple[Suggestion, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)  #: job -> why it is not probed


def plan(
    candidates: Sequence[Candidate],
    free: Mapping[str, int],
    recent_s: Sequence[float],
    now_s: float,
    budget: Budget | None = None,
) -> ProbePlan:
    """The probes to make now.

    `free`: idle GPUs by type (a probe never takes GPUs from another job). `recent_s`: when probes began.
    """
    budget = budget or Budget()
    used = sum(1 for t in recent_s if now_s - t < HOUR_S)
    room = int(budget.probes_an_hour - used)
    sharing: dict[str, list[Candidate]] = {}
    for c in candidates:
        sharing.setdefault(c.key, []).append(c)
    left_out: dict[str, str] = {}
    offers: list[Suggestion] = []
    for c in candidates:
        why = _not_now(c, budget)
        best = None if why else _best(c, sharing[c.key], free, budget)
        if why:
            left_out[c.job] = why
        elif best is None:
            left_out[c.job] = "no other place that it could have now is unknown"
        elif best.net <= 0:
            left_out[c.job] = (
                f"the best probe ({best.gpus} {best.gpu_type}) is worth {best.gain:.0f} GPU-s and costs {best.cost:.0f}"
            )
        else:
            offers.append(best)
    offers.sort(key=lambda s: (-s.net, s.job))
    chosen: list[Suggestion] = []
    idle = dict(free)
    keys: set[str] = set()
    for offer in offers:
        if len(chosen) >= room:
            left_out[offer.job] = f"the budget of {budget.probes_an_hour:g} probes an hour is used up"
        elif offer.key in keys:
            left_out[offer.job] = f"another job of model key {offer.key} is probed"
        elif not _fits(offer, candidates, idle):
            left_out[offer.job] = f"{offer.gpus} {offer.gpu_type} are not free beside the other probes"
        else:
            chosen.append(offer)
            keys.add(offer.key)
            idle[offer.gpu_type] = idle.get(offer.gpu_type, 0) - _extra(offer, candidates)
    return ProbePlan(tuple(chosen), left_out)


def _not_now(c: Candidate, budget: Budget) -> str:
    if not c.movable:
        return "it cannot be stopped and resumed now"
    if c.since_resize_s < budget.settle_s:
        return "it was moved a moment ago"
    if (c.gpu_type, c.gpus) not in c.places:
        return "its rate where it runs is not known yet"
    if c.left_s is not None and c.left_s < 2 * (2 * c.restart_cost_s + budget.probe_s):
        return "it ends too soon for a probe to pay"
    return ""


def _best(c: Candidate, sharing: Sequence[Candidate], free: Mapping[str, int], budget: Budget) -> Suggestion | None:
    offers = [
        _worth(c, sharing, place, known, budget)
        for place, known in sorted(c.places.items())
        if known.source != Source.MEASURED and place != (c.gpu_type, c.gpus) and _reachable(c, place, free)
    ]
    return max(offers, key=lambda s: (s.net, -s.gpus, s.gpu_type), default=None)


def _reachable(c: Candidate, place: tuple[str, int], free: Mapping[str, int]) -> bool:
    own = c.gpus if place[0] == c.gpu_type else 0
    return place[1] <= free.get(place[0], 0) + own


def _extra(offer: Suggestion, candidates: Sequence[Candidate]) -> int:
    job = next(c for c in candidates if c.job == offer.job)
    return offer.gpus - (job.gpus if job.gpu_type == offer.gpu_type else 0)


def _fits(offer: Suggestion, candidates: Sequence[Candidate], idle: Mapping[str, int]) -> bool:
    return _extra(offer, candidates) <= idle.get(offer.gpu_type, 0)


def _worth(
    c: Candidate, sharing: Sequence[Candidate], place: tuple[str, int], known: Known, budget: Budget
) -> Suggestion:
    gpu_type, gpus = place
    now = c.places[c.gpu_type, c.gpus].value
    extra = budget.price * (gpus - c.gpus)
    low, high = ((r / now - 1) * c.gpus - extra for r in (known.low, known.high))
    informed, blind = _expected(low, high)
    horizon = sum(min(s.left_s if s.left_s is not None else budget.horizon_s, budget.horizon_s) for s in sharing)
    gain = (informed - blind) * horizon
    middle = (known.low + known.high) / 2
    lost = max(1 - middle / now, 0.0) * c.gpus * budget.probe_s + max(gpus - c.gpus, 0) * budget.probe_s
    cost = 2 * c.restart_cost_s * max(c.gpus, gpus) + lost
    text = (
        f"{c.job} on {gpus} {gpu_type}: between {known.low:.3g} and {known.high:.3g} iterations/s there "
        f"({known.source}), {now:.3g} now on {c.gpus} {c.gpu_type}; knowing is worth {gain:.0f} GPU-s to "
        f"{len(sharing)} job(s) of its model key, two restarts and the probe cost {cost:.0f}"
    )
    return Suggestion(c.job, c.key, gpu_type, gpus, gain, cost, text)


def _expected(low: float, high: float) -> tuple[float, float]:
    """(E max(g, 0), max(E g, 0)) for g uniform between low and high."""
    middle = (low + high) / 2
    if high <= low:
        return max(middle, 0.0), max(middle, 0.0)
    if low >= 0:
        return middle, middle
    if high <= 0:
        return 0.0, 0.0
    return high**2 / (2 * (high - low)), max(middle, 0.0)
