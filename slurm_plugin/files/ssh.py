"""The command line over SSH, when the arbiter is not on a Slurm host: one connection kept, checked host keys.

Without TCP_NODELAY each exec costs 40-50 ms for nothing; with it, 3 ms. Files (the spool) go by SFTP (`sftp.py`).
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import paramiko

from horae.port import FixConfiguration, TryLater
from slurm_plugin.files.sftp import SftpFiles, Unanswered
from slurm_plugin.files.transport import NARROWING, Completed, Conversation, Decoders, Files
from slurm_plugin.options import Options

_CONNECT_S = 30.0
#: for env(1): a login's own files may set these
_WITHOUT = " ".join(f"-u {name}" for name in NARROWING)
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


class SshTransport:
    def __init__(self, options: Options) -> None:
        user, _, rest = options.ssh.rpartition("@")
        host, _, port = rest.partition(":")
        self._user, self._host, self._port = user or None, host, int(port or 22)
        self._options = options
        self._client: paramiko.SSHClient | None = None
        self._sftp: paramiko.SFTPClient | None = None
        self._lock = threading.RLock()
        self._files_lock = threading.RLock()  #: a file that waits lets no command wait
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
            try:
                if said:
                    channel.sendall(said.encode())
                channel.shutdown_write()
            except OSError as error:
                raise TryLater(f"the SSH connection to {self._host} broke: {error}") from error
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

    def with_sftp(self, do: Callable[[paramiko.SFTPClient], T], seconds: float | None = None) -> T:
        """`seconds` that one answer may take. Raises Unanswered, TryLater, and what `do` raises."""
        wait_s = seconds or _CONNECT_S
        with self._files_lock:
            for attempt in (1, 2):
                sftp = self._sftp
                try:
                    if sftp is None:
                        with self._lock:
                            client = self._connected()
                        with _ended_after(client, _CONNECT_S):
                            sftp = self._sftp = client.open_sftp()
                    if (channel := sftp.get_channel()) is not None:
                        channel.settimeout(wait_s)
                    return do(sftp)
                except TimeoutError as error:
                    self._drop_files()
                    raise Unanswered(f"the files on {self._host} gave no answer for {wait_s:.0f} s") from error
                except (paramiko.SSHException, EOFError, OSError) as error:
                    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and _open(sftp):
                        raise  # the file's own
                    self._drop()
                    if attempt == 2:
                        raise TryLater(f"the SSH connection to {self._host} broke: {error}") from error
            raise AssertionError("unreachable")

    def close(self) -> None:
        with self._files_lock, self._lock:
            self._drop()

    def _session(self, argv: Sequence[str], told: Sequence[str] = ()) -> paramiko.Channel:
        """`told`: variables whose values are the first lines of its input."""
        words = [*self._options.prefix, *argv]
        names = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._env.items())
        command = f"env {_WITHOUT} {names} {' '.join(shlex.quote(item) for item in words)}"
        if told:  # the login shell of the account may be any: this is for a plain one
            reads = "".join(f"IFS= read -r {name} && export {name} && " for name in told)
            command = f"exec sh -c {shlex.quote(f'{reads}exec {command}')}"
        with self._lock:
            for attempt in (1, 2):
                try:
                    client = self._connected()
                    transport = client.get_transport()
                    assert transport is not None
                    with _ended_after(client, _CONNECT_S):
                        channel = transport.open_session(timeout=_CONNECT_S)
                        channel.settimeout(_CONNECT_S)
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
        self._drop_files()
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def _drop_files(self) -> None:
        """Files' own channel; what runs beside it goes on."""
        files, self._sftp = self._sftp, None
        if files is not None:
            files.close()


def _open(sftp: paramiko.SFTPClient | None) -> bool:
    channel = None if sftp is None else sftp.get_channel()
    return channel is not None and not channel.closed


@contextlib.contextmanager
def _ended_after(client: paramiko.SSHClient, seconds: float) -> Iterator[None]:
    """paramiko waits for the answers to some requests for ever: then the connection ends, and that is told."""
    timer = threading.Timer(seconds, client.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
