"""Files of the user's own machine into his HDFS folder, before the job is handed in: Submarine's client did the same.

HDFS is found as Hadoop's own clients find it: $HORAE_WEBHDFS, else hdfs-site.xml in $HADOOP_CONF_DIR. Who puts is
who calls: $HADOOP_USER_NAME or the user of this process; with Kerberos, whose ticket is in the cache (kinit).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from policy.model import BadInput
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import KERBEROS, SIMPLE, Access
from yarn_bridge.site.xml import properties
from yarn_bridge.submarine.values import Localization

ENV_ADDRESS, ENV_CONF = "HORAE_WEBHDFS", "HADOOP_CONF_DIR"
_FIELD = "--localization"
_PIECE = 1 << 20


def upload(items: Iterable[Localization], user: str) -> list[str]:
    """Each to its place; the places. Raises BadInput for what is not there, PortError for what HDFS does not take."""
    wanted = list(items)
    for item in wanted:
        if not Path(item.upload).exists():
            raise BadInput(
                "is not here, and has no scheme that says where else",
                field=_FIELD,
                value=item.upload,
                remedy="the path of a file or folder, from where you call; or hdfs:///...",
            )
    if not wanted:
        return []
    hdfs = Hdfs(access(os.environ, user))
    for item in wanted:
        path = re.sub(r"^[a-z]+://[^/]*", "", item.source)
        hdfs.make_folder(path.rpartition("/")[0])
        hdfs.write(path, archived(Path(item.upload)))
    return [item.source for item in wanted]


def access(env: Mapping[str, str], user: str) -> Access:
    """Raises BadInput where nothing says where HDFS is."""
    folder = env.get(ENV_CONF, "")
    hdfs, core = (_conf(folder, name) if folder else {} for name in ("hdfs-site.xml", "core-site.xml"))
    kerberos = core.get("hadoop.security.authentication", "").lower() == "kerberos"
    said = tuple(each.strip() for each in env.get(ENV_ADDRESS, "").split(",") if each.strip())
    urls = said or _addresses(hdfs, core)
    if not urls:
        raise BadInput(
            "a local file is to be put into HDFS, and nothing says where that is",
            field=_FIELD,
            remedy=f"set {ENV_CONF} to the folder of hdfs-site.xml, or {ENV_ADDRESS}=http://namenode:9870; or put the "
            "file there yourself and write hdfs:///...",
        )
    return Access(urls=urls, user=user, auth=KERBEROS if kerberos else SIMPLE)


def _addresses(hdfs: Mapping[str, str], core: Mapping[str, str]) -> tuple[str, ...]:
    """Of all NameNodes of the default file system."""
    secure = hdfs.get("dfs.http.policy", "").upper() == "HTTPS_ONLY"
    key = f"dfs.namenode.http{'s' if secure else ''}-address"
    place = re.sub(r"^hdfs://", "", core.get("fs.defaultFS", "")).rstrip("/")
    nodes = [each.strip() for each in hdfs.get(f"dfs.ha.namenodes.{place}", "").split(",") if each.strip()]
    listed = [hdfs.get(f"{key}.{place}.{node}", "") for node in nodes] or [hdfs.get(key, "")]
    found = [f"http{'s' if secure else ''}://{each}" for each in listed if each]
    host = place.partition(":")[0]
    return tuple(found) or ((f"http{'s' if secure else ''}://{host}:{9871 if secure else 9870}",) if host else ())


def _conf(folder: str, name: str) -> dict[str, str]:
    path = Path(folder) / name
    try:
        return properties(path.read_text(), str(path))
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(path), remedy=f"check {ENV_CONF}") from None


def archived(source: Path) -> Iterator[bytes]:
    """A file's bytes; a folder's as an archive of what is in it."""
    if source.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            made = shutil.make_archive(f"{folder}/archive", "zip", source)
            yield from _pieces(Path(made))
    else:
        yield from _pieces(source)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
