"""S, the slowdown by span (Themis §4.3.1), from iteration times of one model at several placements.

Model: log t(type, gpus, span) = base(type, gpus) + log S(span) + error, S(node) = 1. Every (type, gpus) has a base
of its own, so only placements that differ in nothing but their span say anything about S. log S(rack) and
log S(cluster) have a normal prior: the paper's values 1.1 and 1.3 (its footnote 3), or a site's own experience with
models of this size. Least squares with that prior: where nothing was measured at two spans, the prior stands,
exactly; as measurements come, they take over. Intervals are 90 %.

S is at least 1, and across racks at least what it is within one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from profiler.estimates.stretch import Span, Stretch, reference_batch, seconds_at

DEFAULT: Mapping[Span, float] = {Span.NODE: 1.0, Span.RACK: 1.1, Span.CLUSTER: 1.3}
SPREAD = (Span.RACK, Span.CLUSTER)  #: spans beyond one node
#: standard deviation of log S over models, as long as a site has no experience
TAU = 0.3
#: how alike two models' sizes are to count as alike, in decades of parameters
DECADES = 0.5
Z90 = 1.645


@dataclass(frozen=True, slots=True)
class Estimate:
    value: float
    interval: tuple[float, float]
    measured: bool  #: False: the prior or the default stands


@dataclass(frozen=True, slots=True)
class Prior:
    """Mean and standard deviation of log S by span."""

    mean: Mapping[Span, float]
    sd: Mapping[Span, float]

    @classmethod
    def default(cls) -> Prior:
        return cls({s: math.log(v) for s, v in DEFAULT.items()}, dict.fromkeys(SPREAD, TAU))


@dataclass(slots=True)
class Site:
    """What a site has measured, by model key: a prior for models that are new. However many keys a tenant makes up,
    all of them together weigh as one."""

    #: key -> (parameters of the model or None, span -> (log S, its variance))
    known: dict[str, tuple[float | None, dict[Span, tuple[float, float]]]] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)  #: key -> who measured it last

    def learn(self, key: str, size: float | None, slowdown: Mapping[Span, Estimate], tenant: str) -> None:
        """Remember what was measured of a model; estimates that are priors themselves teach nothing."""
        measured: dict[Span, tuple[float, float]] = {
            span: (math.log(e.value), (math.log(e.interval[1] / e.interval[0]) / (2 * Z90)) ** 2)
            for span, e in slowdown.items()
            if e.measured and span is not Span.NODE
        }
        if measured:
            self.known[key] = (size, measured)
            self.tenants[key] = tenant

    def prior(self, size: float | None, but: str = "") -> Prior:
        """The prior for a model of `size` parameters: models alike in size count most, each tenant as one, the
        paper's value as one."""
        base = Prior.default()
        mean, sd = dict(base.mean), dict(base.sd)
        keys = Counter(self.tenants.values())
        for span in SPREAD:
            rows = [(base.mean[span], TAU**2, 1.0)]
            for key, (other, measured) in self.known.items():
                if key != but and span in measured:
                    value, variance = measured[span]
                    variance += (TAU / 2) ** 2
                    weight = _alike(size, other) / keys[self.tenants[key]]
                    rows.append((value, variance, weight))
            weights = np.array([w / v for _, v, w in rows])
            values = np.array([value for value, _, _ in rows])
            mean[span] = float(np.average(values, weights=weights))
            between = float(np.average((values - mean[span]) ** 2, weights=weights))
            sd[span] = min(max(math.sqrt(between + 1 / weights.sum()), 0.05), TAU)
        return Prior(mean, sd)


def _alike(a: float | None, b: float | None) -> float:
    """Weight of another model's experience: 1 at equal size, a third where a size is not known."""
    if a is None or b is None or a <= 0 or b <= 0:
        return 1 / 3
    return math.exp(-0.5 * (math.log10(a / b) / DECADES) ** 2)


def slowdown(stretches: Iterable[Stretch], prior: Prior | None = None) -> dict[Span, Estimate]:
    """S by span of one model, with 90 % intervals. Without stretches at two spans: the prior."""
    prior = prior or Prior.default()
    usable = [s for s in stretches if s.seconds > 0 and math.isfinite(s.seconds)]
    contrasted, told = _told(usable)
    solved = _solved(usable, prior) if contrasted else {}
    found = {Span.NODE: Estimate(1.0, (1.0, 1.0), measured=True)}
    for span in SPREAD:
        middle, sd = solved[span] if span in contrasted else (prior.mean[span], prior.sd[span])
        found[span] = _estimate(middle, sd, span in told)
    rack, cluster = found[Span.RACK], found[Span.CLUSTER]
    if cluster.value < rack.value:
        low, high = cluster.interval
        found[Span.CLUSTER] = Estimate(rack.value, (low, max(high, rack.value)), cluster.measured)
    return found


def _solved(stretches: Sequence[Stretch], prior: Prior) -> dict[Span, tuple[float, float]]:
    """log S by span, and its standard deviation."""
    batch = reference_batch(stretches)
    bases = {place: i for i, place in enumerate(sorted({(s.gpu_type, s.gpus) for s in stretches}))}
    at = {span: len(bases) + i for i, span in enumerate(SPREAD)}
    rows = np.zeros((len(stretches), len(bases) + len(at)))
    for row, s in zip(rows, stretches, strict=True):
        row[bases[s.gpu_type, s.gpus]] = 1.0
        if s.span is not Span.NODE:
            row[at[s.span]] = 1.0
    weighted = rows.T / np.array([s.variance for s in stretches])
    information = weighted @ rows
    score = weighted @ np.log([seconds_at(s, batch) for s in stretches])
    for span, i in at.items():
        information[i, i] += 1 / prior.sd[span] ** 2
        score[i] += prior.mean[span] / prior.sd[span] ** 2
    covariance = np.linalg.inv(information)
    solution = covariance @ score
    return {span: (float(solution[i]), math.sqrt(float(covariance[i, i]))) for span, i in at.items()}


def _told(stretches: Sequence[Stretch]) -> tuple[set[Span], set[Span]]:
    """Spans measured beside another at the same GPU type and count, and those measured beside one node."""
    seen: dict[tuple[str, int], set[Span]] = {}
    for s in stretches:
        seen.setdefault((s.gpu_type, s.gpus), set()).add(s.span)
    pairs = [spans for spans in seen.values() if len(spans) > 1]
    contrasted = {span for spans in pairs for span in spans} - {Span.NODE}
    return contrasted, {span for spans in pairs if Span.NODE in spans for span in spans} - {Span.NODE}


def _estimate(middle: float, sd: float, measured: bool) -> Estimate:
    value = max(math.exp(middle), 1.0)
    low, high = math.exp(middle - Z90 * sd), math.exp(middle + Z90 * sd)
    return Estimate(value, (min(max(low, 1.0), value), max(high, value)), measured)
