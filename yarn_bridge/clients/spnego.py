"""Kerberos for the web servers of Hadoop: a fresh SPNEGO token for every request.

A token is good once, also where a request is sent again. A credentials object does not refresh itself, and when its
ticket is over the library below sends nothing, so that the server's 401 looks as if nobody had ever asked: the
remaining life is looked at before each request. The packages (extra `kerberos`) are loaded at the first use only.
"""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from horae.port import FixConfiguration, TryLater

#: a ticket with less left than this is renewed before it is used
_TICKET_S = 300.0
#: of caches: one lives on in the process when whoever made it is gone, and takes no other principal
_numbers = itertools.count(1)


class Spnego(AuthBase):
    """Tickets come from a keytab into a cache in memory, or from the ticket cache of this process.

    Threads may share it: the library keeps one exchange a host, and two begun at once spoil each other's token.
    """

    def __init__(self, principal: str = "", keytab: str = "") -> None:
        self._principal, self._keytab = principal, keytab
        self._cache = f"MEMORY:horae-{next(_numbers)}"
        self._lock = threading.RLock()
        self._made: Any = None

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        with self._lock:
            signed: requests.PreparedRequest = self._signer()(request)
            return signed

    def word(self, url: str) -> str:
        """What a request for this address says in its header `Authorization`."""
        host = urlsplit(url).netloc
        try:
            said = self(requests.Request("GET", url).prepare()).headers.get("Authorization")
        except requests.exceptions.RequestException as error:
            raise no_token(error, host) or TryLater(f"{host}: {type(error).__name__}") from None
        if said is None:  # newer releases of the library send such a request without a token first
            raise _none_for(host)
        return str(said)

    def renew(self) -> None:
        """Forget the ticket: the next request gets a new one."""
        with self._lock:
            self._made = None

    def left_s(self) -> float:
        """Seconds that the ticket is good for. Raises FixConfiguration when there is none."""
        with self._lock:
            return float(self._acquire().lifetime or 0)

    def _signer(self) -> Any:
        gssapi, requests_gssapi = _kerberos()
        with self._lock:
            if self._made is not None:
                try:
                    if self._made.creds.lifetime > _TICKET_S:
                        return self._made
                except gssapi.exceptions.GSSError:
                    self._made = None
            self._made = requests_gssapi.HTTPSPNEGOAuth(
                creds=self._acquire(),
                opportunistic_auth=True,
                mutual_authentication=requests_gssapi.DISABLED,
            )
            return self._made

    def _acquire(self) -> Any:
        gssapi, _ = _kerberos()
        name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal) if self._principal else None
        store = {"client_keytab": self._keytab, "ccache": self._cache} if self._keytab else None
        try:
            credentials = gssapi.Credentials(usage="initiate", name=name, store=store)
            if not credentials.lifetime:
                raise FixConfiguration("the Kerberos ticket has expired", "kinit, or give a keytab")
        except gssapi.exceptions.GSSError as error:
            where = f"with keytab {self._keytab}" if self._keytab else "in the ticket cache"
            raise FixConfiguration(
                f"no Kerberos ticket {where}: {error}", "check keytab, principal, KDC, clock"
            ) from None
        return credentials


def no_token(error: requests.exceptions.RequestException, host: str) -> FixConfiguration | None:
    """The error when Kerberos gave no token for a server; None for any other fault."""
    if type(error).__name__ != "SPNEGOExchangeError":
        return None
    return _none_for(host)


def _none_for(host: str) -> FixConfiguration:
    return FixConfiguration(
        f"Kerberos gives no token for {host}",
        f"is there a principal HTTP/{host.partition(':')[0]}, and is the address in the configuration that very name?",
    )


def _kerberos() -> tuple[Any, Any]:
    try:
        import gssapi
        import requests_gssapi
    except ImportError:
        raise FixConfiguration(
            "the Kerberos client is not installed", "apt install libkrb5-dev gcc; pip install 'horae[kerberos]'"
        ) from None
    # It logs each fault with a traceback before it raises it; what people need is in the error.
    logging.getLogger("requests_gssapi").setLevel(logging.CRITICAL)
    return gssapi, requests_gssapi
