"""The thread that serves the API on a unix socket."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from horae.api import limits
from horae.api.peers import PeerProtocol
from policy.model import BadInput, Seconds

#: How long a stopping server waits for answers under way.
GRACE_S = 3


class SocketInUse(Exception):
    """Another server answers on this socket."""


class _Listener(socket.socket):
    """Its queue is as long as the kernel has it: asyncio would make it as short as what it takes out in one go."""

    def listen(self, _: int = 0, /) -> None:
        super().listen(limits.QUEUE)


class Server:
    """Serves `app` on a unix socket from a thread of its own, until `stop`."""

    def __init__(self, app: FastAPI, path: Path, *, doors: limits.Doors | None = None) -> None:
        self._path = path
        logger = logging.getLogger("asyncio")
        if not any(isinstance(found, limits.Sparse) for found in logger.filters):
            logger.addFilter(limits.Sparse())
        config = uvicorn.Config(
            app,
            http=type("Protocol", (PeerProtocol,), {"doors": doors or limits.Doors()}),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            backlog=limits.TAKEN_AT_ONCE,
            h11_max_incomplete_event_size=1 << 16,
        )
        self._server = uvicorn.Server(config)
        self._listener = listen(path)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), name="api", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take the socket away, answer what is under way, and close."""
        # The name first: as soon as nobody listens there, it may be the next server's.
        self._path.unlink(missing_ok=True)
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(GRACE_S + 2)
        self._listener.close()


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, open to every local user: the kernel tells who calls.

    The name appears only when the socket is ready. A dead server's socket is replaced, a living one's is not:
    raises `SocketInUse`.
    """
    if len(os.fsencode(path)) > 100:
        raise BadInput(
            "is too long for a unix socket (100 bytes)", field="api.socket", value=str(path),
            remedy="set api.socket to a shorter path",
        )  # fmt: skip
    if _is_socket(path) and _answers(path):
        raise SocketInUse(str(path))
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    listener = _Listener(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(fresh))
        fresh.chmod(0o666)
        listener.listen()
        fresh.rename(path)
    except OSError:
        listener.close()
        fresh.unlink(missing_ok=True)
        raise
    return listener


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _answers(path: Path, timeout_s: Seconds = 1.0) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):  # it may be taken away at this moment
            return False
        except OSError:
            return True
        return True
