"""A real sshd on a port of its own, with a key of its own, and a road to it that can be cut or stand still."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.contract.waiting import wait_for

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin") or ""


class Road:
    """Bytes between a client and sshd, as long as it is open."""

    def __init__(self, to: int) -> None:
        self._to, self._ends = to, list[socket.socket]()
        self.moves = threading.Event()
        self.moves.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._server.accept()
                other = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [one, other]
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                self.moves.wait()
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self.moves.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()


class FarSide:
    def __init__(self, folder: Path) -> None:
        """`folder`: for keys and settings; removed by whoever made it."""
        self._folder = folder
        for name in ("host", "other", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own, where no service made it
        settings = {
            "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": folder / "pid",
            "AuthorizedKeysFile": folder / "client.pub", "StrictModes": "no", "UsePAM": "no",
            "PermitRootLogin": "prohibit-password", "PasswordAuthentication": "no", "Subsystem": "sftp internal-sftp",
        }  # fmt: skip
        (folder / "config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "config"], stderr=self._log)
        try:
            wait_for("sshd listens", lambda: b"listening on" in (folder / "log").read_bytes())
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self.road = Road(port)
        self.key = str(folder / "client")

    def known_hosts(self, key: str = "host") -> str:
        """A file that knows the far side by the key of this name."""
        path = self._folder / f"known-{key}"
        kind, text = (self._folder / f"{key}.pub").read_text().split()[:2]
        path.write_text(f"[127.0.0.1]:{self.road.port} {kind} {text}\n")
        return str(path)

    def close(self) -> None:
        self.road.close()
        self._process.terminate()
        self._process.wait()
        self._log.close()


@contextmanager
def far_side(folder: Path) -> Iterator[FarSide]:
    made = FarSide(folder)
    try:
        yield made
    finally:
        made.close()
