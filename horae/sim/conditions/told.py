"""What policies are told of a job that truly is another: errors of profiling, and what its tenant lies about.

An error is drawn for an app, as in Themis (§6.3): its jobs train one model, and have one profile. Lies are a factor on
the speed of every type but the job's slowest (as OEF's liars overstate speed-ups), on the length, or on the slowdown
of a gang that spans nodes (as Themis' liar, §6.3). What jobs truly do follows from the truth.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from policy import bounds
from policy.model import EMPTY, BadInput, Job, Seconds, Slowdown, Work

#: Profiles may be off by up to this part of themselves.
MOST_NOISE = 0.9
_LIE = re.compile(r"(?P<tenant>.+):(?P<what>[a-z]+)=(?P<factor>[0-9]*\.?[0-9]+)")
LIES = ("speedup", "length", "slowdown")
REMEDY = f"TENANT:WHAT=FACTOR with WHAT one of {', '.join(LIES)} and FACTOR from 0.01 to 100 (team-a:speedup=1.5)"


@dataclass(frozen=True, slots=True)
class Lie:
    """Factors on what is true."""

    speedup: float = 1.0
    length: float = 1.0
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True)
class SlowNodes:
    """Each node is slow now and then, the time between and the time it lasts both exponential."""

    every_s: Seconds
    factor: float  #: of its speed, meanwhile
    for_s: Seconds


@dataclass(frozen=True, slots=True)
class Conditions:
    noise: float = 0.0
    lies: Mapping[str, Lie] = field(default_factory=lambda: EMPTY)
    slow: SlowNodes | None = None

    @property
    def candid(self) -> bool:
        """Whether policies are told the truth."""
        return not self.noise and not self.lies


#: Nothing is wrong.
TRUE = Conditions()


def lies_of(words: Iterable[str]) -> dict[str, Lie]:
    """Of `--lie` values. Raises BadInput."""
    out: dict[str, Lie] = {}
    for word in words:
        match = _LIE.fullmatch(word)
        factor = float(match["factor"]) if match else 0.0
        if match is None or match["what"] not in LIES or not 0.01 <= factor <= 100:
            raise BadInput("is no lie", field="--lie", value=word, remedy=REMEDY)
        out[match["tenant"]] = replace(out.get(match["tenant"], Lie()), **{match["what"]: factor})
    return out


def slow_nodes(word: str) -> SlowNodes:
    """Of a `--stragglers` value. Raises BadInput."""
    try:
        every_s, factor, for_s = (float(part) for part in word.split(","))
    except ValueError:
        every_s = factor = for_s = 0.0
    if not (1 <= every_s <= bounds.MOST_S and 0.01 <= factor <= 1 and 1 <= for_s <= bounds.MOST_S):
        remedy = "EVERY,FACTOR,FOR: seconds between, part of its speed (0.01 to 1), seconds (86400,0.5,3600)"
        raise BadInput("does not say how nodes are slow", field="--stragglers", value=word, remedy=remedy)
    return SlowNodes(every_s, factor, for_s)


def told(job: Job, conditions: Conditions, seed: int) -> Job:
    """The job as policies first see it."""
    lie = conditions.lies.get(job.tenant, Lie())
    speeds = {t: _error(conditions, seed, job.app, t) for t in job.throughput}
    if speeds:
        slowest = min(job.throughput, key=lambda t: max(job.throughput[t].values(), default=0.0))
        speeds = {t: by * (1.0 if t == slowest else lie.speedup) for t, by in speeds.items()}
    total = job.work.total
    if total is not None:
        total = total * _error(conditions, seed, job.app, "length") * lie.length
        total = min(max(total, bounds.LEAST_WORK), bounds.MOST_WORK)
    by = _error(conditions, seed, job.app, "slowdown") * lie.slowdown
    s = job.slowdown
    return replace(
        job,
        work=Work(total, job.work.done),
        throughput={t: {n: r * speeds[t] for n, r in curve.items()} for t, curve in job.throughput.items()},
        slowdown=Slowdown(s.node, max(s.rack * by, 1.0), max(s.cluster * by, 1.0)),
    )


def _error(conditions: Conditions, seed: int, app: str, what: str) -> float:
    if not conditions.noise:
        return 1.0
    chance = Random(zlib.crc32(f"{seed}/noise/{app}/{what}".encode()))
    return 1 + chance.uniform(-conditions.noise, conditions.noise)
