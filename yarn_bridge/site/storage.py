"""The part of `horae doctor` for YARN that asks HDFS."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Iterator

from horae.doctor import Check, fail, ok, warn
from horae.port import PortError
from yarn_bridge.hdfs import Hdfs
from yarn_bridge.memory import SLICES
from yarn_bridge.options import Options
from yarn_bridge.settings import Settings

_PROBE = b"written and deleted by horae doctor\n"
#: quotas with less left than this are about to stop checkpoints
_ROOM = 0.1


def checks(hdfs: Hdfs, conf: Settings, options: Options, runtime: str) -> Iterator[Check]:
    """`runtime`: how jobs run here. Raises PortError where HDFS cannot be asked at all."""
    user = options.user
    home = hdfs.status(f"/user/{user}")
    make = f"hdfs dfs -mkdir -p /user/{user}; hdfs dfs -chown {user} /user/{user}"
    if home is None or not home.folder:
        yield fail("HDFS home", f"there is no /user/{user}", make)
        return
    if home.owner != user:
        yield warn("HDFS home", f"/user/{user} is {home.owner}'s", make)
    # Through a DataNode and back: this is where names that do not resolve, safe mode and full disks show.
    path = posixpath.join(f"/user/{user}", f".horae-doctor-{secrets.token_hex(4)}")
    mine = hdfs.as_user(user)
    try:
        mine.write(path, _PROBE)
        same = mine.read(path) == _PROBE
    except PortError as error:
        yield fail("WebHDFS", error.text, getattr(error, "remedy", "") or "see the NameNode's log")
        return
    mine.delete(path)
    yield (
        ok("WebHDFS", f"/user/{user} can be written and read")
        if same
        else fail("WebHDFS", "what was read is not what was written", "hdfs fsck /")
    )
    temporary = hdfs.status("/tmp")
    if temporary is None or temporary.permission != "1777":
        found = temporary.permission if temporary else "missing"
        yield fail("HDFS /tmp", f"{found}: workers would fail before they start", "hdfs dfs -chmod 1777 /tmp")
    else:
        yield ok("HDFS /tmp", "1777")
    yield from _quota(mine, f"/user/{user}")
    yield from _framework(hdfs, conf, options, runtime)


def _quota(hdfs: Hdfs, home: str) -> Iterator[Check]:
    usage = hdfs.usage(home)
    for name, used, quota in (("bytes", usage.space, usage.space_quota), ("names", usage.names, usage.name_quota)):
        if quota is None:
            continue
        text = f"{home} has {used} of {quota} {name}"
        yield (
            ok("quota", text)
            if used < quota * (1 - _ROOM)
            else warn(
                "quota", f"{text}: checkpoints will fail", f"hdfs dfsadmin -setSpaceQuota N {home}, or remove old ones"
            )
        )


def _framework(hdfs: Hdfs, conf: Settings, options: Options, runtime: str) -> Iterator[Check]:
    """The application masters' classes. Services upload them again at each start (some 80 MB, half a minute) where
    they are not in HDFS; slices then need them installed on the nodes."""
    own = options.framework if runtime == SLICES else ""
    path = own or conf.get("yarn.service.framework.path")
    mend = "yarn app -enableFastLaunch, and yarn.service.framework.path in the ResourceManager's yarn-site.xml"
    if conf.why and not own:
        return
    if not path and runtime == SLICES:
        yield warn(
            "framework", "is not in HDFS: slices run with the Hadoop that is installed on the nodes, which cannot be "
            "seen from here", f"{mend}; or the option `framework`",
        )  # fmt: skip
        return
    if not path:
        yield warn("framework", "is not in HDFS: every job's start uploads it again", mend)
        return
    found = hdfs.status(path)
    if found is None:
        yield fail("framework", f"{path} is not there: no job can start", mend)
    elif int(found.permission[-1]) & 4 == 0:
        yield fail("framework", f"{path} is {found.permission}: others cannot read it", f"hdfs dfs -chmod 644 {path}")
    else:
        yield ok("framework", f"{path}, {found.length >> 20} MB")
