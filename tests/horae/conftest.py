from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user of this machine can get into; who may write in it is the test's to say.

    Not below pytest's own: another run of pytest closes that again for other users.
    """
    folder = Path(tempfile.mkdtemp(prefix="horae-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
