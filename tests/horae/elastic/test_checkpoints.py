"""Checkpoints: whole or not there, newest first, and never by a writer that is no longer the newest."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from horae.elastic.stores import checkpoints
from horae.elastic.stores.checkpoints import Damaged, Mark, NewerForm, Superseded
from horae.elastic.stores.store import FolderStore, open_store, register_store


def fill(text: str = "weights") -> checkpoints.Callable[[str], None]:
    def write(folder: str) -> None:
        (Path(folder) / "model").write_text(text)
        (Path(folder) / "shards").mkdir()
        (Path(folder) / "shards" / "0").write_bytes(b"\0" * 3000)

    return write


def nothing() -> None:
    return None


def write(store: FolderStore, step: int, epoch: int = 1, text: str = "weights") -> Mark:
    return checkpoints.write(store, step, epoch, {"position": step * 10}, fill(text), nothing)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(str(tmp_path / "ckpt"))


def test_what_is_written_is_read_back(store: FolderStore) -> None:
    mark = write(store, 120)
    account = checkpoints.manifest(store, mark.name)
    assert (account["step"], account["epoch"], account["position"]) == (120, 1, 1200)
    folder = store.fetch(mark.name)
    checkpoints.verify_files(folder, account)
    assert (Path(folder) / "model").read_text() == "weights"
    assert set(account["files"]) == {"model", "shards/0"}


def as_newer_sdk(store: FolderStore, mark: Mark) -> Path:
    """As one writes it that calls the sums of its files something else."""
    path = Path(store.path) / mark.name / checkpoints.MANIFEST
    value = {name: each for name, each in json.loads(path.read_text()).items() if name not in ("check", "files")}
    value.update(format=2, sums={"model": "..."})
    path.write_text(json.dumps({**value, "check": checkpoints._check(value)}))
    return path.parent


def test_what_a_newer_sdk_wrote_is_neither_passed_over_nor_thrown_away(store: FolderStore) -> None:
    """Else a job that is run with the older one again would begin anew, and lose what it had trained."""
    write(store, 100)
    newer = as_newer_sdk(store, write(store, 200))
    said: list[str] = []
    with pytest.raises(
        NewerForm, match=r"horae\.json is of a newer form \(2; this SDK reads 1\): train with the newer"
    ):
        list(checkpoints.readable(store, said.append))
    newest = checkpoints.newest_mark(store)
    assert newest is not None and newest[0].step == 200 and newest[1] > 0, "it left with a checkpoint"
    assert checkpoints.prune(store, 1) == ["step-000000000100.epoch-00000001"]
    assert write(store, 200).name == newer.name
    assert newer.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"check": 1}', "[" * 100_000, '{"check": "x", "files": 7}'])
def test_a_manifest_that_is_none_is_passed_over(store: FolderStore, text: str) -> None:
    write(store, 100)
    broken = write(store, 200)
    (Path(store.path) / broken.name / checkpoints.MANIFEST).write_text(text)
    assert [mark.step for mark, _account, _folder in checkpoints.readable(store, lambda _: None)] == [100]
    newest = checkpoints.newest_mark(store)
    assert newest is not None and newest[0].step == 100


@pytest.mark.parametrize("changes", [{"files": 7}, {"files": {"model": 1}}, {"format": "1"}, {"time_s": "now"}])
def test_a_manifest_of_wrong_types_harms_nobody_who_looks(store: FolderStore, changes: dict[str, object]) -> None:
    path = Path(store.path) / write(store, 100).name / checkpoints.MANIFEST
    value = {**json.loads(path.read_text()), **changes}
    del value["check"]
    path.write_text(json.dumps({**value, "check": checkpoints._check(value)}))
    newest = checkpoints.newest_mark(store)
    assert (newest is None) is ("time_s" not in changes)


@pytest.mark.root
@pytest.mark.parametrize(
    ("place", "believed"),
    [
        ("everybody's", False),
        ("everybody's, sticky", False),
        ("a stranger's among everybody's", False),
        ("below a stranger's among everybody's", False),
        ("mine", True),
        ("a colleague's", True),
        ("in a project's among everybody's", True),
    ],
)
def test_where_anybody_may_write_only_ones_own_checkpoints_are_believed(
    tmp_path: Path, place: str, believed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its reader runs what a checkpoint holds: a pickle, say. And who knows where one is to be can be there first."""
    stranger, project = 12345, 12346
    scratch = tmp_path / "scratch"
    folder = scratch / "run" / "ckpt"
    folder.mkdir(parents=True)
    if "among everybody's" in place:
        scratch.chmod(0o1777)
    if place.startswith("everybody's"):
        folder.chmod(0o1777 if "sticky" in place else 0o777)
    elif place == "a stranger's among everybody's":
        (scratch / "run").chmod(0o1777)
    if place != "mine":
        os.chown(folder, stranger, -1)
    if place == "below a stranger's among everybody's":
        os.chown(scratch / "run", stranger, -1)
    if place == "in a project's among everybody's":
        os.chown(scratch / "run", project, -1)
    store = FolderStore(str(folder))
    own, planted = write(store, 12), write(store, 99, epoch=9)
    (folder / ".tmp-theirs").mkdir()
    for name in (planted.name, ".tmp-theirs"):
        os.chown(folder / name, stranger, -1)
    fresh = FolderStore(str(folder))
    assert checkpoints.marks(fresh) == ([planted, own] if believed else [own])
    said = capfd.readouterr().err
    assert (f"{planted.name} is passed over" in said) is not believed
    checkpoints.marks(fresh)
    assert planted.name not in capfd.readouterr().err, "said once"
    assert fresh.sweep() == ([".tmp-theirs"] if believed else [])


def test_newest_is_by_epoch_then_step(store: FolderStore) -> None:
    for step, epoch in ((500, 1), (300, 2), (310, 2), (20, 1)):
        write(store, step, epoch)
    assert [(mark.epoch, mark.step) for mark in checkpoints.marks(store)] == [(2, 310), (2, 300), (1, 500), (1, 20)]
    newest = checkpoints.newest_mark(store)
    assert newest is not None
    assert newest[0].step == 310


def test_a_reader_that_was_held_up_finds_what_was_written_meanwhile(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had listed was removed behind newer ones: that is not the same as having no checkpoint."""
    write(store, 1)
    list_now, steps = store.entries, [2]

    def entries() -> list[str]:
        found = list_now()
        if steps:
            write(FolderStore(store.path), steps.pop())
            checkpoints.prune(FolderStore(store.path), 1)
        return found

    monkeypatch.setattr(store, "entries", entries)
    newest = checkpoints.newest_mark(store)
    assert newest is not None
    assert newest[0].step == 2


def test_foreign_files_are_left_alone(store: FolderStore, tmp_path: Path) -> None:
    write(store, 1)
    (tmp_path / "ckpt" / "notes.txt").write_text("mine")
    (tmp_path / "ckpt" / "step-1").mkdir()
    assert len(checkpoints.marks(store)) == 1
    checkpoints.prune(store, 1)
    store.sweep()
    assert (tmp_path / "ckpt" / "notes.txt").exists()
    assert (tmp_path / "ckpt" / "step-1").exists()


def test_no_folder_yet_means_no_checkpoints(store: FolderStore) -> None:
    assert checkpoints.marks(store) == []
    assert checkpoints.newest_mark(store) is None
    assert store.sweep() == []


def test_every_damaged_byte_of_every_file_is_noticed(store: FolderStore) -> None:
    mark = write(store, 1)
    folder = Path(store.fetch(mark.name))
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        good = path.read_bytes()
        for position in {0, len(good) // 2, len(good) - 1}:
            path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
            with pytest.raises(Damaged):
                checkpoints.verify_files(str(folder), checkpoints.manifest(store, mark.name))
        path.write_bytes(good)
    checkpoints.verify_files(str(folder), checkpoints.manifest(store, mark.name))


def test_complete_ones_are_found_behind_damaged_ones(store: FolderStore) -> None:
    for step in (1, 2, 3, 4):
        write(store, step)
    names = [mark.name for mark in checkpoints.marks(store)]
    (Path(store.path) / names[0] / "horae.json").write_text("{}")
    (Path(store.path) / names[1] / "model").unlink()
    (Path(store.path) / names[2] / "model").write_text("weightz")
    said: list[str] = []
    found = [mark.step for mark, _account, _folder in checkpoints.complete(store, said.append)]
    assert found == [1]
    assert [name in text for name, text in zip(names, said, strict=False)] == [True, True, True]


def test_only_the_very_files_that_were_written_are_untouched(store: FolderStore, tmp_path: Path) -> None:
    mark = write(store, 1)
    account, folder = checkpoints.manifest(store, mark.name), Path(store.fetch(mark.name))
    assert checkpoints.untouched(str(folder), account)
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert not checkpoints.untouched(str(copy), account)
    assert not checkpoints.untouched(str(folder), {**account, "written": {**account["written"], "boot": "another"}})
    assert not checkpoints.untouched(str(folder), {k: v for k, v in account.items() if k != "written"})
    found = (folder / "model").stat()
    (folder / "model").write_text("weightz")
    os.utime(folder / "model", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert not checkpoints.untouched(str(folder), account)


def test_what_cannot_be_made_durable_is_not_published(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_folder: str) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(store, "settle", full)
    with pytest.raises(OSError, match="no room"):
        write(store, 5)
    assert list(Path(store.path).iterdir()) == []


def test_a_superseded_writer_publishes_nothing_and_leaves_nothing(store: FolderStore) -> None:
    def newer() -> None:
        raise Superseded("epoch 1 is not the newest")

    with pytest.raises(Superseded):
        checkpoints.write(store, 5, 1, {}, fill(), newer)
    assert list(Path(store.path).iterdir()) == []


def test_a_writer_that_fails_leaves_nothing(store: FolderStore) -> None:
    def full(folder: str) -> None:
        (Path(folder) / "model").write_text("half")
        raise OSError(errno.ENOSPC, "no room")

    with pytest.raises(OSError, match="no room"):
        checkpoints.write(store, 5, 1, {}, full, nothing)
    assert list(Path(store.path).iterdir()) == []


def test_the_same_step_of_the_same_start_is_written_once_unless_it_is_damaged(store: FolderStore) -> None:
    mark = write(store, 7, text="first")
    write(store, 7, text="second")
    assert (Path(store.path) / mark.name / "model").read_text() == "first"
    (Path(store.path) / mark.name / "horae.json").unlink()
    write(store, 7, text="third")
    assert (Path(store.path) / mark.name / "model").read_text() == "third"
    checkpoints.verify_files(store.fetch(mark.name), checkpoints.manifest(store, mark.name))


def test_pruning_keeps_the_newest_and_at_least_one(store: FolderStore) -> None:
    for step in range(1, 6):
        write(store, step)
    assert len(checkpoints.prune(store, 2)) == 3
    assert [mark.step for mark in checkpoints.marks(store)] == [5, 4]
    (Path(store.path) / checkpoints.marks(store)[0].name / "model").unlink()
    checkpoints.prune(store, 1)
    assert [mark.step for mark in checkpoints.marks(store)] == [5, 4], "a damaged one does not count"
    write(store, 6)
    checkpoints.prune(store, 0)
    assert [mark.step for mark in checkpoints.marks(store)] == [6]


def test_deleting_never_leaves_half_an_entry_under_its_name(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = write(store, 1)
    import shutil

    monkeypatch.setattr(shutil, "rmtree", lambda *_args, **_options: None)  # the power fails here
    store.delete(mark.name)
    assert checkpoints.marks(store) == []
    monkeypatch.undo()
    assert len(store.sweep()) == 1
    assert list(Path(store.path).iterdir()) == []


def test_files_are_on_the_disk_before_the_name_is(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of system calls: every file and folder synced, then the rename, then the parent synced."""
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def spy_fsync(fd: int) -> None:
        calls.append("sync " + Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    def spy_rename(source: str, target: str) -> None:
        calls.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "rename", spy_rename)
    write(store, 1)
    at = calls.index("rename")
    assert {"sync model", "sync 0", "sync shards", "sync horae.json"} <= set(calls[:at])
    assert any(call.startswith("sync .tmp-") for call in calls[:at])
    assert calls[at + 1 :] == ["sync ckpt"]


def test_urls_choose_the_store(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), FolderStore)
    assert isinstance(open_store(f"file://{tmp_path}"), FolderStore)
    with pytest.raises(ValueError, match="no checkpoint store for gopher://"):
        open_store("gopher://bucket/path")
    register_store("mem", lambda url: FolderStore(str(tmp_path / "mem")))
    assert isinstance(open_store("mem://x"), FolderStore)


def test_a_folder_that_cannot_be_written_says_the_same_at_each_checkpoint(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each one is news of the job's, for the journal too."""

    def read_only(path: str, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    write(store, 10)
    monkeypatch.setattr("horae.elastic.stores.store.os.mkdir", read_only)
    said = set()
    for step in (20, 30):
        with pytest.raises(OSError, match="Read-only file system") as raised:
            write(store, step)
        said.add(str(raised.value))
    assert said == {f"[Errno {errno.EROFS}] Read-only file system: '{store.path}'"}
