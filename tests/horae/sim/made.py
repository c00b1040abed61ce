"""Random traces for the engines, and one way to play them."""

from __future__ import annotations

import io
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from horae.cli.app import run
from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of, pooled
from horae.sim.engine.simulation import Simulated, simulate
from horae.sim.results import write_jobs
from horae.sim.traces.model import Trace, TraceJob

#: What commands are given.
CLUSTER = ("--cluster", "v100:1x4")
#: A concave curve, as iterations/s by GPUs.
CONCAVE = {"concave": {"v100": {n: n**0.8 for n in range(1, 17)}, "k80": {n: 0.4 * n**0.9 for n in range(1, 17)}}}


def trace(
    seed: int, jobs: int = 40, *, elastic: bool = True, most: int = 4, model: str | None = None, apart_s: float = 200.0
) -> Trace:
    """Times of odd traces are whole seconds, so that things happen at once."""
    chance, at, out = Random(seed), 0.0, []
    for number in range(jobs):
        at += chance.expovariate(1 / apart_s)
        gpus = chance.choice([n for n in (1, 1, 1, 2, 3, 4) if n <= most])
        duration = chance.lognormvariate(6.5, 1.0)
        if seed % 2:
            at, duration = float(round(at)), float(round(duration) + 1)
        grows = elastic and chance.random() < 0.6
        out.append(
            TraceJob(
                f"j{number}",
                at,
                gpus,
                duration,
                tenant=chance.choice("abc"),
                min_gpus=1 if grows else gpus,
                max_gpus=2 * most if grows else gpus,
                model=model,
            )
        )
    return Trace(tuple(out))


def of_one_tenant(jobs: Trace) -> Trace:
    return replace(jobs, jobs=tuple(replace(job, tenant="a") for job in jobs.jobs))


def played(
    jobs: Trace, policy: str, cluster: str = "v100:3x4", *, ideal: bool, engine: str = "fast", **more: Any
) -> Simulated:
    nodes, given, short = cluster_of(cluster), more.pop("options", {}), more.pop("shortcuts", True)
    settings = Settings.of(
        pooled(nodes) if ideal else nodes, policy, given, ideal=ideal, **{"restart_s": 30.0, "seed": 7, **more}
    )
    return simulate(jobs, settings, CONCAVE, engine=engine, shortcuts=short)


def rows(outcome: Simulated) -> str:
    """What `--jobs-out` holds."""
    text = io.StringIO()
    write_jobs(outcome, text)
    return text.getvalue()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """What a command returns, and says on standard output and error."""
    code = run(words)
    out = capsys.readouterr()
    return code, out.out, out.err
