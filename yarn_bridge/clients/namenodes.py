"""The NameNodes as the arbiter asks them: as itself or on an owner's behalf, at its pace, in the port's errors.

The requests are those of `horae/elastic/stores/namenodes.py`; identity, certificates, Kerberos and rate those of
`http.py`. A DataNode is asked by the name that `names` gives for it.
"""

from __future__ import annotations

import copy
import functools
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from horae.elastic.stores.hdfserrors import HdfsError
from horae.elastic.stores.namenodes import Away, Downgrade, Endless, NameNodes, Odd, why
from horae.port import FixConfiguration, PortError, TryLater
from yarn_bridge.clients.errors import refusal
from yarn_bridge.clients.http import KERBEROS, Access, Pace, identity
from yarn_bridge.clients.spnego import Spnego


class SiteNameNodes(NameNodes):
    """Raises what NameNodes raises, and PortError: `told` makes port errors of them. Threads may share it."""

    def __init__(self, access: Access, names: Mapping[str, str]) -> None:
        super().__init__(access.urls)
        self.connect_s, self.read_s = access.connect_s, access.read_s
        self._access, self._names, self._pace, self._owner = access, names, Pace(access.requests_per_s), ""
        self._spnego = Spnego(access.principal, access.keytab) if access.auth == KERBEROS else None

    def on_behalf_of(self, owner: str) -> SiteNameNodes:
        """The same, one pace for all."""
        found = copy.copy(self)
        found._owner = owner
        return found

    def fact(self, path: str, operation: str, key: str, **options: str) -> Any:
        """What a reading operation answers under `key`."""
        said = self.ask("GET", path, operation, **options)
        if not isinstance(said, dict) or key not in said:
            raise Odd(f"the answer to {operation} lacks {key}")
        return said[key]

    def identity(self) -> dict[str, str]:
        said = identity(self._access, self._owner, doas="doas")
        return {**said, "delegation": self._access.token} if self._access.token else said

    def headers(self, address: str, namenode: bool) -> dict[str, str]:
        self._pace.wait()
        return {"Authorization": self._spnego.word(address)} if namenode and self._spnego else {}

    def renewed(self) -> bool:
        if self._spnego:
            self._spnego.renew()
        return self._spnego is not None

    def mapped(self, address: str) -> str:
        """By `name:port`, or by name with the port kept."""
        parts = urlsplit(address)
        known = self._names.get(parts.netloc) or self._names.get(parts.hostname or "")
        if known is None:
            return address
        return urlunsplit(parts._replace(netloc=known if ":" in known else f"{known}:{parts.port}"))

    def context(self) -> ssl.SSLContext | None:
        return _context(self._access.verify)


@contextmanager
def told(doing: str) -> Iterator[None]:
    """Every fault below becomes the port's error for it."""
    try:
        yield
    except HdfsError as error:
        found = refusal(error.status, error.body)
        if found.status == 404 and not found.exception:
            raise _odd(doing) from None
        raise found.error(doing) from None
    except Away as error:
        raise _away(doing, error) from None
    except Downgrade as error:
        raise FixConfiguration(
            f"{error}: its token and the data could be read on the way",
            "set dfs.http.policy=HTTPS_ONLY on NameNodes and DataNodes",
        ) from None
    except Endless as error:
        raise TryLater(f"{doing}: {error}", retry_after_s=5.0) from None
    except (Odd, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise _odd(doing) from None


def _odd(doing: str) -> TryLater:
    """An answer cut short, or somebody else's: it says nothing, least of all that there is nothing."""
    return TryLater(f"{doing}: the answer is not what a NameNode says; is the address right?", retry_after_s=5.0)


def _away(doing: str, error: Away) -> PortError:
    if not error.datanode:
        if isinstance(error.fault, ssl.SSLError):
            return FixConfiguration(f"{doing}: the certificate is not trusted", "give the authority's file (`ca`)")
        return TryLater(f"{doing}: no NameNode answers: {why(error.fault)}", retry_after_s=5.0)
    if isinstance(error.fault, socket.gaierror):
        return FixConfiguration(
            f"HDFS sends us to its DataNode {error.host}, and {why(error.fault)}",
            f"make {error.host.partition(':')[0]} resolve on this host, or map it in the option hdfs_names",
        )
    return TryLater(f"HDFS's DataNode {error.host}: {why(error.fault)}", retry_after_s=5.0)


@functools.cache
def _context(verify: bool | str) -> ssl.SSLContext:
    if isinstance(verify, str):
        try:
            return ssl.create_default_context(cafile=verify)
        except OSError as error:
            raise FixConfiguration(
                f"{verify}: {error.strerror or error}", "`ca` is the certificate authority's file, in PEM"
            ) from None
    found = ssl.create_default_context()
    if not verify:
        found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found
