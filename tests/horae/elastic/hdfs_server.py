"""HDFS at the socket, with its own rules: a NameNode that redirects data to a DataNode."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit


class Hdfs:
    """A tree of files. The NameNode redirects data to the DataNode (the same server, another path prefix)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = {"/"}
        self.attributes: dict[str, dict[str, str]] = {}
        self.queries: list[dict[str, str]] = []
        self.full = False
        self.owners: dict[str, str] = {}  #: of what is not alice's
        self.modes: dict[str, str] = {}  #: of folders that are not 755
        #: answers to come instead of the right ones: (operation, on the DataNode, status, body); status 0 breaks off
        self.trouble: list[tuple[str, bool, int, Any]] = []
        hdfs = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                return

            def answer(self, status: int, body: Any = None, location: str = "") -> None:
                data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def handle_one(self) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                hdfs.queries.append(query)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                name = parts.path.removeprefix("/webhdfs/v1").removeprefix("/data")
                hdfs.serve(self, query, unquote(name), body, data=parts.path.startswith("/data"))

            do_GET = do_PUT = do_DELETE = handle_one

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"webhdfs://{self.host}/user/alice/ckpt"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def serve(self, to: Any, query: dict[str, str], path: str, body: bytes, *, data: bool) -> None:
        operation = query["op"]
        if self.trouble and self.trouble[0][:2] == (operation, data):
            _, _, status, answer = self.trouble.pop(0)
            if status in (200, 201):
                self.act(to, operation, query, path, body)  # it happens, and nobody hears of it
            if status == 307:
                return to.answer(307, location=answer)
            if status < 300:
                to.close_connection = True
                return to.connection.close()
            return to.answer(status, answer)
        if operation in ("OPEN", "CREATE") and not data:
            assert body == b"", "the NameNode takes no data"
            if operation == "OPEN" and path not in self.files:
                return self.missing(to, path)
            query_text = "&".join(f"{key}={value}" for key, value in query.items())
            return to.answer(307, location=f"http://{self.host}/data{quote(path)}?{query_text}")
        return self.act(to, operation, query, path, body)

    def act(self, to: Any, operation: str, query: dict[str, str], path: str, body: bytes) -> None:
        if operation == "OPEN":
            return to.answer(200, self.files[path])
        if operation == "CREATE":
            if self.full:
                return to.answer(403, {"RemoteException": {"message": "DSQuotaExceeded: no space\n\tat x"}})
            self.files[path] = body
            self.add_parents(path)
            return to.answer(201)
        if operation == "MKDIRS":
            self.folders.add(path)
            self.add_parents(path)
            return to.answer(200, {"boolean": True})
        if operation == "GETHOMEDIRECTORY":
            return to.answer(200, {"Path": "/user/alice"})
        if operation == "GETFILESTATUS" and path in self.folders:
            return to.answer(200, {"FileStatus": {"permission": self.modes.get(path, "755"), "length": 0}})
        if operation == "LISTSTATUS":
            return self.list(to, path)
        if operation in ("GETXATTRS", "SETXATTR") and not self.has(path):
            return self.missing(to, path)
        if operation == "GETXATTRS":
            held = [{"name": name, "value": value} for name, value in self.attributes.get(path, {}).items()]
            return to.answer(200, {"XAttrs": held[::-1]})
        if operation == "SETXATTR":
            self.attributes.setdefault(path, {})[query["xattr.name"]] = query["xattr.value"]
            return to.answer(200)
        if operation == "RENAME" and "renameoptions" in query:
            for needed in (path, query["destination"].rpartition("/")[0] or "/"):
                if not self.has(needed):
                    return self.missing(to, needed)
        if operation == "RENAME" and "renameoptions" in query:
            self.rename(path, query["destination"], True)
            return to.answer(200)
        if operation == "RENAME":
            return to.answer(200, {"boolean": self.rename(path, query["destination"], False)})
        if operation == "DELETE":
            mine = {name for name in (*self.files, *self.folders) if name == path or name.startswith(path + "/")}
            self.files = {name: text for name, text in self.files.items() if name not in mine}
            self.folders -= mine
            self.attributes = {name: held for name, held in self.attributes.items() if name not in mine}
            return to.answer(200, {"boolean": bool(mine)})
        raise AssertionError(operation)

    def add_parents(self, path: str) -> None:
        while path != "/":
            path = path.rpartition("/")[0] or "/"
            self.folders.add(path)

    def missing(self, to: Any, path: str) -> None:
        to.answer(404, {"RemoteException": {"message": f"File does not exist: {path}"}})

    def list(self, to: Any, path: str) -> None:
        if path not in self.folders:
            return self.missing(to, path)
        listed = [(name, "DIRECTORY", 0) for name in self.folders]
        listed += [(name, "FILE", len(text)) for name, text in self.files.items()]
        found = [
            {"pathSuffix": name[len(path) + 1 :], "type": kind, "length": length,
             "owner": self.owners.get(name, "alice")}
            for name, kind, length in listed
        ]  # fmt: skip
        inside = [each for each in found if each["pathSuffix"] and "/" not in str(each["pathSuffix"])]
        names = {f"{path}/{each['pathSuffix']}": each for each in inside}
        return to.answer(200, {"FileStatuses": {"FileStatus": [n for k, n in names.items() if self.has(k)]}})

    def has(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def rename(self, source: str, target: str, overwrite: bool) -> bool:
        if not self.has(source) or (self.has(target) and not overwrite):
            return False
        if source in self.attributes:
            self.attributes[target] = self.attributes.pop(source)
        for name in [n for n in self.files if n == source or n.startswith(source + "/")]:
            self.files[target + name[len(source) :]] = self.files.pop(name)
        for name in [n for n in self.folders if n == source or n.startswith(source + "/")]:
            self.folders.discard(name)
            self.folders.add(target + name[len(source) :])
        return True
