"""The policy side's own models, as a ruling uses them: how fast a job would run, and where a job would fit."""

from __future__ import annotations

from horae.arbiter.guards import Speed
from horae.arbiter.round import Means
from policy.model import Snapshot
from policy.throughput import Throughput


def speed(snapshot: Snapshot) -> Speed:
    return Throughput(snapshot.cluster).rate


def standard() -> Means:
    return Means(speed=speed)
