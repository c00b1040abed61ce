"""What moved since the results that were committed last: the last words of `make bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks._figures import FIGURES, Figure, doubt, numbers, result

#: Less than this is what a second run of the same code shows.
NOISE = 0.1


def committed(name: str) -> dict[str, Any]:
    """A result as it stands in the last commit; empty where there is none."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:benchmarks/results/{name}.json"], capture_output=True, text=True, check=False
    )
    found: dict[str, Any] = json.loads(shown.stdout) if shown.returncode == 0 else {}
    return found


def moved(figure: Figure, before: float, now: float) -> str:
    """`worse`, `better`, or nothing where it is what it was."""
    if before == now or (before and abs(now / before - 1) < NOISE):
        return ""
    return "worse" if (now > before) == figure.less_is_better else "better"


def rows() -> list[tuple[str, ...]]:
    found = []
    for name in dict.fromkeys(figure.benchmark for figure in FIGURES):
        old = {(figure.what, key): value for figure, key, value in numbers(committed(name), name)}
        for figure, key, now in numbers(result(name), name):
            before = old.get((figure.what, key))
            if before is not None and (word := moved(figure, before, now)):
                found.append((name, f"{figure.what} {key}".strip(), f"{before:.4g}", f"{now:.4g}", figure.unit, word))
    return found


def main() -> int:
    found = rows()
    for name, what, before, now, unit, word in found:
        print(f"{word:7}{name:20}{what:60}{before:>10} -> {now:<10}{unit}")
    if not found:
        print(f"no figure moved by more than {NOISE:.0%}")
    for name in dict.fromkeys(figure.benchmark for figure in FIGURES):
        if (new := result(name)) != committed(name) and (why := doubt(new)):
            print(f"not to be relied on: {name}, {why}")
    return 1 if any(word == "worse" and unit == "x" for *_, unit, word in found) else 0


if __name__ == "__main__":
    sys.exit(main())
