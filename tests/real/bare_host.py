"""A bare Debian 12 with systemd, Slurm and slurmdbd, as its packages leave it: a tree and namespaces of its own.

The tree is made from Debian's packages once, into the cache; each test gets a layer of its own over it, so that what it
installs is seen file by file. No network but its own loopback.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.lab.engine import mirror
from tests.real.slurm import ROOT, wait_for

__all__ = ["BareHost", "bare_host"]

PACKAGES = (
    "systemd", "systemd-sysv", "sudo", "python3", "python3-venv", "munge", "slurmctld", "slurmd", "slurm-client",
    "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin", "slurmdbd", "mariadb-server", "logrotate", "man-db", "procps",
)  # fmt: skip
TREE = ROOT / ".cache" / "bare" / "bookworm"
BOOT = """set -e
mkdir -p "$2/upper" "$2/work" "$2/root"; cd "$2/root"
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" . ; cd "$2/root"
hostname site; echo site > etc/hostname; ip link set lo up; ip addr add 10.0.0.1/32 dev lo
mount -t proc proc proc; mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys  # the machine's, not ours
mount -t sysfs sysfs sys; mount -t tmpfs tmpfs sys/fs/cgroup; mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
mount -t tmpfs -o mode=755 tmpfs dev; mkdir dev/pts dev/shm; ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts; mount -t tmpfs -o mode=1777 tmpfs dev/shm
for each in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${each%:*}" c 1 "${each#*:}"; done
mknod -m 666 dev/tty c 5 0
for i in 0 1 2 3; do mknod -m 666 "dev/nvidia$i" c 1 3; done
mount -t tmpfs -o mode=755 tmpfs run; mount -t tmpfs -o mode=1777 tmpfs tmp
printf '127.0.0.1 localhost\\n10.0.0.1 site\\n' > etc/hosts
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --show-status=0
"""


class BareHost:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        spaces = ["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child"]
        with (folder / "boot.log").open("w") as log:
            argv = ["unshare", *spaces, "bash", "-c", BOOT, "boot", str(TREE), str(folder)]
            self._outer = subprocess.Popen(
                argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        wait_for("it begins", lambda: bool(children.read_text().split()), 20)
        first = children.read_text().split()[0]
        self._inside = ["nsenter", "-t", first, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w"]

    def put(self, source: Path, path: str) -> None:
        """A file from here."""
        with source.open("rb") as file:
            subprocess.run([*self._inside, "bash", "-c", 'cat > "$0"', path], stdin=file, check=True)

    def try_(self, script: str, user: str = "root") -> tuple[int, str]:
        login = ["env", "-i", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        as_user = [] if user == "root" else ["runuser", "-u", user, "--"]
        argv = [*self._inside, *login, *as_user, "bash", "-c", f"cd /tmp\n{script}"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stdout + done.stderr

    def must(self, script: str, user: str = "root") -> str:
        code, text = self.try_(f"set -e\n{script}", user)
        assert code == 0, f"{script}\n{text[-4000:]}"
        return text.strip()

    def end(self) -> None:
        self._outer.send_signal(signal.SIGKILL)
        self._outer.wait(60)


def _tree() -> None:
    if TREE.exists():
        return
    part = TREE.with_name(f"part-{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    argv = ["mmdebstrap", "--variant=minbase", "--quiet", '--aptopt=Acquire::Check-Valid-Until "false"']
    done = subprocess.run([*argv, f"--include={','.join(PACKAGES)}", "bookworm", str(part), mirror()],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    part.rename(TREE)


@pytest.fixture
def bare_host(tmp_path: Path) -> Iterator[BareHost]:
    if os.getuid() != 0 or sys.platform != "linux" or not all(map(shutil.which, ("mmdebstrap", "unshare", "ip"))):
        pytest.skip("needs root, mmdebstrap, unshare and ip")
    if "name=systemd" not in Path("/proc/self/mounts").read_text():
        pytest.skip("this systemd needs cgroups of version 1")
    _tree()
    made = BareHost(tmp_path)
    try:
        wait_for("systemd is up", lambda: made.try_("systemctl is-system-running")[1].strip()
                 in {"running", "degraded"}, 120)  # fmt: skip
        yield made
    finally:
        made.end()
        print((tmp_path / "boot.log").read_text()[-2000:], time.strftime("%H:%M:%S"))
