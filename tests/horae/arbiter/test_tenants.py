"""Whose share a new job counts against, and who says which of a tenant's jobs are first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.requests.authority import NotAllowed, Requester, submitter
from horae.config import Config
from horae.port import JobState, SiteTenant
from horae.views.watch import explained
from policy.decide import decide
from policy.model import BadInput, Node
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, config, spec

TENANTS = [
    {"name": "vision", "weight": 2.0, "users": ["ann", "cara"]},
    {"name": "speech", "users": ["ben", "cara"]},
    {"name": "open"},
]


@pytest.fixture
def site(tmp_path: Path) -> Config:
    return config(tmp_path, tenants=TENANTS, operators=["root"])


@pytest.mark.parametrize(
    ("user", "tenant", "counts"),
    [
        ("ann", "", "vision"),
        ("ann", "ann", "vision"),
        ("ann", "open", "open"),
        ("dan", "", "dan"),
        ("cara", "speech", "speech"),
    ],
)
def test_a_listed_user_has_no_share_beside_their_tenant(site: Config, user: str, tenant: str, counts: str) -> None:
    assert submitter(Requester(user), "", tenant, site) == (user, counts)


def test_who_belongs_to_several_says_which(site: Config) -> None:
    with pytest.raises(BadInput, match="vision, speech"):
        submitter(Requester("cara"), "", "", site)


def test_a_misspelt_tenant_is_refused_for_everybody(site: Config, tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="did you mean vision"):
        submitter(Requester("ann"), "", "visio", site)
    with pytest.raises(BadInput, match="did you mean vision"):
        submitter(Requester("root"), "", "visio", site)
    assert submitter(Requester("root"), "ann", "", site) == ("ann", "vision")
    assert submitter(Requester("root"), "", "", site) == ("root", "root")
    with pytest.raises(BadInput, match="did you mean gpu-speech"):
        submitter(Requester("ann"), "", "gpu-spech", site, [SiteTenant("gpu-vision"), SiteTenant("gpu-speech")])
    free = config(tmp_path / "free", tenants=[], operators=["root"])
    assert submitter(Requester("root"), "", "anything", free) == ("root", "anything")


def test_a_job_that_its_cluster_names_by_its_user_counts_against_the_tenant(tmp_path: Path) -> None:
    """As on a Slurm site whose tenants are users: nobody asked the arbiter before the job was there."""
    site = Site(tmp_path / "first", tenants=TENANTS)
    for owner, tenant, counts in (
        ("ann", "ann", "vision"), ("cara", "cara", "vision"), ("ann", "open", "open"), ("dan", "dan", "dan"),
    ):  # fmt: skip
        name = f"{owner}-{tenant}"
        site.world.submit(name, replace(spec(name, 1), owner=owner, tenant=tenant))
        site.run(6)
        assert site.job(name).tenant == counts


LAB = [{"name": "lab", "users": ["ann", "ben"], "leads": ["ann"]}]


def in_lab(folder: Path, **changes: Any) -> Site:
    """A lab of two on one node with one GPU, which a job of ben's holds: others of the lab wait."""
    site = Site(folder, nodes=[Node("n1", "v100", 1)], policy=decide, tenants=LAB, operators=["root"], **changes)
    (first,) = site.commands.submit([spec("first", 1, steps=10_000)], BEN)
    site.until(first, JobState.RUNNING)
    return site


def test_priority_says_who_of_a_tenant_is_next(tmp_path: Path) -> None:
    site = in_lab(tmp_path, pools=[{"name": "main", "policy": "fifo"}])
    early, late = site.commands.submit([spec("early", 1), spec("late", 1)], BEN)
    site.run(6)
    assert explained(site.core, early).ahead == () and explained(site.core, late).ahead == (early,)
    site.commands.prioritise(late, 10, ANN)
    site.run(6)
    assert explained(site.core, late).ahead == () and explained(site.core, early).ahead == (late,)
    told = " ".join(c.text for c in explained(site.core, late).causes)
    assert f"priority 10 puts it before job {early}" in told
    notes = site.core.ledger.pool("main").decided["certificate"]["notes"]
    assert any(f"job {late} stands before job {early}, by priority 10" in note for note in notes)
    site.reopen()
    assert site.job(late).priority == 10, "the journal keeps it"
    site.commands.cancel("1", BEN)
    site.until(late, JobState.RUNNING)
    assert not site.job(early).allocation


def test_who_may_move_whose_job(tmp_path: Path) -> None:
    site = in_lab(tmp_path)
    anns, bens = (site.commands.submit([spec("mine", 1)], whose)[0] for whose in (ANN, BEN))
    site.commands.prioritise(bens, -5, BEN)  # back is one's own
    site.commands.prioritise(bens, 0, BEN)
    with pytest.raises(NotAllowed, match="before those of others in tenant lab"):
        site.commands.prioritise(bens, 1, BEN)
    with pytest.raises(NotAllowed, match="belongs to ann"):
        site.commands.prioritise(anns, -1, BEN)
    site.commands.prioritise(bens, 7, ANN)  # a lead
    with pytest.raises(NotAllowed, match="no operator"):
        site.commands.prioritise(bens, 1, ANN, across=True)
    site.commands.prioritise(anns, 1, ROOT, across=True)
    assert (site.job(bens).priority, site.job(anns).precedence, site.job(anns).priority) == (7, 1, 0)
    with pytest.raises(BadInput, match="from -100 to 100"):
        site.commands.prioritise(anns, 101, ROOT)
    with pytest.raises(NotAllowed):
        site.commands.submit([replace(spec("first of all", 1), priority=1)], BEN)
    (stated,) = site.commands.submit([replace(spec("last", 1), priority=-1)], BEN)
    assert site.job(stated).priority == -1


def test_who_is_a_tenant_alone_orders_as_they_like(tmp_path: Path) -> None:
    site = Site(tmp_path, tenants=[{"name": "solo", "users": ["ann"]}])
    for who in (ANN, BEN):
        (job,) = site.commands.submit([replace(spec("x", 1), priority=100)], who)
        assert site.job(job).priority == 100


def test_a_priority_that_the_cluster_shows_is_believed_only_backwards(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name, stated, believed in (("up", 5, 0), ("down", -5, -5)):
        site.world.submit(name, replace(spec(name, 1), owner="ben", tenant="ben", priority=stated))
        site.run(6)
        assert site.job(name).priority == believed


def test_an_order_that_is_set_in_the_cluster_is_the_line(tmp_path: Path) -> None:
    order_only = [{"name": "main", "policy": "fifo", "mode": "order"}]
    site = Site(tmp_path, nodes=[Node("n1", "v100", 1)], policy=decide, tenants=LAB, pools=order_only)
    jobs = site.commands.submit([spec(f"j{n}", 1) for n in range(3)], BEN)
    site.run(6)
    site.commands.prioritise(jobs[2], 5, ANN)
    site.run(6)
    order = site.core.ledger.pool("main").order
    assert order.index(jobs[2]) < order.index(jobs[1])
