"""Who stands where among jobs that wait, as the policies' own line says it: one order for what is set in the cluster
and for what people are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from horae.journal import JobRecord
from horae.port import JobId
from policy.line import InLine, places
from policy.model import Seconds

Standing = tuple[bool, Seconds, JobId]


def standing(records: Iterable[JobRecord]) -> Callable[[JobRecord], Standing]:
    """The key by which these are served: those first that the policy lets run, then by their places in line."""
    found = places(InLine(r.id, r.tenant, r.submitted_s, r.priority, r.precedence) for r in records)
    return lambda record: (not record.target, *found[record.id])
