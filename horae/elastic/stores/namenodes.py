"""One WebHDFS operation at a time, at whichever NameNode is active: plain HTTP, without proxies or cookies.

NameNodes are asked in turn, from the one that answered last; a standby passes the question on, and so does one that
cannot be reached. Data never passes the NameNode: it names a DataNode, to which one redirect is followed. The redirect
carries a token of its own, so no DataNode is told who we are, and it never leads from https to http.

`identity` and `headers` say who asks; `mapped` gives a DataNode's address as this host knows it. Errors are OSErrors
and never hold an address as it was asked for: that may hold a token.
"""

import abc
import functools
import http.client
import json
import posixpath
import re
import socket
import ssl
import time
import urllib.parse
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

from .hdfserrors import HdfsError, refusal

PREFIX = "/webhdfs/v1"
#: Of an answer that is kept whole; and from its first byte to its last, however steadily it comes.
MOST_BYTES = 256 << 20
MOST_S = 120.0
_PIECE = 1 << 20
_DATANODE = re.compile(r"https?://[][\w.:-]+/")
#: what the NameNode sends on; of anything else it answers itself
_AT_DATANODES = frozenset({"OPEN", "CREATE", "APPEND"})

_WORDS: "Tuple[Tuple[Any, str], ...]" = (
    (socket.gaierror, "its name cannot be resolved"),
    (socket.timeout, "it takes too long"),
    (ConnectionRefusedError, "connection refused"),
    ((http.client.InvalidURL, UnicodeError), "its address is not a URL"),
    ((ConnectionError, http.client.HTTPException), "connection closed"),
)

#: Addresses of a site's NameNodes -> the one that was active last.
_active: "Dict[Tuple[str, ...], str]" = {}


class Away(ConnectionError):
    """A server that cannot be reached, or does not answer in time. `host`: name and port; `fault`: what was met."""

    def __init__(self, host: str, fault: Exception, datanode: bool) -> None:
        self.host, self.fault, self.datanode = host, fault, datanode
        known = "sends data to %s, which cannot be reached from here: %s" if datanode else "%s does not answer: %s"
        super().__init__(("the NameNode " + known) % (host, why(fault)))


class Odd(ConnectionError):
    """An answer that is cut short, or not a NameNode's: it says nothing, least of all that there is nothing."""


class Downgrade(Odd):
    """From https to http: the token in the address and the data could be read on the way. `host`: where to."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__("HDFS sends us from https to http, to %s" % host)


class Endless(Odd):
    """An answer that is longer, or takes longer, than any that is meant."""


class NameNodes(abc.ABC):
    """Raises HdfsError for a refusal, Away and Odd. Threads may share it. `bases`: http://host:port of each."""

    connect_s = 60.0
    read_s = 60.0

    def __init__(self, bases: Sequence[str]) -> None:
        self.bases = tuple(base.rstrip("/") for base in bases)
        self._servers = {_server(base) for base in self.bases}

    # --- who asks, and how: a site's own ---

    @abc.abstractmethod
    def identity(self) -> Dict[str, str]:
        """What a query tells of who asks."""

    def headers(self, address: str, namenode: bool) -> Dict[str, str]:
        """Of a request that is about to be sent."""
        return {}

    def renewed(self) -> bool:
        """After a NameNode has refused who we are (401): whether to ask once more."""
        return False

    def mapped(self, address: str) -> str:
        """Where a DataNode is for us."""
        return address

    def context(self) -> Optional[ssl.SSLContext]:
        """Whom to trust under https; None: as this host does."""
        return None

    # --- asking ---

    def ask(self, method: str, path: str, operation: str, **options: str) -> Any:
        """The answer in JSON; None where it is empty."""
        text = self._answer(method, path, operation, options).whole()
        try:
            return json.loads(text.decode()) if text.strip() else None
        except (ValueError, RecursionError):
            raise Odd("HDFS's answer is not JSON") from None

    def read(self, path: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        """The bytes of a file, in pieces as they come; no more than `length`, whoever sends them."""
        options = {"offset": str(offset)} if offset else {}
        if length is None:
            return self._answer("GET", path, "OPEN", options).pieces()
        return _first(length, self._answer("GET", path, "OPEN", dict(options, length=str(length))).pieces(MOST_S))

    def write(
        self, path: str, source: Any, size: Optional[int] = None, append: bool = False, sent: Callable[[], Any] = int
    ) -> None:
        """Create a file or write it anew, or add to it. `source`: bytes, an iterable of them, or a stream of `size`.

        `sent`: called once HDFS has all bytes.
        """
        method, operation, options = ("POST", "APPEND", {}) if append else ("PUT", "CREATE", {"overwrite": "true"})
        self._answer(method, path, operation, options, (source, size, sent)).whole()

    def _answer(
        self, method: str, path: str, operation: str, options: Dict[str, str], data: "Optional[_Data]" = None
    ) -> "_Reply":
        query = {"op": operation}
        query.update(options)
        query.update(self.identity())
        resource = urllib.parse.quote(posixpath.normpath("/" + path.lstrip("/")), safe="/=")
        answer = self._asked(method, "%s%s?%s" % (PREFIX, resource, urllib.parse.urlencode(query)))
        if data or (operation in _AT_DATANODES and answer.status == 307):
            answer.close()
            answer = self._one(method, answer.location(), data)
        if answer.status >= 300:
            raise answer.refusal()
        return answer

    def _asked(self, method: str, resource: str) -> "_Reply":
        """The active NameNode's answer."""
        trouble: OSError = ConnectionError("no NameNode is known")
        first = _active.get(self.bases)
        for base in sorted(self.bases, key=lambda each: each != first):
            try:
                answer = self._one(method, base + resource)
                error = answer.refusal() if answer.status >= 400 else None
            except Away as away:
                if not isinstance(trouble, HdfsError):
                    trouble = away
                continue
            if error is None or not error.elsewhere:
                _active[self.bases] = base  # a refusal is an answer
                if error:
                    raise error
                return answer
            if not (isinstance(trouble, HdfsError) and error.standby):
                trouble = error
        raise trouble

    def _one(self, method: str, address: str, data: "Optional[_Data]" = None) -> "_Reply":
        """One server's answer: of a NameNode as who we are, of a DataNode as nobody."""
        if _server(address) not in self._servers:
            return self._send(method, self.mapped(address), data, namenode=False)
        answer = self._send(method, address, data, namenode=True)
        if answer.status == 401 and data is None and self.renewed():
            answer.close()
            answer = self._send(method, address, data, namenode=True)
        return answer

    def _send(self, method: str, address: str, data: "Optional[_Data]", namenode: bool) -> "_Reply":
        parts = urllib.parse.urlsplit(address)
        source, size, sent = data or (None, None, int)
        headers = dict(self.headers(address, namenode), **{"Content-Type": "application/octet-stream"})  # for HttpFS
        if size is not None:
            headers["Content-Length"] = str(size)
        kind: Any = http.client.HTTPConnection
        if parts.scheme == "https":
            kind = functools.partial(http.client.HTTPSConnection, context=self.context())
        connection = None
        try:
            connection = kind(parts.netloc, timeout=self.connect_s, blocksize=_PIECE)
            connection.connect()
            connection.sock.settimeout(self.read_s)
            connection.request(method, urllib.parse.urlunsplit(("", "", *parts[2:4], "")), body=source, headers=headers)
            sent()
            return _Reply(connection.getresponse(), connection, parts)
        except (http.client.HTTPException, OSError, UnicodeError) as error:
            if connection:
                connection.close()
            raise Away(parts.netloc, error, not namenode) from None


#: what is written, its bytes where they are known, what to call once it is sent
_Data = Tuple[Any, Optional[int], Callable[[], Any]]


class _Reply:
    """One server's, whose connection is closed with its last byte."""

    def __init__(
        self,
        response: http.client.HTTPResponse,
        connection: http.client.HTTPConnection,
        asked: urllib.parse.SplitResult,
    ) -> None:
        self._response, self.status, self.close = response, response.status, connection.close
        self._scheme, self._host = asked.scheme, asked.netloc

    def pieces(self, seconds: Optional[float] = None) -> Iterator[bytes]:
        """Raises Odd where it breaks off, and Endless after `seconds`."""
        left = self._response.length
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while left is None or left > 0:
                try:
                    # read1 gives what is there: to wait for a whole piece would let a byte a second go on for a day
                    piece = self._response.read1(_PIECE if left is None else min(_PIECE, left))
                except (http.client.HTTPException, OSError) as error:
                    raise Odd("HDFS broke off its answer: %s" % why(error)) from None
                if not piece:
                    if left:
                        raise Odd("HDFS broke off its answer: %d bytes are missing" % left)
                    return
                left = None if left is None else left - len(piece)
                yield piece
                if until is not None and time.monotonic() > until:
                    raise Endless("%s takes longer than %g s for one answer" % (self._host, seconds or 0.0))
        finally:
            self.close()

    def whole(self) -> bytes:
        """All of it. Raises Odd, and Endless where it is too long or too slow."""
        kept = bytearray()
        for piece in self.pieces(MOST_S):
            kept += piece
            if len(kept) > MOST_BYTES:
                raise Endless("%s answers with more than %d MiB" % (self._host, MOST_BYTES >> 20))
        return bytes(kept)

    def refusal(self) -> HdfsError:
        return refusal(self.status, self.whole(), self._response.headers.get("Content-Type"))

    def location(self) -> str:
        """Where it sends us."""
        found = str(self._response.headers.get("Location", ""))
        scheme, host, _ = _server(found)
        if self.status != 307 or not _DATANODE.match(found) or not host:
            raise refusal(503, b"the answer names no DataNode")
        if scheme == "http" and self._scheme == "https":
            raise Downgrade(host)
        return found


def _first(length: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The first `length` bytes."""
    for piece in pieces:
        yield piece[:length]
        length -= len(piece)
        if length <= 0:
            return


def _server(address: str) -> "Tuple[str, str, Optional[int]]":
    """Scheme, host and port, however they are written; nothing known for what is no address."""
    try:
        parts = urllib.parse.urlsplit(address)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname or "", port
    except ValueError:
        return "", "", None


def why(error: Exception) -> str:
    """A connection's fault in words, without the address (it may hold a token)."""
    for kinds, words in _WORDS:
        if isinstance(error, kinds):
            return words
    return getattr(error, "strerror", None) or type(error).__name__
