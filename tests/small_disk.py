"""A disk of a few megabytes, so that it can be full."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(size: str = "12m") -> Iterator[Path]:
    """Where it is mounted, for root alone to write; it goes with all that is on it."""
    folder = Path(tempfile.mkdtemp(prefix="horae-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "horae-test", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
