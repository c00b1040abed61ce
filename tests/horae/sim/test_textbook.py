"""The ideal engine against a textbook that shares no code with it."""

from __future__ import annotations

import pytest

from horae.sim.traces.model import Trace
from tests.horae.sim import made, textbook
from tests.horae.sim.textbook import Rule, Task

GPUS = 6


def tasks(jobs: Trace) -> list[Task]:
    out = []
    for job in jobs.jobs:
        assert job.duration is not None
        power = 1.0 if job.model is None else 0.8
        curve = [0.0, *(n**power for n in range(1, 17))]
        work = job.duration * curve[job.gpus]
        out.append(Task(job.job, job.submitted, job.gpus, work, job.min_gpus, job.max_gpus, curve, job.tenant))
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("policy", "rule", "kind"),
    [
        ("fifo", textbook.fifo, {"elastic": False}),
        ("srtf", textbook.srtf, {"elastic": False}),
        ("max-min", textbook.max_min, {}),
        ("las", textbook.las, {"elastic": False, "most": 1, "jobs": 25, "apart_s": 120.0}),
        ("afs-l", textbook.afs_l, {"model": "concave"}),
    ],
)
def test_ideal_is_what_a_textbook_says(policy: str, rule: Rule, kind: dict[str, object], seed: int) -> None:
    jobs = made.trace(seed, **kind)  # type: ignore[arg-type]
    expected = textbook.play(tasks(jobs), GPUS, rule)
    found = {r.plain.name: r.finished_s for r in made.played(jobs, policy, f"v100:1x{GPUS}", ideal=True).runs}
    assert found.keys() == expected.keys()
    for job in jobs.jobs:
        ends = found[job.job]
        assert ends is not None
        took = expected[job.job] - job.submitted
        assert ends - job.submitted == pytest.approx(took, rel=1e-3), job.job
