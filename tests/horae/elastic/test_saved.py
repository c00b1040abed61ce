"""A file that a person names is written whole, or stays as it was."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from horae.elastic.files import saved


def test_what_could_not_be_written_whole_leaves_the_old(tmp_path: Path) -> None:
    file = tmp_path / "now.yaml"
    file.write_text("old")
    with pytest.raises(OSError, match=r"now\.yaml'$"), saved(file) as beside:
        Path(beside).write_text("ne")
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(KeyboardInterrupt), saved(file) as beside:
        raise KeyboardInterrupt
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_it_keeps_its_mode_and_its_link_and_its_ending(tmp_path: Path) -> None:
    file, link = tmp_path / "real.png", tmp_path / "link.png"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    with saved(link) as beside:
        assert beside.endswith(".png")
        Path(beside).write_text("new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    with pytest.raises(FileNotFoundError, match=r"/none/x'$"), saved(tmp_path / "none" / "x"):
        pass
    with saved(Path(os.devnull)) as beside:
        assert beside == os.devnull


def test_a_command_on_a_full_disk_leaves_the_old_answer(tmp_path: Path) -> None:
    """Files here are 200 bytes at most, as on a disk that has no more."""
    trace, out = tmp_path / "jobs.csv", tmp_path / "sample.csv"
    rows = [f"{n},600,1,job{n},ann" for n in range(40)]
    trace.write_text("\n".join(["submitted,duration,gpus,job,tenant", *rows, ""]))
    out.write_text("old")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200));"
        "from horae.cli import main; sys.exit(main())"
    )
    words = ["trace", "sample", str(trace), "30", "--out", str(out)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert f"{out}: File too large" in done.stderr
    assert out.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [trace, out]
