"""What comes of every figure and table that `horae reproduce` computes again, beside what its paper says?

    python benchmarks/reproductions.py [NAME ...]

Writes benchmarks/results/reproductions/NAME.json with its provenance, and the table of docs/reproductions.md between
its two marks. Seconds are of the processor's time, on the machine that is named; nothing else hangs on it. Figures of
the same simulations share them within one run: only the first takes its time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from _record import RESULTS, provenance

from horae.sim.reproductions.catalogue import every, reproduce

FOLDER = RESULTS / "reproductions"
PAGE = Path(__file__).parents[1] / "docs" / "reproductions.md"
MARKS = ("<!-- table: benchmarks/reproductions.py -->", "<!-- end of table -->")


def table() -> str:
    """Of all results that are kept, in the order of names."""
    rows = ["| figure | verdict | why, or what it is | seed | CPU seconds |", "|---|---|---|---|---|"]
    for path in sorted(FOLDER.glob("*.json")):
        found = json.loads(path.read_text())
        words = found["why"] or every()[found["name"]].what
        rows.append(f"| `{found['name']}` | {found['verdict']} | {words} | {found['seed']} | {found['seconds']:g} |")
    return "\n".join(rows)


def beside() -> str:
    """The paper's numbers beside ours, a figure after the other."""
    out = []
    for path in sorted(FOLDER.glob("*.json")):
        found = json.loads(path.read_text())
        paper, here = _flat(found["paper"]), _flat(found["here"])
        out += [f"### {found['name']}", "", every()[found["name"]].what, "", "| | paper | here |", "|---|---|---|"]
        out += [f"| {key} | {_text(paper[key])} | {_text(value)} |" for key, value in here.items()]
        out.append("")
    return "\n".join(out).rstrip()


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """A list of numbers is one row."""
    if not isinstance(value, dict):
        return {key: value}
    return {k: v for name, inner in value.items() for k, v in _flat(inner, f"{key} {name}".strip()).items()}


def _text(value: Any) -> str:
    if isinstance(value, list) and any(v is not None for v in value):
        return ", ".join(map(_text, value))
    return (
        "picture"
        if value is None or isinstance(value, list)
        else f"{value:g}"
        if isinstance(value, int | float)
        else str(value)
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("names", nargs="*", help="which; all of them where none is named")
    given = words.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in given.names or every():
        started = time.process_time()
        found = reproduce(name)
        found["seconds"] = round(time.process_time() - started, 3)
        result = {"provenance": provenance(Path(__file__), ("highspy", "pulp", "numpy")), **found}
        (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(f"{name}: {found['verdict']}", flush=True)
    head, _, rest = PAGE.read_text().partition(MARKS[0])
    tail = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{head}{MARKS[0]}\n\n{table()}\n\n{beside()}\n\n{MARKS[1]}{tail}")


if __name__ == "__main__":
    main()
