"""Logs in files: which ones are meant, what is in them however they are packed, and following one that grows.

This is the only part of `profiler` that touches the file system.
"""

from __future__ import annotations

import bz2
import errno
import glob
import gzip
import hashlib
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from profiler.rules.book import RuleBook
from profiler.runs import persistence
from profiler.runs.reader import LogReader

PIECE = 1 << 18
STDIN = "-"
_HEAD = 256  #: bytes at the beginning of a file by which it is known again
_ENDING = 256  #: bytes before the place up to which a file was read, by which a rewritten one is told
_PACKED_PIECE = 1 << 10  #: bytes of a packed file that are unpacked at a time
_MOST_MEMORY = 256 << 20  #: bytes that a packed file may make its unpacker hold; `xz -9` needs 65 MiB
_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"(\xb5/\xfd": "zstd"}
_NOT_LOGS = frozenset(
    [
        ".pt",
        ".pth",
        ".ckpt",
        ".bin",
        ".safetensors",
        ".npy",
        ".npz",
        ".pkl",
        ".h5",
        ".hdf5",
        ".onnx",
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".pdf",
        ".zip",
        ".tar",
        ".so",
        ".o",
        ".pyc",
        ".py",
        ".sh",
        ".yaml",
        ".yml",
        ".toml",
        ".cfg",
        ".ini",
        ".c",
        ".cpp",
        ".cu",
        ".h",
        ".html",
        ".css",
        ".js",
        ".ipynb",
        ".parquet",
        ".arrow",
        ".tfrecord",
        ".idx",
        ".db",
    ]
)


NO_MATCH = "no such file or folder, and no file matches it as a pattern"


class NoSuchLog(FileNotFoundError):
    """A file, folder or pattern that names nothing."""

    def __init__(self, name: str, why: str = NO_MATCH) -> None:
        super().__init__(2, why, name)


def find(names: Iterable[str]) -> list[str]:
    """The logs that names mean: files, folders (their files, also in folders below), patterns, `-`.

    Raises NoSuchLog for a name that means nothing.
    """
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name == STDIN or path.is_file():
            found.append(name)
        elif path.is_dir():
            found.extend(_inside(path, name))
        elif path.exists():
            found.append(name)  # a pipe or a device
        else:
            found.extend(_matching(path, name))
    return list(dict.fromkeys(found))


def _inside(folder: Path, name: str) -> list[str]:
    inside = (p for p in sorted(folder.rglob("*")) if p.is_file() and not _hidden(p, folder))
    logs = [str(p) for p in inside if p.suffix.lower() not in _NOT_LOGS]
    if not logs:
        raise NoSuchLog(name, "the folder holds no log")
    return logs


def _matching(path: Path, pattern: str) -> list[str]:
    matches = sorted(glob.iglob(pattern, recursive=True))  # noqa: PTH207 - the pattern may be absolute
    matches = [m for m in matches if Path(m).is_file()]
    if not matches:
        raise NoSuchLog(pattern, "the link leads nowhere" if path.is_symlink() else NO_MATCH)
    return matches


def _hidden(path: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(below).parts)


def read(
    name: str, book: RuleBook, progress: Callable[[int], None] | None = None, *, waits: bool = True
) -> tuple[LogReader, list[str]]:
    """Read a whole log, unpacking it by its first bytes. `progress` is told the bytes of the file read since before.
    `waits`: a pipe is read until its writers have ended; False for a name that somebody else may have put there, which
    is a file or nothing.

    Returns the reader and what there is to say about the file. Raises OSError where it cannot be opened, or is no file
    and is not waited for; where reading fails later, what was read until then counts.
    """
    reader = LogReader(book)
    notes: list[str] = []
    opener = None if waits else _only_a_file
    with nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb", opener=opener) as raw:
        try:
            head = raw.peek(6) if hasattr(raw, "peek") else b""
        except OSError as error:
            notes.append(_stopped(error))
            return reader, notes
        packing = next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), "")
        _feed(reader, _unpacked(raw, packing), raw, progress, notes)
    return reader, notes


def _stopped(error: OSError) -> str:
    return f"reading stopped ({error.strerror or error}); what was read until then counts"


def _feed(
    reader: LogReader, text: Any, raw: IO[bytes], progress: Callable[[int], None] | None, notes: list[str]
) -> None:
    before = 0
    while True:
        try:
            piece = text.read1(PIECE) if hasattr(text, "read1") else text.read(PIECE)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            notes.append(f"the packed file ends in the middle or is damaged ({error}); what could be unpacked was read")
            return
        except OSError as error:
            notes.append(_stopped(error))
            return
        if not piece:
            return
        reader.feed(piece)
        if progress is not None and raw.seekable():
            at = raw.tell()
            progress(at - before)
            before = at


def _unpacked(raw: IO[bytes], packing: str) -> Any:
    if packing == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if packing == "bzip2":
        return bz2.BZ2File(raw)
    if packing == "xz":
        return _xz(raw)
    if packing == "zstd":
        return _zstd(raw)
    return raw


def _xz(raw: IO[bytes]) -> _Frames:
    def begin() -> Any:
        return lzma.LZMADecompressor(memlimit=_MOST_MEMORY)

    return _Frames(raw, begin, lzma.LZMAError)


def _zstd(raw: IO[bytes]) -> _Frames:
    import zstandard

    def begin() -> Any:
        unpacker = zstandard.ZstdDecompressor()
        return unpacker.decompressobj()

    return _Frames(raw, begin, zstandard.ZstdError)


class _Frames:
    """The text of a file of one frame or several; EOFError where the last is not whole, or one is damaged.

    Whoever packed a log says how far it unpacks: a byte of zstd becomes 32 KiB at most, so few bytes are taken at a
    time.
    """

    def __init__(self, raw: IO[bytes], begin: Callable[[], Any], damaged: type[Exception]) -> None:
        self._raw = raw
        self._begin = begin
        self._damaged = damaged
        self._frame: Any = None
        self._between = False  #: a whole frame was read, and none has begun since

    def read(self, size: int) -> bytes:
        limit = min(_PACKED_PIECE, size)
        while chunk := self._raw.read(limit):
            text = self._texts(chunk)
            if text:
                return text
        if self._frame is not None:
            raise EOFError("its last frame is not whole")
        return b""

    def _texts(self, chunk: bytes) -> bytes:
        found = []
        while chunk := self._padded(chunk):
            if self._frame is None:
                self._frame = self._begin()
            try:
                found.append(self._frame.decompress(chunk))
            except self._damaged as error:
                raise EOFError(str(error)) from None
            chunk = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
                self._between = True
        return b"".join(found)

    def _padded(self, chunk: bytes) -> bytes:
        """Zeros between two frames are no text."""
        if self._between and self._frame is None:
            return chunk.lstrip(b"\0")
        return chunk


class Tail:
    """Follows one file as it grows, through rotation and truncation; its state survives a restart.

    Rotation by renaming shows as another inode, `copytruncate` as a file shorter than what was read (or with another
    beginning): both are read on from byte 0 of what is there now, as the continuation of the same log. What the old
    one held beyond what was read is read first, where it lies beside the new one under a longer name (`log.1`): the
    file itself, or a copy of it that is not packed.
    """

    def __init__(self, path: str, book: RuleBook) -> None:
        self.path = path
        self.reader = LogReader(book)
        self.offset = 0
        self.inode = 0
        self.head = b""
        self.sign = ("", 0)  #: digest of the head, and its bytes: by these the file is known again elsewhere
        self.ending = ("", 0)  #: digest of the newest bytes that were read, and how many
        self.notes: list[str] = []

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "offset": self.offset,
            "inode": self.inode,
            "head": _digest(self.head),
            "head_bytes": len(self.head),
            "ending": list(self.ending),
            "reader": persistence.dump(self.reader),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any], book: RuleBook) -> Tail:
        """Raises `state.Stale` when reading must begin anew."""
        self = cls(saved["path"], book)
        self.reader = persistence.load(saved["reader"], book)
        self.offset, self.inode = saved["offset"], saved["inode"]
        self.sign = saved["head"], saved["head_bytes"]
        digest, length = saved.get("ending", ("", 0))
        self.ending = digest, length
        try:
            with open(self.path, "rb", opener=_only_a_file) as f:
                head = f.read(saved["head_bytes"])
        except OSError:
            head = b""
        same = _digest(head) == saved["head"] and _inode(self.path) == self.inode
        self.head = head if same else b"\0"
        return self

    def poll(self, limit: int = 64 << 20) -> int:
        """Read what is new, at most `limit` bytes; how many were read. Raises OSError, also where the name leads to a
        pipe or a device, which would be waited for."""
        done = 0
        with open(self.path, "rb", opener=_only_a_file) as f:
            status = os.fstat(f.fileno())
            if self.offset and self._replaced(f, status):
                done = self._finish(limit)
                if done == limit:
                    return done
                self.notes.append("the file was replaced or truncated; reading went on at its beginning")
                self.offset, self.head, self.ending = 0, b"", ("", 0)
                self.reader.feed(b"\n")
            self.inode = status.st_ino
            if len(self.head) < _HEAD:
                f.seek(0)
                self.head = f.read(_HEAD)[: max(status.st_size, 0)]
                self.sign = _digest(self.head), len(self.head)
            return done + self._read(f, limit - done)

    def _replaced(self, f: IO[bytes], status: os.stat_result) -> bool:
        """Whether the file is another than the one that was read."""
        head = f.read(min(_HEAD, max(len(self.head), 1))) if self.head else b""
        gone = status.st_ino != self.inode or status.st_size < self.offset
        return gone or not head.startswith(self.head[:_HEAD]) or not self._ends_alike(f)

    def _ends_alike(self, f: IO[bytes]) -> bool:
        """Whether the bytes up to which the file was read are still there: a file that shrank and grew again between
        two looks may begin as it did."""
        digest, length = self.ending
        f.seek(self.offset - length)
        return length == 0 or _digest(f.read(length)) == digest

    def _read(self, f: IO[bytes], limit: int) -> int:
        f.seek(self.offset)
        done = 0
        while done < limit and (piece := f.read(min(PIECE, limit - done))):
            self.reader.feed(piece)
            self.offset += len(piece)
            done += len(piece)
        if done:
            length = min(self.offset, _ENDING)
            f.seek(self.offset - length)
            self.ending = _digest(f.read(length)), length
        return done

    def _finish(self, limit: int) -> int:
        """Read the rest of the file that was replaced, where it still lies beside the new one."""
        old = next(filter(self._holds_more, _beside(Path(self.path))), None)
        if old is None:
            return 0
        with open(old, "rb", opener=_only_a_file) as f:
            return self._read(f, limit)

    def _holds_more(self, path: Path) -> bool:
        """Whether a file is the one that was read, or a copy of it, and longer than what was read of it."""
        digest, length = self.sign
        try:
            status = path.stat()
            if not path.is_file() or status.st_size <= self.offset:
                return False
            with open(path, "rb", opener=_only_a_file) as f:
                same = length > 0 and _digest(f.read(length)) == digest
        except OSError:
            return False  # it is moved on at this moment, or not ours to read
        return same


def _only_a_file(path: str, flags: int) -> int:
    """Open without waiting for whoever would write into a pipe. Raises OSError for what is no file."""
    found = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.EINVAL, "it is no file any more", path)
    return found


def _beside(path: Path) -> list[Path]:
    """The files of a folder whose names begin with that of a log: `log.1`, `log-20240501`."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}?*"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return 0
