"""What is known of a job from its output: what the arbiter's profilers tell, and what a MEASURED event keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.model import EMPTY, Gpus, GpuType, IterationsPerSecond, LossForecast, Provenance, Slowdown
from policy.records import quick


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a rate at one place (iterations/s at best placement), with a 90 % interval."""

    value: IterationsPerSecond
    low: IterationsPerSecond
    high: IterationsPerSecond
    source: str  #: measured, fit, linear


@quick
@dataclass(frozen=True, slots=True)
class Measurement:
    """All that is known about a job from its output, over all its starts."""

    done: float = 0.0  #: iterations
    total: float | None = None
    epoch: int = 0  #: of the newest line
    rates: Mapping[GpuType, Mapping[Gpus, IterationsPerSecond]] = field(default_factory=lambda: EMPTY)
    provenance: Mapping[GpuType, Provenance] = field(default_factory=lambda: EMPTY)
    slowdown: Slowdown | None = None
    loss: tuple[tuple[float, float], ...] = ()
    loss_forecast: LossForecast | None = None
    notes: tuple[str, ...] = ()
    key: str = ""  #: the model key that its measurements are shared under
    key_from: str = ""  #: where the key comes from: given, derived; corrected: given after it had another
    places: Mapping[GpuType, Mapping[Gpus, Known]] = field(default_factory=lambda: EMPTY)  #: by its key's jobs
    offset: int = 0  #: how far its log was read
    identity: str = ""  #: of that log
    profiler: Mapping[str, Any] = field(default_factory=lambda: EMPTY)  #: the hook's own, of JSON types
