"""Docker for labs: an engine that answers, base images that exist, and nothing left behind.

Everything a lab makes carries the label `horae.lab=NAME`; cleaning up goes by that label alone, so it also works
after a crash. A base image is pulled, or, where no image registry answers, made from Debian's packages by
mmdebstrap with the mirror of the host's own apt sources. docker-py (extra `lab`) is loaded at the first use: a lab of
plain processes does without it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from horae import extras
from policy.model import BadInput

LABEL = "horae.lab"
STARTING = "/run/horae-dockerd.lock"  #: held by whoever starts dockerd; a folder where only root writes
Say = Callable[[str], None]


class _Silent(Exception):
    """No engine answers; its words."""


def engine(say: Say) -> Any:
    """A client of a running Docker engine; as root, with dockerd installed and none answering, one is started.

    Raises BadInput with what to install or whom to ask.
    """
    try:
        return _answering()
    except ModuleNotFoundError as error:
        raise extras.missing(error, or_else="use --engine process") from None
    except _Silent as error:
        refusal = str(error)
    if "Permission denied" in refusal:
        raise BadInput(
            "Docker's socket is closed to this user", remedy="join the group docker, or use --engine process"
        )
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise BadInput(
            "no Docker engine answers", remedy="start Docker (Debian: apt install docker.io), or --engine process"
        )
    with _alone():
        try:
            return _answering()  # whoever had the lock before has started it
        except _Silent:
            return _started(say)


@contextmanager
def _alone() -> Iterator[None]:
    """Nobody else starts a dockerd meanwhile. Of two that start at once each may miss the other's pid file; then the
    second takes the first one's socket away and dies for want of its containerd, and no engine answers any more."""
    lock = os.open(STARTING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _started(say: Say) -> Any:
    handle, log = tempfile.mkstemp(prefix="horae-dockerd-", suffix=".log")  # new: nobody's link, nor anybody's file
    say(f"no Docker engine answers: starting dockerd (log: {log})")
    with os.fdopen(handle, "ab") as output:
        subprocess.Popen(["dockerd"], stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
    refusal = ""
    for _ in range(300):
        time.sleep(0.2)
        try:
            return _answering()
        except _Silent as error:
            refusal = str(error)
    last = _last_line(Path(log).read_text(errors="replace"))
    raise BadInput(f"dockerd does not start: {refusal}; its last words: {last}", remedy=f"read {log}")


def answers() -> bool:
    """Whether a Docker engine answers this user now; nothing is started."""
    try:
        _answering()
    except (_Silent, ModuleNotFoundError):
        return False
    return True


def _answering() -> Any:
    import docker

    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except docker.errors.DockerException as error:
        raise _Silent(str(error)) from None
    return client


def ensure_base(client: Any, suite: str, say: Say) -> str:
    """The name of a local image `debian:SUITE-slim`. Raises BadInput when it can be neither pulled nor made."""
    from docker.errors import APIError, ImageNotFound, NotFound

    name = f"debian:{suite}-slim"
    try:
        client.images.get(name)
        return name
    except ImageNotFound:
        pass
    try:
        say(f"pulling {name}")
        client.images.pull("debian", f"{suite}-slim")
        return name
    except (APIError, NotFound) as error:
        say(f"cannot pull it ({_first_line(str(error))}); making it from Debian's packages")
    if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
        raise BadInput(f"cannot pull {name}", remedy="as root, with mmdebstrap installed, it is made from packages")
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder) / "base.tar"
        # testing's Release file carries an expiry that a mirror of some weeks ago has passed
        argv = ["mmdebstrap", "--variant=minbase", "--quiet", '--aptopt=Acquire::Check-Valid-Until "false"', suite]
        done = subprocess.run([*argv, str(tar), mirror()], capture_output=True, text=True, check=False)
        if done.returncode != 0 or not tar.is_file() or tar.stat().st_size < 10_000_000:
            raise BadInput(f"mmdebstrap cannot make {name}: {_last_line(done.stderr)}", remedy="check the apt mirror")
        # from a file: as a stream it would be sent chunked and with a length, which the engine takes for a bad request
        client.api.import_image_from_file(str(tar), repository="debian", tag=f"{suite}-slim")
    client.images.get(name)
    return name


def mirror() -> str:
    """The Debian mirror of this host's own apt sources, Debian's default where it has none."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for path in sources:
        if not path.is_file():
            continue
        for line in path.read_text(errors="replace").splitlines():
            found = re.match(r"^(?:URIs:\s*|deb\s+(?:\[[^]]*]\s+)?)(\S+/debian)/?(?:\s|$)", line)
            if found:
                return found.group(1)
    return "http://deb.debian.org/debian"


def build(client: Any, folder: Path, dockerfile: str, tag: str, args: Mapping[str, str], say: Say) -> str:
    """Build an image (a no-op when nothing changed). Raises BadInput with the last words of a failed build."""
    from docker.errors import BuildError

    say(f"building {tag}")
    try:
        client.images.build(
            path=str(folder), dockerfile=dockerfile, tag=tag, buildargs=dict(args), rm=True, forcerm=True
        )
    except BuildError as error:
        tail = "".join(str(entry.get("stream", "")) for entry in list(error.build_log)[-20:])
        raise BadInput(f"building {tag} fails: {error.msg}\n{tail}", remedy="read the build's output") from error
    return tag


def clean(client: Any, name: str, volumes: bool = True) -> int:
    """Remove everything that carries this lab's label; how many things that were."""
    wanted = {"label": f"{LABEL}={name}"}
    removed = 0
    for container in client.containers.list(all=True, filters=wanted):
        removed += _gone(partial(container.remove, force=True, v=True))
    for network in client.networks.list(filters=wanted):
        removed += _gone(network.remove)
    if volumes:
        for volume in client.volumes.list(filters=wanted):
            removed += _gone(partial(volume.remove, force=True))
    return removed


def labels(name: str, **more: str) -> dict[str, str]:
    return {LABEL: name, **{f"{LABEL}.{key}": value for key, value in more.items()}}


def find(client: Any, name: str) -> Iterable[Any]:
    found: Iterable[Any] = client.containers.list(all=True, filters={"label": f"{LABEL}={name}"})
    return found


def _gone(remove: Callable[[], object]) -> int:
    from docker.errors import APIError, NotFound

    try:
        remove()
    except NotFound:
        return 0
    except APIError as error:
        if error.status_code != 409:  # "removal is already in progress"
            raise
    return 1


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:160] if text.strip() else "no answer"


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:300] if text.strip() else "no words"
