"""What a person names is a pipe, a device or a folder instead of a file: nobody is kept waiting, and it is said."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from horae.cli import exits
from tests.horae.cli.conftest import Horae

INSTANCE = Path(__file__).resolve().parents[3] / "docs/policies/example.yaml"
NAMED = (
    ("submit", "--file", "PATH"), ("submit", "--sweep", "PATH"), ("config", "check", "PATH"), ("serve", "PATH"),
    ("decide", "PATH", "--policy", "fifo"), ("decide", "--batch", "PATH"),
    ("decide", str(INSTANCE), "--policy", "PATH.py"),
    ("simulate", "PATH", "--cluster", "v100:1x4", "--policy", "fifo"), ("trace", "describe", "PATH"),
    ("what-if", "--from-sacct", "PATH"),
)  # fmt: skip


TOLD = (
    ("pipe", "it is a pipe that nobody writes"),
    ("link", "it is a pipe that nobody writes"),
    ("device", "it is a device, and no file"),
    ("folder", "Is a directory"),
)


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
@pytest.mark.parametrize(("what", "told"), TOLD)
def test_what_is_no_file_is_refused_at_once(
    words: tuple[str, ...], what: str, told: str, tmp_path: Path, horae: Horae
) -> None:
    path = tmp_path / f"named{'.py' if any('.py' in word for word in words) else ''}"
    if what == "device":
        path.symlink_to("/dev/zero")
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo") if what == "link" else (tmp_path / "fifo").rename(path)
    said = horae(*(word.replace("PATH.py", "PATH").replace("PATH", str(path)) for word in words))
    assert said.code in (exits.USAGE, exits.BAD_FILE), said
    assert told in said.err


def test_a_pipe_that_somebody_writes_is_read_to_its_end(horae: Horae) -> None:
    """As a shell's `<(...)` is, also where the writer is slow."""
    reads, writes = os.pipe()
    text = INSTANCE.read_bytes()

    def write() -> None:
        with os.fdopen(writes, "wb") as file:
            file.write(text)

    threading.Timer(0.5, write).start()
    said = horae("decide", f"/dev/fd/{reads}", "--policy", "fifo", "--json")
    os.close(reads)
    assert said.code == exits.DONE, said.err
    assert said.json == horae("decide", str(INSTANCE), "--policy", "fifo", "--json").json
