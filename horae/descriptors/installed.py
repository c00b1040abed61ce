"""Where Horae and its Python are, for whoever must be able to read them."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def parts() -> list[Path]:
    """What an account must be able to read to run Horae: programs, modules, and every folder down to them."""
    needed = (sys.executable, os.__file__, __file__, *filter(os.path.isabs, sys.path))
    whole = [Path(path).resolve() for path in needed]
    return [part for path in whole for part in (*reversed(path.parents), path) if part.exists()]
