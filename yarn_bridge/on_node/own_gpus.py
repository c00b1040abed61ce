"""Which GPUs are a container's own on YARN, where nothing keeps it from the others.

Under the LinuxContainerExecutor the NodeManager assigns GPUs to containers, and its web says which. YARN's default
executor counts GPUs and assigns none: every worker on a node would take the first. There the workers share them out
themselves, one lock a GPU in a folder of the node, held as long as the worker lives. GPUs are named by their UUIDs,
which mean the same inside an isolated container and outside.
"""

import contextlib
import fcntl
import getpass
import json
import os
import re
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, Tuple

from horae.elastic import protocol

LOCKS = "/tmp/.horae-gpus"
_LIST = "http://%s/ws/v1/node/resources/yarn.io%%2Fgpu?user.name=%s"
_WAIT_S = 10.0
_LEAVING_S = 30.0  #: how long the worker that had a GPU before may take to be gone
_MOST = 1 << 20  #: bytes of an answer

_held: List[int] = []  #: locks, for as long as this process lives


def heed(container: str, gpus: int, say: Callable[[str], None]) -> None:
    """Tell this process's children which are theirs."""
    os.environ.update(devices(os.environ, container, gpus, say))


def devices(env: Mapping[str, str], container: str, gpus: int, say: Callable[[str], None]) -> Dict[str, str]:
    """What CUDA is to be told; nothing where that is said already, is not needed, or cannot be found out."""
    where = env.get(protocol.ENV_NODE_MANAGER) or "%s:%s" % (env.get("NM_HOST", ""), env.get("NM_HTTP_PORT", ""))
    if env.get("CUDA_VISIBLE_DEVICES") or where.startswith(":"):
        return {}
    there, own = _seen(where, env, container, say)
    if not own and len(there) > gpus:
        own = _claim(where, there, gpus)
        if not own:
            say("all GPUs of %s are held by other workers of Horae: this one may share one" % where)
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)} if own else {}


def _seen(
    where: str, env: Mapping[str, str], container: str, say: Callable[[str], None]
) -> "Tuple[List[str], List[str]]":
    """As `_told`; where the NodeManager does not tell, what nvidia-smi shows, of which none is assigned."""
    try:
        return _told(where, env, container)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        there = _visible()
        if not there:
            said = "HTTP %d" % error.code if hasattr(error, "code") else str(error)
            say("neither NodeManager %s (%s) nor nvidia-smi tells which GPUs are here: unless they are isolated, "
                "workers on one node may share one" % (where, said))  # fmt: skip
        return there, []


def _told(where: str, env: Mapping[str, str], container: str) -> "Tuple[List[str], List[str]]":
    """UUIDs of the node's GPUs, and of those that its NodeManager assigned to the container."""
    import urllib.parse  # here: it takes twice as long to import as all that a supervisor needs
    import urllib.request

    user = env.get("HADOOP_USER_NAME") or getpass.getuser()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(_LIST % (where, urllib.parse.quote(user)), timeout=_WAIT_S) as answer:
        told: Dict[str, Any] = json.loads(answer.read(_MOST).decode())
    known = (told.get("gpuDeviceInformation") or {}).get("gpus") or []
    uuids = {int(each["minorNumber"]): str(each["uuid"]) for each in known}
    mine = [each for each in told.get("assignedGpuDevices") or [] if each.get("containerId") == container]
    return [uuids[minor] for minor in sorted(uuids)], [uuids[int(each["minorNumber"])] for each in mine]


def _visible() -> List[str]:
    """UUIDs of the GPUs that this process sees; in an isolated container those are its own."""
    try:
        words = ["nvidia-smi", "-L"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return re.findall(r"UUID: (GPU-[\w-]+)", done.stdout.decode(errors="replace"))


def _claim(where: str, there: List[str], gpus: int) -> List[str]:
    """So many that no other worker holds, or none."""
    until = time.monotonic() + _LEAVING_S
    own: Dict[str, int] = {}
    while True:
        _take(where, there, gpus, own)
        if len(own) == gpus:
            _held.extend(own.values())
            return [uuid for uuid in there if uuid in own]
        if time.monotonic() > until:
            for lock in own.values():
                os.close(lock)
            return []
        time.sleep(0.2)


def _take(where: str, there: List[str], gpus: int, own: Dict[str, int]) -> None:
    """Add to `own` what is free now."""
    for uuid in there:
        if uuid in own or len(own) == gpus:
            continue
        try:
            own[uuid] = _lock("%s-%s" % (re.sub(r"\W", "_", where), re.sub(r"[^\w-]", "_", uuid)))
        except OSError:
            continue  # another worker's


def _lock(name: str) -> int:
    """A descriptor that holds it. Raises OSError where another worker does, or it is none of ours to open."""
    with contextlib.suppress(FileExistsError):  # which may be a link of anybody's: its rights are left as they are
        os.mkdir(LOCKS)
        os.chmod(LOCKS, 0o1777)  # workers of all users
    path = os.path.join(LOCKS, name)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe of anybody's would be waited for
    try:  # not O_CREAT on what is there: in such a folder the kernel refuses that to all but the owner
        fd = os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        os.fchmod(fd, 0o644)  # whatever the umask is
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
