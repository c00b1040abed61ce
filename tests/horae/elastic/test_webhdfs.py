"""Checkpoints over WebHDFS: a small NameNode and DataNode stand at the socket, with HDFS's own rules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from horae.elastic.stores import checkpoints, documents, webhdfs
from horae.elastic.stores.hdfserrors import HdfsError, refusal
from horae.elastic.stores.store import open_store
from tests.horae.elastic.hdfs_server import Hdfs


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


def test_a_start_asks_for_nothing_twice(hdfs: Hdfs) -> None:
    """The list that it sweeps is the one that it chooses from; what the choice was made by is not fetched again."""
    checkpoints.write(open_store(hdfs.url), 12, 3, {}, fill, lambda: None)
    store = open_store(hdfs.url)
    hdfs.queries.clear()
    assert store.sweep() == []
    mark, account, folder = next(checkpoints.readable(store, pytest.fail))
    asked = Counter(query["op"] for query in hdfs.queries)
    # The folder, the entry, its folder `deep`; who may write there; account, model and part: each at both nodes.
    assert asked == {"LISTSTATUS": 3, "GETFILESTATUS": 1, "OPEN": 6}
    checkpoints.verify_files(folder, account)
    assert (Path(folder) / checkpoints.MANIFEST).is_file()
    store.done(folder)
    # What is written after that, or taken away, is seen.
    later = checkpoints.write(store, 13, 3, {}, fill, lambda: None)
    assert checkpoints.marks(store) == [later, mark]
    store.sweep()
    store.delete(later.name)
    assert checkpoints.marks(store) == [mark]
    hdfs.files = {name: data for name, data in hdfs.files.items() if not name.endswith("/model")}
    said: list[str] = []
    assert list(checkpoints.complete(store, said.append)) == []
    assert "model is missing" in said[0]


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


@pytest.mark.parametrize(("mode", "believed"), [("777", False), ("1777", False), ("775", True), ("755", True)])
def test_where_everybody_may_write_only_ones_own_checkpoints_are_believed(
    hdfs: Hdfs, mode: str, believed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its reader runs what a checkpoint holds: a pickle, say, that somebody put into a folder of everybody's."""
    store, base = open_store(hdfs.url), "/user/alice/ckpt"
    own = checkpoints.write(store, 12, 3, {}, fill, lambda: None)
    planted = checkpoints.write(store, 99, 9, {}, fill, lambda: None)
    hdfs.folders.add(f"{base}/.tmp-theirs")
    hdfs.owners |= {f"{base}/{planted.name}": "mallory", f"{base}/.tmp-theirs": "mallory"}
    hdfs.modes[base] = mode
    fresh = open_store(hdfs.url)
    assert checkpoints.marks(fresh) == ([planted, own] if believed else [own])
    said = capfd.readouterr().err
    assert (f"{planted.name} is passed over: it is mallory's, not alice's" in said) is not believed
    assert fresh.sweep() == ([".tmp-theirs"] if believed else [])
    checkpoints.marks(fresh)
    assert planted.name not in capfd.readouterr().err, "said once"


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
    with pytest.raises(OSError, match=r"the NameNode 127.0.0.1:1 does not answer: connection refused"):
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
