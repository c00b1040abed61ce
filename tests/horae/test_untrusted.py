"""Files of users: every odd thing that can stand in a name's place is refused at once, and nothing else is touched."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from horae.untrusted import Facts, Folder, Unbelievable, parse, printable


def a_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("/nowhere")


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").touch()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    made = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(path.parent)  # such names are short
    try:
        made.bind(path.name)
    finally:
        os.chdir(before)
        made.close()


def a_large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


ODD: list[Callable[[Path], None]] = [a_link, a_dangling_link, a_folder, a_pipe, a_socket, a_large_file]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_a_small_plain_file_is_not_read(odd: Callable[[Path], None], tmp_path: Path) -> None:
    odd(tmp_path / "state.json")
    with Folder.open(tmp_path) as folder, pytest.raises(Unbelievable, match=r"state\.json (is|cannot)"):
        folder.read("state.json", 4096)


@pytest.mark.parametrize("odd", [odd for odd in ODD if odd is not a_folder])
def test_what_stands_in_the_way_is_replaced_and_not_followed(odd: Callable[[Path], None], tmp_path: Path) -> None:
    before = Path("/etc/passwd").stat()
    odd(tmp_path / "epoch")
    with Folder.open(tmp_path) as folder:
        folder.replace("epoch", b"3\n", mode=0o640)
        assert folder.read("epoch") == b"3\n"
    found = (tmp_path / "epoch").lstat()
    assert found.st_mode & 0o7777 == 0o640
    assert Path("/etc/passwd").stat().st_ctime_ns == before.st_ctime_ns


def test_a_folder_in_the_way_is_named_and_can_be_moved_aside(tmp_path: Path) -> None:
    a_folder(tmp_path / "stop")
    with Folder.open(tmp_path) as folder:
        with pytest.raises(Unbelievable, match="stop is a folder"):
            folder.replace("stop", b"")
        assert [path.name for path in tmp_path.iterdir()] == ["stop"], "no half-written file stays"
        folder.remove("stop")
        folder.replace("stop", b"")
        folder.remove("never there")


def test_no_link_is_followed_on_the_way_down(tmp_path: Path) -> None:
    before = descriptors()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with Folder.open(tmp_path / "link"):  # the site's own name may be one
        pass
    with pytest.raises(Unbelievable, match="link is"):
        Folder.open(tmp_path, "link")
    with pytest.raises(FileNotFoundError):
        Folder.open(tmp_path, "real", "none")
    for name in ("..", ".", "", "a/b", "a\0b"):
        with pytest.raises(ValueError, match="not a file's name"):
            Folder.open(tmp_path, name)
    assert descriptors() == before, "none is left open"


def test_a_folder_that_is_swapped_stays_the_one_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "other").mkdir()
    with Folder.open(tmp_path, "job") as folder:
        (tmp_path / "job").rename(tmp_path / "moved")
        (tmp_path / "job").symlink_to("other")
        folder.replace("epoch", b"1")
    assert (tmp_path / "moved" / "epoch").exists()
    assert not list((tmp_path / "other").iterdir())


def test_names_are_counted(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / str(i)).touch()
    with Folder.open(tmp_path) as folder:
        assert len(folder.names(5)) == 5
        with pytest.raises(Unbelievable, match="more than 4 names"):
            folder.names(4)


def test_descriptors_that_are_used_up_are_not_the_jobs_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Folder.open(tmp_path) as folder:
        (tmp_path / "x").touch()

        def none_left(*_: object, **__: object) -> int:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(os, "open", none_left)
        with pytest.raises(OSError, match="Too many"):
            folder.read("x")
        monkeypatch.undo()


def test_what_is_given_away_has_no_second_name(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "spec.json").hardlink_to(tmp_path / "secret")
    with Folder.open(tmp_path, "job") as folder, pytest.raises(Unbelievable, match="second name"):
        folder.give(os.getuid(), os.getgid())


PLANT = """
import os, sys
jobs, target = sys.argv[1:]
while True:
    for made in os.listdir(jobs):
        try:
            os.symlink(target, f"{jobs}/{made}/planted")
            os.rename(f"{jobs}/{made}/planted", f"{jobs}/{made}/spec.json")
        except OSError:
            continue
"""


@pytest.mark.root
def test_the_race_for_a_folder_that_is_given_away_gains_nothing(open_to_all: Path) -> None:
    """While folders are made and given to a user, he plants links to a file of root's as fast as he can."""
    target = open_to_all / "target"
    target.touch(0o600)
    jobs = open_to_all / "jobs"
    jobs.mkdir(0o755)
    command = ["/usr/bin/python3", "-I", "-c", PLANT, str(jobs), str(target)]
    user = subprocess.Popen(command, user=65534, group=65534, extra_groups=[], cwd="/")
    planted = 0
    try:
        with Folder.open(jobs) as root:
            until = time.monotonic() + 240
            i = 0
            while planted < 20 and time.monotonic() < until:
                i += 1
                with root.make(f"{i}") as folder:
                    for name in ("spec.json", "a", "b"):
                        folder.replace(name, b"{}", sync=False)
                    folder.give(65534, 65534, 0o700)
                planted = sum((jobs / name / "spec.json").is_symlink() for name in os.listdir(jobs))  # noqa: PTH208
    finally:
        user.kill()
        user.wait()
    assert planted >= 20, "he was at it"
    assert target.stat().st_uid == 0


# --- documents --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 40 + b"]" * 40,
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b"1" * 401,
        b"-" + b"1" * 5000,
        b"1." + b"1" * 5000,
        b"{",
        b"\xff\xfe",
        b'"\\ud800',
        b"",
    ],
)
def test_documents_without_bounds_are_refused(text: bytes) -> None:
    with pytest.raises(Unbelievable, match=r"state\.json (is|holds)"):
        parse(text, "state.json")


def test_a_document_within_bounds_is_read() -> None:
    assert parse(b'{"a": [1, 2.5, {"b": null}], "c": "x"}', "s") == {"a": [1, 2.5, {"b": None}], "c": "x"}


def test_facts_have_a_type_and_a_range() -> None:
    facts = Facts({"n": 3, "r": 0.5, "w": "running", "t": "a\x1b[2Jb\u202e", "in": {"x": 1}, "l": [1]}, "state.json")
    assert (facts.whole("n"), facts.number("r"), facts.word("w", {"running"})) == (3, 0.5, "running")
    assert facts.text("t") == "a?[2Jb?"
    assert (facts.whole("none"), facts.inner("none"), facts.each("none")) == (None, None, None)
    inner = facts.inner("in")
    assert inner is not None
    assert inner.whole("x") == 1
    for wrong in (
        lambda: facts.whole("n", 4),
        lambda: facts.whole("r"),
        lambda: facts.whole("w"),
        lambda: facts.number("w"),
        lambda: facts.number("n", most=2),
        lambda: facts.word("w", {"stopped"}),
        lambda: facts.word("in", {"stopped"}),
        lambda: facts.text("n"),
        lambda: facts.each("in"),
        lambda: facts.inner("n"),
        lambda: Facts([], "x"),
        lambda: Facts({"n": True}, "x").whole("n"),
        lambda: Facts({"n": True}, "x").number("n"),
        lambda: facts.keys(2),
    ):
        with pytest.raises(Unbelievable):
            wrong()


def test_what_is_shown_is_printable() -> None:
    assert printable("\x9b31m\ud800 é", 6) == "?31m? "
