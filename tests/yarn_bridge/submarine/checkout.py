"""Submarine's own repository, for tests that read its documentation."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.yarn_bridge.submarine import samples


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """$HORAE_SUBMARINE, or a clone made for the test."""
    if told := os.environ.get("HORAE_SUBMARINE"):
        return Path(told)
    folder = tmp_path_factory.mktemp("submarine")
    command = ["git", "clone", "-q", "--no-checkout", f"{samples.REPOSITORY}.git", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode and os.environ.get("CI") != "true":
        pytest.skip(f"no checkout of Submarine: {done.stderr.strip()}; set HORAE_SUBMARINE to one")
    assert done.returncode == 0, done.stderr
    return folder
