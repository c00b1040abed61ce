"""The Pythons at hand."""

from __future__ import annotations

import shutil
import subprocess
import sys


def pythons() -> list[str]:
    """This Python, and every other on the search path that can be run, from 3.7 on."""
    found = [sys.executable]
    for minor in range(7, 20):
        program = shutil.which(f"python3.{minor}")
        if program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
            found.append(program)
    return found
