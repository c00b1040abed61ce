"""The job's end of an interactive session: a program on a terminal, for whoever handed the job in.

    python -m horae.elastic.terminal SOCKET PROGRAM [WORD]...

`horae submit --interactive` listens on SOCKET, in a folder that only its user can enter, before it hands the job in.
This end connects to it, starts the program on a terminal of its own, and passes on what is typed and said. When the
other end goes away the program is hung up, as by a terminal that is closed, so that nobody's GPUs are held by a session
that nobody sees. A gang's other ranks wait for the first to end.

Parts of a message: its kind (a byte), the length of what follows (four bytes), that. Kinds: `d` what is typed or said,
`w` the size of the window (rows, columns), `e` no more is typed, `x` how the program ended. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
import time
from typing import Any

MOST = 1 << 16
#: A program that was hung up may take so long before it is killed.
PATIENCE_S = 5.0
_HEAD = struct.Struct("!cI")
_SIZE = struct.Struct("!HH")


def message(kind: bytes, data: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(data)) + data


class Messages:
    """Whole messages of what came in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Raises ValueError for a message that is longer than any."""
        self._rest += data
        found = []
        while len(self._rest) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest)
            if length > MOST:
                raise ValueError("a message of {} bytes".format(length))
            end = _HEAD.size + length
            if len(self._rest) < end:
                break
            found.append((kind, self._rest[_HEAD.size : end]))
            self._rest = self._rest[end:]
        return found


def size(rows: int, columns: int) -> bytes:
    return message(b"w", _SIZE.pack(min(max(rows, 1), 9999), min(max(columns, 1), 9999)))


def same_user(connection: socket.socket) -> bool:
    """Whether the program at the other end is our own user's, by the kernel's word."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", found)[1] == os.getuid())


def main(arguments: list[str]) -> int:
    where, command = arguments[0], arguments[1:]
    if os.environ.get("RANK", "0") != "0":
        while os.path.exists(where):
            time.sleep(0.5)
        return 0
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(where)
    except OSError as error:
        print("nobody waits for this session any more ({}): it ends".format(error.strerror), flush=True)
        return 0
    if not same_user(connection):
        print("the session's other end is not its owner's: it ends", flush=True)
        return 1
    print("an interactive session: {}".format(" ".join(command)), flush=True)
    return session(connection, command)


def session(connection: socket.socket, command: list[str]) -> int:
    """Until the program ends, or the other end goes away; the program's exit code."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.execvp(command[0], command)  # noqa: S606 - the owner's own program
        except OSError as error:
            os.write(2, "{}: {}\r\n".format(command[0], error.strerror).encode(errors="replace"))
            os._exit(127)
    reader, left = Messages(), False
    both: list[Any] = [terminal, connection]
    while not left:
        ready = select.select(both, [], [])[0]
        if terminal in ready:
            try:
                said = os.read(terminal, MOST // 2)
            except OSError as error:  # Linux tells the end of a terminal so
                if error.errno != errno.EIO:
                    raise
                said = b""
            if not said:
                break
            left = not _sent(connection, message(b"d", said))
        if connection in ready:
            left = left or not _heard(connection, reader, terminal)
    code = _ended(child, left)
    if not left:
        _sent(connection, message(b"x", bytes([code])))
    connection.close()
    return code


def _sent(connection: socket.socket, data: bytes) -> bool:
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def _heard(connection: socket.socket, reader: Messages, terminal: int) -> bool:
    """Pass on what came; False: the other end is gone, or talks nonsense."""
    try:
        parts = reader.of(connection.recv(MOST) or message(b"?"))
        for kind, data in parts:
            if kind == b"d":
                os.write(terminal, data)
            elif kind == b"w":
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *_SIZE.unpack(data), 0, 0))
            elif kind == b"e":
                os.write(terminal, b"\x04")
            else:
                return False
    except (OSError, ValueError, struct.error):
        return False
    return True


def _signalled(child: int, number: int) -> None:
    """It, and what it runs in its own group: it leads a session."""
    try:
        os.killpg(child, number)
    except ProcessLookupError:
        os.kill(child, number)


def _ended(child: int, hung_up: bool) -> int:
    """Its exit code, 128 + n for signal n. One that was hung up and goes on is killed."""
    if hung_up:
        _signalled(child, signal.SIGHUP)
    until = time.monotonic() + PATIENCE_S
    while True:
        found, status = os.waitpid(child, os.WNOHANG if hung_up else 0)
        if found:
            break
        if time.monotonic() > until:
            _signalled(child, signal.SIGKILL)
            hung_up = False
        time.sleep(0.05)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
