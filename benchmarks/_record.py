"""Where a benchmark's result goes, and what must be known to believe it: machine, versions, commit, command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def record(script: Path, result: Mapping[str, Any], packages: Sequence[str] = ()) -> Path:
    """Write `result` with its provenance to `results/NAME.json`. `packages`: whose versions matter."""
    path = RESULTS / f"{script.stem}.json"
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"provenance": provenance(script, packages), **result}, indent=2) + "\n"
    path.write_text(text)
    print(f"written: {path.relative_to(RESULTS.parent.parent)}")
    return path


def provenance(script: Path, packages: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "command": " ".join(["python", f"benchmarks/{script.name}", *map(_unplaced, sys.argv[1:])]),
        "date": time.strftime("%Y-%m-%d"),
        "commit": _COMMIT,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
            "system": f"{platform.system()} {platform.release()}",
            "load": _LOAD,
        },
    }


def _unplaced(word: str) -> str:
    """A path without where it lies on this machine."""
    return Path(word).name if word.startswith("/") else word


def _commit() -> str:
    """With `-dirty` where anything but results and the pages that show them differs from it."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":/!benchmarks/results", ":/!docs")
    return (_git("describe", "--always") or "unknown") + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


#: As a benchmark begins: its own load, and what it writes, are no matter of its results.
_COMMIT, _LOAD = _commit(), round(os.getloadavg()[0], 2)
