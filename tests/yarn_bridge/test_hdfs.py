"""HDFS over WebHDFS against a NameNode and a DataNode of this process."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from horae.port import FixConfiguration, TryLater
from tests.yarn_bridge.certificates import self_signed
from tests.yarn_bridge.fake import Reply, serving
from tests.yarn_bridge.fake_hdfs import World, refused
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.hdfs import TEMPORARY, Hdfs
from yarn_bridge.clients.http import TOKEN_HEADER, Access


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


def test_sweeping_takes_old_temporary_files(world: World) -> None:
    hdfs = world.hdfs()
    for name in ("c", "a", "b", f"{TEMPORARY}z"):
        hdfs.write(f"/user/alice/k/{name}", name.encode())
    world.folders.add("/user/alice/k")
    newest = world.times[f"/user/alice/k/{TEMPORARY}z"] / 1000
    assert hdfs.sweep("/user/alice/k", older_s=60, now_s=newest + 59) == []
    assert hdfs.sweep("/user/alice/k", older_s=60, now_s=newest + 61) == [f"{TEMPORARY}z"]
    assert sorted(world.files) == ["/user/alice/k/a", "/user/alice/k/b", "/user/alice/k/c"]


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


def test_a_certificate_is_trusted_where_the_site_says_so(tmp_path: Path) -> None:
    certificate, server = self_signed(tmp_path)
    with serving(lambda asked: Reply(body={"boolean": True}), server) as fake:
        for verify in (str(certificate), False):
            Hdfs(Access((fake.url,), "horae", verify=verify)).make_folder("/user/alice/x")
        with pytest.raises(FixConfiguration, match="the certificate is not trusted"):
            Hdfs(Access((fake.url,), "horae")).make_folder("/user/alice/y")
        with pytest.raises(FixConfiguration, match=r"none\.pem: No such file"):
            Hdfs(Access((fake.url,), "horae", verify=str(tmp_path / "none.pem"))).make_folder("/user/alice/y")
    assert [asked.path for asked in fake.asked] == ["/webhdfs/v1/user/alice/x"] * 2


def test_a_namenode_that_takes_data_itself_is_none(world: World) -> None:
    world.fault = lambda operation: Reply(201) if operation == "CREATE" else None
    with pytest.raises(TryLater, match="names no DataNode"):
        world.hdfs().write("/user/alice/x", b"data")


def test_a_delegation_token_stands_for_the_name(world: World) -> None:
    hdfs = Hdfs(Access((world.namenode.url,), "horae", auth="token", token="T"), {"datanode.invalid": "127.0.0.1"})
    hdfs.make_folder("/user/alice/x")
    assert world.namenode.asked[0].query["delegation"] == "T"
    assert "user.name" not in world.namenode.asked[0].query
    assert TOKEN_HEADER not in world.namenode.asked[0].headers


@pytest.mark.parametrize("there", [True, False])
def test_a_server_that_cannot_replace_is_told(world: World, there: bool) -> None:
    """HttpFS ignores `renameoptions`: what comes lies in the folder that is there, and it says `true`."""
    world.fault = lambda asked: Reply(200, {"boolean": there}) if asked == "RENAME" else None
    with pytest.raises(FixConfiguration, match="does not replace what is there") as told:
        world.hdfs().keep_document("/hdfs/jobs/.claim", b"me", "/hdfs/jobs")
    assert "NameNodes' own addresses" in told.value.remedy
