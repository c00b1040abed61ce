"""Tenants that are the cluster's own: they weigh, and may hold, what it says; users name them, and it lets them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.requests.authority import of_site
from horae.fake import FakePort, World
from horae.port import Capabilities, JobState, Observation, SiteTenant
from horae.views.jobs import tenants
from policy.model import BadInput
from tests.horae.arbiter.site import ANN, NODES, ROOT, Site, Time, first_come, spec

VISION, SPEECH = "root.gpu.vision", "root.gpu.speech"
QUEUES = (SiteTenant(VISION, 75.0, ("vision",)), SiteTenant(SPEECH, 25.0, ("speech",)))


class WithQueues(FakePort):
    """A cluster that says who the tenants are."""

    tenants: tuple[SiteTenant, ...] = QUEUES
    caps: Mapping[str, int] = {SPEECH: 3}

    def observe(self) -> Observation:
        return replace(super().observe(), tenants=self.tenants, caps=self.caps)

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), tenant_key="queue")


def site_of(folder: Path, **more: Any) -> Site:
    time = Time()
    world = World(NODES, clock=time.monotonic)
    made = Site(folder, time=time, world=world, port=WithQueues(world), **{"tenants": [], **more})
    made.run(1)
    return made


def test_weights_and_caps_of_a_decision_are_the_clusters(tmp_path: Path) -> None:
    asked: list[Any] = []

    def watched(snapshot: Any, *more: Any) -> Any:
        asked.append(snapshot)
        return first_come(snapshot, *more)

    site = site_of(tmp_path, policy=watched)
    one, two = site.commands.submit([spec("a", 2, tenant="vision"), spec("b", 2, extra={"queue": "speech"})], ANN)
    site.until(one, JobState.RUNNING)
    assert [site.job(job).tenant for job in (one, two)] == [VISION, SPEECH]
    last = next(each for each in reversed(asked) if len(each.jobs) == 2)
    assert [(t.name, t.weight, t.cap) for t in last.tenants] == [(SPEECH, 25.0, 3), (VISION, 75.0, None)]
    rows = tenants(site.core.ledger, site.core.config, NODES, site.core.now_s(), {SPEECH: 3})
    assert [(row["name"], row["weight"], row["cap"]) for row in rows] == [(SPEECH, 25.0, 3), (VISION, 75.0, None)]


def test_what_the_file_says_of_a_tenant_stands(tmp_path: Path) -> None:
    site = site_of(tmp_path, tenants=[{"name": VISION, "weight": 2.0, "users": ["ben"]}])
    assert (site.core.config.weight(VISION), site.core.config.weight(SPEECH)) == (2.0, 25.0)
    with pytest.raises(Exception, match=r"ann may not run jobs of tenant root\.gpu\.vision"):
        site.commands.submit([spec("a", 1, tenant="vision")], ANN)


def test_weights_that_change_are_heeded_at_the_next_look(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    assert isinstance(site.port, WithQueues)
    site.port.tenants = (replace(QUEUES[0], weight=10.0), QUEUES[1])
    site.run(10)
    assert site.core.config.weight(VISION) == 10.0


def test_a_job_that_names_no_tenant_two_or_an_unknown_one_is_told_which_there_are(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    with pytest.raises(BadInput, match=r"no tenant here is called 'ann'.*root.gpu.vision, root.gpu.speech"):
        site.commands.submit([spec("a")], ANN)
    with pytest.raises(BadInput, match="no tenant here is called 'nlp'"):
        site.commands.submit([spec("a", tenant="nlp")], ROOT)
    with pytest.raises(BadInput, match="it says tenant vision, and queue speech"):
        site.commands.submit([spec("a", tenant="vision", extra={"queue": "speech"})], ANN)


def test_whose_a_job_is() -> None:
    twice = (*QUEUES, SiteTenant("root.cpu.vision", 1.0, ("vision",)))
    assert of_site("root.gpu.vision", "ann", twice) == VISION
    with pytest.raises(BadInput, match=r"2 tenants are called 'vision'.*root.gpu.vision, root.cpu.vision"):
        of_site("vision", "ann", twice)
    assert of_site("", "vision", QUEUES) == VISION, "the queue of his name"
    assert of_site("", "ann", QUEUES[:1]) == VISION, "the only one"
    with pytest.raises(BadInput, match="no tenant here is called 'nlp'"):
        of_site("nlp", "ann", QUEUES[:1])
