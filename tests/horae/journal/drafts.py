"""Drafts of events."""

from __future__ import annotations

from horae.journal import Draft, events
from tests.horae.arbiter.site import spec


def submitted(job: str) -> Draft:
    return events.Submitted(job, spec(f"job {job}"), pool="main", tenant="ann", app="a", owner="ann", submitted_s=1.0)
