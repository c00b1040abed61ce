"""One WebHDFS operation at a time, at whichever NameNode is active, as one user.

NameNodes are asked in turn, from the one that answered last; a standby passes the question on, and so does one that
cannot be reached. Identity, certificates, Kerberos and rate are those of `http.py`. A redirect to a DataNode carries
a token of its own, so it is followed without ours, once, to the name that `names` gives for that node, and never from
https to http.
"""

from __future__ import annotations

import json
import posixpath
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import requests

from horae.port import FixConfiguration, PortError, TryLater
from yarn_bridge.clients import bodies
from yarn_bridge.clients.bodies import name_of, server_of
from yarn_bridge.clients.errors import Refusal, refusal
from yarn_bridge.clients.http import TOKEN_HEADER, Access, Pace, identity, nobody, prepare, why
from yarn_bridge.clients.spnego import Spnego, no_token

_PREFIX = "/webhdfs/v1"
#: answers of a NameNode that is not the active one, or not yet
_NEXT = frozenset({"StandbyException", "RetriableException"})
#: what the NameNode sends on; of anything else it answers itself
_AT_DATANODES = frozenset({"OPEN", "CREATE", "APPEND", "GETFILECHECKSUM"})
_BINARY = {"Content-Type": "application/octet-stream"}  #: HttpFS takes nothing else


class Refused(Exception):
    """An answer with a status of 400 or more."""

    def __init__(self, found: Refusal) -> None:
        self.refusal = found
        super().__init__(found.message)


@dataclass(frozen=True, slots=True)
class _Got:
    answer: requests.Response
    body: bytes  #: empty where it is streamed


class NameNodes:
    """Raises Refused, requests' exceptions and PortError: `told` makes port errors of them. Threads may share it."""

    def __init__(self, access: Access, owner: str, names: Mapping[str, str], pace: Pace) -> None:
        self._session = prepare(bodies.Session(), access)
        self._session.headers.pop(TOKEN_HEADER, None)  # the NameNode takes its tokens in the query only
        self._access, self._owner, self._names, self._pace = access, owner, names, pace
        self._urls = [url.rstrip("/") for url in access.urls]
        self._servers = {server_of(url) for url in self._urls}
        self._first = 0
        self._lock = threading.Lock()

    def ask(self, method: str, path: str, operation: str, **options: str) -> Any:
        """The answer in JSON; None where it is empty."""
        body = self._active(method, path, operation, options, follow=True).body
        return json.loads(body) if body.strip() else None

    def fact(self, path: str, operation: str, key: str, **options: str) -> Any:
        """What a reading operation answers under `key`."""
        said = self.ask("GET", path, operation, **options)
        if not isinstance(said, dict) or key not in said:
            raise Refused(Refusal(503, "", f"the answer to {operation} lacks {key}"))
        return said[key]

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The bytes of a file, in pieces as they come; no more than `length`, whoever sends them."""
        options = {"offset": str(offset)} | ({} if length is None else {"length": str(length)})
        with self._active("GET", path, "OPEN", options, follow=True, stream=True).answer as answer:
            left = length
            for piece in bodies.pieces(answer, None if length is None else bodies.MOST_S):
                yield piece if left is None else piece[:left]
                if left is not None and (left := left - len(piece)) <= 0:
                    return

    def write(self, path: str, data: bytes | Iterable[bytes]) -> None:
        """Create a file or write it anew. The NameNode takes no data: it says which DataNode does."""
        sent_to = self._active("PUT", path, "CREATE", {"overwrite": "true"}, follow=False)
        self._one("PUT", self._location(sent_to, "CREATE"), data=data)

    def close(self) -> None:
        self._session.close()

    def _active(
        self, method: str, path: str, operation: str, options: Mapping[str, str], *, follow: bool, stream: bool = False
    ) -> _Got:
        resource = _PREFIX + quote(posixpath.normpath(path), safe="/=")
        first = self._first
        trouble: Exception = Refused(Refusal(503, "", "no NameNode is configured"))
        for turn in range(len(self._urls)):
            at = (first + turn) % len(self._urls)
            try:
                got = self._one(method, self._urls[at] + resource, {"op": operation, **options}, stream=stream)
                if follow and got.answer.status_code == 307 and operation in _AT_DATANODES:
                    got = self._one(method, self._location(got, operation), stream=stream)
                if follow and 300 <= got.answer.status_code < 400:
                    raise Refused(refusal(got.answer.status_code, got.body))
            except Refused as error:
                if error.refusal.exception not in _NEXT:
                    raise
                trouble = error
            except (requests.exceptions.Timeout, requests.exceptions.ConnectionError) as error:
                trouble = error
            else:
                with self._lock:
                    self._first = at
                return got
        raise trouble

    def _one(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        data: bytes | Iterable[bytes] | None = None,
        stream: bool = False,
    ) -> _Got:
        """One server's answer: of a NameNode as who we are, of a DataNode as nobody."""
        host, namenode = name_of(url), server_of(url) in self._servers
        said: dict[str, Any] = {"headers": _BINARY, "data": data, "stream": True, "allow_redirects": False}
        said["timeout"] = (self._access.connect_s, self._access.read_s)
        if namenode:
            said["params"] = {**(query or {}), **identity(self._access, self._owner, doas="doas")}
            if self._access.token:
                said["params"]["delegation"] = self._access.token
        else:
            url, said["auth"] = self._mapped(url), nobody
        self._pace.wait()
        try:
            answer = self._session.request(method, url, **said)
            if namenode and answer.status_code == 401 and isinstance(self._session.auth, Spnego):
                answer.close()
                self._session.auth.renew()
                answer = self._session.request(method, url, **said)
            streamed = stream and answer.status_code < 300
            got = _Got(answer, b"" if streamed else bodies.whole(answer))
        except requests.exceptions.RequestException as error:
            untrusted = no_token(error, host)
            if untrusted is not None:
                raise untrusted from None
            if namenode:
                raise
            raise _datanode(host, error) from None
        if answer.status_code >= 400:
            raise Refused(refusal(answer.status_code, got.body))
        return got

    def _location(self, got: _Got, operation: str) -> str:
        """Where a NameNode sends us for data."""
        found = str(got.answer.headers.get("Location", ""))
        scheme, host, _ = server_of(found)
        if scheme not in {"http", "https"} or not host or "@" in urlsplit(found).netloc:
            raise Refused(Refusal(503, "", f"the answer to {operation} names no DataNode"))
        if scheme == "http" and server_of(got.answer.url)[0] == "https":
            raise FixConfiguration(
                f"HDFS sends us from https to http, to {host}: its token and the data could be read on the way",
                "set dfs.http.policy=HTTPS_ONLY on NameNodes and DataNodes",
            )
        return found

    def _mapped(self, url: str) -> str:
        """A DataNode's address as this host knows it: by `name:port`, or by name with the port kept."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        known = self._names.get(parts.netloc) or self._names.get(host)
        if known is None:
            return url
        return urlunsplit(parts._replace(netloc=known if ":" in known else f"{known}:{parts.port}"))


@contextmanager
def told(doing: str) -> Iterator[None]:
    """Every fault below becomes the port's error for it."""
    try:
        yield
    except Refused as error:
        if error.refusal.status == 404 and not error.refusal.exception:
            raise _odd(doing) from None
        raise error.refusal.error(doing) from None
    except requests.exceptions.SSLError:
        raise FixConfiguration(f"{doing}: the certificate is not trusted", "give the authority's file (`ca`)") from None
    except requests.exceptions.InvalidJSONError:
        raise _odd(doing) from None
    except requests.exceptions.RequestException as error:
        raise TryLater(f"{doing}: no NameNode answers: {why(error)}", retry_after_s=5.0) from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise _odd(doing) from None


def _odd(doing: str) -> TryLater:
    """An answer cut short, or somebody else's: it says nothing, least of all that there is nothing."""
    return TryLater(f"{doing}: the answer is not what a NameNode says; is the address right?", retry_after_s=5.0)


def _datanode(address: str, error: requests.exceptions.RequestException) -> PortError:
    fault = why(error)
    if "cannot be resolved" in fault:
        return FixConfiguration(
            f"HDFS sends us to its DataNode {address}, and {fault}",
            f"make {address.partition(':')[0]} resolve on this host, or map it in the option hdfs_names",
        )
    return TryLater(f"HDFS's DataNode {address}: {fault}", retry_after_s=5.0)
