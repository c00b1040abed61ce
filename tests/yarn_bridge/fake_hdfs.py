"""An HDFS in this process: a NameNode and the DataNode it redirects to, each a web server."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.yarn_bridge.fake import Asked, Fake, Reply, serving
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import Access

PREFIX = "/webhdfs/v1"


def refused(status: int, exception: str, message: str) -> Reply:
    return Reply(status, {"RemoteException": {"exception": exception, "javaClassName": "x", "message": message}})


def told(conf: dict[str, str], asked: Asked) -> Reply:
    """A daemon's `/conf`: all of it, or one setting."""
    name = asked.query.get("name")
    if name is None:
        return Reply(body={"properties": [{"key": key, "value": value} for key, value in conf.items()]})
    if name not in conf:
        return Reply(404)
    return Reply(body={"property": {"key": name, "value": conf[name], "isFinal": False, "resource": "x-default.xml"}})


class World:
    """A NameNode and its DataNode, which is called `datanode` and not known to any resolver."""

    def __init__(self, stack: ExitStack) -> None:
        self.files: dict[str, bytes] = {}
        self.folders = {"/", "/user", "/user/alice"}
        self.times: dict[str, int] = {}
        self.modes: dict[str, str] = {}
        self.owner = "alice"
        self.conf: dict[str, str] = {}
        self.datanode_conf: dict[str, str] | Reply = {}
        self.attributes: dict[str, dict[str, str]] = {}
        self.clock = 1_000_000
        self.namenode: Fake = stack.enter_context(serving(self.answer))
        self.datanode: Fake = stack.enter_context(serving(self.store))
        self.fault: Callable[[str], Reply | None] = lambda operation: None
        self.datanode_name = f"datanode.invalid:{urlsplit(self.datanode.url).port}"

    def hdfs(self, **names: str) -> Hdfs:
        mapped = names or {"datanode.invalid": "127.0.0.1"}
        return Hdfs(Access((self.namenode.url,), "horae"), mapped)

    def answer(self, asked: Asked) -> Reply:
        if "op" not in asked.query:
            return told(self.conf, asked)
        path, operation = asked.path.removeprefix(PREFIX), asked.query["op"]
        reply = self.fault(operation)
        if reply is not None:
            return reply
        if operation in {"CREATE", "OPEN"}:
            if operation != "CREATE" and path not in self.files:
                return refused(404, "FileNotFoundException", f"File does not exist: {path}")
            query = urlencode({**asked.query, "delegation": "of-the-namenode"})
            to = f"http://{self.datanode_name}{asked.path}?{query}"
            return Reply(body={"Location": to}) if "noredirect" in asked.query else Reply(307, None, {"Location": to})
        known = getattr(self, operation.lower())(path, asked.query)
        return known if isinstance(known, Reply) else Reply(body=known)

    def store(self, asked: Asked) -> Reply:
        if "op" not in asked.query:
            return self.datanode_conf if isinstance(self.datanode_conf, Reply) else told(self.datanode_conf, asked)
        path, operation = asked.path.removeprefix(PREFIX), asked.query["op"]
        reply = self.fault(f"DATANODE {operation}")
        if reply is not None:
            return reply
        if operation == "CREATE":
            self.files[path] = asked.body
            self.clock += 1000
            self.times[path] = self.clock
            return Reply(201)
        start = int(asked.query.get("offset", 0))
        end = start + int(asked.query["length"]) if "length" in asked.query else None
        return Reply(body=self.files[path][start:end])

    def record(self, path: str) -> dict[str, Any]:
        kind = "FILE" if path in self.files else "DIRECTORY"
        return {"type": kind, "length": len(self.files.get(path, b"")), "modificationTime": self.times.get(path, 0),
                "owner": self.owner, "permission": self.modes.get(path, "755"), "pathSuffix": ""}  # fmt: skip

    def there(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def gethomedirectory(self, path: str, query: dict[str, str]) -> Any:
        return {"Path": f"/user/{query.get('user.name', self.owner)}"}

    def getfilestatus(self, path: str, query: object) -> Any:
        if not self.there(path):
            return refused(404, "FileNotFoundException", f"File does not exist: {path}")
        return {"FileStatus": self.record(path)}

    def liststatus(self, path: str, query: object) -> Any:
        if not self.there(path):
            return refused(404, "FileNotFoundException", f"File {path} does not exist.")
        below = [each for each in (*self.files, *self.folders) if posixpath.dirname(each) == path and each != path]
        return {
            "FileStatuses": {
                "FileStatus": [{**self.record(each), "pathSuffix": posixpath.basename(each)} for each in sorted(below)]
            }
        }

    def liststatus_batch(self, path: str, query: dict[str, str]) -> Any:
        """Two entries at a time."""
        found = self.liststatus(path, query)
        if isinstance(found, Reply):
            return found
        listed = [
            each for each in found["FileStatuses"]["FileStatus"] if each["pathSuffix"] > query.get("startAfter", "")
        ]
        piece = {"FileStatuses": {"FileStatus": listed[:2]}}
        return {"DirectoryListing": {"partialListing": piece, "remainingEntries": len(listed[2:])}}

    def setpermission(self, path: str, query: dict[str, str]) -> Any:
        self.modes[path] = query["permission"]
        return None

    def getcontentsummary(self, path: str, query: object) -> Any:
        size = sum(len(data) for name, data in self.files.items() if name.startswith(path))
        return {"ContentSummary": {"length": size, "spaceConsumed": 3 * size, "spaceQuota": 4096, "quota": -1,
                                   "fileCount": len(self.files), "directoryCount": 1}}  # fmt: skip

    def mkdirs(self, path: str, query: object) -> Any:
        while path not in self.folders:
            self.folders.add(path)
            path = posixpath.dirname(path)
        return {"boolean": True}

    def rename(self, path: str, query: dict[str, str]) -> Any:
        target = query["destination"]
        if path in self.attributes:  # a document: a folder without entries
            self.folders = (self.folders - {path}) | {target}
            self.attributes[target] = self.attributes.pop(path)
            return None
        if query.get("renameoptions") == "OVERWRITE":
            self.files[target], self.times[target] = self.files.pop(path), self.times.get(path, 0)
            return None
        if not self.there(path) or self.there(target):
            return {"boolean": False}
        self.files[target], self.times[target] = self.files.pop(path), self.times.get(path, 0)
        return {"boolean": True}

    def setxattr(self, path: str, query: dict[str, str]) -> Any:
        if not self.there(path):
            return refused(404, "FileNotFoundException", f"File does not exist: {path}")
        self.attributes.setdefault(path, {})[query["xattr.name"]] = query["xattr.value"]
        return None

    def getxattrs(self, path: str, query: dict[str, str]) -> Any:
        held = self.attributes.get(path, {})
        return {"XAttrs": [{"name": name, "value": value} for name, value in held.items()]}

    def delete(self, path: str, query: object) -> Any:
        found = [each for each in (*self.files, *self.folders) if each == path or each.startswith(path + "/")]
        for each in found:
            self.files.pop(each, None)
            self.folders.discard(each)
            self.attributes.pop(each, None)
        return {"boolean": bool(found)}
