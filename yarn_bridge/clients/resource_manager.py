"""The ResourceManager by REST: typed reads, the few changes that Horae makes, nothing else.

Not here, on purpose: `POST /nodes/ID/resource` (it sets the node's GPUs to nought for good) and the GPU count of a
plain submission (the ResourceManager drops it without a word). Facts of the protocol that matter to callers:

* A submission is answered 202 whatever its queue; what became of it shows only when the application is read.
* A kill is answered at once and carried out later: read again.
* Anybody who may authenticate can signal any container: access control lists do not cover it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote
from xml.etree import ElementTree as ET

from horae.port import FixConfiguration, TryLater
from policy.model import EMPTY
from yarn_bridge.clients.http import ACTING_FOR, Answer, HttpClient, identity, understood
from yarn_bridge.clients.quirks import Quirks, quirks_of
from yarn_bridge.clients.records import (
    App,
    Attempt,
    ClusterInfo,
    Container,
    Metrics,
    NodeReport,
    Token,
    Withheld,
    app,
    attempt,
    cluster_info,
    container,
    kept_nodes,
    many,
    metrics,
    node_report,
    token,
    withheld,
)

_BASE = "/ws/v1/cluster"
FAIR_SCHEDULER = "fairScheduler"
T = TypeVar("T")
#: what nobody reads of 1,000 applications: half of the bytes, and on a busy cluster most of the time
LEAN = ("resourceRequests", "appNodeLabelExpression", "amNodeLabelExpression")
GRACEFUL, FORCEFUL, THREAD_DUMP = "GRACEFUL_SHUTDOWN", "FORCEFUL_SHUTDOWN", "OUTPUT_THREAD_DUMP"


@dataclass(frozen=True, slots=True)
class QueueEdits:
    """One transaction on a mutable scheduler configuration: all of it or nothing."""

    #: queue path -> its parameters; None takes a parameter away
    add: Mapping[str, Mapping[str, str | None]] = field(default_factory=lambda: EMPTY)
    update: Mapping[str, Mapping[str, str | None]] = field(default_factory=lambda: EMPTY)
    remove: Sequence[str] = ()
    globals: Mapping[str, str | None] = field(default_factory=lambda: EMPTY)

    def xml(self) -> str:
        """The body: XML, since a JSON body that is wrapped in its name is answered 200 and does nothing."""
        root = ET.Element("sched-conf")
        for path in self.remove:
            ET.SubElement(root, "remove-queue").text = path
        for tag, queues in (("add-queue", self.add), ("update-queue", self.update)):
            for path, parameters in queues.items():
                queue = ET.SubElement(root, tag)
                ET.SubElement(queue, "queue-name").text = path
                _entries(ET.SubElement(queue, "params"), parameters)
        if self.globals:
            _entries(ET.SubElement(root, "global-updates"), self.globals)
        return ET.tostring(root, encoding="unicode")


class ResourceManager:
    """One ResourceManager, or an active one and its standbys. Threads may share it."""

    def __init__(self, http: HttpClient) -> None:
        self.http = http
        self._quirks: Quirks | None = None

    # --- reads ---

    def info(self) -> ClusterInfo:
        return self._read(
            "/info", "reading the cluster's version", "clusterInfo", lambda got: cluster_info(_whole(got))
        )

    def quirks(self) -> Quirks:
        """The line of the release table for this cluster, asked for once."""
        if self._quirks is None:
            self._quirks = quirks_of(self.info().version)
        return self._quirks

    def metrics(self) -> Metrics:
        doing = "reading the cluster's metrics"
        return self._read("/metrics", doing, "clusterMetrics", lambda got: metrics(_whole(got)))

    def nodes(self) -> list[NodeReport]:
        """All nodes, lost ones too, with resources, racks, labels and attributes."""
        return self._read("/nodes", "reading the nodes", "nodes", lambda got: _each(got, "node", node_report))

    def apps(
        self,
        *,
        states: Iterable[str] = (),
        kinds: Iterable[str] = (),
        tags: Iterable[str] = (),
        user: str = "",
        queue: str = "",
        limit: int | None = None,
        started_after_s: float | None = None,
        finished_after_s: float | None = None,
        leave_out: Iterable[str] = LEAN,
    ) -> list[App]:
        """Applications that meet all of the conditions. `leave_out`: fields the server need not fill (deSelects)."""
        said = {
            "states": ",".join(states),
            "applicationTypes": ",".join(kinds),
            "applicationTags": ",".join(tags),
            "user": user,
            "queue": queue,
            "limit": "" if limit is None else str(limit),
            "startedTimeBegin": "" if started_after_s is None else str(int(started_after_s * 1000)),
            "finishedTimeBegin": "" if finished_after_s is None else str(int(finished_after_s * 1000)),
            "deSelects": ",".join(leave_out),
        }
        query = {key: value for key, value in said.items() if value}
        return self._read("/apps", "reading the applications", "apps", lambda got: _each(got, "app", app), query)

    def app(self, app_id: str) -> App:
        """Raises Gone when there is none of this id."""
        return self._read(f"/apps/{quote(app_id)}", f"reading {app_id}", "app", lambda got: app(_whole(got)))

    def attempts(self, app_id: str) -> list[Attempt]:
        path, doing = f"/apps/{quote(app_id)}/appattempts", f"reading the attempts of {app_id}"
        return self._read(path, doing, "appAttempts", lambda got: _each(got, "appAttempt", attempt))

    def containers(self, app_id: str, attempt_id: str, owner: str = "") -> list[Container]:
        """Living containers, the application master's too; only its user and administrators see them."""
        path = f"/apps/{quote(app_id)}/appattempts/{quote(attempt_id)}/containers"
        doing = f"reading the containers of {app_id}"
        value = self.http.ask("GET", _BASE + path, owner=owner).get(doing)
        if value == {}:
            return []  # as Hadoop writes none
        with understood(doing):
            return [container(each) for each in many(value["container"])]

    def scheduler(self) -> Mapping[str, Any]:
        """`schedulerInfo` as the ResourceManager writes it; `queues.py` reads it."""
        return self._read("/scheduler", "reading the queues", "scheduler", lambda got: _whole(got["schedulerInfo"]))

    def places_by_attributes(self) -> bool:
        """Whether the scheduler heeds attributes of nodes: the fair scheduler is never told of them, so that whoever
        asks it for a node by one waits for ever, or is refused."""
        return str(self.scheduler().get("type", "")) != FAIR_SCHEDULER

    def may_submit(self, queue: str, user: str) -> str | None:
        """Why this user may not submit to the queue; "" where he may, None where the ResourceManager does not say
        (before Hadoop 3.3, or we do not administer the queue: only who does is told)."""
        query = {"user": user, "queue-acl-type": "SUBMIT_APPLICATIONS"}
        answer = self.http.ask("GET", f"{_BASE}/queues/{quote(queue)}/access", query=query)
        if answer.status in {400, 403, 404}:
            return None
        doing = f"asking whether {user} may submit to queue {queue}"
        value = answer.get(doing)
        if not isinstance(value, dict) or "allowed" not in value:
            return None
        return "" if str(value["allowed"]).lower() == "true" else str(value.get("diagnostics") or "the queue's ACL")

    def check_power(self, owner: str) -> None:
        """Raises Powerless where we may not act for this user; asked of nothing that he could make slow."""
        if ACTING_FOR in identity(self.http.access, owner):
            self.http.ask("GET", f"{_BASE}/info", owner=owner).check(f"acting for {owner}")

    def exclusive_labels(self) -> frozenset[str]:
        """Labels of the partitions that lend nothing to others, idle or not."""
        path, doing = "/get-node-labels", "reading the cluster's node labels"
        known = self._read(path, doing, "nodeLabelInfo", lambda got: [] if got in (None, {}) else many(got))
        return frozenset(str(each["name"]) for each in known if str(each.get("exclusivity", "true")).lower() == "true")

    def activities(self, app_id: str, seconds: float, owner: str = "") -> tuple[Withheld, ...]:
        """Why the scheduler gave this application no more, as far as it noted that since the last call; it goes on
        noting for so many seconds. Nothing where it cannot (before Hadoop 3.3)."""
        return self._activities(app_id, seconds, 20, owner, withheld, ())

    def kept_for(self, app_id: str, seconds: float) -> frozenset[str]:
        """Hosts that the scheduler keeps for containers that this application waits for: noted as `activities` are."""
        return self._activities(app_id, seconds, 500, "", kept_nodes, frozenset[str]())

    def _activities(
        self, app_id: str, seconds: float, most: int, owner: str, make: Callable[[Any], T], nothing: T
    ) -> T:
        query = {"maxTime": f"{seconds:g}", "groupBy": "diagnostic", "limit": str(most)}
        path = f"{_BASE}/scheduler/app-activities/{quote(app_id)}"
        answer = self.http.ask("GET", path, query=query, owner=owner)
        if answer.status in {400, 403, 404}:
            return nothing
        value = answer.get(f"asking why {app_id} waits", "appActivities")
        with understood(f"asking why {app_id} waits"):
            return make(value)

    # --- one application ---

    def kill(self, app_id: str, why: str = "", owner: str = "") -> bool:
        """True when it is over, False when it is being killed. Asking twice is asking once."""
        body = {"state": "KILLED", **({"diagnostics": why} if why else {})}
        answer = self._put(f"/apps/{quote(app_id)}/state", body, f"killing {app_id}", owner)
        return answer.status == 200

    def new_application(self, owner: str) -> str:
        doing = "asking for an application id"
        return str(self.http.ask("POST", f"{_BASE}/apps/new-application", owner=owner).get(doing, "application-id"))

    def submit(self, body: Mapping[str, Any], owner: str) -> None:
        """Accepted is not started: read the application. Submitting the same id twice is submitting it once."""
        answer = self.http.ask("POST", f"{_BASE}/apps", owner=owner, json=dict(body))
        answer.check(f"submitting {body.get('application-id', 'an application')}")

    def signal(self, container_id: str, command: str = GRACEFUL, owner: str = "") -> None:
        """GRACEFUL: SIGTERM and no kill behind it. FORCEFUL: SIGKILL. Raises FixConfiguration where it is missing."""
        answer = self.http.ask("POST", f"{_BASE}/containers/{quote(container_id)}/signal/{command}", owner=owner)
        doing = f"signalling {container_id}"
        if answer.status == 404 and not self.quirks().container_signal:
            raise FixConfiguration(f"{doing}: this Hadoop cannot signal containers", "Hadoop 3.3.0 or newer can")
        answer.check(doing)

    # --- the cluster ---

    def scheduler_conf(self, owner: str = "") -> dict[str, str] | None:
        """The scheduler's whole configuration; None where it is kept in a file and cannot be changed by REST."""
        answer = self.http.ask("GET", f"{_BASE}/scheduler-conf", owner=owner)
        if answer.refusal is not None and "mutable" in answer.refusal.message.lower():
            return None
        value = answer.get("reading the scheduler's configuration")
        if isinstance(value, dict) and set(value) <= {"property"}:
            return {str(each["name"]): str(each.get("value", "")) for each in many(value.get("property"))}
        return None

    def edit_scheduler(self, edits: QueueEdits, owner: str = "") -> None:
        """Carry out the edits, then read them back: some bodies are answered 200 and do nothing."""
        doing = "changing the scheduler's configuration"
        self.http.ask("PUT", f"{_BASE}/scheduler-conf", owner=owner, xml=edits.xml()).check(doing)
        found = self.scheduler_conf(owner) or {}
        prefix = "yarn.scheduler.capacity."
        for path, parameters in {**edits.add, **edits.update}.items():
            for key, value in parameters.items():
                now = found.get(f"{prefix}{path}.{key}")
                if now != value:
                    raise TryLater(f"{doing}: {path}.{key} is {now}, not {value}")

    def delegation_token(self, renewer: str, owner: str = "") -> Token:
        doing = "getting a delegation token"
        answer = self.http.ask("POST", f"{_BASE}/delegation-token", owner=owner, json={"renewer": renewer})
        return token(answer.get(doing) or {})

    def renew_token(self, found: Token) -> float:
        """Its new end, seconds since the epoch. Only the renewer may."""
        doing = "renewing a delegation token"
        answer = self.http.ask(
            "POST",
            f"{_BASE}/delegation-token/expiration",
            headers={"Hadoop-YARN-RM-Delegation-Token": found.token},
        )
        return float(answer.get(doing, "expiration-time") or 0) / 1000.0

    def close(self) -> None:
        self.http.close()

    def _read(
        self, path: str, doing: str, key: str, make: Callable[[Any], T], query: Mapping[str, str] | None = None
    ) -> T:
        """What `make` makes of what stands below `key`. An answer without that key says nothing: TryLater."""
        value = self.http.ask("GET", _BASE + path, query=query).get(doing)
        if not isinstance(value, dict) or key not in value:
            raise TryLater(f"{doing}: the answer is not what a ResourceManager says; is the address right?")
        with understood(doing):
            return make(value[key])

    def _put(self, path: str, body: Mapping[str, Any], doing: str, owner: str) -> Answer:
        return self.http.ask("PUT", _BASE + path, owner=owner, json=dict(body)).check(doing)


def _whole(value: Any) -> Mapping[str, Any]:
    """An object that is never left empty. Raises TypeError."""
    if not isinstance(value, dict) or not value:
        raise TypeError("an object is missing")
    return value


def _each(value: Any, key: str, make: Callable[[Any], T]) -> list[T]:
    """Hadoop writes none as null or an empty object. Raises KeyError, TypeError and what `make` raises."""
    return [] if value in (None, {}) else [make(each) for each in many(value[key])]


def _entries(parent: ET.Element, parameters: Mapping[str, str | None]) -> None:
    for key, value in parameters.items():
        entry = ET.SubElement(parent, "entry")
        ET.SubElement(entry, "key").text = key
        if value is not None:
            ET.SubElement(entry, "value").text = value
