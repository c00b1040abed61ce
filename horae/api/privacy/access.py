"""What of other people's jobs is shown: all of it, what `public.py` lists, or, where the cluster hides them, nothing.

Who may *do* what is decided in `horae/arbiter/requests/authority.py` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from horae.api.peers import Caller
from horae.api.privacy import hidden, public


@dataclass(frozen=True, slots=True)
class AccessRules:
    """What the configuration says about people."""

    operators: frozenset[str] = frozenset({"root"})
    show_others: bool = False  #: everybody sees everything, where the cluster hides nothing
    #: what the cluster itself hides of one user's from the others, as it is now (`Capabilities.hides`)
    hides: Callable[[], Collection[str]] = tuple
    #: the tenants that list a user
    homes: Callable[[str], Collection[str]] = lambda _user: ()

    @property
    def open(self) -> bool:
        return self.show_others and not self.hides()


def own(owner: str, caller: Caller) -> bool:
    """Whether `caller` is `owner`, or sees what everybody's is anyway ("": the cluster's, which operators see)."""
    return caller.operator or (bool(owner) and caller.name == owner)


def whole(owner: str, caller: Caller, site: AccessRules) -> bool:
    """Whether `caller` sees all of what is `owner`'s."""
    return site.open or own(owner, caller)


def seen(owner: str, caller: Caller, site: AccessRules) -> bool:
    """Whether `caller` may know that a job of `owner` is there."""
    return own(owner, caller) or not hidden.jobs(site.hides())


def job(data: Mapping[str, Any], caller: Caller, site: AccessRules) -> dict[str, Any]:
    """`data` of one job that `caller` may know of, or its explanation, as they may see it."""
    if not whole(data.get("owner", ""), caller, site):
        return public.job(data)
    return hidden.own_job(data) if _apart(caller, site) else dict(data)


def trial(data: Mapping[str, Any], caller: Caller, site: AccessRules) -> dict[str, Any]:
    """What a dry run says of one's own jobs, and of others' where they may be known."""
    return hidden.trial(data) if _apart(caller, site) else dict(data)


def app(data: Mapping[str, Any], caller: Caller, site: AccessRules) -> dict[str, Any]:
    """An app as `caller` may see it: its trials' losses and settings are their owners'."""
    if all(whole(owner, caller, site) for owner in data["owners"]):
        return dict(data)
    return public.app(data)


def apps(data: Iterable[Mapping[str, Any]], caller: Caller, site: AccessRules) -> list[dict[str, Any]]:
    """An app's row counts all its jobs: there is none where one of them is hidden."""
    found = []
    for row in data:
        if all(seen(owner, caller, site) for owner in row["owners"]):
            found.append(app(row, caller, site))
    return found


def about(data: Mapping[str, Any], caller: Caller, site: AccessRules) -> dict[str, Any]:
    return dict(data) if whole("", caller, site) else public.about(data)


def status(data: Mapping[str, Any], caller: Caller, site: AccessRules) -> dict[str, Any]:
    data = counted(data, caller, site)
    tenants = set(site.homes(caller.name))
    for each in data["jobs"]:
        if own(each["owner"], caller):
            tenants.add(str(each["tenant"]))
    shown = dict(data) if whole("", caller, site) else public.status(data, tenants)
    return {**shown, "jobs": [job(j, caller, site) for j in data["jobs"]]}


def counted(data: Mapping[str, Any], caller: Caller, site: AccessRules) -> dict[str, Any]:
    """The status that numbers for `caller` may be made of: without what is hidden."""
    mine = [j for j in data["jobs"] if own(j["owner"], caller)]
    if caller.operator or not site.hides():
        return dict(data)
    shown = hidden.status(data, mine)
    return {**shown, "jobs": mine} if hidden.jobs(site.hides()) else shown


def numbers(data: Mapping[str, Any], caller: Caller, site: AccessRules) -> dict[str, Any]:
    """The status that numbers are made of: how others use their GPUs is left out, as everywhere."""
    data = counted(data, caller, site)
    shown = []
    for each in data["jobs"]:
        all_of = whole(each["owner"], caller, site)
        shown.append(each if all_of else public.only(each, public.JOB))
    return {**data, "jobs": shown}


def events(data: Iterable[Mapping[str, Any]], caller: Caller, site: AccessRules) -> Iterator[dict[str, Any]]:
    """Events, as they are read; of other people's jobs, and of the cluster, what everybody may know."""
    apart = _apart(caller, site)
    for event in data:
        if event.get("job") and not seen(_owner(event), caller, site):
            continue
        left = hidden.event(event) if apart else event
        if left is not None:
            yield dict(left) if whole(_owner(left), caller, site) else public.event(left)


def _apart(caller: Caller, site: AccessRules) -> bool:
    """Whether others' jobs are hidden from `caller`, and so what compares with them."""
    return not caller.operator and hidden.jobs(site.hides())


def _owner(event: Mapping[str, Any]) -> str:
    return str(event.get("owner") or "") if event.get("job") else ""
