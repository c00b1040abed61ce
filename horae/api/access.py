"""What of other people's jobs is shown: all of it, or what `public.py` lists.

Who may *do* what is decided in `horae/arbiter/requests/authority.py` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from horae.api import public
from horae.api.peers import Caller


@dataclass(frozen=True, slots=True)
class Site:
    """What the configuration says about people."""

    operators: frozenset[str] = frozenset({"root"})
    show_others: bool = False  #: everybody sees everything


def whole(owner: str, caller: Caller, site: Site) -> bool:
    """Whether `caller` sees all of what is `owner`'s ("": the cluster's, which operators see)."""
    return site.show_others or caller.operator or (bool(owner) and caller.name == owner)


def job(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    """`data` of one job, or its explanation, as `caller` may see it."""
    return dict(data) if whole(data.get("owner", ""), caller, site) else public.job(data)


def app(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    """An app as `caller` may see it: its trials' losses and settings are their owners'."""
    return dict(data) if all(whole(owner, caller, site) for owner in data["owners"]) else public.app(data)


def about(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    return dict(data) if whole("", caller, site) else public.about(data)


def status(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    shown = dict(data) if whole("", caller, site) else public.status(data)
    return {**shown, "jobs": [job(j, caller, site) for j in data["jobs"]]}


def events(data: Iterable[Mapping[str, Any]], caller: Caller, site: Site) -> list[dict[str, Any]]:
    """Events; of other people's jobs, and of the cluster, what everybody may know."""
    return [dict(event) if whole(_owner(event), caller, site) else public.event(event) for event in data]


def _owner(event: Mapping[str, Any]) -> str:
    return str(event.get("owner") or "") if event.get("job") else ""
