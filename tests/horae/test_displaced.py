"""`policy` and `profiler` are bare names: what else bears them is told, never taken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from horae.extras import BARE, displaced


def test_nothing_stands_in_the_way_here() -> None:
    assert displaced() == ""


@pytest.mark.parametrize("name", BARE)
def test_a_folder_of_that_name_before_it_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    command = [str(Path(sys.executable).with_name("horae")), "doctor"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"{tmp_path / name} stands before Horae's own package {name}" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_another_distribution_with_the_same_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "riskpolicy-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: riskpolicy\nVersion: 2.0\n")
    (other / "top_level.txt").write_text("policy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "policy is brought by riskpolicy too" in displaced()
