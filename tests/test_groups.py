"""Tests that share a cluster run in one process of the several that a run has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import os, pathlib, pytest
pytestmark = pytest.mark.xdist_group("cluster, the small one")
@pytest.mark.parametrize("number", range(12))
def test_of_a_group(number):
    pathlib.Path(f"{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
@pytest.mark.skip("never runs")
def test_left_out():
    pass
"""


def test_the_tests_of_a_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  real\n  root\n  soak\n")
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "3", "--dist", "loadgroup", "-q"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), "test_some.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, check=False, timeout=300,
        capture_output=True, text=True,
    )  # fmt: skip
    assert "12 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert len({each.read_text() for each in tmp_path.glob("[0-9]*")}) == 1
