"""The spool by SFTP from a real sshd: what users plant over there, a wrong host, a road that is cut or stands."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

from horae.port import FixConfiguration, TryLater
from horae.untrusted import Unbelievable
from slurm_plugin.files import sftp, ssh
from slurm_plugin.files.spool import Spool
from slurm_plugin.files.ssh import SshTransport
from slurm_plugin.options import Options
from tests.real.far_side import SSHD, FarSide, far_side

pytestmark = [
    pytest.mark.real, pytest.mark.root, pytest.mark.skipif(not SSHD, reason="sshd is not installed (openssh-server)"),
]  # fmt: skip

ANN, BOB = 64501, 64502
SECRET = "root's own, never to be seen"


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarSide]:
    with far_side(tmp_path_factory.mktemp("far")) as made:
        yield made


def transport_to(far: FarSide, **more: str) -> SshTransport:
    settings = {"ssh_key": far.key, "ssh_known_hosts": far.known_hosts(), **more}
    return SshTransport(Options(ssh=f"{getpass.getuser()}@127.0.0.1:{far.road.port}", **settings))  # type: ignore[arg-type]


@pytest.fixture
def transport(far: FarSide) -> Iterator[SshTransport]:
    made = transport_to(far)
    yield made
    made.close()


@pytest.fixture
def spool(transport: SshTransport, tmp_path: Path) -> Spool:
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    made = Spool(transport.files, str(tmp_path / "spool"))
    made.prepare()
    made.grant("1.ann", ANN, 1, 0)
    made.grant("2.bob", BOB, 1, 0)
    tell(tmp_path, "2.bob", BOB)
    return made


def tell(folder: Path, job: str, uid: int, name: str = "state.json") -> None:
    path = folder / "spool/jobs" / job / name
    path.write_text(json.dumps({"epoch": 1, "exit_code": 86, "checkpoint": {"epoch": 1, "step": 7, "time_s": 5.0}}))
    os.chown(path, uid, uid)


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def hard_link(path: Path, secret: Path) -> None:
    path.hardlink_to(secret)


def pipe(path: Path, secret: Path) -> None:
    os.mkfifo(path)
    os.chown(path, ANN, ANN)


def folder(path: Path, secret: Path) -> None:
    path.mkdir()
    os.chown(path, ANN, ANN)


def listener(path: Path, secret: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        home = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{home}/{path.name}")  # its name may be too long for a socket
        os.close(home)
    os.chown(path, ANN, ANN)


def huge(path: Path, secret: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)
    os.chown(path, ANN, ANN)


def device(path: Path, secret: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path, secret: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("plant", [link, hard_link, pipe, folder, listener, huge, device, loop])
def test_what_is_planted_costs_its_own_job(
    spool: Spool, tmp_path: Path, plant: Callable[[Path, Path], None], transport: SshTransport
) -> None:
    home = tmp_path / "spool/jobs/1.ann"
    for name in ("state.json", "slurm.exec", "output.log"):
        plant(home / name, tmp_path / "secret")
    found = spool.account("1.ann", ANN)
    assert (found.epoch, found.exit_code) == (0, None)
    assert plant is loop or "1.ann" in spool.odd, "what leads nowhere is as if it were not there"
    assert SECRET not in spool.odd.get("1.ann", "")
    if plant is huge:
        part = spool.output("1.ann", ANN, 0, 100)
        assert part is not None
        assert part.data == bytes(100)
    else:
        with contextlib.suppress(Unbelievable, OSError):
            assert spool.output("1.ann", ANN, 0, 100) is None
    assert spool.account("2.bob", BOB).exit_code == 86
    for each in ("stop", "cancel", "epoch", "slurm.json"):
        (home / each).unlink(missing_ok=True)
        plant(home / each, tmp_path / "secret")
    spool.ask_to_stop("1.ann", 1, 5.0, 1.0)
    assert json.loads((home / "stop").read_text())["epoch"] == 1
    spool.grant("1.ann", ANN, 2, 0)
    assert (home / "epoch").read_text() == "2\n"
    assert not os.path.lexists(home / "stop")
    assert ((tmp_path / "secret").read_text(), (tmp_path / "secret").stat().st_mode & 0o777) == (SECRET, 0o600)
    assert (tmp_path / "secret").stat().st_uid == 0


def test_a_job_folder_that_is_a_link_is_none(spool: Spool, tmp_path: Path) -> None:
    """Where the spool's own folder is everybody's, by an administrator's mistake."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "spool/jobs/3.ann").symlink_to(elsewhere)
    with pytest.raises((FixConfiguration, Unbelievable)):
        spool.output("3.ann", ANN, 0, 10)
    with pytest.raises(FileExistsError):
        spool._files.entrust(str(tmp_path / "spool"), "jobs", "3.ann", uid=ANN, first={"epoch": b"1\n"})
    assert list(elsewhere.iterdir()) == []


def test_a_pipe_that_takes_a_files_place_costs_its_owner_alone(
    spool: Spool, transport: SshTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands there after we looked and before we opened: SFTP cannot do both at once."""
    monkeypatch.setattr(sftp, "_THEIRS_S", 0.5)
    tell(tmp_path, "1.ann", ANN)
    path = tmp_path / "spool/jobs/1.ann/state.json"
    look = paramiko.SFTPClient.stat

    def looked(client: paramiko.SFTPClient, name: str) -> paramiko.SFTPAttributes:
        found = look(client, name)
        if name == str(path):
            path.unlink()
            pipe(path, path)
        return found

    monkeypatch.setattr(paramiko.SFTPClient, "stat", looked)
    spool.account("1.ann", ANN)
    assert "is it a pipe?" in spool.odd["1.ann"]
    assert spool.account("2.bob", BOB).exit_code == 86
    assert transport.run(["echo", "heard"]).out == "heard\n"
    path.unlink()
    tell(tmp_path, "1.ann", ANN)
    spool.account("1.ann", ANN)
    assert "made us wait" in spool.odd["1.ann"]
    monkeypatch.setattr(sftp.time, "monotonic", lambda real=sftp.time.monotonic: real() + sftp._NOT_AGAIN_S + 1)
    monkeypatch.setattr(paramiko.SFTPClient, "stat", look)
    assert spool.account("1.ann", ANN).exit_code == 86


def test_another_host_is_not_spoken_to(far: FarSide) -> None:
    with pytest.raises(FixConfiguration, match="another host key"):
        transport_to(far, ssh_known_hosts=far.known_hosts("other")).run(["true"])
    with pytest.raises(FixConfiguration, match="not in known_hosts"):
        transport_to(far, ssh_known_hosts="/dev/null").files.stat("/")


def test_a_road_that_is_cut_is_gone_again_and_one_that_stands_still_is_told(
    far: FarSide, transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert transport.run(["echo", "1"]).out == "1\n"
    assert transport.files.stat("/") is not None
    far.road.cut()
    assert transport.run(["echo", "2"]).out == "2\n"
    far.road.cut()
    assert transport.files.stat("/") is not None
    talk = transport.open(["cat"])
    talk.send("3\n")
    assert talk.receive(60.0)[0] == "3\n"
    far.road.cut()
    with pytest.raises(TryLater, match="ended"):
        talk.receive(60.0)
    transport.run(["true"])
    monkeypatch.setattr(ssh, "_CONNECT_S", 1.0)
    far.road.moves.clear()
    try:
        with pytest.raises(TryLater, match=r"SSH|no answer"):
            transport.run(["echo", "4"], timeout_s=1.0)
        with pytest.raises(TryLater, match=r"SSH|no answer"):
            transport.files.stat("/")
    finally:
        far.road.moves.set()
        far.road.cut()
    monkeypatch.setattr(ssh, "_CONNECT_S", 30.0)
    assert transport.run(["echo", "5"]).out == "5\n"
    assert transport.files.stat("/") is not None
