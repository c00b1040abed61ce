"""Checkpoints over WebHDFS: a small NameNode and DataNode stand at the socket, with HDFS's own rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from horae.elastic import checkpoints, documents
from horae.elastic.stores import open_store
from horae.elastic.webhdfs import HdfsError


class Hdfs:
    """A tree of files. The NameNode redirects data to the DataNode (the same server, another path prefix)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = {"/"}
        self.queries: list[dict[str, str]] = []
        self.full = False
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
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, to: Any, query: dict[str, str], path: str, body: bytes, *, data: bool) -> None:
        operation = query["op"]
        if operation in ("OPEN", "CREATE") and not data:
            assert body == b"", "the NameNode takes no data"
            if operation == "OPEN" and path not in self.files:
                return self.missing(to, path)
            query_text = "&".join(f"{key}={value}" for key, value in query.items())
            return to.answer(307, location=f"http://{self.host}/data{quote(path)}?{query_text}")
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
        if operation == "LISTSTATUS":
            return self.list(to, path)
        if operation == "RENAME":
            return to.answer(200, {"boolean": self.rename(path, query["destination"], "renameoptions" in query)})
        if operation == "DELETE":
            mine = {name for name in (*self.files, *self.folders) if name == path or name.startswith(path + "/")}
            self.files = {name: text for name, text in self.files.items() if name not in mine}
            self.folders -= mine
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
        found = [{"pathSuffix": name[len(path) + 1 :], "type": "DIRECTORY", "length": 0} for name in self.folders]
        found += [
            {"pathSuffix": name[len(path) + 1 :], "type": "FILE", "length": len(text)}
            for name, text in self.files.items()
        ]
        inside = [each for each in found if each["pathSuffix"] and "/" not in str(each["pathSuffix"])]
        names = {f"{path}/{each['pathSuffix']}": each for each in inside}
        return to.answer(200, {"FileStatuses": {"FileStatus": [n for k, n in names.items() if self.has(k)]}})

    def has(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def rename(self, source: str, target: str, overwrite: bool) -> bool:
        if not self.has(source) or (self.has(target) and not overwrite):
            return False
        for name in [n for n in self.files if n == source or n.startswith(source + "/")]:
            self.files[target + name[len(source) :]] = self.files.pop(name)
        for name in [n for n in self.folders if n == source or n.startswith(source + "/")]:
            self.folders.discard(name)
            self.folders.add(target + name[len(source) :])
        return True


@pytest.fixture
def hdfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hdfs]:
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    made = Hdfs()
    yield made
    made.server.shutdown()
    made.server.server_close()


def fill(folder: str) -> None:
    (Path(folder) / "model").write_bytes(b"w" * 5000)
    (Path(folder) / "deep").mkdir()
    (Path(folder) / "deep" / "part 1").write_bytes(b"p")


def test_a_checkpoint_goes_there_and_comes_back(hdfs: Hdfs) -> None:
    store = open_store(hdfs.url)
    assert checkpoints.marks(store) == []
    mark = checkpoints.write(store, 12, 3, {}, fill, lambda: None)
    assert [each.step for each in checkpoints.marks(store)] == [12]
    (found,) = checkpoints.complete(store, pytest.fail)
    assert (Path(found[2]) / "deep" / "part 1").read_bytes() == b"p"
    assert found[1]["files"]["model"]["size"] == 5000
    store.done(found[2])
    assert not Path(found[2]).exists()
    assert all(query.get("user.name") == "alice" for query in hdfs.queries)
    assert not [name for name in hdfs.folders if ".tmp-" in name]
    checkpoints.write(store, 13, 3, {}, fill, lambda: None)
    assert checkpoints.prune(store, 1) == [mark.name]


def test_a_writer_that_is_refused_leaves_nothing_and_says_why(hdfs: Hdfs) -> None:
    store = open_store(hdfs.url)
    hdfs.full = True
    with pytest.raises(HdfsError, match=r"DSQuotaExceeded: no space \(HTTP 403\)"):
        checkpoints.write(store, 12, 3, {}, fill, lambda: None)
    assert checkpoints.marks(store) == []
    assert not [name for name in hdfs.folders if ".tmp-" in name]


def test_a_superseded_writer_leaves_nothing(hdfs: Hdfs) -> None:
    def newer() -> None:
        raise checkpoints.Superseded("newer")

    store = open_store(hdfs.url)
    with pytest.raises(checkpoints.Superseded):
        checkpoints.write(store, 12, 3, {}, fill, newer)
    assert hdfs.files == {}


def test_half_uploads_are_swept_and_damage_is_noticed(hdfs: Hdfs) -> None:
    store = open_store(hdfs.url)
    first = checkpoints.write(store, 1, 1, {}, fill, lambda: None)
    second = checkpoints.write(store, 2, 1, {}, fill, lambda: None)
    hdfs.folders.add("/user/alice/ckpt/.tmp-step-x")
    hdfs.files[f"/user/alice/ckpt/{second.name}/model"] = b"w" * 4999 + b"!"
    assert store.sweep() == [".tmp-step-x"]
    said: list[str] = []
    assert [mark for mark, _, _ in checkpoints.complete(store, said.append)] == [first]
    assert second.name in said[0]


def test_documents_are_replaced_at_once(hdfs: Hdfs) -> None:
    url = f"webhdfs://{hdfs.host}/jobs/j/gate"
    assert documents.get(url) is None
    documents.put(url, b"one")
    documents.put(url, b"two")
    assert documents.get(url) == b"two"
    assert list(hdfs.files) == ["/jobs/j/gate"]


def test_a_delegation_token_is_read_anew_for_each_request(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    monkeypatch.setenv("HORAE_HDFS_TOKEN_FILE", str(token))
    store = open_store(hdfs.url)
    for text in ("first", "renewed"):
        token.write_text(text + "\n")
        store.entries()
        assert hdfs.queries[-1]["delegation"] == text
        assert "user.name" not in hdfs.queries[-1]


def test_hdfs_urls_need_the_address_of_the_namenode(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="set HORAE_WEBHDFS"):
        open_store("hdfs://nn:8020/ckpt")
    monkeypatch.setenv("HORAE_WEBHDFS", f"http://{hdfs.host}")
    store = open_store("hdfs://nn:8020/ckpt")
    checkpoints.write(store, 1, 1, {}, fill, lambda: None)
    assert [mark.step for mark in checkpoints.marks(store)] == [1]


def test_a_namenode_that_is_away_is_an_operating_system_error() -> None:
    store = open_store("webhdfs://127.0.0.1:1/ckpt")
    with pytest.raises(OSError, match="refused"):
        store.entries()
