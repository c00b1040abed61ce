"""What a mini Hadoop of containers sees of the host's cache: jars, framework archive, and what Horae needs itself.

    python -m yarn_bridge.lab.fetch [RELEASE]

`horae lab up hadoop` does it by itself; by hand it comes before compose. The gateway takes Horae's own packages from
where they are installed here, and what those need from a folder of wheels for its own Python.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

from horae.lab import default_folder, say
from policy.model import BadInput
from yarn_bridge.lab import roles
from yarn_bridge.lab.jars import jars, local_framework
from yarn_bridge.lab.settings import RELEASES

PYTHON = "3.11"  #: of the image
_PAUSES_S = (2.0, 10.0, 30.0)


def framework(cache: Path, release: str, tell: Callable[[str], None]) -> Path:
    """The archive for nodes that see the jars at `roles.JARS`. Raises BadInput."""
    path = cache / f"framework-{release}.tar.gz"
    data = local_framework(jars(cache, release, tell), Path(roles.JARS))
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)
    path.chmod(0o644)
    return path


def packages(cache: Path, tell: Callable[[str], None]) -> Path:
    """The folder of what Horae needs on the gateway. Fetched when its requirements changed. Raises BadInput."""
    folder = cache / "gateway"
    wanted = requirements(distribution("horae").requires or [])
    stamp = hashlib.sha256("\n".join([PYTHON, *wanted]).encode()).hexdigest()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "gateway.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "stamp").is_file() or (folder / "stamp").read_text() != stamp:
            tell("fetching what Horae needs on the gateway")
            part = cache / f"gateway.{os.getpid()}"
            try:
                _install(wanted, part, tell)
                (part / "stamp").write_text(stamp)
                shutil.rmtree(folder, ignore_errors=True)
                part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        _describe(folder)
    return folder


def requirements(declared: list[str]) -> list[str]:
    """What Horae needs for YARN, of all that it declares: `requests>=2.31; extra == 'yarn'`, sorted."""
    found = set()
    for each in declared:
        need, _, condition = each.partition(";")
        if not condition or "extra == 'yarn'" in condition.replace('"', "'"):
            found.add(need.strip())
    return sorted(found)


def _describe(folder: Path) -> None:
    """Horae's own metadata: its clusters and commands are found by them."""
    ours = distribution("horae")
    info = folder / f"horae-{ours.version}.dist-info"
    info.mkdir(exist_ok=True)
    for name in ("METADATA", "entry_points.txt"):
        (info / name).write_text(ours.read_text(name) or "")


def _install(wanted: list[str], folder: Path, tell: Callable[[str], None]) -> None:
    machine = platform.machine()
    names = [f"{kind}_{machine}" for kind in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    if importlib.util.find_spec("pip") is not None:
        tool, there = [sys.executable, "-P", "-m", "pip"], [f"--platform={name}" for name in names]
    elif found := shutil.which("uv"):
        tool, there = [found, "pip"], [f"--python-platform={machine}-manylinux_2_28"]
    elif found := shutil.which("pip3"):
        tool, there = [found], [f"--platform={name}" for name in names]
    else:
        raise BadInput("there is neither pip nor uv to fetch Horae's own needs", remedy="apt install python3-pip")
    tool += ["install", "--quiet", "--target", str(folder)]
    binary = ["--only-binary=:all:", f"--python-version={PYTHON}", *there]
    _retried([*tool, *binary, *wanted], tell)


def _retried(command: list[str], tell: Callable[[str], None]) -> None:
    for pause in (*_PAUSES_S, None):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        why = (done.stderr.strip().splitlines() or ["no words"])[-1][:300]
        if pause is None:
            raise BadInput(f"what Horae needs on the gateway cannot be fetched: {why}", remedy="check the network")
        tell(f"{Path(command[0]).name}: {why}; again in {pause:g} s")
        time.sleep(pause)


def main(words: list[str]) -> int:
    release = words[0] if words else RELEASES[0]
    cache = default_folder() / "hadoop"
    if release not in RELEASES:
        print(f"no lab of Hadoop {release}: one of {', '.join(RELEASES)}", file=sys.stderr)
        return 2
    try:
        framework(cache, release, say)
        packages(cache, say)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 1
    print(cache)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
