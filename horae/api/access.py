"""What of other people's jobs is shown. Who may *do* what is decided in `horae/arbiter/authority.py` alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from horae.api.peers import Caller

#: What a job's owner and operators see of it. Names, sizes, places and reasons are everybody's: fairness is public.
PRIVATE = ("command", "cwd", "env", "checkpoint", "extra", "loss", "losses", "loss_forecast", "progress_notes")
#: Causes of an explanation that only they see.
PRIVATE_CAUSES = ("profile",)

#: The same among the numbers behind a cause.
LOSSES = ("loss", "worst_kept", "forecast", "best")


@dataclass(frozen=True, slots=True)
class Site:
    """What the configuration says about people."""

    operators: frozenset[str] = frozenset({"root"})
    show_others: bool = False  #: everybody sees everything


def job(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    """`data` of one job as `caller` may see it."""
    if site.show_others or caller.sees(data.get("owner", "")):
        return dict(data)
    shown = {key: value for key, value in data.items() if key not in PRIVATE}
    if "causes" in shown:  # what was read of a log, and the model key, which is made of the command
        shown["causes"] = [cause for cause in shown["causes"] if cause["what"] not in PRIVATE_CAUSES]
    return shown


def app(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    """An app as `caller` may see it: its trials' losses and settings are their owners'."""
    if site.show_others or all(caller.sees(owner) for owner in data["owners"]):
        return dict(data)
    hidden = ("loss", "parameters", "why")
    return {**data, "trials": [{k: v for k, v in t.items() if k not in hidden} for t in data["trials"]]}


def explained(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    """An explanation as `caller` may see it: what causes say of losses is its owner's too."""
    shown = job(data, caller, site)
    if len(shown) < len(data):
        shown["causes"] = [
            {**c, "numbers": {k: v for k, v in c.get("numbers", {}).items() if k not in LOSSES}}
            for c in data.get("causes", [])
        ]
    return shown


def status(data: Mapping[str, Any], caller: Caller, site: Site) -> dict[str, Any]:
    return {**data, "jobs": [job(j, caller, site) for j in data["jobs"]]}


def events(data: Iterable[Mapping[str, Any]], caller: Caller, site: Site) -> list[dict[str, Any]]:
    """Events with what is private of other people's jobs taken out of their data."""
    out = []
    for event in data:
        own = site.show_others or caller.operator or event.get("owner") == caller.name or not event.get("job")
        hidden = () if own else ("data",)
        out.append({key: value for key, value in event.items() if key not in hidden})
    return out
