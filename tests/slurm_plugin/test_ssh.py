"""Commands over SSH, by a channel that moves at the moments that are chosen: what came last is read, too."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from horae.port import TryLater
from slurm_plugin.files.sftp import SftpFiles
from slurm_plugin.files.ssh import SshConversation, SshTransport
from slurm_plugin.files.transport import Completed, LocalTransport
from slurm_plugin.options import Options


class Channel:
    """paramiko's channel of a command that says `out` and ends right after its output was looked at `looks` times."""

    def __init__(self, out: bytes, looks: int = 1, breaks: bool = False, status_first: bool = False) -> None:
        self._out, self._looks, self._breaks, self._status_first = out, looks, breaks, status_first
        self.closed = self.eof_received = False

    def recv_ready(self) -> bool:
        if self._looks > 0:
            self._looks -= 1
            if self._looks == 0:
                self.closed, self.eof_received = True, not self._breaks
            return False
        return bool(self._out)

    def recv(self, size: int) -> bytes:
        data, self._out = self._out[:size], self._out[size:]
        return data

    def recv_stderr_ready(self) -> bool:
        return False

    def exit_status_ready(self) -> bool:
        return self.closed or self._status_first

    def recv_exit_status(self) -> int:
        return 0

    def shutdown_write(self) -> None:
        pass

    def close(self) -> None:
        pass


class Site(SshTransport):
    def __init__(self, channel: Channel) -> None:
        super().__init__(Options(ssh="horae@slurm"))
        self._channel = channel

    def _session(self, argv: object, told: object = ()) -> Channel:  # type: ignore[override]
        return self._channel


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_output_that_comes_with_the_end_right_after_a_look_is_read(looks: int) -> None:
    done = Site(Channel(b"12|RUNNING\n", looks)).run(["squeue"])
    assert (done.rc, done.out) == (0, "12|RUNNING\n")


def test_a_connection_that_breaks_is_told_at_once() -> None:
    with pytest.raises(TryLater, match="broke"):
        Site(Channel(b"", breaks=True)).run(["squeue"], timeout_s=60)


def test_last_words_are_heard_also_when_the_exit_status_came_before_them() -> None:
    talk = SshConversation(Channel(b"why\n", looks=3, status_first=True))  # type: ignore[arg-type]
    assert talk.receive(5.0) == ("why\n", "")
    with pytest.raises(TryLater, match="ended"):
        talk.receive(5.0)


class Dribble(Channel):
    """Gives one byte a read."""

    def recv(self, size: int) -> bytes:
        return super().recv(1)


def test_a_character_that_is_split_between_two_reads_stays_whole() -> None:
    talk = SshConversation(Dribble("é\n".encode(), looks=0))  # type: ignore[arg-type]
    assert "".join(talk.receive(5.0)[0] for _ in range(3)) == "é\n"


def test_also_where_the_command_runs_here() -> None:
    words = r"printf '\303'; read -r _; printf '\251\n'; read -r _"
    talk = LocalTransport().open(["sh", "-c", words])
    try:
        said = talk.receive(30.0)[0]
        talk.send("\n")
        while "\n" not in said:
            said += talk.receive(30.0)[0]
    finally:
        talk.close()
    assert said == "é\n"


class Wire:
    """What would go to sshd: the command, and what it reads."""

    def __init__(self) -> None:
        self.command, self.said = "", b""

    def get_transport(self) -> Wire:
        return self

    def open_session(self, timeout: float) -> Wire:
        return self

    def settimeout(self, timeout: float) -> None:
        pass

    def close(self) -> None:
        pass

    def exec_command(self, command: str) -> None:
        self.command = command


def test_what_no_other_user_may_see_goes_by_the_input_and_not_on_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, secret = Wire(), "JobID:\x1fAB,Name:\x1eCD 'q' $x"
    transport = SshTransport(Options(ssh="horae@slurm"))
    monkeypatch.setattr(transport, "_connected", lambda: wire)
    transport._session(["printenv", "SQUEUE_FORMAT2", "LC_ALL"], ("SQUEUE_FORMAT2",))
    assert "AB" not in wire.command
    done = subprocess.run(
        ["sh", "-c", wire.command], input=f"{secret}\nrest", capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{secret}\nC\n"


NARROWED = {"SQUEUE_USERS": "root", "SCANCEL_STATE": "PENDING", "SLURM_CLUSTERS": "other", "SINFO_PARTITION": "mine"}


def test_what_narrows_slurms_commands_for_whoever_started_us_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that squeue does not show are gone, and a signal that scancel filters away reaches nobody."""
    for name, value in NARROWED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    local, kept = LocalTransport(env={"SQUEUE_SORT": "i"}), ["SLURM_CONF=/etc/slurm/slurm.conf", "SQUEUE_SORT=i"]

    def ours(text: str) -> list[str]:
        words = ("SLURM_C", "SQUEUE_", "SCANCEL_", "SINFO_")
        return sorted(line for line in text.splitlines() if line.startswith(words))

    assert ours(local.run(["env"]).out) == kept
    talk, said = local.open(["env"]), ""
    with pytest.raises(TryLater):
        while True:
            said += talk.receive(30.0)[0]
    talk.close()
    assert ours(said) == kept


def test_nor_is_what_the_login_at_the_other_end_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, transport = Wire(), SshTransport(Options(ssh="horae@slurm", env=(("SQUEUE_SORT", "i"),)))
    monkeypatch.setattr(transport, "_connected", lambda: wire)
    transport._session(["env"])
    env = {**os.environ, **NARROWED, "SLURM_CONF": "/etc/slurm/slurm.conf"}
    told = subprocess.run(["sh", "-c", wire.command], env=env, capture_output=True, text=True, check=True).stdout
    assert not [line for line in told.splitlines() if line.partition("=")[0] in NARROWED]
    assert {"SQUEUE_SORT=i", "SLURM_CONF=/etc/slurm/slurm.conf", "LC_ALL=C"} <= set(told.splitlines())


def test_timeout_stands_before_sudo_that_no_rule_need_allow_it() -> None:
    local = LocalTransport(("sudo", "-n", "-u", "slurm"))
    assert local._placed(["timeout", "-k", "1", "10", "scancel", "7"]) == [
        "timeout", "-k", "1", "10", "sudo", "-n", "-u", "slurm", "scancel", "7",
    ]  # fmt: skip
    assert local._placed(["squeue"]) == ["sudo", "-n", "-u", "slurm", "squeue"]


class _Denied:
    """A connection over which every file is refused, in SFTP's words: they name no file."""

    def with_sftp(self, do: Callable[[Any], Any], seconds: float | None = None) -> Any:
        raise OSError(errno.EACCES, "Permission denied")

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> Completed:
        raise AssertionError(argv)


def test_what_sftp_refuses_is_told_with_its_name() -> None:
    with pytest.raises(PermissionError, match=r"/shared/ann\.out") as refused:
        SftpFiles(_Denied()).part("/shared/ann.out", 0, 10, 1001)
    assert (refused.value.errno, refused.value.filename) == (errno.EACCES, "/shared/ann.out")
