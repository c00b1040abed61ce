"""The command line over SSH, when the arbiter is not on a Slurm host: one connection kept, checked host keys.

Without TCP_NODELAY each exec costs 40-50 ms for nothing; with it, 3 ms. Files (the spool) go by SFTP.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import secrets
import shlex
import socket
import stat as modes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

import paramiko

from horae.port import FixConfiguration, TryLater
from horae.untrusted import MOST_NAMES, Unbelievable
from slurm_plugin.files.transport import Completed, Conversation, Decoders, Files, Part, not_theirs, part_of
from slurm_plugin.options import Options

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
    """The spool on the other side. The connection is the transport's; it is opened again after a break.

    SFTP has no `openat`. The folders above a job's own are ours, so that only the last name of a path can be a user's:
    that one is made anew (O_EXCL follows no link), changed by its handle, and read by a handle whose owner was asked.
    To open a pipe would wait: what waits for longer than the time-out ends the connection, and is told.
    """

    def __init__(self, transport: SshTransport) -> None:
        self._transport = transport

    def read(self, root: str, *names: str, owner: int | None = None, most: int = 1 << 16) -> bytes | None:
        path = posixpath.join(root, *names)

        def do(sftp: paramiko.SFTPClient) -> bytes | None:
            try:
                data = _opened(sftp, path, owner, 0, most + 1)[0]
            except FileNotFoundError:
                return None
            if len(data) > most:
                raise Unbelievable(path, f"is larger than {most} bytes")
            return data

        return self._transport.with_sftp(do)

    def stat(self, root: str, *names: str) -> os.stat_result | None:
        def do(sftp: paramiko.SFTPClient) -> os.stat_result | None:
            try:
                return _stat_of(sftp.lstat(posixpath.join(root, *names)))
            except FileNotFoundError:
                return None

        return self._transport.with_sftp(do)

    def replace(self, root: str, *names: str, data: bytes, mode: int = 0o644, durable: bool = True) -> None:
        self._transport.with_sftp(lambda sftp: _replace(sftp, posixpath.join(root, *names), data, mode))

    def make(self, path: str, mode: int = 0o755) -> None:
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

    def entrust(self, root: str, *names: str, uid: int, first: Mapping[str, bytes]) -> None:
        path = posixpath.join(root, *names)
        hidden = posixpath.join(posixpath.dirname(path), f".{names[-1]}.{secrets.token_hex(6)}")
        if self.stat(path) is not None:
            raise FileExistsError(errno.EEXIST, "exists", path)

        def make(sftp: paramiko.SFTPClient) -> bool:
            sftp.mkdir(hidden, 0o700)
            for name, data in first.items():
                _replace(sftp, f"{hidden}/{name}", data, 0o644)
            try:
                sftp.chown(hidden, uid, sftp.lstat(hidden).st_gid or 0)
            except PermissionError:
                return False
            return True

        if not self._transport.with_sftp(make):
            words = ["setfacl", "-m", f"u:{uid}:rwx,g::-,o::-", hidden]
            if self._transport.run(words).rc != 0:
                self._transport.with_sftp(lambda sftp: sftp.chmod(hidden, 0o1777))
        self._transport.with_sftp(lambda sftp: sftp.posix_rename(hidden, path))

    def remove(self, root: str, *names: str) -> None:
        def do(sftp: paramiko.SFTPClient) -> None:
            with contextlib.suppress(FileNotFoundError):
                sftp.remove(posixpath.join(root, *names))

        self._transport.with_sftp(do)

    def part(self, path: str, offset: int, limit: int, owner: int) -> Part | None:
        def do(sftp: paramiko.SFTPClient) -> Part | None:
            try:
                data, found = _opened(sftp, path, owner, offset, limit)
            except FileNotFoundError:
                return None
            # SFTP tells no inode: a file that is replaced by a longer one looks like the same one that grew
            start, identity = part_of(offset, found.st_size or 0, "sftp")
            return Part(data, start, found.st_size or 0, identity)

        return self._transport.with_sftp(do)

    def names(self, path: str, owner: int) -> list[str]:
        def do(sftp: paramiko.SFTPClient) -> list[str]:
            try:
                found = sftp.stat(path)
                if found.st_uid != owner or not modes.S_ISDIR(found.st_mode or 0):
                    raise Unbelievable(path, "is not a folder of the job's owner")
                return [each.filename for each in islice(sftp.listdir_iter(path), MOST_NAMES)]
            except FileNotFoundError:
                return []

        return self._transport.with_sftp(do)

    def size(self, path: str) -> int | None:
        found = self.stat(path)
        return found.st_size if found is not None and modes.S_ISREG(found.st_mode) else None


def _opened(
    sftp: paramiko.SFTPClient, path: str, owner: int | None, offset: int, limit: int
) -> tuple[bytes, paramiko.SFTPAttributes]:
    def theirs(found: paramiko.SFTPAttributes) -> bool:
        return modes.S_ISREG(found.st_mode or 0) and owner in {None, found.st_uid}

    if not theirs(sftp.stat(path)):  # before: opening a pipe would wait, opening a device may do anything
        raise not_theirs(path)
    with sftp.open(path, "rb") as file:
        found = file.stat()
        if not theirs(found):
            raise not_theirs(path)
        file.seek(part_of(offset, found.st_size or 0, "")[0])
        return file.read(limit), found


def _replace(sftp: paramiko.SFTPClient, path: str, data: bytes, mode: int) -> None:
    temporary = posixpath.join(posixpath.dirname(path), f".horae-{secrets.token_hex(6)}")
    try:
        with sftp.open(temporary, "wx") as file:  # a new one, or none
            file.chmod(mode)
            file.write(data)
        sftp.posix_rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            sftp.remove(temporary)
        raise


def _stat_of(found: paramiko.SFTPAttributes) -> os.stat_result:
    values = (
        found.st_mode, 0, 0, 0, found.st_uid, found.st_gid, found.st_size, found.st_atime, found.st_mtime,
    )  # fmt: skip
    return os.stat_result((*(value or 0 for value in values), found.st_mtime or 0))


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

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 30.0,
        stdin: str | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Completed:
        """`env` goes by the command's input: its line can be read by every user over there."""
        begin = time.monotonic()
        channel = self._session(argv, tuple(env))
        try:
            said = "".join(f"{value}\n" for value in env.values()) + (stdin or "")
            if said:
                channel.sendall(said.encode())
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
                        if (channel := self._sftp.get_channel()) is not None:
                            channel.settimeout(_CONNECT_S)
                    return do(self._sftp)
                except TimeoutError as error:
                    self._drop()
                    raise TryLater(f"the files on {self._host} gave no answer for {_CONNECT_S:.0f} s") from error
                except (paramiko.SSHException, EOFError, ConnectionError) as error:
                    self._drop()
                    if attempt == 2:
                        raise TryLater(f"the SSH connection to {self._host} broke: {error}") from error
            raise AssertionError("unreachable")

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _session(self, argv: Sequence[str], told: Sequence[str] = ()) -> paramiko.Channel:
        """`told`: variables whose values are the first lines of its input."""
        words = [*self._options.prefix, *argv]
        names = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._env.items())
        command = f"env {names} {' '.join(shlex.quote(item) for item in words)}"
        if told:  # the login shell of the account may be any: this is for a plain one
            reads = "".join(f"IFS= read -r {name} && export {name} && " for name in told)
            command = f"exec sh -c {shlex.quote(f'{reads}exec {command}')}"
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
