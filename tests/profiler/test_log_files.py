"""Logs in files: packed, in folders, growing, rotated, truncated."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.rules.book import load
from profiler.runs import log_files, persistence
from tests.waiting import eventually

BOOK = load()
LOG = "".join(f"step {i} loss {1 / i:.4f}\n" for i in range(1, 51)).encode()


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, lzma.compress, bz2.compress, zstandard.ZstdCompressor().compress],
    ids=["plain", "gz", "xz", "bz2", "zst"],
)
def test_packed(tmp_path: Path, pack: object) -> None:
    """However a log is packed, known by its first bytes and not by its name."""
    path = tmp_path / "log.out"
    path.write_bytes(pack(LOG))  # type: ignore[operator]
    reader, notes = log_files.read(str(path), BOOK)
    (run,) = reader.runs()
    assert (run.last_iteration, notes, reader.bytes) == (50, [], len(LOG))


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress], ids=["gz", "xz", "zst"]
)
def test_packed_and_cut(tmp_path: Path, pack: object) -> None:
    """A packed file that is still being written gives what it holds, and says so."""
    path = tmp_path / "log"
    packed = pack(os.urandom(3000).hex().encode() + b"\n" + LOG * 40)  # type: ignore[operator]
    path.write_bytes(packed[: len(packed) - 20])
    _, notes = log_files.read(str(path), BOOK)
    assert len(notes) == 1 and "ends in the middle" in notes[0]


def test_names(tmp_path: Path) -> None:
    """Files, folders with folders, patterns; weights and hidden files are no logs."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".git").mkdir()
    for name in (
        "one.log",
        "a/two.out",
        "a/model.pt",
        "a/.hidden",
        "a/.git/three.log",
        "a/slurm-1.out",
        "a/slurm-2.out.gz",
    ):
        (tmp_path / name).write_bytes(LOG)
    root = str(tmp_path)
    assert [Path(p).name for p in log_files.find([root])] == ["slurm-1.out", "slurm-2.out.gz", "two.out", "one.log"]
    assert [Path(p).name for p in log_files.find([f"{root}/a/slurm-*"])] == ["slurm-1.out", "slurm-2.out.gz"]
    assert log_files.find([f"{root}/one.log", f"{root}/*.log", "-"]) == [f"{root}/one.log", "-"]
    with pytest.raises(log_files.NoSuchLog):
        log_files.find([f"{root}/none-*"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "astray").symlink_to(tmp_path / "nowhere")
    with pytest.raises(log_files.NoSuchLog, match="holds no log"):
        log_files.find([f"{root}/empty"])
    with pytest.raises(log_files.NoSuchLog, match="leads nowhere"):
        log_files.find([f"{root}/astray"])
    assert log_files.find(["/dev/null"]) == ["/dev/null"]


def test_reading_stops() -> None:
    """A file server that fails in the middle ends the reading, not the program."""
    reader, notes = log_files.read("/proc/self/mem", BOOK)  # the page at 0 is never there
    assert reader.runs() == []
    assert len(notes) == 1
    assert "reading stopped" in notes[0]


def test_packed_pipe() -> None:
    """What comes through a pipe is unpacked too."""
    out, into = os.pipe()
    with open(into, "wb") as f:
        f.write(gzip.compress(LOG))
    try:
        reader, notes = log_files.read(f"/dev/fd/{out}", BOOK)
    finally:
        os.close(out)
    assert (reader.bytes, notes) == (len(LOG), [])


def test_growing(tmp_path: Path) -> None:
    """Only what is new is read, across a restart, byte for byte."""
    path = tmp_path / "log"
    path.write_bytes(LOG[:100])
    tail = log_files.Tail(str(path), BOOK)
    assert (tail.poll(), tail.poll()) == (100, 0)
    tail = log_files.Tail.from_json(json.loads(json.dumps(tail.to_json())), BOOK)
    with path.open("ab") as f:
        f.write(LOG[100:])
    assert tail.poll() == len(LOG) - 100
    (run,) = tail.reader.runs()
    assert (run.last_iteration, run.positions, tail.notes) == (50, 50, [])


def more(first: int) -> bytes:
    return "".join(f"step {i} loss {1 / i:.4f}\n" for i in range(first, first + 20)).encode()


def test_rotated(tmp_path: Path) -> None:
    """A file that was moved away goes on in the new one of its name."""
    path = tmp_path / "log"
    path.write_bytes(LOG)
    tail = log_files.Tail(str(path), BOOK)
    tail.poll()
    path.rename(tmp_path / "log.1")
    path.write_bytes(more(51))
    tail.poll()
    (run,) = tail.reader.runs()
    assert run.last_iteration == 70
    assert len(tail.notes) == 1


def moved(path: Path) -> None:
    path.rename(path.with_name("log.1"))


def copied(path: Path) -> None:
    shutil.copy(path, path.with_name("log.1"))
    os.truncate(path, 0)


@pytest.mark.parametrize("rotate", [moved, copied])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("limit", [1 << 20, 64])
def test_no_point_is_lost_by_rotation(
    tmp_path: Path, rotate: Callable[[Path], None], restart: bool, limit: int
) -> None:
    """What was written between the last look and the rotation is read from where it went, in pieces if it must."""
    path = tmp_path / "log"
    path.write_bytes(LOG[:300])
    (tmp_path / "log.old").write_bytes(b"step 9 loss 0.5\n" * 400)  # of another day
    tail = log_files.Tail(str(path), BOOK)
    tail.poll()
    saved = json.loads(json.dumps(tail.to_json()))
    path.write_bytes(LOG)
    rotate(path)
    with path.open("ab") as f:
        f.write(more(51))
    if restart:
        tail = log_files.Tail.from_json(saved, BOOK)
    while tail.poll(limit):
        pass
    (run,) = tail.reader.runs()
    assert (run.first_iteration, run.last_iteration, run.positions, len(tail.notes)) == (1, 70, 70, 1)


@pytest.mark.parametrize("restart", [False, True])
def test_truncated_in_place(tmp_path: Path, restart: bool) -> None:
    """copytruncate: shorter than what was read, or as long again with another beginning."""
    path = tmp_path / "log"
    path.write_bytes(LOG)
    tail = log_files.Tail(str(path), BOOK)
    tail.poll()
    saved = json.loads(json.dumps(tail.to_json()))
    with path.open("r+b") as f:
        f.truncate(0)
        f.write(more(51) * (1 if not restart else 4))
    if restart:
        tail = log_files.Tail.from_json(saved, BOOK)
    tail.poll()
    assert tail.reader.runs()[0].last_iteration == 70
    assert tail.notes


def test_state_of_another_time(tmp_path: Path) -> None:
    """A state that other rules wrote is refused."""
    path = tmp_path / "log"
    path.write_bytes(LOG)
    tail = log_files.Tail(str(path), BOOK)
    tail.poll()
    with pytest.raises(persistence.Stale):
        log_files.Tail.from_json(tail.to_json(), BOOK.without(["keras"]))


def test_gone(tmp_path: Path) -> None:
    """A file that is not there is the caller's to wait for."""
    with pytest.raises(FileNotFoundError):
        log_files.Tail(str(tmp_path / "none"), BOOK).poll()


@pytest.mark.parametrize("restart", [False, True])
def test_rewritten_between_two_looks_with_the_same_beginning(tmp_path: Path, restart: bool) -> None:
    """A file that shrank and grew beyond what was read: its banner is the one it had, its lines are others."""
    banner = b"# the same words at each start\n" * 20
    path = tmp_path / "log"
    path.write_bytes(banner + LOG)
    tail = log_files.Tail(str(path), BOOK)
    tail.poll()
    saved = json.loads(json.dumps(tail.to_json()))
    with path.open("r+b") as f:
        f.truncate(0)
        f.write(banner + b"".join(more(i) for i in range(51, 251, 20)))
    if restart:
        tail = log_files.Tail.from_json(saved, BOOK)
    tail.poll()
    (run,) = tail.reader.runs()
    assert (run.last_iteration, run.positions, len(tail.notes)) == (250, 250, 1)


@pytest.mark.parametrize("other", [os.mkfifo, Path.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_any_more_is_not_waited_for(tmp_path: Path, other: Callable[[Path], None]) -> None:
    path = tmp_path / "log"
    path.write_bytes(LOG)
    tail = log_files.Tail(str(path), BOOK)
    tail.poll()
    path.unlink()
    other(path)
    with pytest.raises(OSError, match=r"no file any more|[Dd]irectory"):
        tail.poll()
    assert tail.reader.runs()[0].last_iteration == 50
    restarted: list[log_files.Tail] = []
    saved = json.loads(json.dumps(tail.to_json()))
    threading.Thread(target=lambda: restarted.append(log_files.Tail.from_json(saved, BOOK)), daemon=True).start()
    (again,) = eventually(lambda: restarted, patience_s=60)
    with pytest.raises(OSError, match=r"no file any more|[Dd]irectory"):
        again.poll()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_point_is_lost_or_told_twice_however_a_log_comes(data: st.DataObject) -> None:
    """Pieces that end in a line or in a letter, looks of few bytes, restarts, rotation by name and by copy between
    two lines."""
    with tempfile.TemporaryDirectory() as folder:
        path, steps, rotations = Path(folder) / "log", 0, 0
        path.write_bytes(b"")
        tail, text = log_files.Tail(str(path), BOOK), b""
        for _ in range(data.draw(st.integers(1, 8))):
            new = data.draw(st.integers(1, 12))
            numbers = range(steps + 1, steps + new + 1)
            text += "".join(f"\u00e9 step {i} loss {9 / i:.4f} \u2588\n" for i in numbers).encode()
            steps += new
            cut = data.draw(st.integers(1, len(text)) | st.just(len(text)))
            with path.open("ab") as f:
                f.write(text[:cut])
            text = text[cut:]
            if data.draw(st.booleans()):
                while tail.poll(data.draw(st.sampled_from([7, 64, 1 << 20]))):
                    pass
                if not text and tail.offset > 40 and data.draw(st.booleans()):
                    rotations += 1
                    name = f"log.{rotations}"
                    (path.rename if data.draw(st.booleans()) else partial(_copied, path))(Path(folder) / name)
                    path.touch()
            if data.draw(st.booleans()):
                tail = log_files.Tail.from_json(json.loads(json.dumps(tail.to_json())), BOOK)
        with path.open("ab") as f:
            f.write(text)
        while tail.poll():
            pass
        (run,) = tail.reader.runs()
        assert (run.first_iteration, run.last_iteration, run.positions) == (1, steps, steps)


def _copied(path: Path, to: Path) -> None:
    shutil.copy(path, to)
    os.truncate(path, 0)


@pytest.mark.parametrize("level", [3, 19])
def test_a_log_that_unpacks_to_thousands_of_its_size(tmp_path: Path, level: int) -> None:
    """Whoever wrote it decides how far it unpacks: no piece that is held at once is as large as he likes."""
    packer = zstandard.ZstdCompressor(level=level).compressobj()
    path = tmp_path / "log.zst"
    path.write_bytes(b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush())
    with path.open("rb") as raw:
        text = log_files._unpacked(raw, "zstd")
        pieces = [len(piece) for piece in iter(partial(text.read, log_files.PIECE), b"")]
    assert sum(pieces) == 256 << 20
    assert max(pieces) <= 64 << 20


def test_an_unpacker_that_is_to_hold_more_than_a_log_needs(tmp_path: Path) -> None:
    """The packer says how much memory its reader needs: up to 4 GiB."""
    path = tmp_path / "log.xz"
    wide = {"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}
    path.write_bytes(lzma.compress(LOG, filters=[wide]))
    reader, (note,) = log_files.read(str(path), BOOK)
    assert "Memory usage limit exceeded" in note
    assert not reader.runs()


@pytest.mark.parametrize("pack", [lzma.compress, zstandard.ZstdCompressor().compress], ids=["xz", "zst"])
def test_several_frames_are_one_text(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(LOG[:200]) + pack(LOG[200:]))
    reader, notes = log_files.read(str(path), BOOK)
    assert (reader.bytes, notes) == (len(LOG), [])
