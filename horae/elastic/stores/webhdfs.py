"""Checkpoints and small documents in HDFS over WebHDFS: plain HTTP, nothing installed on the node.

    webhdfs://namenode:9870/user/alice/checkpoints      swebhdfs:// for HTTPS
    hdfs://namenode:8020/user/alice/checkpoints         needs $HORAE_WEBHDFS=http://namenode:9870
    hdfs://ns2/checkpoints, viewfs://shop/checkpoints   by $HADOOP_CONF_DIR (`federation.py`)

Several NameNodes are written with commas (`http://nn1:9870,http://nn2:9870`, `webhdfs://nn1:9870,nn2:9870/...`): the
active one is found by asking. A checkpoint's upload and download wait a while for a NameNode that restarts, is in safe
mode or changes over, and for a DataNode that is lost; other trouble, a quota above all, is told at once.

Who asks: a delegation token ($HORAE_HDFS_TOKEN, or a file named by $HORAE_HDFS_TOKEN_FILE, read at every request so
that it can be renewed), else the one that YARN gave this container, else `user.name` ($HADOOP_USER_NAME, else this
process's user). The requests are those of `namenodes.py`.
"""

import concurrent.futures
import contextlib
import functools
import getpass
import os
import shutil
import socket
import sys
import time
import urllib.parse
from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Set, Tuple, TypeVar

from .. import protocol
from . import attributes
from .container_tokens import hdfs_token
from .federation import client_conf, is_default, namenodes, token_services, unmounted
from .hdfserrors import HdfsError
from .namenodes import NameNodes
from .store import HDFS_SCHEMES, Store, register_store, scratch, sizes_of

ENV_ADDRESS = "HORAE_WEBHDFS"
ENV_TOKEN = "HORAE_HDFS_TOKEN"
ENV_TOKEN_FILE = "HORAE_HDFS_TOKEN_FILE"
_TEMPORARY = ".tmp-"
_PATIENCE_S = 30.0  #: of an upload or download; at most half of the job's grace
_PAUSE_S = 1.0
#: files of a checkpoint on their way at once: HDFS takes half a second for the end of each, however small
_AT_ONCE = 4

T = TypeVar("T")


class Hdfs(NameNodes):
    """The few operations that checkpoints need. Paths are absolute."""

    def get(self, path: str, write: Callable[[bytes], Any]) -> bool:
        """Pass the file's bytes to `write`; False when there is none."""
        pieces = _found(lambda: self.read(path), None)
        if pieces is None:
            return False
        for piece in pieces:
            write(piece)
        return True

    def append(self, path: str, source: Any, size: int, sent: Callable[[], Any] = int) -> None:
        """Add to a file, which is made where there is none. `sent`: called once HDFS has all bytes to write."""
        try:
            self.write(path, source, size, append=True, sent=sent)
        except HdfsError as error:
            if error.status != 404:
                raise
            self.write(path, source, size)

    def size(self, path: str) -> int:
        """Bytes in a file; 0 when there is none."""
        return _found(lambda: int(self.ask("GET", path, "GETFILESTATUS")["FileStatus"]["length"]), 0)

    def list(self, path: str) -> "List[Dict[str, Any]]":
        """FileStatus of each entry; empty when the folder does not exist."""
        return _found(lambda: list(self.ask("GET", path, "LISTSTATUS")["FileStatuses"]["FileStatus"]), [])

    def is_open(self, path: str) -> bool:
        """Whether everybody may write there."""
        return bool(int(self.ask("GET", path, "GETFILESTATUS")["FileStatus"]["permission"], 8) & 0o002)

    def who(self) -> str:
        """As whom HDFS knows who asks."""
        return str(self.ask("GET", "/", "GETHOMEDIRECTORY")["Path"]).rpartition("/")[2]

    def make_folder(self, path: str, **settings: str) -> None:
        self.ask("PUT", path, "MKDIRS", **settings)

    def rename(self, source: str, target: str, overwrite: bool = False) -> None:
        """Raises FileExistsError when HDFS will not: the target is there, or the source is not; OSError where nothing
        can be replaced: HttpFS puts what comes into a folder that is there."""
        options = {"destination": target}
        if overwrite:
            options["renameoptions"] = "OVERWRITE"
        answer = self.ask("PUT", source, "RENAME", **options)
        if overwrite and answer is not None:  # WebHDFS itself says nothing to that
            raise OSError("%s is no WebHDFS of a NameNode: HttpFS cannot replace %s" % (self.bases[0], target))
        if answer is not None and answer.get("boolean") is False:
            raise FileExistsError("HDFS did not rename %s to %s" % (source, target))

    def document(self, path: str) -> Optional[bytes]:
        """A document kept in attributes; None when there is none."""
        return _found(lambda: attributes.join(self.ask("GET", path, "GETXATTRS", encoding="base64")), None)

    def keep_document(self, path: str, data: bytes, at: str, mode: str = "755") -> None:
        """Replace a document at once. It is made in the folder `at`, whose stamp changes with it."""
        folder, _, name = path.rpartition("/")
        temporary = "%s/%s%s.%s" % (at, _TEMPORARY, name, os.urandom(4).hex())
        pieces = attributes.split(data)
        self.make_folder(temporary, permission=mode)
        for key, value in pieces:
            settings = {"xattr.name": key, "xattr.value": value, "flag": "CREATE"}
            self.ask("PUT", temporary, "SETXATTR", **settings)
        try:
            self.rename(temporary, path, overwrite=True)
        except HdfsError as error:
            if error.status != 404:
                raise
            self.make_folder(folder, permission="755")  # the first of its kind
            self.rename(temporary, path, overwrite=True)

    def delete(self, path: str) -> None:
        self.ask("DELETE", path, "DELETE", recursive="true")

    def identity(self) -> Dict[str, str]:
        token = _token(lambda: token_services(self.bases, client_conf()))
        if token:
            return {"delegation": token}
        return {"user.name": os.environ.get("HADOOP_USER_NAME") or getpass.getuser()}


class HdfsStore(Store):
    """Entries are folders in an HDFS folder; made locally, uploaded under a temporary name, renamed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._hdfs, self._path = locate(url)
        grace_s = float(os.environ.get(protocol.ENV_GRACE) or 2 * _PATIENCE_S)
        self._patience_s = min(_PATIENCE_S, grace_s / 2)
        self._only: Optional[str] = None  #: whose entries count; "": everybody's who may write here
        self._told: Set[str] = set()
        #: What a start has just learned and would ask for again: the list that it swept, and of the entry that it looks
        #: at the sizes and the account. An entry never changes once it is there.
        self._swept: Optional[List[Dict[str, Any]]] = None
        self._sizes: Dict[str, Dict[str, int]] = {}
        self._accounts: Dict[str, Dict[str, bytes]] = {}

    def entries(self) -> List[str]:
        listed, self._swept = self._swept, None
        listed = self._believed() if listed is None else listed
        names = [str(each["pathSuffix"]) for each in listed if each["type"] == "DIRECTORY"]
        return [name for name in names if not name.startswith(".")]

    def _believed(self) -> "List[Dict[str, Any]]":
        """What lies there; in a folder in which everybody may write, what is of who asks: a checkpoint can hold
        anything that its reader would run."""
        listed = self._hdfs.list(self._path)
        if listed and self._only is None:
            self._only = self._hdfs.who() if self._hdfs.is_open(self._path) else ""
        strange = [each for each in listed if self._only and str(each["owner"]) != self._only]
        for each in strange:
            name = str(each["pathSuffix"])
            if name not in self._told:
                self._told.add(name)
                words = (self._path, name, each["owner"], self._only)
                sys.stderr.write(
                    "[horae] %s/%s is passed over: it is %s's, not %s's, and everybody may write there\n" % words
                )
        return [each for each in listed if each not in strange]

    def read(self, entry: str, name: str) -> Optional[bytes]:
        pieces: List[bytes] = []
        if not self._hdfs.get("%s/%s/%s" % (self._path, entry, name), pieces.append):
            return None
        data = b"".join(pieces)
        self._accounts = {entry: {name: data}}
        return data

    def sizes(self, entry: str) -> Dict[str, int]:
        found = dict(self._walk("%s/%s" % (self._path, entry), ""))
        self._sizes = {entry: found}
        return found

    def fetch(self, entry: str) -> str:
        folder = scratch("fetch")
        patience = Patience(self._patience_s)
        try:
            steps = []
            sizes, known = self._sizes.pop(entry, None), self._accounts.pop(entry, {})
            for path, size in (patience.with_(lambda: self.sizes(entry)) if sizes is None else sizes).items():
                local = os.path.join(folder, path)
                os.makedirs(os.path.dirname(local), exist_ok=True)
                if path in known and len(known[path]) == size:
                    with open(local, "wb") as file:
                        file.write(known[path])
                    continue
                steps.append(functools.partial(self._download, "%s/%s/%s" % (self._path, entry, path), local))
            patience.with_all(steps)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def _download(self, remote: str, local: str) -> None:
        with open(local, "wb") as file:
            if not self._hdfs.get(remote, file.write):
                raise FileNotFoundError("%s is gone from HDFS" % remote)

    def done(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def begin(self, entry: str) -> str:
        return scratch(entry)

    def publish(self, folder: str, entry: str, last_check: Callable[[], None]) -> None:
        temporary = "%s/%s%s.%s" % (self._path, _TEMPORARY, entry, os.urandom(4).hex())
        patience = Patience(self._patience_s)
        try:
            patience.with_(lambda: self._hdfs.make_folder(temporary))
            patience.with_all(
                functools.partial(self._upload, os.path.join(folder, path), "%s/%s" % (temporary, path), size)
                for path, size in sorted(sizes_of(folder).items())
            )
            patience.with_(lambda: self._put_in_place(temporary, entry, last_check))
        except BaseException as error:
            if not passes(error):  # where HDFS is away this would only wait
                with contextlib.suppress(OSError):  # the next start sweeps
                    self._hdfs.delete(temporary)
            raise
        shutil.rmtree(folder, ignore_errors=True)

    def _upload(self, local: str, remote: str, size: int) -> None:
        with open(local, "rb") as file:
            self._hdfs.write(remote, file, size)

    def _put_in_place(self, temporary: str, entry: str, last_check: Callable[[], None]) -> None:
        self._forget(entry)
        last_check()
        try:
            self._hdfs.rename(temporary, "%s/%s" % (self._path, entry))
        except FileExistsError:
            # Renamed by an earlier attempt whose answer was lost: then the temporary name is gone.
            names = [str(each["pathSuffix"]) for each in self._hdfs.list(self._path)]
            if entry not in names or temporary.rpartition("/")[2] in names:
                raise

    def abandon(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def delete(self, entry: str) -> None:
        self._forget(entry)
        self._hdfs.delete("%s/%s" % (self._path, entry))

    def _forget(self, entry: str) -> None:
        self._swept = None
        self._sizes.pop(entry, None)
        self._accounts.pop(entry, None)

    def sweep(self) -> List[str]:
        listed = self._believed()
        left = [str(each["pathSuffix"]) for each in listed if str(each["pathSuffix"]).startswith(_TEMPORARY)]
        for name in left:
            self._hdfs.delete("%s/%s" % (self._path, name))
        self._swept = listed
        return left

    def _walk(self, path: str, below: str) -> "List[Tuple[str, int]]":
        found: List[Tuple[str, int]] = []
        for each in self._hdfs.list(path):
            name = below + str(each["pathSuffix"])
            if each["type"] == "DIRECTORY":
                found += self._walk("%s/%s" % (path, each["pathSuffix"]), name + "/")
            else:
                found.append((name, int(each["length"])))
        return found


def locate(url: str) -> "Tuple[Hdfs, str]":
    """Server and absolute path of a webhdfs://, swebhdfs://, hdfs:// or viewfs:// URL. Raises ValueError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in ("hdfs", "viewfs"):
        conf = client_conf()
        parts = urllib.parse.urlsplit(unmounted(url, conf))
        elsewhere = namenodes(parts.netloc, conf)
    path = parts.path.rstrip("/") or "/"
    if parts.scheme in ("webhdfs", "swebhdfs"):
        scheme = "https" if parts.scheme == "swebhdfs" else "http"
        return Hdfs(["%s://%s" % (scheme, each) for each in parts.netloc.split(",")]), path
    if parts.scheme != "hdfs":
        raise ValueError("%s: %s://%s is mounted there, and not HDFS" % (url, parts.scheme, parts.netloc))
    bases = [each.strip().rstrip("/") for each in os.environ.get(ENV_ADDRESS, "").split(",") if each.strip()]
    if elsewhere and not (bases and (is_default(parts.netloc, conf) or set(bases) & set(elsewhere))):
        bases = elsewhere
    if not bases:
        raise ValueError(
            "%s: set %s to the NameNode's HTTP address, or use webhdfs://host:port/..." % (url, ENV_ADDRESS)
        )
    return Hdfs(bases), path


class Patience:
    """Waiting for trouble that passes, over all steps of one errand together."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def with_(self, step: Callable[[], T]) -> T:
        """The step's result; it is taken again while its trouble may pass. Raises OSError."""
        while True:
            try:
                return step()
            except OSError as error:
                if not passes(error) or self._left <= 0:
                    raise
                self._left -= _PAUSE_S
                time.sleep(_PAUSE_S)

    def with_all(self, steps: "Iterable[Callable[[], T]]") -> None:
        """Several steps side by side; the first trouble that is told ends those that have not begun."""
        own = [(Patience(self._left), step) for step in steps]  # waiting side by side takes the time of one
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            begun = [pool.submit(patience.with_, step) for patience, step in own]
            try:
                for each in begun:
                    each.result()
            finally:
                for each in begun:
                    each.cancel()
        self._left = min([self._left] + [patience._left for patience, _ in own])


def passes(error: BaseException) -> bool:
    """Whether the same may succeed later without anybody's doing."""
    return error.passes if isinstance(error, HdfsError) else isinstance(error, (ConnectionError, socket.timeout))


def _found(ask: Callable[[], T], gone: T) -> T:
    """What HDFS answers; `gone` where it says that there is nothing of this name."""
    try:
        return ask()
    except HdfsError as error:
        if error.status != 404:
            raise
        return gone


def register() -> None:
    for scheme in HDFS_SCHEMES:
        register_store(scheme, HdfsStore)


def _token(services: "Callable[[], Collection[str]]" = tuple) -> str:
    path = os.environ.get(ENV_TOKEN_FILE)
    if path:
        with open(path) as file:
            return file.read().strip()
    return os.environ.get(ENV_TOKEN, "") or hdfs_token(services=services)
