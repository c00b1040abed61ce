"""What would make a job larger that holds GPUs: what `explain` names of it, carried out, does, under every policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from horae.port import JobState
from horae.views.cause import Cause
from horae.views.watch import explained
from policy import catalogue
from policy.decide import decide
from policy.model import Node
from tests.horae.arbiter.site import ANN, ROOT, Site, spec

TWO_TYPES = (Node("v1", "v100", 4), Node("k1", "k80", 2))
ONE_TYPE = (Node("v1", "v100", 4), Node("v2", "v100", 2))
LONG = 10**6


def of_size(site: Site, job: str) -> list[Cause]:
    return [cause for cause in explained(site.core, job).causes if cause.what == "size" and cause.change]


@pytest.mark.parametrize("policy", list(catalogue.entries()))
@pytest.mark.parametrize("nodes", [TWO_TYPES, ONE_TYPE], ids=["two types", "one type"])
def test_the_end_of_those_who_are_named_makes_it_larger(tmp_path: Path, policy: str, nodes: tuple[Node, ...]) -> None:
    site = Site(tmp_path, nodes=nodes, policy=decide, pools=[{"policy": policy}])
    jobs = site.commands.submit([spec("small", (1, 2), steps=LONG), spec("large", (1, 6), steps=LONG)], ANN)
    site.run(60)
    for job in jobs:
        if site.job(job).state is not JobState.RUNNING:
            continue
        held = sum(site.job(job).allocation.values())
        for cause in of_size(site, job):
            found = re.match(r"\d+ GPUs? more that come free: (.*?) ending", cause.change)
            assert found is not None, f"of a job that holds GPUs only others' end is a remedy: {cause}"
            for other in set(re.findall(r"\d+", found[1])) & {j for j in jobs if site.job(j).live}:
                site.commands.cancel(other, ROOT)
            site.run(200)
            assert sum(site.job(job).allocation.values()) > held, cause


@pytest.mark.parametrize("policy", ["gavel-max-min", "gandiva-fair"])
def test_a_gang_of_one_type_is_told_so(tmp_path: Path, policy: str) -> None:
    """Two GPUs of the other type lie idle, and its owner asks why."""
    site = Site(tmp_path, nodes=TWO_TYPES, policy=decide, pools=[{"policy": policy}])
    (job,) = site.commands.submit([spec("a", (1, 6), steps=LONG)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(5)
    said = "\n".join(f"{cause.text} {cause.change}" for cause in explained(site.core, job).causes)
    assert f"it could use 6 GPUs; policy {policy} gives a gang GPUs of one type, and of v100 there are 4" in said
    assert "the policy's next decision" not in said
    assert "more tickets" not in said
