"""Web servers that never end their answers, each in another way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Says = Callable[[socket.socket], None]


@contextmanager
def raw(says: Says) -> Iterator[str]:
    """A server that says what it likes to each who comes; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=talk, args=(one,), daemon=True).start()

        def talk(one: socket.socket) -> None:
            with one, suppress(OSError):  # whoever asked has heard enough
                one.recv(1 << 16)
                says(one)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)


def drips(one: socket.socket) -> None:
    """A byte at a time, for ever: no wait between two of them is long."""
    one.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
    while True:
        one.sendall(b" ")
        threading.Event().wait(0.01)


def dribbles(one: socket.socket) -> None:
    one.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        one.sendall(b"1\r\n \r\n")
        threading.Event().wait(0.01)


def pours(one: socket.socket) -> None:
    one.sendall(HEAD + b"\r\n")
    while True:
        one.sendall(b" " * (1 << 16))


def sends_on(one: socket.socket) -> None:
    one.sendall(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/x\r\n\r\n")
    while True:
        one.sendall(b" " * (1 << 16))


ENDLESS = (drips, dribbles, pours, sends_on)
