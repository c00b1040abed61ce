"""How much of an answer is read, for how long, and from whom: whatever a server says, it costs what is written here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import requests
import urllib3

from horae.elastic.stores.namenodes import MOST_BYTES, MOST_S
from horae.port import TryLater

_PIECE = 1 << 16

Server = tuple[str, str, int | None]


class Session(requests.Session):
    """Follows no redirect: also not to see where it leads, for which requests would read its whole body."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None


def pieces(got: requests.Response, seconds: float | None = None) -> Iterator[bytes]:
    """The body as it comes, at most 64 KiB at once before it is unpacked. Raises TryLater after `seconds`, and
    requests' exceptions."""
    until = None if seconds is None else time.monotonic() + seconds
    try:
        # read1 returns what is there: to wait for a whole piece would let a byte a second go on for a day
        while data := got.raw.read1(_PIECE, decode_content=True):
            yield data
            if until is not None and time.monotonic() > until:
                raise TryLater(f"{name_of(got.url)} takes longer than {seconds:g} s for one answer", retry_after_s=5.0)
    except urllib3.exceptions.HTTPError as error:
        raise requests.exceptions.ConnectionError(error) from None


def whole(got: requests.Response) -> bytes:
    """The body, and the connection given back. Raises TryLater where it is too long or too slow, and requests'
    exceptions."""
    with got:
        kept = bytearray()
        for data in pieces(got, MOST_S):
            kept += data
            if len(kept) > MOST_BYTES:
                raise TryLater(f"{name_of(got.url)} answers with more than {MOST_BYTES >> 20} MiB", retry_after_s=5.0)
        return bytes(kept)


def server_of(url: str) -> Server:
    """Scheme, host and port, however they are written; nothing known for what is no address."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname or "", port
    except ValueError:
        return "", "", None


def name_of(url: str) -> str:
    """Host and port for people: an address may hold a token, or a password before the host."""
    return urlsplit(url).netloc.rpartition("@")[2] or url
