"""HDFS for the arbiter, over WebHDFS: job folders, documents, checkpoints as they lie there, logs.

The requests are those of `namenodes.py`; here is what they are used for. Three things of WebHDFS that matter:

* Data never passes the NameNode: it redirects to a DataNode by that node's own name, which must resolve here.
  `names` maps it where it does not.
* A file under its final name is whole: it is written under a temporary name, its length compared, then renamed.
* Renaming onto something fails without an error (`false`) unless overwriting is asked for; then it is atomic.
"""

from __future__ import annotations

import copy
import posixpath
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from horae.elastic.stores import attributes
from horae.port import FixConfiguration, Never, PortError, TryLater
from horae.untrusted import Unbelievable
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.http import Access
from yarn_bridge.clients.namenodes import SiteNameNodes, told

TEMPORARY = ".tmp-"


@dataclass(frozen=True, slots=True)
class Status:
    name: str  #: last part of the path
    folder: bool
    length: int
    modified_s: float
    owner: str
    permission: str  #: octal: "755"


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a folder and everything below it. Quotas are None where there is none."""

    length: int
    space: int  #: bytes on disk, with replicas
    space_quota: int | None
    names: int
    name_quota: int | None


class Hdfs:
    """One HDFS as one user. `as_user` gives the same for another. Threads may share it."""

    def __init__(self, access: Access, names: Mapping[str, str] | None = None) -> None:
        self.access, self.owner = access, access.user
        self._web = SiteNameNodes(access, dict(names or {}))

    def as_user(self, owner: str) -> Hdfs:
        """The same HDFS, asked on the owner's behalf."""
        found = copy.copy(self)
        found.owner, found._web = owner or self.access.user, self._web.on_behalf_of(owner)
        return found

    # --- looking ---

    def who(self) -> str:
        """As whom HDFS knows who asks."""
        with told("asking HDFS who asks"):
            return posixpath.basename(str(self._web.fact("/", "GETHOMEDIRECTORY", "Path")))

    def status(self, path: str) -> Status | None:
        """None when there is nothing of this name."""
        try:
            with told(f"looking at {path} in HDFS"):
                return _status(posixpath.basename(path), self._web.fact(path, "GETFILESTATUS", "FileStatus"))
        except Gone:
            return None

    def entries(self, path: str) -> list[Status]:
        """Entries of a folder by name; none where there is no such folder."""
        try:
            with told(f"listing {path} in HDFS"):
                found = self._web.fact(path, "LISTSTATUS", "FileStatuses")["FileStatus"]
                named = [_status(each["pathSuffix"], each) for each in found]
        except Gone:
            return []
        return sorted((each for each in named if each.name), key=lambda each: each.name)  # a file lists itself as ""

    def some(self, path: str, most: int) -> list[Status]:
        """As `entries`, of a folder that others may fill: asked for in pieces. Raises Unbelievable above `most`."""
        found: list[Status] = []
        after = ""
        try:
            while True:
                with told(f"listing {path} in HDFS"):
                    listing = self._web.fact(path, "LISTSTATUS_BATCH", "DirectoryListing", startAfter=after)
                    piece = listing["partialListing"]["FileStatuses"]["FileStatus"]
                    found += [_status(each["pathSuffix"], each) for each in piece]
                    left = int(listing["remainingEntries"])
                if len(found) + left > most:
                    raise Unbelievable(path, f"holds more than {most} entries")
                if left <= 0 or not piece:
                    return sorted(found, key=lambda each: each.name)
                after = found[-1].name
        except Gone:
            return []

    def usage(self, path: str) -> Usage:
        with told(f"reading the usage of {path} in HDFS"):
            found = self._web.fact(path, "GETCONTENTSUMMARY", "ContentSummary")
            space_quota, name_quota = int(found.get("spaceQuota", -1)), int(found.get("quota", -1))
            return Usage(
                length=int(found["length"]),
                space=int(found["spaceConsumed"]),
                space_quota=space_quota if space_quota >= 0 else None,
                names=int(found["fileCount"]) + int(found["directoryCount"]),
                name_quota=name_quota if name_quota >= 0 else None,
            )

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Bytes from `offset`, at most `limit`; None when there is no such file."""
        try:
            return b"".join(self.pieces(path, offset, limit))
        except Gone:
            return None

    def pieces(self, path: str, offset: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """As `read`, and nothing of the file is kept. Raises Gone."""
        with told(f"reading {path} in HDFS"):
            yield from self._web.read(path, offset, limit)

    def document(self, path: str) -> bytes | None:
        """A document kept in attributes (`horae/elastic/stores/attributes.py`); None when there is none."""
        try:
            with told(f"reading {path} in HDFS"):
                answer = self._web.ask("GET", path, "GETXATTRS", encoding="base64")
                return attributes.join({"XAttrs": answer["XAttrs"]})
        except Gone:
            return None

    # --- changing ---

    def make_folder(self, path: str, permission: str | None = None) -> None:
        with told(f"making {path} in HDFS"):
            self._web.ask("PUT", path, "MKDIRS", **({} if permission is None else {"permission": permission}))

    def set_permission(self, path: str, permission: str) -> None:
        with told(f"setting the rights of {path} in HDFS"):
            self._web.ask("PUT", path, "SETPERMISSION", permission=permission)

    def write(self, path: str, data: bytes | Iterable[bytes], *, replace: bool = True) -> None:
        """Whole or not at all; the folder is made. Raises Exists when the name is taken and `replace` is False."""
        folder, name = posixpath.split(path)
        temporary = posixpath.join(folder, f"{TEMPORARY}{name}.{secrets.token_hex(4)}")
        try:
            self._filled(temporary, data, path)
            self.rename(temporary, path, replace=replace)
        except PortError:
            with suppress(PortError):  # what cannot be taken away now is swept later
                self.delete(temporary)
            raise

    def create(self, path: str, data: bytes) -> None:
        """As `write`, where nobody looks yet: in part where it fails."""
        self._filled(path, data, path)

    def _filled(self, at: str, data: bytes | Iterable[bytes], path: str) -> None:
        counted = _Counted([data] if isinstance(data, bytes) else data)
        with told(f"writing {path} in HDFS"):
            self._web.write(at, data if isinstance(data, bytes) else counted)
        size = len(data) if isinstance(data, bytes) else counted.size
        there = self.status(at)
        if there is None or there.length != size:
            raise TryLater(f"writing {path} in HDFS: {there.length if there else 0} of {size} bytes arrived")

    def keep_document(self, path: str, data: bytes, at: str, *, replace: bool = True) -> None:
        """Replace a document at once, `at` being the folder whose stamp tells of it. Raises PortError.

        With `replace` False it raises Exists where the name is taken.
        """
        temporary = posixpath.join(at, f"{TEMPORARY}{posixpath.basename(path)}.{secrets.token_hex(4)}")
        self._filled_document(temporary, data, path)
        self.rename(temporary, path, replace=replace)

    def make_document(self, path: str, data: bytes) -> None:
        """As `keep_document`, where nobody looks yet: in part where it fails."""
        self._filled_document(path, data, path)

    def _filled_document(self, at: str, data: bytes, path: str) -> None:
        try:
            pieces = attributes.split(data)
        except OSError as error:
            raise Never(f"writing {path} in HDFS: {error}") from None
        with told(f"writing {path} in HDFS"):
            self._web.ask("PUT", at, "MKDIRS", permission="755")
            for name, value in pieces:
                settings = {"xattr.name": name, "xattr.value": value, "flag": "CREATE"}
                self._web.ask("PUT", at, "SETXATTR", **settings)

    def overwrite_document(self, path: str, data: bytes) -> bool:
        """Put another text into a document that fits one attribute: one request, and no stamp tells of it.

        False where this one needs more, or where there is none to put it into.
        """
        if not self.fits_one(data):
            return False
        ((name, value),) = attributes.split(data)
        try:
            with told(f"writing {path} in HDFS"):
                settings = {"xattr.name": name, "xattr.value": value, "flag": "CREATE,REPLACE"}
                self._web.ask("PUT", path, "SETXATTR", **settings)
        except Gone:
            return False
        return True

    @staticmethod
    def fits_one(data: bytes) -> bool:
        """Whether a document needs one attribute only."""
        return len(data) <= attributes.PIECE

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Atomic. Raises Exists or Gone, where HDFS itself says only `false`, and FixConfiguration where nothing can be
        replaced: HttpFS (3.4.2) does not know `renameoptions`, and puts what comes *into* a folder that is there."""
        doing = f"renaming {source} to {target} in HDFS"
        options = {"renameoptions": "OVERWRITE"} if replace else {}
        with told(doing):
            answer = self._web.ask("PUT", source, "RENAME", destination=target, **options)
        if replace and answer is not None:  # WebHDFS itself says nothing to that
            with suppress(PortError):
                self.delete(posixpath.join(target, posixpath.basename(source)))
            raise FixConfiguration(
                f"{doing}: {self._web.bases[0]} is no WebHDFS of a NameNode: it does not replace what is there, as "
                "HttpFS does not",
                "give `webhdfs` the NameNodes' own addresses, or those of a gateway before them",
            )
        if not replace and not (answer or {}).get("boolean", True):
            if self.status(source) is None:
                raise Gone(f"{doing}: there is no {source}")
            raise Exists(f"{doing}: {target} is there, or its folder is not")

    def delete(self, path: str) -> bool:
        """With everything below it. False when there was nothing."""
        with told(f"deleting {path} in HDFS"):
            return bool(self._web.ask("DELETE", path, "DELETE", recursive="true")["boolean"])

    def sweep(self, folder: str, older_s: float = 3600.0, now_s: float | None = None) -> list[str]:
        """Delete temporary entries that nobody has written to for `older_s`; what went."""
        before = (time.time() if now_s is None else now_s) - older_s
        left = [
            each.name for each in self.entries(folder) if each.name.startswith(TEMPORARY) and each.modified_s < before
        ]
        for name in left:
            self.delete(posixpath.join(folder, name))
        return left


class _Counted:
    """An iterable that knows how many bytes went through it."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self.size = pieces, 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            yield piece


def _status(name: Any, found: Mapping[str, Any]) -> Status:
    """Raises KeyError, TypeError, ValueError for what no NameNode says."""
    if not isinstance(name, str):
        raise TypeError("a name is no text")
    return Status(
        name=name,
        folder=found["type"] == "DIRECTORY",
        length=int(found["length"]),
        modified_s=float(found["modificationTime"]) / 1000.0,
        owner=str(found["owner"]),
        permission=str(found["permission"]),
    )
