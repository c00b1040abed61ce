"""The answer of `horae what-if`: history, cluster, replay of what happened, each policy with its band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.model import BadRow
from horae.sim.traces.sacct.jobs import folded
from horae.sim.traces.sacct.records import records
from horae.sim.whatif import replay
from horae.sim.whatif.history import SiteHistory, history, whole
from horae.sim.whatif.observed import observed
from horae.sim.whatif.replay import BASELINE, Assumption, Replay
from policy.model import Cluster, Seconds

#: What is taken of jobs where nothing was said: none can be resized.
RIGID = Assumption()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is asked. `cluster` None: as the dump or the journal shows it. `levers`: also what each lever alone would
    have changed."""

    policies: tuple[str, ...] = ()
    cluster: Cluster | None = None
    assumption: Assumption = RIGID
    seed: int = 0
    cpus: bool = False
    skip_bad: bool = False
    levers: bool = False


def from_sacct(
    path: Path,
    question: WhatIf,
    play: Replay = replay.by_engine,
    told: Callable[[str], None] = lambda what: None,
) -> tuple[dict[str, Any], Sequence[BadRow]]:
    """The answer as plain values, and what was left out of the dump. Raises Malformed, BadInput, PolicyFailed.

    `told`: words about what is being worked out, for somebody who waits.
    """
    lines = TraceLines(path, skip_bad=question.skip_bad)
    jobs = list(folded(records(lines)[1], lines))
    given = None if question.cluster is None else sum(n.gpus - n.foreign for n in question.cluster.nodes)
    past = history(jobs, len(lines.malformed), cpus=question.cpus, gpus=given)
    del jobs
    gpus = whole(float(sum(past.held.most().values()))) if given is None else given
    answer: dict[str, Any] = {
        "history": past.answer,
        "cluster": {"gpus": gpus, "from": "dump" if given is None else "given"},
    }
    cluster = question.cluster or replay.cluster_of(past.held)
    if question.policies and past.jobs and cluster is not None:
        answer |= _replayed(past, cluster, question, play, told)
    return answer, lines.remarks


def from_journal(
    folder: Path,
    question: WhatIf,
    since_s: Seconds | None = None,
    play: Replay = replay.by_engine,
    told: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """As `from_sacct`, of what an arbiter saw, with its state in `folder`: see `observed`."""
    seen = observed(folder, since_s)
    cluster = question.cluster or seen.cluster
    gpus = 0 if cluster is None else sum(n.gpus - n.foreign for n in cluster.nodes)
    past = history(seen.jobs, cpus=question.cpus, gpus=gpus)
    answer: dict[str, Any] = {
        "history": past.answer,
        "cluster": {"gpus": gpus, "from": "journal" if question.cluster is None else "given"},
    }
    if question.policies and past.jobs and cluster is not None:
        answer |= _replayed(past, cluster, question, play, told, "journal")
    return answer


def _replayed(
    past: SiteHistory,
    cluster: Cluster,
    question: WhatIf,
    play: Replay,
    told: Callable[[str], None],
    source: str = "dump",
) -> dict[str, Any]:
    jobs = replay.trace_of(past.jobs)
    seed = question.seed

    def lives(policy: str, assumption: Assumption) -> dict[str, Any]:
        told(f"{policy}, {said(assumption)}")
        trace, table = replay.assumed(jobs, assumption, cluster, seed)
        return replay.figures(play(trace, table, cluster, policy, assumption.restart_s, seed))

    def times(found: dict[str, Any]) -> dict[str, Any]:
        return {"wait": found["wait"], "jct": found["jct"]}

    # What happened was not elastic, and the time limits that people gave are not known: lengths stand for them.
    base = lives(BASELINE, RIGID)
    policies = {}
    for name in question.policies:
        several = [lives(name, one) for one in question.assumption.band()]
        means = [one["wait"]["mean"] for one in several]
        policies[name] = {**several[0], "band": {"wait_mean": [min(means), max(means)]}}
    out: dict[str, Any] = {
        "replay": {"policy": BASELINE, **base, "note": _note(past, base, source)},
        "policies": policies,
        "assumptions": _assumptions(question, source),
    }
    if question.levers:
        first = question.policies[0]
        out["levers"] = {
            "order": {
                "what": "the shortest job first, nothing else changed (jobs may be stopped and started again)",
                **times(lives("srtf", RIGID)),
            },
            "time limits": {
                "what": "the order of the replay, but nobody says how long a job will take",
                **times(lives(BASELINE, Assumption(known=False))),
            },
            "policy": {
                "what": f"{first}, no job elastic",
                **times(lives(first, RIGID)),
            },
            "elasticity": {
                "what": f"{first}, {said(question.assumption)}",
                **times(policies[first]),
            },
        }
    return out


def said(assumption: Assumption) -> str:
    words = f"{assumption.elastic:.0%} of the jobs elastic"
    if assumption.elastic:
        words += f", speed growing as GPUs^{assumption.scaling:g}"
    restarts = "as measured elsewhere" if assumption.restart_s is None else f"of {assumption.restart_s:g} s"
    return f"{words}, restarts {restarts}" + ("" if assumption.known else ", lengths not known")


def _note(past: SiteHistory, base: dict[str, Any], source: str) -> str:
    ours, theirs = base["wait"]["mean"], past.answer["wait"]["mean"]
    return (
        f"replayed in order of submission with backfilling, jobs wait {ours:.0f} s on average; in truth they waited "
        f"{theirs:.0f} s. Priorities, limits of accounts, partitions, reservations, cores and memory, and nodes that "
        f"were down are not in the {source}: compare policies with the replay, not with the truth"
    )


def _assumptions(question: WhatIf, source: str) -> list[str]:
    return [
        f"as told: {said(question.assumption)}; which jobs is drawn by seed {question.seed}",
        "an elastic job may run on half to twice the GPUs that it asked for",
        "the band of each policy: " + "; ".join(said(one) for one in question.assumption.band()),
        "a job's work is the time that all its incarnations ran, on the GPUs of the first; less than 1 s counts as 1 s",
        f"jobs still running end when the {source} does",
        "every GPU serves every job, all types alike; cores and memory never lack",
        "every job can be stopped and started again from where it was, where a policy does so",
    ]
