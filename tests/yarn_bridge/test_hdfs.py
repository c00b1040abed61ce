"""HDFS over WebHDFS against a NameNode and a DataNode of this process."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from horae.port import FixConfiguration, TryLater
from tests.yarn_bridge.fake import Asked, Fake, Reply, serving
from yarn_bridge.hdfs import TEMPORARY, Hdfs
from yarn_bridge.http import TOKEN_HEADER, Access
from yarn_bridge.refusals import Exists, Gone

PREFIX = "/webhdfs/v1"


def refused(status: int, exception: str, message: str) -> Reply:
    return Reply(status, {"RemoteException": {"exception": exception, "javaClassName": "x", "message": message}})


class World:
    """A NameNode and its DataNode, which is called `datanode` and not known to any resolver."""

    def __init__(self, stack: ExitStack) -> None:
        self.files: dict[str, bytes] = {}
        self.folders = {"/", "/user", "/user/alice"}
        self.times: dict[str, int] = {}
        self.clock = 1_000_000
        self.namenode: Fake = stack.enter_context(serving(self.answer))
        self.datanode: Fake = stack.enter_context(serving(self.store))
        self.fault: Callable[[str], Reply | None] = lambda operation: None
        self.datanode_name = f"datanode.invalid:{urlsplit(self.datanode.url).port}"

    def hdfs(self, **names: str) -> Hdfs:
        mapped = names or {"datanode.invalid": "127.0.0.1"}
        return Hdfs(Access((self.namenode.url,), "horae"), mapped)

    def answer(self, asked: Asked) -> Reply:
        path, operation = asked.path.removeprefix(PREFIX), asked.query["op"]
        reply = self.fault(operation)
        if reply is not None:
            return reply
        if operation in {"CREATE", "OPEN", "GETFILECHECKSUM"}:
            if operation != "CREATE" and path not in self.files:
                return refused(404, "FileNotFoundException", f"File does not exist: {path}")
            query = urlencode({**asked.query, "delegation": "of-the-namenode"})
            return Reply(307, None, {"Location": f"http://{self.datanode_name}{asked.path}?{query}"})
        known = getattr(self, operation.lower())(path, asked.query)
        return known if isinstance(known, Reply) else Reply(body=known)

    def store(self, asked: Asked) -> Reply:
        path, operation = asked.path.removeprefix(PREFIX), asked.query["op"]
        reply = self.fault(f"DATANODE {operation}")
        if reply is not None:
            return reply
        if operation == "CREATE":
            self.files[path] = asked.body
            self.clock += 1000
            self.times[path] = self.clock
            return Reply(201)
        if operation == "GETFILECHECKSUM":
            digest = hashlib.md5(self.files[path]).hexdigest()
            return Reply(
                body={"FileChecksum": {"algorithm": "MD5-of-0MD5-of-512CRC32C", "bytes": digest, "length": 28}}
            )
        start = int(asked.query.get("offset", 0))
        end = start + int(asked.query["length"]) if "length" in asked.query else None
        return Reply(body=self.files[path][start:end])

    def record(self, path: str) -> dict[str, Any]:
        kind = "FILE" if path in self.files else "DIRECTORY"
        return {"type": kind, "length": len(self.files.get(path, b"")), "modificationTime": self.times.get(path, 0),
                "owner": "alice", "permission": "755", "pathSuffix": ""}  # fmt: skip

    def there(self, path: str) -> bool:
        return path in self.files or path in self.folders

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
        if query.get("renameoptions") == "OVERWRITE":
            self.files[target], self.times[target] = self.files.pop(path), self.times.get(path, 0)
            return None
        if not self.there(path) or self.there(target):
            return {"boolean": False}
        self.files[target], self.times[target] = self.files.pop(path), self.times.get(path, 0)
        return {"boolean": True}

    def delete(self, path: str, query: object) -> Any:
        found = [each for each in (*self.files, *self.folders) if each == path or each.startswith(path + "/")]
        for each in found:
            self.files.pop(each, None)
            self.folders.discard(each)
        return {"boolean": bool(found)}


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


def test_a_file_appears_whole_and_under_the_owners_name(world: World) -> None:
    hdfs = world.hdfs().as_user("alice")
    assert hdfs.owner == "alice"
    hdfs.write("/user/alice/gate.json", b"one")
    hdfs.write("/user/alice/gate.json", iter([b"t", b"wo"]))
    hdfs.write("/user/alice/empty", b"")
    assert world.files == {"/user/alice/gate.json": b"two", "/user/alice/empty": b""}
    assert hdfs.read("/user/alice/gate.json") == b"two"
    assert hdfs.read("/user/alice/gate.json", offset=1, limit=1) == b"w"
    assert hdfs.read("/user/alice/none") is None
    assert hdfs.sha256("/user/alice/gate.json") == hashlib.sha256(b"two").hexdigest()
    assert hdfs.checksum("/user/alice/gate.json").startswith("MD5-of-0MD5-of-512CRC32C:")
    assert {asked.query["user.name"] for asked in world.namenode.asked} == {"alice"}
    temporary = [asked.path for asked in world.datanode.asked if asked.query["op"] == "CREATE"]
    assert all(posixpath.basename(path).startswith(TEMPORARY) for path in temporary)


def test_what_goes_to_the_datanode_is_what_the_namenode_wrote_into_its_redirect(world: World) -> None:
    world.hdfs().write("/user/alice/x", b"data")
    asked = world.datanode.asked[0]
    assert asked.query["delegation"] == "of-the-namenode"
    assert "Authorization" not in asked.headers
    assert asked.body == b"data"
    sent = [each for each in world.namenode.asked if each.query["op"] == "CREATE"]
    assert [each.body for each in sent] == [b""]


def test_without_replacing_a_taken_name_is_kept(world: World) -> None:
    hdfs = world.hdfs()
    hdfs.write("/user/alice/x", b"first", replace=False)
    with pytest.raises(Exists, match="/user/alice/x is there"):
        hdfs.write("/user/alice/x", b"second", replace=False)
    assert world.files == {"/user/alice/x": b"first"}
    with pytest.raises(Gone, match="there is no /user/alice/y"):
        hdfs.rename("/user/alice/y", "/user/alice/z")


def test_half_an_upload_never_gets_its_name(world: World) -> None:
    def cut(operation: str) -> Reply | None:
        if operation == "RENAME":
            raise AssertionError("it was renamed")
        if operation == "GETFILESTATUS":
            for path in world.files:
                world.files[path] = world.files[path][:3]
        return None

    world.fault = cut
    with pytest.raises(TryLater, match="3 of 8 bytes arrived"):
        world.hdfs().write("/user/alice/x", b"complete")
    assert world.files == {}


def test_folders_usage_and_status(world: World) -> None:
    hdfs = world.hdfs()
    hdfs.make_folder("/user/alice/a/b")
    hdfs.write("/user/alice/a/x", b"12345")
    assert [(each.name, each.folder, each.length) for each in hdfs.entries("/user/alice/a")] == [
        ("b", True, 0),
        ("x", False, 5),
    ]
    assert hdfs.entries("/user/none") == []
    assert hdfs.status("/user/none") is None
    found = hdfs.status("/user/alice/a/x")
    assert found is not None
    assert (found.owner, found.permission, found.modified_s) == ("alice", "755", 1001.0)
    usage = hdfs.usage("/user/alice")
    assert (usage.length, usage.space, usage.space_quota, usage.name_quota) == (5, 15, 4096, None)
    assert hdfs.delete("/user/alice/a") is True
    assert hdfs.delete("/user/alice/a") is False


def test_pruning_keeps_the_newest_and_sweeping_takes_old_temporary_files(world: World) -> None:
    hdfs = world.hdfs()
    for name in ("c", "a", "b", f"{TEMPORARY}z"):
        hdfs.write(f"/user/alice/k/{name}", name.encode())
    world.folders.add("/user/alice/k")
    assert hdfs.prune("/user/alice/k", keep=2) == ["c"]
    newest = world.times[f"/user/alice/k/{TEMPORARY}z"] / 1000
    assert hdfs.sweep("/user/alice/k", older_s=60, now_s=newest + 59) == []
    assert hdfs.sweep("/user/alice/k", older_s=60, now_s=newest + 61) == [f"{TEMPORARY}z"]
    assert sorted(world.files) == ["/user/alice/k/a", "/user/alice/k/b"]


def test_a_datanode_whose_name_nobody_knows_is_named_with_the_remedy(world: World) -> None:
    with pytest.raises(FixConfiguration, match=r"DataNode datanode\.invalid:\d+, .*cannot be resolved.*hdfs_names"):
        world.hdfs(other="127.0.0.1").write("/user/alice/x", b"data")


def test_a_name_can_be_mapped_with_its_port(world: World) -> None:
    port = urlsplit(world.datanode.url).port
    world.hdfs(**{world.datanode_name: f"127.0.0.1:{port}"}).write("/user/alice/x", b"data")
    assert world.files == {"/user/alice/x": b"data"}


FAULTS = [
    ("CREATE", 403, "SafeModeException", "Cannot create file /x. Name node is in safe mode.", TryLater, "safe mode"),
    ("DATANODE CREATE", 403, "DSQuotaExceededException", "The DiskSpace quota of /user/alice is exceeded: quota = 1",
     FixConfiguration, "setSpaceQuota"),
    ("MKDIRS", 403, "NSQuotaExceededException", "The NameSpace quota (directories and files) is exceeded",
     FixConfiguration, "setQuota"),
    ("MKDIRS", 403, "AccessControlException", "Permission denied: user=horae, access=WRITE, inode=\"/\":root",
     FixConfiguration, "Permission denied: user=horae"),
    ("DATANODE CREATE", 500, "IOException", "File /x could only be written to 0 of the 1 minReplication nodes.",
     TryLater, "minReplication"),
    ("MKDIRS", 403, "RetriableException", "SafeModeException: Name node is in safe mode.", TryLater, "safe mode"),
    ("MKDIRS", 403, "InvalidToken", "token (token for alice) can't be found in cache", FixConfiguration, "token"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "status", "exception", "message", "kind", "words"), FAULTS)
def test_faults_are_told_plainly(
    world: World, operation: str, status: int, exception: str, message: str, kind: type[Exception], words: str
) -> None:
    world.fault = lambda asked: refused(status, exception, message) if asked == operation else None
    hdfs = world.hdfs()
    with pytest.raises(kind, match=words) as told:
        if "CREATE" in operation:
            hdfs.write("/user/alice/x", b"data")
        else:
            hdfs.make_folder("/user/alice/x")
    assert "in HDFS: " in str(told.value)


def test_the_standby_namenode_is_passed_over(world: World) -> None:
    standby = refused(403, "StandbyException", "Operation category READ is not supported in state standby")
    with serving(lambda asked: standby) as passive:
        hdfs = Hdfs(Access((passive.url, world.namenode.url), "horae"), {"datanode.invalid": "127.0.0.1"})
        hdfs.write("/user/alice/x", b"data")
        assert hdfs.read("/user/alice/x") == b"data"
    assert len(passive.asked) == 1


def test_no_namenode_at_all(world: World) -> None:
    with serving(lambda asked: Reply()) as gone:
        url = gone.url
    with pytest.raises(TryLater, match="no NameNode answers: connection refused"):
        Hdfs(Access((url,), "horae")).entries("/user")


def test_a_delegation_token_stands_for_the_name(world: World) -> None:
    hdfs = Hdfs(Access((world.namenode.url,), "horae", auth="token", token="T"), {"datanode.invalid": "127.0.0.1"})
    hdfs.make_folder("/user/alice/x")
    assert world.namenode.asked[0].query["delegation"] == "T"
    assert "user.name" not in world.namenode.asked[0].query
    assert TOKEN_HEADER not in world.namenode.asked[0].headers
