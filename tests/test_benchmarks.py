"""Every benchmark can be started: what it measures is still there under the names that it knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_names_are_there(name: str) -> None:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import {name}"]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
