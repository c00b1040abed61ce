"""Which NameNodes a path of a federated HDFS is at, as Hadoop's own clients find them: by the nameservices and mount
tables of the configuration in $HADOOP_CONF_DIR.

    hdfs://ns2/data             ns2 of dfs.nameservices, and where its NameNodes' web servers are
    hdfs://nn3:8020/data        the nameservice one of whose dfs.namenode.rpc-address is nn3:8020
    viewfs://shop/user/alice    fs.viewfs.mounttable.shop.link./user; linkMergeSlash and linkFallback too

A mount table of an hdfs:// address's own name counts as well (Hadoop's ViewFileSystemOverloadScheme).
"""

import contextlib
import os
import socket
import time
import urllib.parse
from functools import lru_cache
from typing import Dict, Iterator, List, Sequence, Set, Tuple

ENV_CONF = "HADOOP_CONF_DIR"
_FILES = ("core-site.xml", "hdfs-site.xml")
#: An arbiter asks for every job that it looks at: what was read counts for so many seconds.
_STANDS_S = 30.0
_TABLE = "fs.viewfs.mounttable."
_INCLUDE = "{http://www.w3.org/2001/XInclude}include"
#: a mount table may be mounted into another one
_DEEPEST = 8


def client_conf() -> "Dict[str, str]":
    """Properties of the client's configuration; none where there is no such folder. Raises ValueError."""
    folder = os.environ.get(ENV_CONF, "")
    return _read(folder, int(time.monotonic() / _STANDS_S)) if folder else {}


@lru_cache(maxsize=4)
def _read(folder: str, _when: int) -> "Dict[str, str]":
    found: Dict[str, str] = {}
    for path in (os.path.join(folder, name) for name in _FILES):
        if os.path.isfile(path):
            found.update(_properties(path))
    return found


def _properties(path: str, depth: int = 0) -> "Dict[str, str]":
    from xml.etree import ElementTree  # here: each start of a trainer would wait for it

    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise ValueError("%s cannot be read: %s" % (path, error)) from None
    found: Dict[str, str] = {}
    for each in root:
        if each.tag == _INCLUDE and depth < _DEEPEST:  # as mount tables often are
            found.update(_properties(os.path.join(os.path.dirname(path), each.get("href") or ""), depth + 1))
        found[(each.findtext("name") or "").strip()] = (each.findtext("value") or "").strip()
    return found


def unmounted(url: str, conf: "Dict[str, str]") -> str:
    """What stands behind a viewfs:// address, by the mount table that it names. Raises ValueError."""
    for _ in range(_DEEPEST):
        parts = urllib.parse.urlsplit(url)
        table = "%s%s." % (_TABLE, parts.netloc or _default_table(conf))
        known = {key[len(table) :]: value for key, value in conf.items() if key.startswith(table)}
        if parts.scheme == "hdfs" and not known:
            return url
        if parts.scheme not in ("viewfs", "hdfs"):
            return url
        if not known:
            raise ValueError("%s: $%s has no mount table %s* (core-site.xml)" % (url, ENV_CONF, table))
        target = _behind(parts.path, known)
        if not target:
            raise ValueError("%s: nothing is mounted there by %s* in $%s" % (url, table, ENV_CONF))
        if target == url:
            return url
        url = target
    raise ValueError("%s: mount tables lead to each other" % url)


def _default_table(conf: "Dict[str, str]") -> str:
    standard = urllib.parse.urlsplit(conf.get("fs.defaultFS", ""))
    return standard.netloc if standard.scheme == "viewfs" and standard.netloc else "default"


def _behind(path: str, known: "Dict[str, str]") -> str:
    """By the longest mount point above the path, else the merged root, else the fallback; "" for none."""
    links = {key[len("link.") :].rstrip("/"): value for key, value in known.items() if key.startswith("link.")}
    for point in sorted(links, key=len, reverse=True):
        if path == point or path.startswith(point + "/"):
            return links[point].rstrip("/") + path[len(point) :]
    for word in ("linkMergeSlash", "linkFallback"):
        if known.get(word):
            return known[word].rstrip("/") + path
    return ""


def is_default(authority: str, conf: "Dict[str, str]") -> bool:
    return urllib.parse.urlsplit(conf.get("fs.defaultFS", "")).netloc == authority


def namenodes(authority: str, conf: "Dict[str, str]") -> "List[str]":
    """Web addresses of the NameNodes of a nameservice, or of the one that has a NameNode at this host and port; none
    where the configuration does not know it."""
    for service, at, web in _services(conf):
        if authority and (authority == service or authority in at):
            return web
    return []


def token_services(web: "Sequence[str]", conf: "Dict[str, str]") -> "Set[str]":
    """What tokens of the nameservice with NameNodes at these web addresses call it; none where nobody knows it."""
    found: Set[str] = set()
    for service, at, known in _services(conf):
        if set(known) & set(web):
            found.add("ha-hdfs:" + service)
            for address in at:
                host, _, port = address.rpartition(":")
                found.add(address)
                with contextlib.suppress(OSError):
                    found.add("%s:%s" % (socket.gethostbyname(host), port))
    return found


def _services(conf: "Dict[str, str]") -> "Iterator[Tuple[str, List[str], List[str]]]":
    """Each nameservice: its name, and where its NameNodes are, for programs and in the web."""
    secure = conf.get("dfs.http.policy", "").upper() == "HTTPS_ONLY"
    key = "dfs.namenode.http%s-address" % ("s" if secure else "")
    for service in _listed(conf.get("dfs.nameservices", "")):
        ids = ["%s.%s" % (service, one) for one in _listed(conf.get("dfs.ha.namenodes.%s" % service, ""))] or [service]
        at = [conf.get("dfs.namenode.rpc-address.%s" % one, "") for one in ids]
        web = [conf.get("%s.%s" % (key, one), "") for one in ids]
        addresses = ["http%s://%s" % ("s" if secure else "", each) for each in web if each]
        yield service, [each for each in at if each], addresses


def _listed(text: str) -> "List[str]":
    return [each.strip() for each in text.split(",") if each.strip()]
