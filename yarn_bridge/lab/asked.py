"""A private Hadoop's daemons, asked as whoever may do everything: for bringing a lab up, and for what a test changes.

The standard library's own requests, and nothing of the bridge's but its tickets: a lab must not depend on what is tried
out on it.
"""

from __future__ import annotations

import getpass
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from horae.port import PortError
from yarn_bridge.lab import kerberos, settings


def me() -> str:
    """Who runs the lab: HDFS's superuser."""
    return getpass.getuser()


@dataclass(frozen=True)
class Daemons:
    """`master`, `standby`: addresses; no standby is "". `kdc`: of a lab under Kerberos."""

    master: str
    standby: str
    kdc: kerberos.Kdc | None

    def nodes(self) -> list[dict[str, Any]]:
        """As the ResourceManager that answers says. Raises OSError."""
        with self._asked_manager() as answer:
            text = answer.read()
        try:
            said = json.loads(text)
        except ValueError:
            raise ConnectionError("the ResourceManager's answer is not JSON") from None
        return (said["nodes"] or {}).get("node") or []

    def hdfs(self, method: str, path: str, operation: str, at: str = "", **options: str) -> str:
        """As the user who runs the NameNode: its superuser. What it answers, or where it sends data. `at`: which one's
        address; "" for the first."""
        query = urlencode({"op": operation, **self._name(me()), **options})
        url = f"http://{at or self.master}:{settings.NN_PORT}/webhdfs/v1{quote(path)}?{query}"
        with _opened(method, url, timeout_s=10, word=self._word(url)) as answer:
            return str(answer.headers.get("Location") or answer.read().decode())

    def put(self, path: str, data: bytes) -> bool:
        datanode = self.hdfs("PUT", path, "CREATE", overwrite="true", permission="644")
        with _opened("PUT", datanode, data, timeout_s=60) as answer:
            return bool(answer.status == 201)

    def _asked_manager(self) -> Any:
        query = urlencode(self._name("horae"))
        fault: OSError = ConnectionError("no ResourceManager is active")
        for host in (self.master, self.standby):
            if not host:
                continue
            url = f"http://{host}:{settings.RM_PORT}/ws/v1/cluster/nodes?{query}"
            try:
                answer = _opened("GET", url, timeout_s=5, word=self._word(url))
            except OSError as error:
                fault = error
                continue
            if answer.status == 200:
                return answer
            answer.close()  # a standby's redirect
        raise fault

    def _name(self, name: str) -> dict[str, str]:
        """Who asks, where a name is believed."""
        return {} if self.kdc is not None else {"user.name": name}

    def _word(self, url: str) -> str:
        """What a request for this address says of who asks: a ticket of HDFS's administrator, under Kerberos."""
        kdc = self.kdc
        if kdc is None:
            return ""
        from yarn_bridge.clients.spnego import Spnego

        os.environ |= {"KRB5_CONFIG": str(kdc.conf)}
        try:
            return Spnego(kerberos.ADMINISTRATOR, str(kdc.folder / "hdfs.keytab")).word(url)
        except PortError as error:
            raise ConnectionError(error.text) from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A NameNode's redirect is an answer: data is sent to where it says, once it is known."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opened(method: str, url: str, data: bytes | None = None, *, timeout_s: float, word: str = "") -> Any:
    """The answer of a daemon of ours: no proxy between. Raises OSError for none, and for a status of 400 or more.

    `word`: its header `Authorization`.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
    request = urllib.request.Request(url, data=data, method=method)
    if word:
        request.add_header("Authorization", word)
    if data is not None:
        request.add_header("Content-Type", "application/octet-stream")
    try:
        return opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as answer:
        if answer.code >= 400:
            raise
        return answer  # a redirect that is not followed
