"""The command line over SSH, when the arbiter is not on a Slurm host: one connection kept, checked host keys.

Without TCP_NODELAY each exec costs 40-50 ms for nothing; with it, 3 ms. Files (the spool) go by SFTP.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import secrets
import shlex
import socket
import stat as modes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import paramiko

from horae.port import FixConfiguration, TryLater
from slurm_plugin.options import Options
from slurm_plugin.transport import Completed, Conversation, Decoders, Files, not_theirs

_CONNECT_S = 30.0
T = TypeVar("T")


class SshConversation:
    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel, self._decoders = channel, Decoders()

    def send(self, text: str) -> None:
        try:
            self._channel.sendall(text.encode())
        except OSError as error:
            raise TryLater(f"the SSH session has ended: {error}") from error

    def receive(self, timeout_s: float) -> tuple[str, str]:
        deadline = time.monotonic() + timeout_s
        while True:
            # Asked first: what it said came before. Its exit status alone may come before its last words.
            ended = self._channel.closed or (self._channel.exit_status_ready() and self._channel.eof_received)
            out = self._channel.recv(65536) if self._channel.recv_ready() else b""
            err = self._channel.recv_stderr(65536) if self._channel.recv_stderr_ready() else b""
            if out or err:
                return self._decoders.text(0, out), self._decoders.text(1, err)
            if ended:
                raise TryLater("scontrol over SSH has ended")
            if time.monotonic() >= deadline:
                return "", ""
            time.sleep(0.0005)

    def close(self) -> None:
        self._channel.close()


class SftpFiles:
    """The spool on the other side. The connection is the transport's; it is opened again after a break."""

    def __init__(self, transport: SshTransport) -> None:
        self._transport = transport

    def read(self, path: str, offset: int = 0, limit: int = 1 << 20, owner: int | None = None) -> bytes | None:
        def do(sftp: paramiko.SFTPClient) -> bytes | None:
            def theirs(found: paramiko.SFTPAttributes) -> bool:
                return owner is None or (found.st_uid == owner and modes.S_ISREG(found.st_mode or 0))

            try:
                if owner is not None and not theirs(sftp.stat(path)):  # before: opening a pipe would wait
                    raise not_theirs(path)
                with sftp.open(path, "rb") as file:
                    if owner is not None and not theirs(file.stat()):
                        raise not_theirs(path)
                    file.seek(offset)
                    return file.read(limit)
            except FileNotFoundError:
                return None

        return self._transport.with_sftp(do)

    def stat(self, path: str) -> os.stat_result | None:
        def do(sftp: paramiko.SFTPClient) -> os.stat_result | None:
            try:
                found = sftp.stat(path)
            except FileNotFoundError:
                return None
            values = (
                found.st_mode,
                0,
                0,
                0,
                found.st_uid,
                found.st_gid,
                found.st_size,
                found.st_atime,
                found.st_mtime,
            )
            return os.stat_result((*(value or 0 for value in values), found.st_mtime or 0))

        return self._transport.with_sftp(do)

    def names(self, path: str) -> list[str]:
        def do(sftp: paramiko.SFTPClient) -> list[str]:
            try:
                return sftp.listdir(path)
            except FileNotFoundError:
                return []

        return self._transport.with_sftp(do)

    def replace(self, path: str, data: bytes, mode: int = 0o644, *, durable: bool = True) -> None:
        temporary = posixpath.join(posixpath.dirname(path), f".horae-{secrets.token_hex(6)}")

        def do(sftp: paramiko.SFTPClient) -> None:
            with sftp.open(temporary, "wb") as file:
                file.write(data)
            sftp.chmod(temporary, mode)
            sftp.posix_rename(temporary, path)

        self._transport.with_sftp(do)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        def do(sftp: paramiko.SFTPClient) -> None:
            parts = [path]
            while posixpath.dirname(parts[-1]) not in {parts[-1], ""}:
                parts.append(posixpath.dirname(parts[-1]))
            for part in reversed(parts):
                try:
                    if not modes.S_ISDIR(sftp.stat(part).st_mode or 0):
                        raise NotADirectoryError(20, "Not a directory", part)
                except FileNotFoundError:
                    sftp.mkdir(part, mode)
                    sftp.chmod(part, mode)

        self._transport.with_sftp(do)

    def chmod(self, path: str, mode: int) -> None:
        self._transport.with_sftp(lambda sftp: sftp.chmod(path, mode))

    def chown(self, path: str, uid: int) -> bool:
        def do(sftp: paramiko.SFTPClient) -> bool:
            try:
                sftp.chown(path, uid, sftp.stat(path).st_gid or 0)
            except PermissionError:
                return False
            return True

        return self._transport.with_sftp(do)

    def admit(self, path: str, uid: int) -> bool:
        return self._transport.run(["setfacl", "-m", f"u:{uid}:rwx,g::-,o::-", path]).rc == 0

    def remove(self, path: str) -> None:
        def do(sftp: paramiko.SFTPClient) -> None:
            with contextlib.suppress(FileNotFoundError):
                sftp.remove(path)

        self._transport.with_sftp(do)


class SshTransport:
    def __init__(self, options: Options) -> None:
        user, _, rest = options.ssh.rpartition("@")
        host, _, port = rest.partition(":")
        self._user, self._host, self._port = user or None, host, int(port or 22)
        self._options = options
        self._client: paramiko.SSHClient | None = None
        self._sftp: paramiko.SFTPClient | None = None
        self._lock = threading.RLock()
        self._env: Mapping[str, str] = {**options.environment, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        self.where = options.ssh
        self.files: Files = SftpFiles(self)

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str | None = None) -> Completed:
        begin = time.monotonic()
        channel = self._session(argv)
        try:
            if stdin:
                channel.sendall(stdin.encode())
            channel.shutdown_write()
            out, err = bytearray(), bytearray()
            while True:
                # Asked before reading: what comes between a look at the outputs and one at the end would be left there,
                # and a squeue cut short reads as a queue without jobs.
                broken = channel.closed and not channel.eof_received
                ended = channel.exit_status_ready() and channel.eof_received
                moved = False
                while channel.recv_ready():
                    out += channel.recv(1 << 18)
                    moved = True
                while channel.recv_stderr_ready():
                    err += channel.recv_stderr(1 << 16)
                    moved = True
                if ended:
                    break
                if broken:
                    raise TryLater(f"the SSH connection to {self._host} broke")
                if time.monotonic() - begin > timeout_s:
                    raise TryLater(f"{argv[0]} on {self._host} gave no answer for {timeout_s:.0f} s", retry_after_s=5.0)
                if not moved:
                    time.sleep(0.0005)
            rc = channel.recv_exit_status()
        finally:
            channel.close()
        took = time.monotonic() - begin
        return Completed(rc, out.decode(errors="replace"), err.decode(errors="replace"), took)

    def open(self, argv: Sequence[str]) -> Conversation:
        return SshConversation(self._session(argv))

    def with_sftp(self, do: Callable[[paramiko.SFTPClient], T]) -> T:
        with self._lock:
            for attempt in (1, 2):
                try:
                    if self._sftp is None:
                        self._sftp = self._connected().open_sftp()
                    return do(self._sftp)
                except (paramiko.SSHException, EOFError, ConnectionError) as error:
                    self._drop()
                    if attempt == 2:
                        raise TryLater(f"the SSH connection to {self._host} broke: {error}") from error
            raise AssertionError("unreachable")

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _session(self, argv: Sequence[str]) -> paramiko.Channel:
        words = [*self._options.prefix, *argv]
        names = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._env.items())
        command = f"env {names} {' '.join(shlex.quote(item) for item in words)}"
        with self._lock:
            for attempt in (1, 2):
                try:
                    transport = self._connected().get_transport()
                    assert transport is not None
                    channel = transport.open_session(timeout=_CONNECT_S)
                    channel.exec_command(command)
                    return channel
                except (paramiko.SSHException, EOFError, OSError) as error:
                    self._drop()
                    if attempt == 2:
                        raise TryLater(f"the SSH connection to {self._host} broke: {error}") from error
        raise AssertionError("unreachable")

    def _connected(self) -> paramiko.SSHClient:
        if self._client is not None:
            return self._client
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        if self._options.ssh_known_hosts:
            client.load_host_keys(self._options.ssh_known_hosts)
        else:
            client.load_system_host_keys()
        key = self._options.ssh_key or None
        try:
            client.connect(
                self._host, self._port, self._user, key_filename=key, timeout=_CONNECT_S, banner_timeout=_CONNECT_S,
                auth_timeout=_CONNECT_S, look_for_keys=key is None, allow_agent=key is None,
            )  # fmt: skip
        except paramiko.BadHostKeyException as error:
            raise FixConfiguration(
                f"{self._host} shows another host key than known_hosts has",
                "find out why before changing known_hosts",
            ) from error
        except paramiko.AuthenticationException as error:
            raise FixConfiguration(
                f"{self._host} refuses our key: {error}", "set ssh_key, or load the agent"
            ) from error
        except paramiko.SSHException as error:
            if "known_hosts" in str(error):
                raise FixConfiguration(
                    f"{self._host} is not in known_hosts", "add its key with ssh-keyscan, checked"
                ) from error
            raise TryLater(f"no SSH connection to {self._host}: {error}", retry_after_s=5.0) from error
        except OSError as error:
            raise TryLater(f"no SSH connection to {self._host}: {error}", retry_after_s=5.0) from error
        transport = client.get_transport()
        assert transport is not None
        transport.set_keepalive(30)
        if isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = client
        return client

    def _drop(self) -> None:
        if self._sftp is not None:
            self._sftp.close()
        if self._client is not None:
            self._client.close()
        self._sftp = self._client = None
