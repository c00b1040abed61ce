"""A policy on a bad day: it raises, for all jobs or for one of them, answers nonsense, or does not answer in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, nan
from random import Random
from typing import Any
from zlib import crc32

from horae.arbiter.decide.policy_runner import Answer, Inline, Question
from horae.sim.faults.schedule import PlannedFault
from policy.model import Decision, Job, Snapshot

#: What the policy would say.
Said = Callable[[Question], Decision]


def answered(fault: PlannedFault, question: Question, said: Said, *, believed: bool = False) -> Answer:
    """What the arbiter hears. `believed`: nobody looks at the answer."""
    jobs = question.snapshot.jobs
    if fault.how == "silent":
        return Answer(None, f"policy {question.policy} did not answer within {question.limit_s:g} s and was ended")
    if believed and jobs:
        return Answer(_too_much(jobs[0], question.snapshot, said(question)))
    chance = Random(f"{fault.at!r}/{question.snapshot.now_s!r}")

    def decide(snapshot: Snapshot, *_: object) -> Decision:
        if fault.how == "nonsense":
            return _nonsense(chance, snapshot, said(question))
        if fault.how == "raises" or any(_poisonous(fault, job) for job in snapshot.jobs):
            raise ValueError("it cannot take this")
        return said(replace(question, snapshot=snapshot))

    # Who is to blame is looked for as long as it takes: the machine's speed is none of this world's.
    return replace(Inline(decide).ask(replace(question, limit_s=inf)), took_s=0.0)


def _poisonous(fault: PlannedFault, job: Job) -> bool:
    """One job in eight, the same as long as the day is bad."""
    return not crc32(f"{fault.at!r}/{job.name}".encode()) % 8


def _too_much(job: Job, snapshot: Snapshot, plain: Decision) -> Decision:
    """More than it may have, on the largest node, and nothing for anybody else."""
    node = max(snapshot.cluster.nodes, key=lambda n: n.gpus)
    return replace(plain, allocation={job.name: {node.name: (job.gpus.max or node.gpus) + 1}})


def _nonsense(chance: Random, snapshot: Snapshot, plain: Decision) -> Decision:
    """Of a kind that must be seen on any snapshot, with or without jobs."""
    node, job = snapshot.cluster.nodes[0], snapshot.jobs[0] if snapshot.jobs else None
    name = "nobody" if job is None else job.name
    kinds: list[Mapping[str, Any]] = [
        {"allocation": {**plain.allocation, "nobody": {node.name: 1}}},
        {"allocation": {**plain.allocation, name: {"nowhere": 1}}},
        {"allocation": {**plain.allocation, name: {node.name: -1}}},
        {"allocation": {**plain.allocation, name: {node.name: node.gpus + 1}}},
        {"allocation": {**plain.allocation, name: {node.name: 1.5}}},
        {"allocation": [name]},
        {"cancel": ("nobody",)},
        {"state": {"seen": {1, 2}}},
        {"leases": {name: nan}, "state": None},
        {"reasons": {name: "because"}},
    ]
    return replace(plain, **chance.choice(kinds))
