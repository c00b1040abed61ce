"""What an adapter brings so that the contract suite can run over it.

An adapter's test module is a `harness` fixture and `from tests.contract.suite import *`. The suite
speaks to the cluster through `ClusterPort` alone; everything a port has no verb for (making a job that misbehaves,
losing a node, being another arbiter) is asked of the harness. What a cluster cannot do is a property here, and the
tests that need it are skipped with its name.

A harness gives a cluster with **at least two nodes of one GPU type, up, with at least two free GPUs each**, and no
jobs. Jobs it makes write the SDK's lines into their log, also those of a fake, so that the suite can tell what a
program really did:

    [horae] start step=120 world=4 epoch=2 checkpoint=step-000000000120.epoch-00000001
    [horae] step=121/4000 loss=... iter_s=... samples_s=... world=4 epoch=2 t=...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

from horae.port import Batching, ClusterPort, JobId, ObservedJob, PortError
from horae.spec import JobSpec
from policy.model import Allocation, Seconds

#: Exit code of a `FAILS` job.
FAILURE_CODE = 7


class Behaviour(StrEnum):
    """What a job's program does. All of them print the SDK's lines and run under the supervisor."""

    #: Trains and checkpoints now and then; asked to stop, it writes a complete checkpoint and exits 86.
    TRAINS = "trains"
    #: Trains a few steps and exits 0.
    FINISHES = "finishes"
    #: Trains a few steps and exits with `FAILURE_CODE`; its specification says `retries=0`.
    FAILS = "fails"
    #: As `FAILS` in its first run, as `FINISHES` in every later one; its specification says `retries=1`.
    FAILS_ONCE = "fails-once"
    #: Trains and checkpoints now and then, but ignores every request to stop.
    IGNORES = "ignores"


class Harness(Protocol):
    @property
    def port(self) -> ClusterPort:
        """The adapter under test. Replaced by `restart_arbiter`."""
        ...

    @property
    def patience_s(self) -> Seconds:
        """How long (real time) the cluster may take for any one change before the suite calls it failed."""
        ...

    def pause(self) -> None:
        """Let the cluster move a little: a real one sleeps some tens of milliseconds, a fake advances its clock."""
        ...

    def submit(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobId:
        """Make a job known (by `port.submit`, or as the cluster's own users do) and return its id."""
        ...

    def spec(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobSpec:
        """The specification `submit` uses. Only asked for where `capabilities().owns_submission`."""
        ...

    def other_arbiter(self) -> ClusterPort:
        """A second arbiter's connection to the same cluster. The harness closes it."""
        ...

    def restart_arbiter(self) -> ClusterPort:
        """Drop the adapter without any farewell (as `kill -9` does) and connect anew; becomes `port`."""
        ...

    @property
    def can_lose_nodes(self) -> bool: ...

    def lose_node(self, node: str) -> None:
        """The node is gone, and what ran there with it."""
        ...

    def restore_node(self, node: str) -> None: ...


@dataclass(frozen=True)
class Start:
    """One start of a job's program, as its own log tells it."""

    step: int  #: where it resumed; 0: from nothing
    world: int
    epoch: int


_START = re.compile(rb"\[horae\] start step=(\d+) world=(\d+) epoch=(\d+)")
_STEP = re.compile(rb"\[horae\] step=(\d+)")


def starts_in(log: bytes) -> list[Start]:
    return [Start(*(int(group) for group in match.groups())) for match in _START.finditer(log)]


def steps_in(log: bytes) -> list[int]:
    return [int(match.group(1)) for match in _STEP.finditer(log)]


def job_in(jobs: Sequence[ObservedJob], job: JobId) -> ObservedJob | None:
    return {each.id: each for each in jobs}.get(job)


def held_by_node(jobs: Sequence[ObservedJob]) -> Mapping[str, int]:
    held: dict[str, int] = {}
    for job in jobs:
        for node, gpus in job.allocation.items():
            held[node] = held.get(node, 0) + gpus
    return held


def start_many(port: ClusterPort, starts: Sequence[tuple[JobId, Allocation, int]]) -> Mapping[JobId, PortError]:
    """By one call where the port can; what failed."""
    if isinstance(port, Batching):
        return port.start_many(starts)
    return _failed({job: partial(port.start, job, where, epoch) for job, where, epoch in starts})


def stop_many(port: ClusterPort, stops: Sequence[tuple[JobId, Seconds]]) -> Mapping[JobId, PortError]:
    """As `start_many`."""
    if isinstance(port, Batching):
        return port.stop_many(stops)
    return _failed({job: partial(port.checkpoint_and_stop, job, grace_s) for job, grace_s in stops})


def _failed(asked: Mapping[JobId, Callable[[], None]]) -> dict[JobId, PortError]:
    failed = {}
    for job, ask in asked.items():
        try:
            ask()
        except PortError as error:
            failed[job] = error
    return failed
