"""HTTP to Hadoop's daemons: one place for identity, high availability, time-outs, rate and what an error means.

Identity. Under simple authentication a request carries `user.name`: the owner's, since no administrator can act on
another user's service; where the proxy-user filter is on (`doas`), the bridge's own with `doAs=OWNER`. Under
Kerberos it carries a fresh SPNEGO token (a token is good once) and `doAs`. A delegation token goes in a header.
Cookies are refused: under simple authentication a daemon believes its cookie before `user.name`, so that a request
for bob would run as alice; and cookies do not know ports, while daemons on one host sign them differently.

High availability. Servers are tried in their order from the one that answered last; a standby's redirect is followed
once and remembered, to a configured server only: no other is told who asks. Only a request that certainly did not
reach a daemon, or a reading one, is sent again.
"""

from __future__ import annotations

import http.cookiejar
import json as jsonlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import requests
import stamina

from horae.port import FixConfiguration, PortError, TryLater
from yarn_bridge.clients import bodies
from yarn_bridge.clients.bodies import name_of, server_of
from yarn_bridge.clients.errors import Refusal, refusal
from yarn_bridge.clients.spnego import Spnego, no_token

SIMPLE, KERBEROS, TOKEN = "simple", "kerberos", "token"
ACTING_FOR = "doAs"  #: who is acted for, in a query
#: so many seconds' requests may come at once: a few jobs' folders, a round's starts
BURST_S = 4.0
TOKEN_HEADER = "Hadoop-YARN-Auth-Delegation-Token"
_STANDS_BY = " is in standby"
_NONE_ELECTED = ". None is elected: does ZooKeeper run?"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one kind of daemon, and as whom."""

    urls: tuple[str, ...]  #: "http://rm1:8088", one a server; a gateway's with its path
    user: str = ""  #: the bridge's own name
    auth: str = SIMPLE
    doas: bool = False  #: the proxy-user filter is on: act for owners by doAs
    principal: str = ""  #: with kerberos; empty: the keytab's first, or the ticket cache's
    keytab: str = ""  #: with kerberos; empty: the ticket cache of this process
    token: str = field(default="", repr=False)  #: with token
    verify: bool | str = True  #: False, or the file of the certificate authority
    connect_s: float = 5.0
    read_s: float = 35.0  #: Hadoop's own calls between daemons may take 30 s
    requests_per_s: float = 50.0  #: most to one daemon, after a burst

    def elsewhere(self, url: str, connect_s: float, read_s: float) -> Access:
        """As the same, at a daemon that the site's configuration does not name: a token is for who gave it alone."""
        auth = SIMPLE if self.auth == TOKEN else self.auth
        return replace(self, urls=(url,), auth=auth, token="", connect_s=connect_s, read_s=read_s)


class Pace:
    """A bucket of tokens: at most `per_second` on average, BURST_S seconds' worth at once. Threads may share it."""

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = per_second, clock, sleep
        self._most = max(per_second * BURST_S, 1.0)
        self._left, self._at = self._most, clock()
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now = self._clock()
            self._left = min(self._most, self._left + (now - self._at) * self._rate) - 1.0
            self._at = now
            pause = -self._left / self._rate if self._left < 0 else 0.0
        if pause:
            self._sleep(pause)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, read whole. `data` is the parsed JSON, the text of anything else, None for an empty body."""

    status: int
    data: Any
    headers: Mapping[str, str]
    refusal: Refusal | None = None  #: of a status of 300 or more

    def check(self, doing: str) -> Answer:
        """Itself, or the port's error that its refusal means."""
        if self.refusal is not None:
            raise self.refusal.error(doing)
        return self

    def get(self, doing: str, *keys: str) -> Any:
        """What stands below `keys`; None where Hadoop left an empty object. TryLater for an answer not in JSON."""
        value = self.check(doing).data
        if isinstance(value, str):
            raise TryLater(
                f"{doing}: the answer is not JSON: {refusal(self.status, value.encode(errors='replace')).message}"
            )
        for key in keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked, whichever server it goes to."""

    method: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    anonymous: bool
    stream: bool = False  #: the body is read by the caller


class Unanswered(TryLater):
    """A daemon took the request and said nothing in time: a change may have been made, and to ask again is as slow."""


class _Dropped(Exception):
    """The daemon closed a connection that was kept open, before it answered."""


class _Away(Exception):
    """This server cannot be reached; the request did not arrive."""


class HttpClient:
    """Requests to one kind of daemon. Threads may share it."""

    def __init__(self, access: Access, name: str, pace: Pace | None = None) -> None:
        self.access, self.name = access, name
        self._pace = pace or Pace(access.requests_per_s)
        self._session = prepare(bodies.Session(), access)
        self._urls = [url.rstrip("/") for url in access.urls]
        self._preferred = 0
        self.calls = 0  #: requests sent so far

    @property
    def url(self) -> str:
        """The server that answered last."""
        return self._urls[self._preferred]

    def ask(
        self,
        method: str,
        path: str,
        *,
        owner: str = "",
        query: Mapping[str, str] | None = None,
        json: Any = None,
        xml: str = "",
        headers: Mapping[str, str] | None = None,
        anonymous: bool = False,
    ) -> Answer:
        """Any status is an answer. TryLater: no server answered, or one took too long (a change may have been made).

        `owner`: on whose behalf; empty: the bridge's own. `anonymous`: without any identity, for probes.
        """
        said = {"Accept": "application/json", **(headers or {})}
        body: bytes | None = None
        if xml:
            said["Content-Type"], body = "application/xml", xml.encode()
        elif json is not None:
            said["Content-Type"], body = "application/json", jsonlib.dumps(json).encode()
        parameters = dict(query or {}) | ({} if anonymous else identity(self.access, owner))
        request = _Request(method, parameters, said, body, anonymous)
        faults = []
        for turn in range(len(self._urls)):
            at = (self._preferred + turn) % len(self._urls)
            try:
                answer = self._one(self._urls[at], _below(self._urls[at], path), request)
            except _Away as fault:
                faults.append(str(fault))
                continue
            if _standby(answer):
                faults.append(f"{name_of(self._urls[at])}{_STANDS_BY}")
                continue
            if turn:
                self._preferred = at
            return answer
        whole = len(faults) > 1 and all(fault.endswith(_STANDS_BY) for fault in faults)
        raise TryLater(f"no {self.name} answers: {'; '.join(faults)}{_NONE_ELECTED if whole else ''}", 5.0)

    def pieces(self, path: str, *, owner: str = "", query: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """The body of a GET from the first server, in pieces as they come, however large. Redirects are not followed.

        Raises the port's error that a refusal means, and TryLater where the server is away or breaks off.
        """
        doing = f"reading {path} of {self.name}"
        request = _Request(
            "GET", dict(query or {}) | identity(self.access, owner), {"Accept": "*/*"}, None, False, stream=True
        )
        try:
            got, _ = self._got(self.url + path, request)
            if got.status_code == 401 and isinstance(self._session.auth, Spnego):
                got.close()
                self._session.auth.renew()
                got, _ = self._got(self.url + path, request)
        except _Away as fault:
            raise TryLater(f"{self.name} does not answer: {fault}", retry_after_s=5.0) from None
        with got:
            try:
                if got.status_code != 200:
                    answer_of(got, bodies.whole(got)).check(doing)
                    raise TryLater(f"{doing}: it answers {got.status_code} and no text")
                yield from bodies.pieces(got)
            except requests.exceptions.RequestException as error:
                raise TryLater(f"{doing}: it breaks off: {why(error)}", retry_after_s=5.0) from None

    def close(self) -> None:
        self._session.close()

    def _one(self, base: str, path: str, request: _Request) -> Answer:
        """One server; a redirect to its active twin followed; one more try with a new ticket where it was the fault."""
        answer = self._send(base + path, request)
        if answer.status == 307 and answer.headers.get("Location"):
            at = self._configured(answer.headers["Location"])
            if at is None:
                raise _Away(
                    f"{name_of(base)} is in standby and names {name_of(answer.headers['Location'])}, which the "
                    "configuration does not: it was not asked"
                )
            answer = self._send(self._urls[at] + path, request)
            if answer.status < 400:
                self._preferred = at
        if not request.anonymous and _stale_ticket(answer) and isinstance(self._session.auth, Spnego):
            self._session.auth.renew()
            answer = self._send(base + path, request)
        return answer

    def _configured(self, location: str) -> int | None:
        """Which of our servers a redirect means."""
        known = [server_of(url) for url in self._urls]
        target = server_of(location)
        return known.index(target) if target in known else None

    def _send(self, url: str, request: _Request) -> Answer:
        return answer_of(*self._got(url, request))

    def _got(self, url: str, request: _Request) -> tuple[requests.Response, bytes]:
        """With its body, unless that is streamed."""
        try:
            for attempt in stamina.retry_context(on=_Dropped, attempts=3, wait_initial=0.05, wait_max=0.5):
                with attempt:
                    return self._once(url, request)
        except _Dropped as error:
            raise TryLater(f"{self.name} at {name_of(url)} closes connections: {error}") from None
        raise AssertionError("stamina ends in an answer or an error")

    def _once(self, url: str, request: _Request) -> tuple[requests.Response, bytes]:
        self._pace.wait()
        self.calls += 1
        try:
            got = self._session.request(
                request.method,
                url,
                params=request.parameters,
                data=request.body,
                headers=request.headers,
                timeout=(self.access.connect_s, self.access.read_s),
                allow_redirects=False,
                auth=nobody if request.anonymous else None,
                stream=True,
            )
            return got, b"" if request.stream else bodies.whole(got)
        except requests.exceptions.SSLError as error:
            raise _tls(url, error) from None
        except (requests.exceptions.ConnectTimeout, requests.exceptions.ConnectionError) as error:
            if _refused(error):
                raise _Away(f"{name_of(url)}: {why(error)}") from None
            if request.method == "GET":
                raise _Dropped(why(error)) from None
            raise TryLater(
                f"{self.name} at {name_of(url)} broke off ({why(error)}); it may be done all the same"
            ) from None
        except requests.exceptions.ReadTimeout:
            more = "" if request.method == "GET" else "; it may be done all the same"
            raise Unanswered(
                f"{self.name} at {name_of(url)} did not answer within {self.access.read_s:g} s{more}", 5.0
            ) from None
        except requests.exceptions.RequestException as error:
            fault = no_token(error, name_of(url)) or TryLater(f"{self.name} at {name_of(url)}: {why(error)}")
            raise fault from None


@contextmanager
def understood(doing: str) -> Iterator[None]:
    """What is read from an answer here is there and of its kind, or the answer says nothing: TryLater."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise TryLater(f"{doing}: the answer is not what this daemon says ({error!r})", retry_after_s=5.0) from None


def prepare(session: requests.Session, access: Access) -> requests.Session:
    """The right identity and no memory of cookies; proxies of the environment are not for daemons."""
    session.trust_env = False
    session.verify = access.verify
    session.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    if access.auth == KERBEROS:
        session.auth = Spnego(access.principal, access.keytab)
    elif access.auth == TOKEN:
        session.headers[TOKEN_HEADER] = access.token
    return session


def identity(access: Access, owner: str, doas: str = ACTING_FOR) -> dict[str, str]:
    """The query parameters that say who asks, on whose behalf."""
    if access.auth == SIMPLE and not access.doas:
        name = owner or access.user
        return {"user.name": name} if name else {}
    said = {"user.name": access.user} if access.auth == SIMPLE and access.user else {}
    if owner and owner != access.user and access.auth != TOKEN:
        said[doas] = owner
    return said


def _below(base: str, path: str) -> str:
    """The path below this address. Knox's service RESOURCEMANAGER stands for what the daemon has below /ws."""
    return path.removeprefix("/ws") if base.endswith("/resourcemanager") else path


def answer_of(got: requests.Response, body: bytes) -> Answer:
    said = refusal(got.status_code, body) if got.status_code >= 300 else None
    data: Any = None
    if body.strip():
        try:
            data = jsonlib.loads(body)
        except (ValueError, RecursionError):
            data = body.decode(errors="replace")
    return Answer(got.status_code, data, got.headers, said)


def nobody(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """An identity for requests that shall have none: a redirect that carries its own token, a probe."""
    request.headers.pop(TOKEN_HEADER, None)
    return request


def _standby(answer: Answer) -> bool:
    """A standby that knows no active twin answers in words, and with 200 or 503."""
    if answer.status == 307:
        return True
    if answer.refusal is not None:
        return answer.refusal.exception == "StandbyException"
    return isinstance(answer.data, str) and bool(re.search(r"standby RM|any (?:active|valid) RM", answer.data))


def _stale_ticket(answer: Answer) -> bool:
    said = answer.refusal
    if said is None:
        return False
    return said.status == 401 or (said.status == 403 and "GSSException" in f"{said.exception} {said.message}")


def _refused(error: requests.exceptions.RequestException) -> bool:
    """The request did not arrive: no connection was made."""
    return isinstance(error, requests.exceptions.ConnectTimeout) or bool(
        re.search(r"NewConnectionError|NameResolution|Connection refused|No route to host|unreachable", repr(error))
    )


def why(error: requests.exceptions.RequestException) -> str:
    """A connection's fault in words, without the address (it may hold a token)."""
    text = repr(error)
    for pattern, words in (
        (r"ConnectTimeout", "does not accept a connection in time"),
        (r"NameResolution|Name or service not known|getaddrinfo", "its name cannot be resolved"),
        (r"Connection refused", "connection refused"),
        (r"No route to host|unreachable", "no route to it"),
        (r"RemoteDisconnected|Connection aborted|reset by peer|IncompleteRead|ProtocolError", "connection closed"),
        (r"InvalidURL|MissingSchema|InvalidSchema", "its address is not a URL"),
    ):
        if re.search(pattern, text):
            return words
    return type(error).__name__


def _tls(url: str, error: Exception) -> PortError:
    return FixConfiguration(
        f"{name_of(url)}: its certificate is not trusted ({type(error).__name__})",
        "give the file of the certificate authority (`ca`), and the host's name as in the certificate",
    )
