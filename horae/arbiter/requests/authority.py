"""Who may do what: the one place that decides it. Owners act on their own jobs, operators on all.

The caller's name comes from the kernel (peer credentials of the socket) or from an authenticated connection, never
from what the caller says.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from horae import job_number
from horae.config import Config
from horae.journal import JobRecord
from horae.port import SiteTenant
from policy.model import BadInput


class NotAllowed(Exception):
    """The caller has no right to do this. `text` is for people."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Requester:
    user: str

    def is_operator(self, config: Config) -> bool:
        return self.user in config.operators


def may_act_on(caller: Requester, record: JobRecord, config: Config) -> None:
    """Raises NotAllowed. Cancelling, holding, reading the log."""
    if caller.user != record.owner and not caller.is_operator(config):
        whose = record.owner or "nobody we know"
        raise NotAllowed(f"job {job_number(record.id)} belongs to {whose}; only they and operators may do this")


def may_order(caller: Requester, owner: str, tenant: str, to: int, config: Config) -> None:
    """Raises NotAllowed where the caller may not give a job of that owner and tenant this priority. An owner may move
    it behind the tenant's others and back to 0; leads of the tenant and operators as they like."""
    if caller.is_operator(config) or config.leads(caller.user, tenant):
        return
    if caller.user != owner:
        whose = owner or "nobody we know"
        raise NotAllowed(f"the job belongs to {whose}; only they, leads of tenant {tenant} and operators may do this")
    if to > 0:
        raise NotAllowed(
            f"{caller.user} may not put a job before those of others in tenant {tenant}; 0 or less is yours to say, "
            f"more a lead's (`leads` of the tenant in the configuration) or an operator's"
        )


def may_operate(caller: Requester, config: Config) -> None:
    """Raises NotAllowed. Modes, maintenance, release-all: what concerns everybody."""
    if not caller.is_operator(config):
        raise NotAllowed(f"{caller.user} is no operator; the configuration's `operators` lists who is")


def _at_home(owner: str, tenant: str, config: Config) -> str:
    """A user whom a tenant lists has no share of their own beside it."""
    homes = config.at_home(owner, tenant)
    if len(homes) > 1:
        raise BadInput(f"{owner} belongs to several", field="tenant", remedy=f"say one of {', '.join(homes)}")
    return homes[0]


def submitter(
    caller: Requester, owner: str, tenant: str, config: Config, site: Sequence[SiteTenant] = ()
) -> tuple[str, str]:
    """(owner, tenant) of a new job. `site`: the tenants, where they are the cluster's own. Raises NotAllowed where the
    caller may not run jobs in that name, and BadInput for a tenant that is not there,
    or where several could be meant."""
    operator = caller.is_operator(config)
    if owner and owner != caller.user and not operator:
        raise NotAllowed(f"{caller.user} may not submit jobs of {owner}; only operators may")
    owner = owner or caller.user
    tenant = of_site(tenant, owner, site) if site else _at_home(owner, tenant or owner, config)
    if not operator:
        _may_submit(owner, tenant, config)
    elif not site:
        _is_tenant(owner, tenant, config)
    if not owner:
        raise BadInput("a job needs an owner", field="owner", remedy="say whose job it is")
    return owner, tenant


def _may_submit(owner: str, tenant: str, config: Config) -> None:
    if config.may_submit(owner, tenant):
        return
    how = f"ask an operator to add {owner} to its users"
    if not config.lists(tenant):
        how = "the configuration lists no such tenant" + _near(tenant, (t.name for t in config.tenants))
    raise NotAllowed(f"{owner} may not run jobs of tenant {tenant}; {how}")


def _is_tenant(owner: str, tenant: str, config: Config) -> None:
    """An operator may submit for every tenant, and mistypes one as others do."""
    if not config.tenants or config.lists(tenant) or tenant == owner:
        return
    names = ", ".join(t.name for t in config.tenants[:20])
    raise BadInput(
        f"{tenant} is no tenant of the configuration{_near(tenant, (t.name for t in config.tenants))}",
        field="tenant",
        value=tenant,
        remedy=f"one of {names}, or a new one in its `tenants`",
    )


def _near(tenant: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(tenant, known, 3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def of_site(asked: str, owner: str, site: Sequence[SiteTenant]) -> str:
    """Which of the cluster's own tenants is meant: the one asked for, else the owner's, else the only one there is."""
    meant = asked or owner
    found = [t for t in site if t.name == meant] or [t for t in site if meant in t.also]
    if not found and not asked and len(site) == 1:
        found = list(site)
    if len(found) == 1:
        return found[0].name
    several = ", ".join(t.name for t in found or site)
    raise BadInput(
        f"{len(found)} tenants are called '{meant}'"
        if found
        else f"no tenant here is called '{meant}'{_near(meant, (t.name for t in site))}",
        field="tenant",
        value=asked,
        remedy=f"say which with `tenant`: {several}",
    )
