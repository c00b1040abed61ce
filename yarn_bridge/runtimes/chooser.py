"""How a job gets its containers: what every way offers, which ways there are, and which one a cluster takes.

    services    one YARN service a job; a new shape is one FLEX                    `service_runtime.py`
    slices      one distributed shell for each slice of GPUs, submitted by REST    `slices.py`

Services cost one application master a job, slices one for each node of each job; so slices are taken where the
Services API is off, and on releases whose services cannot ask for named nodes while a distributed shell can.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from horae.spec import JobSpec
from yarn_bridge.clients.http import KERBEROS
from yarn_bridge.clients.records import NodeReport, Service
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services
from yarn_bridge.clients.settings import Settings, setting_of
from yarn_bridge.jobs.record import Record
from yarn_bridge.jobs.shapes import HOST_ATTRIBUTE
from yarn_bridge.options import AUTO, SERVICES, SLICES, Options

HANDLER = "yarn.resourcemanager.placement-constraints.handler"
OFF, PROCESSOR = "disabled", "placement-processor"
#: how often the processor tries to place a worker, once a heartbeat of its application master: a second
TRIES = "yarn.resourcemanager.placement-constraints.retry-attempts"
ENOUGH_TRIES = 60
PATIENT = {HANDLER: PROCESSOR, TRIES: "100"}
#: the handler is asked for again after this long: it changes with a restart of the ResourceManager
_PROBED_S = 60.0


class Runtime(Protocol):
    """Every verb may be called twice. `Service` is what both ways show: containers by component."""

    def read(self, record: Record) -> Service | None:
        """The job's containers; None when it has none and no application that could get some."""
        ...

    def make(self, record: Record, spec: JobSpec, application: str = "") -> None:
        """From nothing, or from what does not fit any more, into the record's shape. `application`: as of `end`; ""
        also for one that is not known."""
        ...

    def flex(self, record: Record, spec: JobSpec, counts: dict[str, int]) -> None:
        """Workers by component, as many as that."""
        ...

    def end(self, record: Record, application: str | None = None) -> bool:
        """Give everything back; False while YARN still does so. `application`: the one that YARN listed last for the
        job, "" for none; None: not known."""
        ...


@dataclass(frozen=True, slots=True)
class Probes:
    """What one cluster offers, found out by reading."""

    release: str
    services: bool  #: the Services API is on, or it does not matter
    services_pin: bool  #: this release's services may ask for node attributes
    handler: str  #: who handles placement by constraints; "": not known
    by_attributes: bool = True  #: the scheduler heeds attributes of nodes


@dataclass(frozen=True, slots=True)
class Choice:
    runtime: str
    pinned: bool  #: workers can be sent to named nodes
    why: str  #: for people
    harm: str = ""  #: why they are not, though they could be: others would pay for it


def named_nodes(reports: Sequence[NodeReport]) -> bool:
    """Whether every living GPU node, and there is one, tells its own name in the attribute `host`."""
    up = [each for each in reports if each.gpus and each.state == "RUNNING"]
    return bool(up) and all(each.attributes.get(HOST_ATTRIBUTE) == each.host for each in up)


def probe(manager: ResourceManager, conf: Settings, options: Options) -> Probes:
    """`conf`: the ResourceManager's. Raises PortError when it cannot be asked."""
    # Its API is asked for only where that decides: an API that fails for the moment must not stop what does not.
    asked = options.runtime == AUTO
    return Probes(
        release=manager.info().version,
        services=not asked or Services(manager.http, manager.quirks()).api_version() is not None,
        services_pin=manager.quirks().pin_by_attribute,
        handler="" if conf.why else conf.get(HANDLER, OFF),
        by_attributes=manager.places_by_attributes(),
    )


def harmful(probes: Probes, losers: Sequence[str]) -> str:
    """Why workers must not ask for named nodes, be it possible; "" where they may.

    Hadoop's scheduler (3.4.2) goes on counting a request with a placement constraint as pending when its container has
    come, and where it preempts it takes others' containers for it, one after the other. Its placement processor does
    not: there such requests are never pending. `losers`: queues that containers are taken from.
    """
    if not losers or probes.handler in (OFF, PROCESSOR):
        return ""
    return (
        f"YARN would take containers from {', '.join(losers[:3])}{', ...' * (len(losers) > 3)} for workers that have "
        f"come to their named nodes long ago ({HANDLER} is not {PROCESSOR})"
    )


def choose(options: Options, probes: Probes, named: bool, losers: Sequence[str] = ()) -> Choice:
    """`named`: as `named_nodes` says; `losers`: as `QueueLimits.losers` does."""
    if harm := harmful(probes, losers):
        found = choose(options, replace(probes, handler=OFF), named)
        return replace(found, why=f"{found.why}; not on named nodes: {harm}", harm=harm) if named else found
    constrained = named and probes.handler != OFF and probes.by_attributes
    by_service = constrained and probes.services_pin
    services, slices = SERVICES, SLICES
    if options.runtime != AUTO:
        return Choice(
            options.runtime, by_service if options.runtime == services else constrained, "the configuration says so"
        )
    if not probes.services:
        return Choice(slices, constrained, "the Services API is off")
    if options.auth == KERBEROS:
        return Choice(services, by_service, "the Services API is on, and comes first under Kerberos")
    if by_service:
        return Choice(services, True, "the Services API is on, and services can ask for named nodes")
    if constrained:
        return Choice(
            slices, True, f"services of Hadoop {probes.release} cannot ask for named nodes, a distributed shell can"
        )
    lacks = "no node attributes" if not named else "no placement by constraints"
    lacks = lacks if probes.by_attributes else "a fair scheduler, which knows no attributes of nodes"
    return Choice(services, False, f"the Services API is on; with {lacks}, neither way reaches named nodes")


class Chooser:
    """The choice as of now: the cluster is probed once, its nodes and queues are looked at anew in each round."""

    def __init__(self, options: Options, manager: ResourceManager, clock: Callable[[], float] = time.monotonic) -> None:
        self._options, self._manager, self._clock = options, manager, clock
        self._again_s = float("inf")
        self.probes: Probes | None = None

    def choice(self, named: bool, losers: Sequence[str] = ()) -> Choice:
        """Raises PortError when the ResourceManager cannot be asked."""
        if self.probes is None or self._clock() >= self._again_s:
            conf = setting_of(self._manager.http, "the ResourceManager", HANDLER)
            if self.probes is None:
                self.probes = probe(self._manager, conf, self._options)
            elif not conf.why:
                self.probes = replace(self.probes, handler=conf.get(HANDLER, OFF))
            self._again_s = self._clock() + _PROBED_S
        return choose(self._options, self.probes, named, losers)
