from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder that every user of this machine can get into; who may write in it is the test's to say."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path
