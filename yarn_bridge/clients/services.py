"""YARN Services by REST: one service is one elastic job. Every trap that the API is known to have ends here.

* A refused flex (the service is not running yet, or its application master has just died) is stored all the same and
  applied later. So a flex is sent only to a service that says it runs, and after a refusal the caller is told that
  the counts may be either: `FlexRefused`. Read again, and flex again when the service runs.
* A flex that names a component's present count, while its workers are still starting, makes the application master
  lose them: they hold GPUs and are never listed. So only counts that differ are sent.
* A service can be refused at creation and yet be there, stopped: it is taken away again.
* Giving back an instance that is not there lowers the count all the same: only living names are sent.
* For two seconds after a stop its application master answers for the service as if it ran, and a start would find
  nothing to do: so a stop is `TryLater` until the application has ended. A start too soon is refused: `TryLater` too.
* Under Kerberos a service without principal or keytab is accepted, runs, and can never be flexed: it gets the
  owner's (OWNER/horae@REALM and /user/OWNER/horae.keytab in HDFS), or is refused here.
* A service belongs to who created it: every call names the owner.
* Each DELETE, of what is not there too, costs the ResourceManager a connection to ZooKeeper that it keeps for as long
  as it lives (3.4.2), and ZooKeeper gives a host 60: after as many no service of anybody's can be made or ended, and a
  ResourceManager that is elected there fails. So the definition of what has ended is taken away in HDFS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from horae.port import FixConfiguration, Never, PortError, TryLater
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.http import KERBEROS, Answer, HttpClient, understood
from yarn_bridge.clients.quirks import Quirks
from yarn_bridge.clients.records import Service, service

_BASE = "/app/v1/services"
NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
#: what every service needs; a specification's own values win
PROPERTIES = {
    # Else a worker that ended is run again inside its container for 5 minutes, its GPU held and the service unready.
    "yarn.service.container-failure.retry.max": "0",
    "yarn.service.readiness-check-interval.seconds": "1",
    # Else two deaths of its application master in the whole life of a job end the service. The ResourceManager allows
    # no more attempts than `yarn.resourcemanager.am.max-attempts`, and does not count those older than the interval.
    "yarn.service.am-restart.max-attempts": "20",
    "yarn.service.am-failure.validity-interval-ms": "600000",
}


class FlexRefused(TryLater):
    """Refused, and perhaps stored. `now`: the service as it was read after the refusal, None if that failed too."""

    def __init__(self, text: str, now: Service | None) -> None:
        self.now = now
        super().__init__(text, retry_after_s=1.0)


class Services:
    """The Services API of one ResourceManager. Threads may share it."""

    def __init__(
        self, http: HttpClient, quirks: Quirks, in_hdfs: Callable[[str, str], bool] = lambda name, owner: False
    ) -> None:
        """`in_hdfs`: takes the definition of this owner's service away in HDFS; whether there was one."""
        self.http, self.quirks, self._in_hdfs = http, quirks, in_hdfs

    def api_version(self) -> str | None:
        """None where the ResourceManager does not offer the API."""
        answer = self.http.ask("GET", "/app/v1/services/version")
        # Switched off, 3.3 and 3.4 still have the web application, without anything in it.
        if answer.status == 404 or (answer.status >= 500 and "any root resource classes" in str(answer.data)):
            return None
        return str(answer.get("asking for the Services API", "hadoop_version") or "")

    def get(self, name: str, owner: str) -> Service | None:
        """None when the owner has no service of this name."""
        answer = self.http.ask("GET", f"{_BASE}/{quote(name)}", owner=owner)
        try:
            value = answer.get(f"reading the service {name}")
        except Gone:
            return None
        if not isinstance(value, dict) or value.get("name") != name:
            raise TryLater(f"reading the service {name}: the answer is not that service; is the Services API on?")
        with understood(f"reading the service {name}"):
            return service(value)

    def create(self, spec: Mapping[str, Any], owner: str) -> str:
        """Its application id. Raises Exists when the name is taken: read it, and destroy it or keep it."""
        name = str(spec.get("name", ""))
        if not NAME.fullmatch(name):
            raise Never(f"'{name}' is not a name for a service: lower-case letters, digits and '-', a letter first")
        if self.http.access.auth == KERBEROS:
            spec = _with_principal(name, spec, owner, self.http.access.principal.partition("@")[2])
        known = self.get(name, owner)
        if known is not None:
            raise Exists(f"creating the service {name}: it is there already, {known.state}")
        answer = self.http.ask("POST", _BASE, owner=owner, json=_with_properties(spec))
        if answer.refusal is not None:
            error = answer.refusal.error(f"creating the service {name}")
            if not isinstance(error, Exists | TryLater):
                self._sweep(name, owner)
            raise error
        told = str(answer.get(f"creating the service {name}", "diagnostics") or "")
        found = re.search(r"application_\d+_\d+", told)
        return found.group() if found else ""

    def flex(self, name: str, owner: str, counts: Mapping[str, int]) -> None:
        """One call for all components that change; the others stay. Raises FlexRefused, Gone, Never."""
        wrong = [component for component, count in counts.items() if count < 0]
        if wrong:
            raise Never(f"flexing {name}: {', '.join(wrong)} would have less than no workers")
        now = self._running(name, owner, "flexing")
        unknown = sorted(set(counts) - set(now.components))
        if unknown:
            raise Never(
                f"flexing {name}: it has no component {', '.join(unknown)}, and components are fixed at creation"
            )
        changed = {key: value for key, value in counts.items() if now.components[key].count != value}
        if changed:
            components = [{"name": key, "number_of_containers": value} for key, value in changed.items()]
            self._change(name, owner, {"state": "FLEX", "components": components}, "flexing")

    def stop(self, name: str, owner: str) -> None:
        """Ends its application, and keeps its definition. TryLater until it has ended; then again is nothing."""
        answer = self._put(name, owner, {"state": "STOPPED"})
        if answer.refusal is not None and "already stopped" in answer.refusal.message:
            return
        answer.check(f"stopping {name}")
        raise TryLater(f"stopping {name}: its application is still ending", retry_after_s=1.0)

    def start(self, name: str, owner: str) -> None:
        """Starts a stopped one, under a new application id. TryLater while the last application is still ending."""
        now = self.get(name, owner)
        if now is None:
            raise Gone(f"starting {name}: {owner} has no such service")
        if not now.ended:
            return
        self._put(name, owner, {"state": "STARTED"}).check(f"starting {name}")

    def forget(self, name: str, owner: str) -> None:
        """The definition of one that has ended."""
        if not self._in_hdfs(name, owner):
            self.destroy(name, owner)

    def destroy(self, name: str, owner: str) -> None:
        """Ends it and forgets its definition, at the price above. Destroying what is not there is nothing."""
        answer = self.http.ask("DELETE", f"{_BASE}/{quote(name)}", owner=owner)
        try:
            answer.check(f"destroying {name}")
        except Gone:
            return

    def close(self) -> None:
        self.http.close()

    def _running(self, name: str, owner: str, doing: str) -> Service:
        now = self.get(name, owner)
        if now is None:
            raise Gone(f"{doing} {name}: {owner} has no such service")
        if now.ended:
            raise Gone(f"{doing} {name}: it is {now.state}")
        if not now.flexible or not now.components:
            raise TryLater(f"{doing} {name}: it is {now.state}, and its application master does not answer yet")
        return now

    def _change(self, name: str, owner: str, body: Mapping[str, Any], doing: str) -> None:
        answer = self._put(name, owner, body)
        if answer.refusal is None:
            return
        error = answer.refusal.error(f"{doing} {name}")
        if not isinstance(error, TryLater):
            raise error
        try:
            now = self.get(name, owner)
        except PortError:
            now = None
        raise FlexRefused(f"{error.text}; it may be applied later all the same", now)

    def _put(self, name: str, owner: str, body: Mapping[str, Any]) -> Answer:
        return self.http.ask("PUT", f"{_BASE}/{quote(name)}", owner=owner, json=dict(body))

    def _sweep(self, name: str, owner: str) -> None:
        """Take away what a refused creation left behind; it was not there before."""
        left = self.get(name, owner)
        if left is not None and left.ended:
            self.forget(name, owner)


def definition_path(name: str, owner: str) -> str:
    """Where YARN keeps the service's definition in HDFS: what is stored, also while nothing answers for it."""
    return f"/user/{owner}/.yarn/services/{name}/{name}.json"


def _with_properties(spec: Mapping[str, Any]) -> dict[str, Any]:
    configuration = dict(spec.get("configuration") or {})
    configuration["properties"] = {**PROPERTIES, **(configuration.get("properties") or {})}
    return {**spec, "configuration": configuration}


def _with_principal(name: str, spec: Mapping[str, Any], owner: str, realm: str) -> Mapping[str, Any]:
    """YARN takes a service without principal and keytab, runs it, and can never flex it."""
    if realm and "kerberos_principal" not in spec:
        return {**spec, "kerberos_principal": {"principal_name": f"{owner}/horae@{realm}", "keytab": keytab_of(owner)}}
    said = spec.get("kerberos_principal") or {}
    principal, keytab = str(said.get("principal_name", "")), str(said.get("keytab", ""))
    if "/" not in principal.partition("@")[0] or not re.match(r"(hdfs|file)://", keytab):
        raise no_keytab(f"creating the service {name}: it has no service principal and keytab of {owner}", owner)
    return spec


def keytab_of(owner: str) -> str:
    """Where the keytab of the owner's services is, unless a specification says another place."""
    return f"hdfs:///user/{owner}/horae.keytab"


def no_keytab(text: str, owner: str) -> FixConfiguration:
    return FixConfiguration(
        text,
        f"an administrator makes {owner}/horae@REALM and puts its keytab, mode 600, at /user/{owner}/horae.keytab "
        "in HDFS; the configuration's `principal` names the realm. Or say `runtime: slices`, which needs none",
    )
