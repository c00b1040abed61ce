"""The part of `horae doctor` for YARN that asks HDFS."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from horae.doctor import Check, fail, failed, ok, warn
from horae.elastic.stores.attributes import MOST, PIECE
from horae.port import FixConfiguration, PortError
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import Answer, HttpClient
from yarn_bridge.clients.settings import Settings, setting_of
from yarn_bridge.jobs import ground
from yarn_bridge.options import SLICES, Options
from yarn_bridge.site.xml import remedy

_PROBE = b"written and deleted by horae doctor\n"
#: quotas with less left than this are about to stop checkpoints
_ROOM = 0.1
_NAMENODES = "hdfs-site.xml of the NameNodes"
_XATTRS, _XATTR_SIZE = "dfs.namenode.xattrs.enabled", "dfs.namenode.fs-limits.max-xattr-size"
_FILE_END = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms"
#: Hadoop's own defaults
_XATTR_ROOM = {_XATTR_SIZE: "16384"}
_XATTR_LIMITS = {_XATTR_SIZE: 16384, "dfs.namenode.fs-limits.max-xattrs-per-inode": 32}
_FILE_END_MS = 400
_TOO_BIG = "XAttr is too big"
#: a shorter wait is not worth a word
_SHORT_MS = 100


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
        yield failed("WebHDFS", error)
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


def folder(hdfs: Hdfs, options: Options) -> Iterator[Check]:
    """Whether the arbiter will believe what is in the bridge's folder, where there is one already."""
    try:
        ground.check(hdfs.as_user(options.user), options.root)
    except FixConfiguration as error:
        yield fail("folder", error.text, error.remedy)
        return
    yield ok("folder", f"nobody else can put anything into {options.root}")


def attributes(hdfs: Hdfs, names: Settings, options: Options) -> Iterator[Check]:
    """Extended attributes, in which documents are kept: one of two pieces is written, read back, and taken away."""
    parent = options.root if hdfs.status(options.root) else f"/user/{options.user}"
    folder = posixpath.join(parent, f".horae-doctor-{secrets.token_hex(4)}")
    mine, probe = hdfs.as_user(options.user), bytes(range(256)) * (2 * PIECE // 256)
    try:
        mine.make_folder(folder)
        mine.keep_document(f"{folder}/probe", probe, folder)
        same = mine.document(f"{folder}/probe") == probe
    except PortError as error:
        mend = {_XATTRS: "true"} if _XATTRS in error.text else _XATTR_ROOM if _TOO_BIG in error.text else {}
        yield fail(
            "HDFS attributes", error.text, remedy(_NAMENODES, mend) if mend else getattr(error, "remedy", "") or
            "documents of jobs are kept so: see the NameNode's log",
        )  # fmt: skip
        return
    finally:
        with suppress(PortError):  # what cannot be taken away has just been told
            mine.delete(folder)
    if not same:
        yield fail("HDFS attributes", "what was read is not what was set", "is there a proxy before the NameNode?")
        return
    text = "documents of jobs can be written and read"
    if names.why:
        yield ok("HDFS attributes", f"{text}; the limits are not readable: {names.why}")
        return
    little = {
        key: str(usual) for key, usual in _XATTR_LIMITS.items()
        if names.number(key, usual) < (PIECE + len("user.horae.99") if key == _XATTR_SIZE else MOST)
    }  # fmt: skip
    said = ", ".join(f"{key.rpartition('.')[2]} {names.number(key, usual)}" for key, usual in _XATTR_LIMITS.items())
    yield ok("HDFS attributes", f"{text} ({said})") if not little else warn(
        "HDFS attributes", f"{text}, and long ones will not fit ({said})", remedy(_NAMENODES, little)
    )  # fmt: skip


def file_end(namenode: HttpClient, names: Settings, options: Options) -> Iterator[Check]:
    """How long a DataNode, as WebHDFS's client, waits at a file's end before it asks again whether its last block has
    come. Advice only: checkpoints and resizes are quicker where that is short."""
    where, found = _of_a_datanode(namenode, options)
    if found.why and not names.why:
        where, found = "as the NameNode's host has it", names
    if found.why:
        yield ok("end of a file", f"{_FILE_END} is not readable: {found.why}")
        return
    wait = found.number(_FILE_END, _FILE_END_MS)
    text = f"HDFS takes {wait} ms for the end of a file ({where})"
    yield ok("end of a file", text) if wait <= _SHORT_MS else warn(
        "end of a file", f"{text}: advice, checkpoints and resizes are quicker with less",
        remedy("hdfs-site.xml of the DataNodes", {_FILE_END: "50"}),
    )  # fmt: skip


def _of_a_datanode(namenode: HttpClient, options: Options) -> tuple[str, Settings]:
    """The setting as one DataNode has it: the one to which a new file would go (none is made)."""
    path = f"/user/{options.user}/.horae-doctor-{secrets.token_hex(4)}"
    doing = "asking for a DataNode"
    try:
        to = str(_ask(namenode, "PUT", path, "CREATE", {"noredirect": "true"}).get(doing, "Location") or "")
    except PortError as error:
        return "", Settings({}, error.text)
    parts = urlsplit(to)
    known = dict(options.hdfs_names)
    at = known.get(parts.netloc) or known.get(parts.hostname or "", parts.hostname or "")
    address = at if ":" in at else f"{at}:{parts.port}"
    access = options.access(options.webhdfs).elsewhere(f"{parts.scheme}://{address}", 2.0, 5.0)
    http = HttpClient(access, "DataNode")
    try:
        return f"DataNode {parts.hostname}", setting_of(http, f"the DataNode {parts.hostname}", _FILE_END)
    finally:
        http.close()


def _ask(namenode: HttpClient, method: str, path: str, operation: str, more: Mapping[str, str]) -> Answer:
    return namenode.ask(method, f"/webhdfs/v1{path}", query={"op": operation, **more})
