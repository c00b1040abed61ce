"""The script of a bundle, called as root where others may write; what it installs is seen in `tests/real`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "slurm_plugin/site/bundle-install.sh"


def bundle(folder: Path) -> Path:
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels/horae-1.whl").write_text("a wheel")
    (folder / "wheels/SHA256SUMS").write_text(f"{hashlib.sha256(b'a wheel').hexdigest()}  horae-1.whl\n")
    (folder / "install.sh").write_text(SCRIPT.read_text())
    return folder


def test_neither_the_folder_that_one_is_in_nor_the_callers_own_words_are_heeded(tmp_path: Path) -> None:
    here, others, site = tmp_path / "here", tmp_path / "others", tmp_path / "site"
    ours, theirs = bundle(here / "horae-1"), bundle(others / "horae-1")
    for module in ("venv", "ensurepip", "pip"):
        (here / f"{module}.py").write_text(f"open({str(tmp_path / 'planted')!r}, 'w')\n")
    (site / "bin").mkdir(parents=True)
    for name, text in {"python": f'echo "$@" >> {tmp_path}/called', "horae": ":"}.items():
        (site / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (site / "bin" / name).chmod(0o755)
    env = {**os.environ, "PYTHON": sys.executable, "CDPATH": str(others), "PIP_TARGET": str(others)}
    done = subprocess.run(
        ["sh", "horae-1/install.sh", site], cwd=here, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "called").read_text().splitlines()
    assert not (tmp_path / "planted").exists(), "a module of the folder that one is in was run"
    assert [line for line in called if str(ours) in line] == called
    assert str(theirs) not in "".join(called)
    assert all(line.startswith("-I -m pip --isolated ") for line in called)
