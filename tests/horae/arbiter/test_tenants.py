"""Whose share a new job counts against."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.arbiter.requests.authority import NotAllowed, Requester, submitter
from horae.config import Config
from policy.model import BadInput
from tests.horae.arbiter.site import config

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
    with pytest.raises(NotAllowed):
        submitter(Requester("ann"), "", "visio", site)
    with pytest.raises(BadInput, match="did you mean vision"):
        submitter(Requester("root"), "", "visio", site)
    assert submitter(Requester("root"), "ann", "", site) == ("ann", "vision")
    assert submitter(Requester("root"), "", "", site) == ("root", "root")
    free = config(tmp_path / "free", tenants=[], operators=["root"])
    assert submitter(Requester("root"), "", "anything", free) == ("root", "anything")
