"""`horae` as a person types it, in a process and an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).parents[2]


def horae(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "import sys; from horae.cli import main; sys.exit(main())", *words]
    return subprocess.run(program, cwd="/", env=environment, capture_output=True, text=True, check=False)
