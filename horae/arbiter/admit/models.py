"""The policy side's own models, as an admission uses them: how fast a job would run, and where a job would fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from horae.arbiter.admit.guards import Speed
from horae.arbiter.admit.probes import Find
from horae.arbiter.admit.repair import Offer, Place, no_place
from policy.model import EMPTY, Allocation, Gpus, GpuType, Job, JobName, Snapshot
from policy.parts import quotas
from policy.places.placement import Placer
from policy.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Models:
    """What of the policy side an admission needs beyond the answer: made for one snapshot each."""

    speed: Callable[[Snapshot], Speed]
    place: Callable[[Snapshot], Place] = lambda _snapshot: no_place
    find: Callable[[Snapshot], Find] | None = None  #: for probes; None: none are made


def speed(snapshot: Snapshot) -> Speed:
    return Throughput(snapshot.cluster).rate


def place(snapshot: Snapshot) -> Place:
    """Offers by the placement that policies use: fewest nodes, near what is held, within all limits."""
    snapshot = quotas.shaped(snapshot)

    def settle(settled: Mapping[JobName, Allocation]) -> Offer:
        placer, jobs = Placer(snapshot), {job.name: job for job in snapshot.jobs}
        try:
            for name, allocation in settled.items():
                if allocation:
                    placer.take(jobs[name], allocation)
        except ValueError:
            return lambda _name, _most: EMPTY  # what is settled does not fit any more: nothing is free for sure

        def offer(name: JobName, most: Gpus) -> Allocation:
            job = jobs[name]
            gpus = job.gpus.at_most(most)
            while gpus > 0:
                found = placer.best(job, gpus)
                if found:
                    placer.take(job, found)
                    return found
                gpus = job.gpus.at_most(gpus - 1)
            return EMPTY

        return offer

    return settle


def find(snapshot: Snapshot) -> Find:
    """A place on one GPU type, beside what the other jobs have."""
    snapshot = quotas.shaped(snapshot)
    jobs = {job.name: job for job in snapshot.jobs}

    def found(others: Mapping[JobName, Allocation], job: Job, gpus: Gpus, gpu_type: GpuType) -> Allocation:
        placer = Placer(snapshot)
        try:
            for name, allocation in others.items():
                if allocation and name in jobs:
                    placer.take(jobs[name], allocation)
        except ValueError:
            return EMPTY
        if job.name in jobs:
            job = replace(job, shape=jobs[job.name].shape)
        return placer.best(job, gpus, gpu_type) or EMPTY

    return found


def standard() -> Models:
    return Models(speed, place, find)
