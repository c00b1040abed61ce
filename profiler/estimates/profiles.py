"""The store of profiles: what all jobs of a model key have shown, and what a snapshot needs of it.

Kept by key: stretches (one a job, start and placement, the newest `KEPT` of them) and the model's size where it is
known. Everything else (slowdown, scaling, the site's prior) is computed from these. Serialisable as JSON; what an older
version wrote and this one does not know is refused with its version, never half read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.estimates.scaling import Rate, Scaling, merge
from profiler.estimates.slowdown import Estimate, Site, slowdown
from profiler.estimates.stretch import Span, Stretch
from profiler.model import RunSummary

VERSION = 1
KEPT = 256  #: stretches kept a key
KEYS = 10_000  #: model keys kept; the one measured longest ago is forgotten first


@dataclass(slots=True)
class Profile:
    """All stretches of one model key."""

    size: float | None = None  #: parameters of the model
    stretches: dict[tuple[str, int, tuple[str, int, Span]], Stretch] = field(default_factory=dict)

    @property
    def newest_s(self) -> float:
        return max((s.at_s for s in self.stretches.values()), default=0.0)


class Store:
    """Profiles by model key. Not thread-safe; one owner."""

    def __init__(self) -> None:
        self.profiles: dict[str, Profile] = {}
        self._site = Site()
        self._made: dict[str, tuple[dict[Span, Estimate], dict[str, Scaling]]] = {}

    def record(self, key: str, stretch: Stretch, size: float | None = None) -> None:
        """Add a stretch, or replace what the same stretch of this job said before."""
        profile = self.profiles.setdefault(key, Profile())
        profile.size = size if size is not None else profile.size
        profile.stretches[stretch.job, stretch.start, stretch.place] = stretch
        if len(profile.stretches) > KEPT:
            oldest = min(profile.stretches, key=lambda k: profile.stretches[k].at_s)
            del profile.stretches[oldest]
        if len(self.profiles) > KEYS:
            del self.profiles[min(self.profiles, key=lambda k: self.profiles[k].newest_s)]
        # The site's experience moves by this, and with it every model that has none of its own.
        self._made.pop(key, None)

    def rename(self, old: str, new: str, job: str) -> None:
        """A job's key was corrected: what it has shown moves with it."""
        source = self.profiles.get(old)
        if source is None or old == new:
            return
        for place in [p for p in source.stretches if p[0] == job]:
            self.record(new, source.stretches.pop(place), source.size)
        if not source.stretches:
            del self.profiles[old]
        self._made.pop(old, None)

    def slowdown(self, key: str, size: float | None = None) -> dict[Span, Estimate]:
        """S by span; a new key gets the site's prior for models of its size."""
        return self._of(key, size)[0]

    def scaling(self, key: str) -> dict[str, Scaling]:
        """Scaling by GPU type; empty for a key that nothing was measured of."""
        return self._of(key, None)[1]

    def table(self, key: str, counts: Mapping[str, Iterable[int]]) -> dict[str, dict[int, Rate]]:
        """Rates at these counts by GPU type, measured ones always included; types without any are left out."""
        found: dict[str, dict[int, Rate]] = {}
        for gpu_type, scaling in self.scaling(key).items():
            wanted = sorted({*scaling.measured, *counts.get(gpu_type, ())})
            found[gpu_type] = {n: r for n in wanted if (r := scaling.rate(n)) is not None}
        return found

    def peers(self, key: str, gpu_type: str, gpus: int, but: str, below: float = math.inf) -> list[float]:
        """Rates (iterations/s) of other jobs with this key at this type and count, one a job; none where one of them
        is not `below` that."""
        profile = self.profiles.get(key)
        by_job: dict[str, float] = {}
        for s in profile.stretches.values() if profile is not None else ():
            if s.job == but or s.gpus != gpus or s.gpu_type != gpu_type or s.seconds <= 0:
                continue
            if (rate := 1 / s.seconds) >= below:
                return []
            by_job[s.job] = max(by_job.get(s.job, 0.0), rate)
        return sorted(by_job.values())

    def _of(self, key: str, size: float | None) -> tuple[dict[Span, Estimate], dict[str, Scaling]]:
        made = self._made.get(key)
        if made is not None and (size is None or self.profiles[key].size is not None):
            return made
        profile = self.profiles.get(key, Profile())
        stretches = list(profile.stretches.values())
        own_size = profile.size if profile.size is not None else size
        s = slowdown(stretches, self._site.prior(own_size, but=key))
        made = (s, merge(stretches, s))
        if key in self.profiles:
            self._site.learn(key, own_size, s, stretches[-1].tenant)
            self._made[key] = made
        return made

    # --- as JSON -------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "profiles": {
                key: {"size": p.size, "stretches": [s.to_dict() for s in p.stretches.values()]}
                for key, p in self.profiles.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Store:
        """The store that `to_dict` wrote. ValueError for another version."""
        if data.get("version") != VERSION:
            raise ValueError(f"profiles of version {data.get('version')!r}, this one reads {VERSION}")
        store = cls()
        for key, body in data["profiles"].items():
            for item in body["stretches"]:
                store.record(key, Stretch.from_dict(item), body["size"])
        for key in store.profiles:  # the site's experience is what its models have shown
            store.slowdown(key)
        store._made.clear()
        return store


# --- what a log does not tell -----------------------------------------------------------------------------

SDK_LINE = "[horae] step=120/4000 loss=2.31 iter_s=0.0123"


def missing(run: RunSummary | None) -> tuple[str, ...]:
    """What a log leaves open that scheduling could use, each with how to print it."""
    if run is None:
        return lacks(progress=False)
    counted = run.iterations
    total = counted.total if counted is not None and counted.scope == "run" else None
    return lacks(
        progress=counted is not None or run.epochs is not None,
        speed=run.iteration_time is not None,
        length=total is not None or (run.epochs is not None and run.epochs.total is not None),
        loss=run.loss is not None,
    )


def lacks(*, progress: bool, speed: bool = False, length: bool = False, loss: bool = False) -> tuple[str, ...]:
    """The same, by what a log is known to tell."""
    if not progress:
        return (
            "its log shows no progress: print the step now and then, with the word (step=120/4000), or use the SDK "
            f'("{SDK_LINE}"); until then it is scheduled by what was stated and by its wall-clock time',
        )
    said: list[str] = []
    if not speed:
        said.append(
            "its log shows no speed: print seconds an iteration (iter_s=0.0123), a rate (12.3 it/s), or a time "
            "stamp on each progress line; until then its rate is taken from the clock between its steps"
        )
    if not length:
        said.append(
            "its log does not show how long it is: print the total with the step (step=120/4000) or state it at "
            "submission; until then policies that need the length treat it as unknown"
        )
    if not loss:
        said.append(
            "its log shows no training loss: print it with the step (loss=2.31); without it no curve can be "
            "stopped early and loss-driven policies treat the job as average"
        )
    return tuple(said)
