"""A web server in this process that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: Any = None  #: str and bytes as they are, anything else as JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False  #: close the connection without an answer

    @property
    def bytes(self) -> bytes:
        if self.body is None:
            return b""
        if isinstance(self.body, bytes):
            return self.body
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


Answers = Callable[[Asked], Reply]


class Fake:
    """`asked` grows with every request; `answers` may be replaced at any time."""

    def __init__(self, answers: Answers, tls: ssl.SSLContext | None = None) -> None:
        self.answers, self.asked = answers, list[Asked]()
        self._scheme = "https" if tls else "http"
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # one packet an answer: two would wait for each other's acknowledgement

            def _serve(self) -> None:
                target = urlsplit(self.path)
                size = int(self.headers.get("Content-Length") or 0)
                chunked = self.headers.get("Transfer-Encoding", "") == "chunked"
                body = _chunks(self.rfile) if chunked else self.rfile.read(size)
                query = dict(parse_qsl(target.query))
                asked = Asked(self.command, target.path, query, dict(self.headers.items()), body)
                fake.asked.append(asked)
                reply = fake.answers(asked)
                if reply.drop:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for key, value in reply.headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(reply.bytes)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.bytes)

            do_GET = do_PUT = do_POST = do_DELETE = _serve

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the test says what was asked."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away before its answer is part of some tests; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)


def _chunks(stream: Any) -> bytes:
    body = b""
    while size := int(stream.readline(), 16):
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body


@contextmanager
def serving(answers: Answers, tls: ssl.SSLContext | None = None) -> Iterator[Fake]:
    fake = Fake(answers, tls)
    try:
        yield fake
    finally:
        fake.close()


@cache
def recorded(lane: str) -> Mapping[str, dict[str, Any]]:
    """Name without its number -> recorded pair. Two of one name: the first under it, each under its whole name."""
    found: dict[str, dict[str, Any]] = {}
    for line in (HERE / "fixtures" / f"{lane}.jsonl").read_text().splitlines():
        pair = json.loads(line)
        found[pair["name"]] = pair
        found.setdefault(pair["name"].partition("-")[2], pair)
    return found


def replay(lane: str, *names: str) -> Answers:
    """Answers of a recording: the named pairs in their order where several fit one request, the last again then."""
    pairs = [recorded(lane)[name] for name in names]
    used: set[int] = set()

    def answer(asked: Asked) -> Reply:
        fitting = [
            (at, pair)
            for at, pair in enumerate(pairs)
            if pair["request"]["method"] == asked.method and urlsplit(pair["request"]["path"]).path == asked.path
        ]
        if not fitting:
            return Reply(418, f"the recording has no {asked.method} {asked.path}")
        at, pair = next(((at, pair) for at, pair in fitting if at not in used), fitting[-1])
        used.add(at)
        headers = {k: v for k, v in pair["headers"].items() if k in {"Content-Type", "Location"}}
        return Reply(pair["status"], pair["response"], headers)

    return answer
