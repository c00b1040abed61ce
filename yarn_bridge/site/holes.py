"""Holes of Hadoop releases that others on a shared cluster could use, and the release that mends each.

From Hadoop's own announcements (https://hadoop.apache.org/cve_list.html); a distribution may have mended its release
without another number, which cannot be seen from here. Only what concerns daemons, containers and hosts of several
users: not clients' libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from horae.doctor import Check, ok, warn
from yarn_bridge.clients.quirks import Quirks

Release = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Hole:
    name: str
    text: str
    affected: tuple[tuple[Release, Release], ...]  #: from one release to before another

    def concerns(self, release: Release) -> bool:
        return any(first <= release < mended for first, mended in self.affected)


_ALL = (0, 0, 1)
HOLES = (
    Hole("CVE-2023-26031", "a local user may become root by container-executor", (((3, 3, 1), (3, 3, 5)),)),
    Hole(
        "CVE-2021-33036",
        "who has the yarn user may become root",
        (((2, 2, 0), (2, 10, 2)), ((3, 0, 0), (3, 2, 3)), ((3, 3, 0), (3, 3, 2))),
    ),
    Hole(
        "CVE-2021-25642",
        "who may write to the ZooKeeper of the scheduler's configuration runs code in the ResourceManager",
        (((2, 9, 0), (2, 10, 2)), ((3, 0, 0), (3, 2, 4)), ((3, 3, 0), (3, 3, 4))),
    ),
    Hole(
        "CVE-2022-25168",
        "an archive's name may hold shell commands",
        (((2, 0, 0), (2, 10, 2)), ((3, 0, 0), (3, 2, 4)), ((3, 3, 0), (3, 3, 3))),
    ),
    Hole("CVE-2024-23454", "other users of a host can read what `hadoop jar` unpacks there", ((_ALL, (3, 4, 0)),)),
)


def holes(version: str, quirks: Quirks) -> Iterator[Check]:
    if quirks.release == (0, 0, 0):
        return  # a version that nobody can read
    found = [hole for hole in HOLES if hole.concerns(quirks.release)]
    if not found:
        yield ok("known holes", f"none known of Hadoop {version} that other users of the cluster could use")
        return
    text = "; ".join(f"{hole.name}: {hole.text}" for hole in found)
    newest = max(mended for hole in found for first, mended in hole.affected if first <= quirks.release < mended)
    yield warn(
        "known holes",
        f"Hadoop {version}: {text}",
        f"Hadoop {'.'.join(map(str, newest))} or newer, or your distribution's word that it has mended them",
    )
