"""Checkpoints over WebHDFS: a small NameNode and DataNode stand at the socket, with HDFS's own rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from horae.elastic import attributes, checkpoints, documents, webhdfs
from horae.elastic.hdfserrors import HdfsError, refusal
from horae.elastic.stores import open_store


class Hdfs:
    """A tree of files. The NameNode redirects data to the DataNode (the same server, another path prefix)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = {"/"}
        self.attributes: dict[str, dict[str, str]] = {}
        self.queries: list[dict[str, str]] = []
        self.full = False
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
            for needed in (path, query["destination"].rpartition("/")[0]):
                if not self.has(needed):
                    return self.missing(to, needed)
        if operation == "RENAME":
            return to.answer(200, {"boolean": self.rename(path, query["destination"], "renameoptions" in query)})
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
        if source in self.attributes:
            self.attributes[target] = self.attributes.pop(source)
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
    assert (hdfs.files, {name for name in hdfs.folders if "gate" in name}) == ({}, {"/jobs/j/gate"})


def test_a_document_is_made_in_the_folder_whose_stamp_shall_tell(hdfs: Hdfs) -> None:
    base = f"webhdfs://{hdfs.host}/jobs/j"
    made = []
    serve = hdfs.serve

    def watched(to: Any, query: dict[str, str], path: str, body: bytes, *, data: bool) -> None:
        made.extend([path] if query["op"] == "MKDIRS" else [])
        serve(to, query, path, body, data=data)

    hdfs.serve = watched  # type: ignore[method-assign]
    documents.put(f"{base}/acks/w-1", b"{}", at=base)
    documents.put(f"{base}/acks/w-2", b"{}", at=base)
    assert [path.rpartition(".")[0] or path for path in made] == [
        "/jobs/j/.tmp-w-1",
        "/jobs/j/acks",
        "/jobs/j/.tmp-w-2",
    ]
    assert documents.get(f"{base}/acks/w-1") == documents.get(f"{base}/acks/w-2") == b"{}"


@pytest.mark.parametrize("size", [0, 1, attributes.PIECE, attributes.PIECE + 1, attributes.PIECE * attributes.MOST])
def test_a_document_of_any_size_comes_back_whole(hdfs: Hdfs, size: int) -> None:
    data = bytes(number * 7 % 251 for number in range(size))
    documents.put(f"webhdfs://{hdfs.host}/gate", data)
    assert documents.get(f"webhdfs://{hdfs.host}/gate") == data


def test_a_document_that_is_too_long_is_refused_and_the_old_one_stays(hdfs: Hdfs) -> None:
    url = f"webhdfs://{hdfs.host}/gate"
    documents.put(url, b"old")
    with pytest.raises(OSError, match="a document of 245761 bytes; HDFS's attributes hold 245760"):
        documents.put(url, b"x" * 245761)
    assert (documents.get(url), len(hdfs.attributes)) == (b"old", 1)


def test_a_folder_without_attributes_is_no_document(hdfs: Hdfs) -> None:
    hdfs.folders.add("/gate")
    assert documents.get(f"webhdfs://{hdfs.host}/gate") is None


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
    with pytest.raises(OSError, match=r"the NameNode 127.0.0.1:1 does not answer: Connection refused"):
        store.entries()


# --- trouble ----------------------------------------------------------------------------------------------


def remote(exception: str, message: str) -> dict[str, Any]:
    """A RemoteException as Hadoop 3 writes it."""
    return {"RemoteException": {"exception": exception, "javaClassName": f"org.x.{exception}", "message": message}}


SAFE = remote("SafeModeException", "Cannot create file /x. Name node is in safe mode.\nThe reported blocks 0 needs ...")
STANDBY = remote("StandbyException", "Operation category READ is not supported in state standby. Visit https://x")
NO_DATANODE = remote("IOException", "File /x could only be written to 0 of the 1 minReplication nodes. There are 0 ...")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that are counted, not slept."""
    monkeypatch.setattr(webhdfs, "time", SimpleNamespace(sleep=lambda _: None))


@pytest.mark.parametrize(
    ("exception", "message", "advice"),
    [
        ("DSQuotaExceededException", "The DiskSpace quota of /user/alice is exceeded: quota = 1 MB", "-setSpaceQuota"),
        ("NSQuotaExceededException", "The NameSpace quota (directories and files) is exceeded", "-setQuota"),
        (
            "QuotaByStorageTypeExceededException",
            "Quota by storage type : SSD on path : / is exceeded",
            "old checkpoints",
        ),
        ("AccessControlException", "Permission denied: user=bob, access=WRITE", "owner and mode"),
        ("InvalidToken", "token (token for alice: HDFS_DELEGATION_TOKEN) can't be found in cache", "a new one"),
        ("AuthorizationException", "User: h is not allowed to impersonate alice", "hadoop.proxyuser"),
    ],
)
def test_trouble_that_stays_is_told_at_once_with_what_to_do(
    hdfs: Hdfs, quick: None, exception: str, message: str, advice: str
) -> None:
    hdfs.trouble = [("CREATE", True, 403, remote(exception, message))]
    with pytest.raises(HdfsError) as caught:
        checkpoints.write(open_store(hdfs.url), 1, 1, {}, fill, lambda: None)
    assert message in str(caught.value)
    assert advice in str(caught.value)
    assert not hdfs.trouble
    assert hdfs.files == {} and not [name for name in hdfs.folders if ".tmp-" in name]


@pytest.mark.parametrize(
    "trouble",
    [
        [("MKDIRS", False, 403, SAFE)] * 3,
        [("CREATE", False, 403, SAFE), ("CREATE", False, 403, STANDBY), ("CREATE", True, 500, NO_DATANODE)],
        [("CREATE", True, 0, None), ("CREATE", True, 201, None)],
        [("CREATE", False, 307, "http://127.0.0.1:1/data/x?op=CREATE")] * 2,
        [("RENAME", False, 403, SAFE), ("RENAME", False, 0, None)],
        [("RENAME", False, 200, None)],
        [("RENAME", False, 503, "<html><head><title>Error 503 Service Unavailable</title></head></html>")],
    ],
    ids=["safe mode", "one after the other", "broken off", "a DataNode that is gone", "rename", "lost answer", "page"],
)
def test_an_upload_outlasts_trouble_that_passes(hdfs: Hdfs, quick: None, trouble: list[Any]) -> None:
    hdfs.trouble = list(trouble)
    store = open_store(hdfs.url)
    mark = checkpoints.write(store, 12, 3, {}, fill, lambda: None)
    assert not hdfs.trouble
    (found,) = checkpoints.complete(store, pytest.fail)
    assert found[0] == mark
    store.done(found[2])
    assert not [name for name in hdfs.folders if ".tmp-" in name]


def test_a_download_outlasts_it_too_and_never_takes_half_a_file(hdfs: Hdfs, quick: None) -> None:
    store = open_store(hdfs.url)
    checkpoints.write(store, 12, 3, {}, fill, lambda: None)

    real, cut = hdfs.files, [True]

    def short(to: Any, operation: str, query: dict[str, str], path: str, body: bytes) -> None:
        if operation == "OPEN" and path.endswith("/model") and cut:
            cut.pop()
            to.send_response(200)
            to.send_header("Content-Length", "5000")
            to.end_headers()
            to.wfile.write(real[path][:100])
            to.close_connection = True
            return
        Hdfs.act(hdfs, to, operation, query, path, body)

    hdfs.act = short  # type: ignore[method-assign]
    (found,) = checkpoints.complete(store, pytest.fail)
    assert (Path(found[2]) / "model").read_bytes() == b"w" * 5000
    store.done(found[2])
    assert not cut


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("operation", ["SETXATTR", "RENAME"])
def test_an_answer_that_breaks_off_is_trouble_that_passes(hdfs: Hdfs, operation: str, status: int) -> None:
    """A NameNode that is stopped in the middle of an answer must not end a worker that waits at its gate."""

    def cut(to: Any, query: dict[str, str], path: str, body: bytes, *, data: bool) -> None:
        if query["op"] != operation:
            return Hdfs.serve(hdfs, to, query, path, body, data=data)
        to.send_response(status)
        to.send_header("Content-Length", "5000")
        to.end_headers()
        to.wfile.write(b"{")
        to.close_connection = True
        return None

    hdfs.serve = cut  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broke off its answer") as told:
        documents.put(f"{hdfs.url}/gate", b"{}")
    assert webhdfs.passes(told.value)


def test_an_answer_that_is_not_json_is_trouble_that_passes(hdfs: Hdfs) -> None:
    hdfs.serve = lambda to, *_, **__: to.answer(200, b"<html>")  # type: ignore[method-assign]
    with pytest.raises(OSError, match="not JSON") as told:
        documents.size(f"{hdfs.url}/gate")
    assert webhdfs.passes(told.value)


def test_patience_ends(hdfs: Hdfs, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most half of the job's grace is waited, and then it is told."""
    monkeypatch.setenv("HORAE_GRACE_S", "6")
    hdfs.trouble = [("MKDIRS", False, 403, SAFE)] * 10
    with pytest.raises(HdfsError, match="until the NameNode leaves its safe mode"):
        checkpoints.write(open_store(hdfs.url), 1, 1, {}, fill, lambda: None)
    assert len(hdfs.trouble) == 6, "one attempt and three more"


def test_a_writer_that_was_superseded_while_it_waited_renames_nothing(hdfs: Hdfs, quick: None) -> None:
    looks: list[int] = []

    def fence() -> None:
        looks.append(1)
        if len(looks) > 1:
            raise checkpoints.Superseded("newer")

    hdfs.trouble = [("RENAME", False, 403, SAFE)]
    with pytest.raises(checkpoints.Superseded):
        checkpoints.write(open_store(hdfs.url), 12, 3, {}, fill, fence)
    assert hdfs.files == {}


def test_the_active_namenode_is_found_and_remembered(hdfs: Hdfs, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Hdfs()
    other.trouble = [("LISTSTATUS", False, 403, STANDBY)]
    url = f"webhdfs://127.0.0.1:1,{other.host},{hdfs.host}/user/alice/ckpt"
    checkpoints.write(open_store(url), 12, 3, {}, fill, lambda: None)
    assert [mark.step for mark in checkpoints.marks(open_store(url))] == [12]
    assert len(other.queries) == 1, "asked once, then the active one is known"
    monkeypatch.setenv("HORAE_WEBHDFS", f"http://{other.host},http://{hdfs.host}/")
    other.trouble = [("LISTSTATUS", False, 403, STANDBY)]
    assert [mark.step for mark in checkpoints.marks(open_store("hdfs://site/user/alice/ckpt"))] == [12]
    hdfs.trouble = [("LISTSTATUS", False, 403, STANDBY)]
    other.trouble = [("LISTSTATUS", False, 403, STANDBY)]
    with pytest.raises(HdfsError, match="not the active one"):
        open_store(url).entries()
    other.server.shutdown()
    other.server.server_close()


def test_a_datanode_that_cannot_be_reached_is_named(hdfs: Hdfs) -> None:
    hdfs.files["/user/alice/ckpt/x"] = b"x"
    hdfs.trouble = [("OPEN", False, 307, "http://no-such-datanode.invalid:9864/x?delegation=SECRET")]
    with pytest.raises(ConnectionError, match=r"sends data to no-such-datanode.invalid:9864, which cannot") as caught:
        open_store(f"webhdfs://{hdfs.host}/user/alice").read("ckpt", "x")
    assert "SECRET" not in str(caught.value)


def test_a_page_or_nothing_is_put_into_words() -> None:
    page = b"<html><head><title>Error 401 Authentication required</title></head><body><h2>x</h2></body></html>"
    assert str(refusal(401, page, "text/html")) == (
        "HDFS: Error 401 Authentication required (HTTP 401); it wants to know who asks: this site needs a delegation "
        "token or Kerberos"
    )
    assert str(refusal(502, b"")) == "HDFS: no explanation (HTTP 502)"
    assert str(refusal(400, b'{"RemoteException": 3}')).startswith("HDFS: {")
