"""Whether what the bridge keeps is where nobody else can put anything: asked before any of it is believed.

`folder` may be named before the bridge ever made it, so that anybody may have made it first where all may write: with
records of jobs that nobody handed in, and a file that all workers run. And who may write to a folder above it can put
another one in its place.
"""

from __future__ import annotations

import posixpath

from horae.port import FixConfiguration
from yarn_bridge.clients.hdfs import Hdfs, Status
from yarn_bridge.jobs.kept import RECORDS, SPECS

_JOBS = "jobs"  #: the version before left it open; what appears there is nobody's job without a record
#: of the bridge alone, below its root
_OWN = ("", _JOBS, "lib", "kept", f"kept/{RECORDS}", f"kept/{SPECS}")


def check(hdfs: Hdfs, root: str) -> None:
    """Raises FixConfiguration for what cannot be believed. What is not there yet is made by the bridge."""
    me, above = hdfs.who(), posixpath.dirname(root)
    while above != "/":
        found = hdfs.status(above)
        if found is not None and _open(found) and not _sticky(found):
            text = (
                f"everybody may write to {above} (its mode is {found.permission}), and so put another {root} in place"
            )
            raise FixConfiguration(f"{text}: nothing in it is believed", f"hdfs dfs -chmod +t {above}, or o-w")
        above = posixpath.dirname(above)
    for name in _OWN:
        path = posixpath.join(root, name).rstrip("/")
        found = hdfs.status(path)
        if found is None:
            continue
        if found.owner != me:
            text = f"{path} is {found.owner}'s, and Horae is {me}: nothing in it is believed"
            raise FixConfiguration(text, f"look at who made it; then name another `folder`, or remove it: {root}")
        if _open(found) and name != _JOBS:
            text = f"everybody may write to {path} (its mode is {found.permission}): nothing in it is believed"
            raise FixConfiguration(text, f"look at what is in it, then hdfs dfs -chmod o-w {path}")


def _open(found: Status) -> bool:
    return bool(int(found.permission, 8) & 0o002)


def _sticky(found: Status) -> bool:
    return bool(int(found.permission, 8) & 0o1000)
