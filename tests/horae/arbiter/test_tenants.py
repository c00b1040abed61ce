"""Whose share a new job counts against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from horae.arbiter.requests.authority import NotAllowed, Requester, submitter
from horae.config import Config
from horae.port import SiteTenant
from policy.model import BadInput
from tests.horae.arbiter.site import Site, config, spec

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
