"""Checkpoints and small documents in HDFS over WebHDFS: plain HTTP, nothing installed on the node.

    webhdfs://namenode:9870/user/alice/checkpoints      swebhdfs:// for HTTPS
    hdfs://namenode:8020/user/alice/checkpoints         needs $HORAE_WEBHDFS=http://namenode:9870

Who asks: a delegation token ($HORAE_HDFS_TOKEN, or a file named by $HORAE_HDFS_TOKEN_FILE, read at every request so
that it can be renewed), else `user.name` ($HADOOP_USER_NAME, else this process's user). A request goes to the
NameNode, which redirects data to a DataNode; the redirect carries the token itself.
"""

import getpass
import http.client
import json
import os
import shutil
import tempfile
import urllib.parse
from typing import Any, Callable, Dict, List, Optional, Tuple

from .stores import Store, register_store, sizes_of

ENV_ADDRESS = "HORAE_WEBHDFS"
ENV_TOKEN = "HORAE_HDFS_TOKEN"
ENV_TOKEN_FILE = "HORAE_HDFS_TOKEN_FILE"
_PREFIX = "/webhdfs/v1"
_TEMPORARY = ".tmp-"
_PIECE = 1 << 20
_TIMEOUT_S = 60.0


class HdfsError(OSError):
    """HDFS refused; the text is its own."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__("HDFS: %s (HTTP %d)" % (text, status))
        self.status = status


class Hdfs:
    """The few operations that checkpoints need. Paths are absolute."""

    def __init__(self, base: str) -> None:
        self._base = urllib.parse.urlsplit(base)

    def get(self, path: str, write: Callable[[bytes], Any]) -> bool:
        """Pass the file's bytes to `write`; False when there is none."""
        try:
            response, connection = self._open("GET", self._address(path, "OPEN"))
        except HdfsError as error:
            if error.status == 404:
                return False
            raise
        try:
            while True:
                piece = response.read(_PIECE)
                if not piece:
                    return True
                write(piece)
        finally:
            connection.close()

    def put(self, path: str, source: Any, size: int) -> None:
        """Create or overwrite a file from a binary stream of `size` bytes."""
        response, connection = self._open("PUT", self._address(path, "CREATE", overwrite="true"), source, size)
        response.read()
        connection.close()

    def append(self, path: str, source: Any, size: int) -> None:
        """Add to a file, which is made where there is none."""
        try:
            response, connection = self._open("POST", self._address(path, "APPEND"), source, size)
        except HdfsError as error:
            if error.status != 404:
                raise
            self.put(path, source, size)
            return
        response.read()
        connection.close()

    def size(self, path: str) -> int:
        """Bytes in a file; 0 when there is none."""
        try:
            return int(self._json("GET", self._address(path, "GETFILESTATUS"))["FileStatus"]["length"])
        except HdfsError as error:
            if error.status == 404:
                return 0
            raise

    def list(self, path: str) -> "List[Dict[str, Any]]":
        """FileStatus of each entry; empty when the folder does not exist."""
        try:
            answer = self._json("GET", self._address(path, "LISTSTATUS"))
        except HdfsError as error:
            if error.status == 404:
                return []
            raise
        return list(answer["FileStatuses"]["FileStatus"])

    def make_folder(self, path: str) -> None:
        self._json("PUT", self._address(path, "MKDIRS"))

    def rename(self, source: str, target: str, overwrite: bool = False) -> None:
        """Raises FileExistsError when HDFS will not: the target is there, or the source is not."""
        options = {"destination": target}
        if overwrite:
            options["renameoptions"] = "OVERWRITE"
        answer = self._json("PUT", self._address(source, "RENAME", **options))
        if answer is not None and answer.get("boolean") is False:
            raise FileExistsError("HDFS did not rename %s to %s" % (source, target))

    def delete(self, path: str) -> None:
        self._json("DELETE", self._address(path, "DELETE", recursive="true"))

    # --- HTTP ---------------------------------------------------------------------------------------------

    def _address(self, path: str, operation: str, **options: str) -> str:
        query = {"op": operation}
        query.update(options)
        token = _token()
        if token:
            query["delegation"] = token
        else:
            query["user.name"] = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        return urllib.parse.urlunsplit(
            (
                self._base.scheme,
                self._base.netloc,
                _PREFIX + urllib.parse.quote(path),
                urllib.parse.urlencode(query),
                "",
            )
        )

    def _json(self, method: str, address: str) -> Any:
        response, connection = self._open(method, address)
        try:
            text = response.read()
        finally:
            connection.close()
        return json.loads(text.decode()) if text.strip() else None

    def _open(
        self, method: str, address: str, source: Any = None, size: int = 0
    ) -> "Tuple[http.client.HTTPResponse, http.client.HTTPConnection]":
        """The final answer, one redirect followed. Data goes only where the NameNode sends it. Raises OSError."""
        for hop in range(3):
            connection = _connect(address)
            target = urllib.parse.urlsplit(address)
            path = target.path + ("?" + target.query if target.query else "")
            headers = {"Content-Type": "application/octet-stream"} if source is not None else {}
            body = None
            if source is not None:
                # The NameNode takes no data: an empty body first, the stream to whom it redirects to.
                headers["Content-Length"] = str(size if hop else 0)
                body = source if hop else b""
            try:
                connection.request(method, path, body=body, headers=headers)
                response = connection.getresponse()
            except http.client.HTTPException as error:
                connection.close()
                # Not its own words: they may hold the address, and the address holds the token.
                raise OSError("%s: %s" % (target.netloc, type(error).__name__)) from None
            except OSError:
                connection.close()
                raise
            if response.status in (301, 302, 303, 307, 308):
                address = response.headers.get("Location", "")
                connection.close()
                continue
            if response.status >= 400:
                text = _complaint(response.read())
                connection.close()
                raise HdfsError(response.status, text)
            return response, connection
        raise OSError("HDFS redirects in circles, last to %s" % urllib.parse.urlsplit(address).netloc)


class HdfsStore(Store):
    """Entries are folders in an HDFS folder; made locally, uploaded under a temporary name, renamed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._hdfs, self._path = locate(url)

    def entries(self) -> List[str]:
        names = [str(each["pathSuffix"]) for each in self._hdfs.list(self._path) if each["type"] == "DIRECTORY"]
        return [name for name in names if not name.startswith(".")]

    def read(self, entry: str, name: str) -> Optional[bytes]:
        pieces: List[bytes] = []
        found = self._hdfs.get("%s/%s/%s" % (self._path, entry, name), pieces.append)
        return b"".join(pieces) if found else None

    def sizes(self, entry: str) -> Dict[str, int]:
        return dict(self._walk("%s/%s" % (self._path, entry), ""))

    def fetch(self, entry: str) -> str:
        folder = tempfile.mkdtemp(prefix="horae-fetch-")
        try:
            for path in self.sizes(entry):
                local = os.path.join(folder, path)
                os.makedirs(os.path.dirname(local), exist_ok=True)
                with open(local, "wb") as file:
                    self._hdfs.get("%s/%s/%s" % (self._path, entry, path), file.write)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def done(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def begin(self, entry: str) -> str:
        return tempfile.mkdtemp(prefix="horae-%s-" % entry)

    def publish(self, folder: str, entry: str, last_check: Callable[[], None]) -> None:
        temporary = "%s/%s%s.%s" % (self._path, _TEMPORARY, entry, os.urandom(4).hex())
        self._hdfs.make_folder(temporary)
        try:
            for path, size in sorted(sizes_of(folder).items()):
                with open(os.path.join(folder, path), "rb") as file:
                    self._hdfs.put("%s/%s" % (temporary, path), file, size)
            last_check()
            self._hdfs.rename(temporary, "%s/%s" % (self._path, entry))
        except BaseException:
            self._hdfs.delete(temporary)
            raise
        shutil.rmtree(folder, ignore_errors=True)

    def abandon(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def delete(self, entry: str) -> None:
        self._hdfs.delete("%s/%s" % (self._path, entry))

    def sweep(self) -> List[str]:
        left = [str(each["pathSuffix"]) for each in self._hdfs.list(self._path)]
        left = [name for name in left if name.startswith(_TEMPORARY)]
        for name in left:
            self._hdfs.delete("%s/%s" % (self._path, name))
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
    """Server and absolute path of a webhdfs://, swebhdfs:// or hdfs:// URL. Raises ValueError."""
    parts = urllib.parse.urlsplit(url)
    path = parts.path.rstrip("/") or "/"
    if parts.scheme in ("webhdfs", "swebhdfs"):
        return Hdfs("%s://%s" % ("https" if parts.scheme == "swebhdfs" else "http", parts.netloc)), path
    base = os.environ.get(ENV_ADDRESS, "")
    if not base:
        raise ValueError(
            "%s: set %s to the NameNode's HTTP address, or use webhdfs://host:port/..." % (url, ENV_ADDRESS)
        )
    return Hdfs(base.rstrip("/")), path


def register() -> None:
    for scheme in ("webhdfs", "swebhdfs", "hdfs"):
        register_store(scheme, HdfsStore)


def _connect(address: str) -> http.client.HTTPConnection:
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.netloc, timeout=_TIMEOUT_S)
    return http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)


def _token() -> str:
    path = os.environ.get(ENV_TOKEN_FILE)
    if path:
        with open(path) as file:
            return file.read().strip()
    return os.environ.get(ENV_TOKEN, "")


def _complaint(body: bytes) -> str:
    """The message of a RemoteException, or the body's first words."""
    try:
        return str(json.loads(body.decode())["RemoteException"]["message"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return body[:200].decode(errors="replace").strip() or "no explanation"
