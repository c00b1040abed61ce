"""A bare Debian 12 with python3, python3-venv, git and make, and a newcomer who has cloned this checkout: a tree and
namespaces of its own; the network and what reaches the package index are the host's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from horae.lab.engine import mirror
from tests.real.slurm import ROOT

TREE = ROOT / ".cache" / "bare" / "newcomer"
PACKAGES = ("python3", "python3-venv", "git", "make", "ca-certificates")
#: What a host says of its index: lent while it runs, kept nowhere.
LENT = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs", "/usr/local/share/ca-certificates")
PASSED_ON = ("PIP_", "UV_", "SSL_", "CURL_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY")
ENTER = """set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"; cd "$2/root"
mount -t proc proc proc; mount --rbind /dev dev; mount -t tmpfs -o mode=1777 tmpfs tmp
shift 2
while [ "$1" != -- ]; do
  [ ! -d "$1" ] || mkdir -p ".$1"; [ -d "$1" ] || touch ".$1"; mount --bind "$1" ".$1"; shift
done; shift
exec chroot . setpriv --reuid=newcomer --regid=newcomer --init-groups "$@"
"""


def newcomers(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Clone this checkout's last commit there and run `script` in it as an ordinary user; only `folder` stays."""
    if os.getuid() != 0 or not all(map(shutil.which, ("mmdebstrap", "unshare", "setpriv"))):
        pytest.skip("needs root, mmdebstrap, unshare and setpriv")
    _tree()
    home = folder / "upper/home/newcomer"
    for each in (home, folder / "work", folder / "root"):
        each.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(home / "horae")], check=True)
    subprocess.run(["chown", "--recursive", "2000:2000", str(home)], check=True)
    environment = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON)}
    environment |= {"HOME": "/home/newcomer", "USER": "newcomer", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    spaces = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
    lent = [path for path in LENT if Path(path).exists()]
    argv = [*spaces, "bash", "-c", ENTER, "enter", str(TREE), str(folder), *lent, "--"]
    argv += ["env", "-i", *(f"{k}={v}" for k, v in environment.items()), "bash", "-c", f"cd ~/horae\n{script}"]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _tree() -> None:
    if TREE.exists():
        return
    part = TREE.with_name(f"part-newcomer-{os.getpid()}")
    part.parent.mkdir(parents=True, exist_ok=True)
    argv = ["mmdebstrap", "--variant=minbase", "--quiet", '--aptopt=Acquire::Check-Valid-Until "false"']
    argv += [f"--include={','.join(PACKAGES)}", "--customize-hook=chroot $1 useradd -m -u 2000 newcomer"]
    done = subprocess.run([*argv, "bookworm", str(part), mirror()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    part.rename(TREE)
