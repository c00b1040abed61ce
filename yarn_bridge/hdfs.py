"""HDFS for the arbiter, over WebHDFS: job folders, documents, checkpoints as they lie there, logs.

The requests are HdfsCLI's, which also knows NameNodes in high availability; ours are identity (as in `http.py`),
time-outs, rate, and what an error means. Three things of WebHDFS that matter:

* Data never passes the NameNode: it redirects to a DataNode by that node's own name, which must resolve here.
  `names` maps it where it does not. The redirect carries its own token, so it is followed without ours.
* A file under its final name is whole: it is written under a temporary name, its length compared, then renamed.
* Renaming onto something fails without an error (`false`) unless overwriting is asked for; then it is atomic.
"""

from __future__ import annotations

import hashlib
import posixpath
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import hdfs
import requests
from hdfs.client import _Request
from hdfs.util import HdfsError

from horae.elastic import attributes
from horae.port import FixConfiguration, Never, PortError, TryLater
from horae.untrusted import Unbelievable
from yarn_bridge.http import TOKEN_HEADER, Access, Pace, identity, nobody, prepare, why
from yarn_bridge.refusals import Exists, Gone, Refusal, refusal
from yarn_bridge.spnego import Spnego, no_token

TEMPORARY = ".tmp-"
_PIECE = 1 << 20
#: what the NameNode sends on; of anything else it answers itself
_AT_DATANODES = frozenset({"OPEN", "CREATE", "APPEND", "GETFILECHECKSUM"})
#: HdfsCLI goes to the next NameNode for these
_NEXT = frozenset({"StandbyException", "RetriableException"})


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

    def __init__(self, access: Access, names: Mapping[str, str] | None = None, pace: Pace | None = None) -> None:
        self.access, self._names = access, dict(names or {})
        self._pace = pace or Pace(access.requests_s)
        self._users: dict[str, Hdfs] = {}
        self._lock = threading.Lock()
        self._become("")

    def as_user(self, owner: str) -> Hdfs:
        """The same HDFS, asked on the owner's behalf."""
        with self._lock:
            found = self._users.get(owner)
            if found is None:
                found = Hdfs(self.access, self._names, self._pace)
                found._become(owner)
                self._users[owner] = found
            return found

    def _become(self, owner: str) -> None:
        self.owner = owner or self.access.user
        self._session = _Session(self.access, owner, self._names, self._pace)
        urls = ";".join(url.rstrip("/") for url in self.access.urls)
        self._client = _Client(urls, session=self._session)

    # --- looking ---

    def status(self, path: str) -> Status | None:
        """None when there is nothing of this name."""
        with _told(f"looking at {path} in HDFS"):
            found = self._client.status(path, strict=False)
            return None if found is None else _status(posixpath.basename(path), found)

    def entries(self, path: str) -> list[Status]:
        """Entries of a folder by name; none where there is no such folder."""
        try:
            with _told(f"listing {path} in HDFS"):
                found = [_status(name, each) for name, each in self._client.list(path, status=True)]
        except Gone:
            return []
        return sorted(found, key=lambda each: each.name)

    def some(self, path: str, most: int) -> list[Status]:
        """As `entries`, of a folder that others may fill: asked for in pieces. Raises Unbelievable above `most`."""
        found: list[Status] = []
        after = ""
        try:
            while True:
                with _told(f"listing {path} in HDFS"):
                    told = self._client.list_piece(path, startAfter=after).json()["DirectoryListing"]
                    piece = told["partialListing"]["FileStatuses"]["FileStatus"]
                    found += [_status(each["pathSuffix"], each) for each in piece]
                    left = int(told["remainingEntries"])
                if len(found) + left > most:
                    raise Unbelievable(path, f"holds more than {most} entries")
                if left <= 0 or not piece:
                    return sorted(found, key=lambda each: each.name)
                after = found[-1].name
        except Gone:
            return []

    def usage(self, path: str) -> Usage:
        with _told(f"reading the usage of {path} in HDFS"):
            found = self._client.content(path)
            space_quota, name_quota = int(found.get("spaceQuota", -1)), int(found.get("quota", -1))
            return Usage(
                length=int(found["length"]),
                space=int(found["spaceConsumed"]),
                space_quota=space_quota if space_quota >= 0 else None,
                names=int(found["fileCount"]) + int(found["directoryCount"]),
                name_quota=name_quota if name_quota >= 0 else None,
            )

    def checksum(self, path: str) -> str:
        """HDFS's own checksum of a file: equal for equal files written with the same block and chunk size."""
        with _told(f"reading the checksum of {path} in HDFS"):
            found = self._client.checksum(path)
        return f"{found['algorithm']}:{found['bytes']}"

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Bytes from `offset`, at most `limit`; None when there is no such file."""
        try:
            return b"".join(self.pieces(path, offset, limit))
        except Gone:
            return None

    def sha256(self, path: str) -> str:
        """Of the whole file, read once. Raises Gone."""
        found = hashlib.sha256()
        for piece in self.pieces(path, 0, None):
            found.update(piece)
        return found.hexdigest()

    def pieces(self, path: str, offset: int = 0, limit: int | None = None) -> Iterator[bytes]:
        """As `read`, and nothing of the file is kept. Raises Gone."""
        with (
            _told(f"reading {path} in HDFS"),
            self._client.read(path, offset=offset, length=limit, chunk_size=_PIECE) as pieces,
        ):
            yield from pieces

    def document(self, path: str) -> bytes | None:
        """A document kept in attributes (`horae/elastic/attributes.py`); None when there is none."""
        try:
            with _told(f"reading {path} in HDFS"):
                answer = self._client._get_x_attrs(path, encoding="base64").json()
                return attributes.join({"XAttrs": answer["XAttrs"]})
        except Gone:
            return None

    # --- changing ---

    def make_folder(self, path: str, permission: str | None = None) -> None:
        with _told(f"making {path} in HDFS"):
            self._client.makedirs(path, permission=permission)

    def permit(self, path: str, permission: str) -> None:
        """Its mode; only its owner may."""
        with _told(f"setting the mode of {path} in HDFS to {permission}"):
            self._client.set_permission(path, permission=permission)

    def write(self, path: str, data: bytes | Iterable[bytes], *, replace: bool = True) -> None:
        """Whole or not at all; the folder is made. Raises Exists when the name is taken and `replace` is False."""
        folder, name = posixpath.split(path)
        temporary = posixpath.join(folder, f"{TEMPORARY}{name}.{secrets.token_hex(4)}")
        counted = _Counted([data] if isinstance(data, bytes) else data)
        try:
            with _told(f"writing {path} in HDFS"):
                self._client.write(temporary, data=data if isinstance(data, bytes) else counted, overwrite=True)
            size = len(data) if isinstance(data, bytes) else counted.size
            there = self.status(temporary)
            if there is None or there.length != size:
                raise TryLater(f"writing {path} in HDFS: {there.length if there else 0} of {size} bytes arrived")
            self.rename(temporary, path, replace=replace)
        except PortError:
            with suppress(PortError):  # what cannot be taken away now is swept later
                self.delete(temporary)
            raise

    def keep_document(self, path: str, data: bytes, at: str, *, replace: bool = True) -> None:
        """Replace a document at once, `at` being the folder whose stamp tells of it. Raises PortError.

        With `replace` False it raises Exists where the name is taken.
        """
        temporary = posixpath.join(at, f"{TEMPORARY}{posixpath.basename(path)}.{secrets.token_hex(4)}")
        try:
            pieces = attributes.split(data)
        except OSError as error:
            raise Never(f"writing {path} in HDFS: {error}") from None
        with _told(f"writing {path} in HDFS"):
            self._client.makedirs(temporary, permission="755")
            for name, value in pieces:
                settings = {"xattr.name": name, "xattr.value": value, "flag": "CREATE"}
                self._client._set_x_attr(temporary, **settings)
        self.rename(temporary, path, replace=replace)

    def overwrite_document(self, path: str, data: bytes) -> bool:
        """Put another text into a document that is there and fits one attribute: one request, and no stamp tells of it.

        False where this one needs more.
        """
        if not self.fits_one(data):
            return False
        ((name, value),) = attributes.split(data)
        with _told(f"writing {path} in HDFS"):
            self._client._set_x_attr(path, **{"xattr.name": name, "xattr.value": value, "flag": "CREATE,REPLACE"})
        return True

    @staticmethod
    def fits_one(data: bytes) -> bool:
        """Whether a document needs one attribute only."""
        return len(data) <= attributes.PIECE

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Atomic. Raises Exists or Gone, where HDFS itself says only `false`."""
        doing = f"renaming {source} to {target} in HDFS"
        options = {"renameoptions": "OVERWRITE"} if replace else {}
        with _told(doing):
            # HdfsCLI's `rename` cannot overwrite; this is the operation under it.
            answer = self._client._rename(source, destination=target, **options)
        if not replace and not answer.json().get("boolean", True):
            if self.status(source) is None:
                raise Gone(f"{doing}: there is no {source}")
            raise Exists(f"{doing}: {target} is there, or its folder is not")

    def delete(self, path: str) -> bool:
        """With everything below it. False when there was nothing."""
        with _told(f"deleting {path} in HDFS"):
            return bool(self._client.delete(path, recursive=True))

    def prune(self, folder: str, keep: int) -> list[str]:
        """Delete all but the `keep` newest entries (names of temporary ones are not looked at); what went."""
        found = [each for each in self.entries(folder) if not each.name.startswith(".")]
        found.sort(key=lambda each: (each.modified_s, each.name), reverse=True)
        gone = [each.name for each in found[keep:]]
        for name in gone:
            self.delete(posixpath.join(folder, name))
        return gone

    def sweep(self, folder: str, older_s: float = 3600.0, now_s: float | None = None) -> list[str]:
        """Delete temporary entries that nobody has written to for `older_s`; what went."""
        before = (time.time() if now_s is None else now_s) - older_s
        left = [
            each.name for each in self.entries(folder) if each.name.startswith(TEMPORARY) and each.modified_s < before
        ]
        for name in left:
            self.delete(posixpath.join(folder, name))
        return left

    def close(self) -> None:
        with self._lock:
            users = list(self._users.values())
        for each in users:
            each.close()
        self._session.close()


class _Client(hdfs.Client):  # type: ignore[misc]
    """HdfsCLI with two operations that it lacks, made as it makes its own."""

    _get_x_attrs = _Request("GET")
    _set_x_attr = _Request("PUT")


# HdfsCLI makes an operation's name of the method's, without underscores.
_Client.list_piece = _Request("GET").to_method("LISTSTATUS_BATCH")


class _Session(requests.Session):
    """HdfsCLI's requests with our identity, names and errors. Lets through only what HdfsCLI acts upon itself."""

    def __init__(self, access: Access, owner: str, names: Mapping[str, str], pace: Pace) -> None:
        super().__init__()
        prepare(self, access)
        self.headers.pop(TOKEN_HEADER, None)  # the NameNode takes its tokens in the query only
        self._access, self._owner, self._names, self._pace = access, owner, names, pace
        self._namenodes = {urlsplit(url).netloc for url in access.urls}

    def request(self, method: str, url: str, **settings: Any) -> requests.Response:  # type: ignore[override]
        settings["timeout"] = (self._access.connect_s, self._access.read_s)
        follow = settings.pop("allow_redirects", True)
        answer = self._one(method, url, settings)
        if follow and answer.status_code == 307 and (settings.get("params") or {}).get("op") in _AT_DATANODES:
            location = answer.headers.get("Location", "")
            answer.close()
            answer = self._one(method, location, {**settings, "params": None})
        if follow and 300 <= answer.status_code < 400:
            raise _Refused(refusal(answer.status_code, answer.content))
        return answer

    def _one(self, method: str, url: str, settings: Mapping[str, Any]) -> requests.Response:
        namenode = urlsplit(url).netloc in self._namenodes
        said = dict(settings)
        if namenode:
            given = {key: value for key, value in (settings.get("params") or {}).items() if value is not None}
            said["params"] = {**given, **identity(self._access, self._owner, doas="doas")}
            if self._access.token:
                said["params"]["delegation"] = self._access.token
        else:
            url, said["auth"] = self._mapped(url), nobody
        self._pace.wait()
        try:
            answer = super().request(method, url, allow_redirects=False, **said)
            if namenode and answer.status_code == 401 and isinstance(self.auth, Spnego):
                self.auth.renew()
                answer = super().request(method, url, allow_redirects=False, **said)
        except requests.exceptions.RequestException as error:
            untrusted = no_token(error, urlsplit(url).netloc)
            if untrusted is not None:
                raise untrusted from None
            if namenode:
                raise
            raise _datanode(urlsplit(url).netloc, error) from None
        if answer.status_code >= 400:
            found = refusal(answer.status_code, answer.content)
            if found.exception not in _NEXT | {"FileNotFoundException"}:
                raise _Refused(found)
        return answer

    def _mapped(self, url: str) -> str:
        """A DataNode's address as this host knows it: by `name:port`, or by name with the port kept."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        known = self._names.get(parts.netloc) or self._names.get(host)
        if known is None:
            return url
        return urlunsplit(parts._replace(netloc=known if ":" in known else f"{known}:{parts.port}"))


class _Refused(Exception):
    def __init__(self, found: Refusal) -> None:
        self.refusal = found
        super().__init__(found.message)


class _Counted:
    """An iterable that knows how many bytes went through it."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self.size = pieces, 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.size += len(piece)
            yield piece


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """Every fault below becomes the port's error for it."""
    try:
        yield
    except _Refused as error:
        if error.refusal.status == 404 and not error.refusal.exception:
            raise _odd(doing) from None
        raise error.refusal.error(doing) from None
    except HdfsError as error:
        name = str(error.exception or "")
        status = 404 if name == "FileNotFoundException" else 503
        raise Refusal(status, name, " ".join(str(error).split()) or name).error(doing) from None
    except requests.exceptions.SSLError:
        raise FixConfiguration(f"{doing}: the certificate is not trusted", "give the authority's file (`ca`)") from None
    except requests.exceptions.InvalidJSONError:
        raise _odd(doing) from None
    except requests.exceptions.RequestException as error:
        raise TryLater(f"{doing}: no NameNode answers: {why(error)}", retry_after_s=5.0) from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise _odd(doing) from None


def _odd(doing: str) -> TryLater:
    """An answer cut short, or somebody else's: it says nothing, least of all that there is nothing."""
    return TryLater(f"{doing}: the answer is not what a NameNode says; is the address right?", retry_after_s=5.0)


def _datanode(address: str, error: requests.exceptions.RequestException) -> PortError:
    fault = why(error)
    if "cannot be resolved" in fault:
        return FixConfiguration(
            f"HDFS sends us to its DataNode {address}, and {fault}",
            f"make {address.partition(':')[0]} resolve on this host, or map it in the option hdfs_names",
        )
    return TryLater(f"HDFS's DataNode {address}: {fault}", retry_after_s=5.0)


def _status(name: str, found: Mapping[str, Any]) -> Status:
    return Status(
        name=name,
        folder=found["type"] == "DIRECTORY",
        length=int(found["length"]),
        modified_s=float(found["modificationTime"]) / 1000.0,
        owner=str(found["owner"]),
        permission=str(found["permission"]),
    )
