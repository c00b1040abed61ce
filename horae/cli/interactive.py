"""`horae submit --interactive`: a shell, or any program on a terminal, on granted GPUs of this machine.

It listens in a folder that only the caller can enter, hands in a rigid job with a limit whose program is
`horae.elastic.terminal`, and passes on between that and the caller's terminal. The session is the job: whichever ends,
the other does.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from horae import job_number, visible
from horae.api.client import Client
from horae.cli import exits
from horae.elastic import terminal
from horae.tui import screen
from policy.model import BadInput

#: The limit of a session that names none.
LIMIT_S = 3600.0
_LOOK_S = 1.0


def rigid(given: Mapping[str, Any]) -> dict[str, Any]:
    """The job of a session as it is everywhere. Raises BadInput for what a session cannot be."""
    if given.get("checkpoint") or given.get("iterations"):
        raise BadInput("is a training's", field="--checkpoint" if given.get("checkpoint") else "--iterations",
                       remedy="take it out: an interactive job cannot be stopped and resumed")  # fmt: skip
    if not isinstance(given.get("gpus", 1), int):
        raise BadInput("is a range", field="--gpus", remedy="an interactive job keeps its GPUs: one number")
    command = list(given.get("command") or [os.environ.get("SHELL") or "/bin/sh"])
    named = {"name": given.get("name") or "interactive", "command": command}
    return {"gpus": 1, "time_limit_s": LIMIT_S, **given, **named, "elastic": False, "retries": 0}


def job_of(given: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """The job of a session of this machine, whose program speaks to the socket `where`. Raises BadInput."""
    job = rigid(given)
    return {
        **job,
        "app": given.get("app") or f"interactive-{where.parent.name}",
        # -P: it runs where the caller is, and what others put there is no module of ours
        "command": [sys.executable, "-P", "-m", "horae.elastic.terminal", str(where), *job["command"]],
    }


@contextmanager
def listening() -> Iterator[tuple[Path, socket.socket]]:
    """A socket for one session, in a folder that only we can enter."""
    own = os.environ.get("XDG_RUNTIME_DIR")  # not every service sees the /tmp that users see
    folder = Path(tempfile.mkdtemp(prefix="horae-session-", dir=own if own and os.access(own, os.W_OK) else None))
    where = folder / "s"
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(str(where))
            except OSError as error:
                raise BadInput(f"no socket can be made there: {error}", field="TMPDIR", value=str(folder),
                               remedy="TMPDIR=/tmp horae submit --interactive ...") from error  # fmt: skip
            listener.listen(1)
            yield where, listener
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def session(client: Client, job: str, listener: socket.socket) -> int:
    """Until the program, or the job, has ended; how. A caller that leaves takes the job along."""
    ended = False
    try:
        with _hangups():
            connection = _met(client, job, listener)
            if connection is None:
                ended = True
                found = client.job(job)
                why = visible.neutral(found["why"] or found["state"])
                number = job_number(job)
                raise exits.Failure(exits.NO, f"job {number} ended before it began: {why}", f"`horae logs {number}`")
            with connection, _raw():
                code = relayed(connection, sys.stdin.fileno(), sys.stdout.fileno())
        if code is None:
            found = client.job(job)
            screen.note(f"horae: the session was cut off: {visible.neutral(found['why'] or found['state'])}")
            return exits.NO
        ended = True
        return code
    finally:
        if not ended:
            client.cancel(job, "its session was left")


def _met(client: Client, job: str, listener: socket.socket) -> socket.socket | None:
    """The job's end, when it has come; None: the job is over without. Says why it waits, when that changes."""
    told = ""
    while True:
        if select.select([listener], [], [], _LOOK_S)[0]:
            connection = listener.accept()[0]
            if terminal.same_user(connection):
                return connection
            connection.close()
        found = client.job(job)
        if found["ended"]:
            return None
        why = f"{found['state']}: {found['why']}" if not found["allocation"] else "it starts"
        if why != told:
            told = why
            screen.note(f"horae: job {job_number(job)} {visible.neutral(why)}")


@contextmanager
def _hangups() -> Iterator[None]:
    """A terminal that is closed ends the session like Ctrl-C before it began: the job is cancelled."""

    def leave(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _raw() -> Iterator[None]:
    """Keys go to the program as they are typed; off a terminal nothing changes."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def relayed(
    connection: socket.socket,
    source: int,
    sink: int,
    window: Callable[[], os.terminal_size] = shutil.get_terminal_size,
) -> int | None:
    """The program's exit code; None: the other end went away without one."""
    reader, shown = terminal.Messages(), None
    reads: list[Any] = [connection, source]
    while True:
        if (now := window()) != shown:
            shown = now
            _passed(connection, terminal.size(now.lines, now.columns))
        ready = select.select(reads, [], [], _LOOK_S)[0]
        if source in ready:
            typed = os.read(source, terminal.MOST // 2)
            _passed(connection, terminal.message(b"d", typed) if typed else terminal.message(b"e"))
            reads = reads if typed else [connection]
        if connection not in ready:
            continue
        try:
            data = connection.recv(terminal.MOST)
        except ConnectionError:
            data = b""
        if not data:
            return None
        for kind, part in reader.of(data):
            if kind == b"x":
                return part[0]
            _written(sink, part)


def _passed(connection: socket.socket, data: bytes) -> None:
    """Where the program has ended meanwhile, what it said last is still to be read."""
    with suppress(ConnectionError):
        connection.sendall(data)


def _written(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]
        time.sleep(0)
