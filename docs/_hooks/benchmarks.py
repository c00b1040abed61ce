"""The page of benchmarks, made from `benchmarks/results`: what was asked, the figures, on which machine, and again."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

HEAD = """\
# Benchmarks

Each row of a table is a number of the last run that was kept, with its provenance. A ratio (`x`) is against the floor
or peer that ran beside it, turn by turn, so that a busy machine slows both: below 1 is faster than by hand. Seconds are
those of the machine that is named. Results that were measured beside other work, or with changes that are in no
commit, say so and are no word to rely on.

```
.venv/bin/python benchmarks/NAME.py    one again; it writes benchmarks/results/NAME.json
make bench                             all of them, then what moved since the last commit; a worse ratio fails
```
"""
#: A growth curve's rows: what may stand on the axis (the first of them that grows), and the seconds.
AXES = ("jobs", "n", "gpus", "tenants")
SECONDS = ("round_s", "ours_s", "tree_s", "play_s")
Points = list[tuple[float, float]]


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/benchmarks.md", content=page()))
    return files


def page() -> str:
    sys.path.insert(0, str(ROOT))
    from benchmarks import _figures

    out = [HEAD]
    for name in dict.fromkeys(figure.benchmark for figure in _figures.FIGURES):
        found = _figures.result(name)
        if not found:
            continue
        out += [f"## {name}", "", question(name), ""]
        out += table(list(_figures.numbers(found, name)))
        out += ["", *drawn(name, found), _provenance(found, _figures.doubt(found)), ""]
    return "\n".join(out)


def table(numbers: list[tuple[Any, str, float]]) -> list[str]:
    """A row for what each `*` of a path stood for, a column for each figure."""
    figures = list(dict.fromkeys(figure for figure, _, _ in numbers))
    keys = list(dict.fromkeys(key for _, key, _ in numbers))
    values = {(figure, key): value for figure, key, value in numbers}

    def cell(figure: Any, key: str) -> str:
        value = values.get((figure, key))
        told = "" if value is None else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
        return f"{told} {figure.unit}".strip() if told else ""

    return [
        "| | " + " | ".join(figure.what for figure in figures) + " |",
        "|---|" + "---:|" * len(figures),
        *(f"| {key} | " + " | ".join(cell(figure, key) for figure in figures) + " |" for key in keys),
    ]


def question(name: str) -> str:
    """The first paragraph of the script's own words."""
    tree = ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text()) if _script(name) else None
    words = (ast.get_docstring(tree) if tree else "") or ""
    return words.split("\n\n")[0].replace("\n", " ")


def _script(name: str) -> bool:
    return (ROOT / "benchmarks" / f"{name}.py").exists()


def _provenance(found: dict[str, Any], doubt: str) -> str:
    told = found.get("provenance", {})
    machine = told.get("machine", found.get("machine", {}))
    command = told.get("command", found.get("command", "python benchmarks/..."))
    words = f"`{command}`, commit {told.get('commit', 'unknown')}, {told.get('date', 'no date')}"
    if machine:
        words += f", {machine.get('cores', '?')} cores of {machine.get('cpu', 'a machine')}"
    return f"*{words}. **{doubt[0].upper()}{doubt[1:]}.***" if doubt else f"*{words}.*"


def curves(value: Any, name: str = "") -> list[tuple[str, str, Points]]:
    """(axis, name, points) of every list of rows that has an axis and seconds."""
    if isinstance(value, dict):
        within = ((" ".join(filter(None, (name, key if key != "rows" else ""))), inner) for key, inner in value.items())
        return [curve for key, inner in within for curve in curves(inner, key)]
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return []
    axis = next((a for a in AXES if len({row.get(a) for row in value}) > 1), None)
    seconds = next((s for s in SECONDS if s in value[0]), None)
    if axis is None or seconds is None:
        return []
    points = [(float(row[axis]), float(row[seconds])) for row in value if row.get(axis) and row.get(seconds)]
    return [(axis, name, points)] if len(points) > 1 else []


def drawn(name: str, found: dict[str, Any]) -> list[str]:
    """A picture for each thing that grows."""
    lines = curves({key: value for key, value in found.items() if key != "provenance"})
    axes = dict.fromkeys(axis for axis, _, _ in lines)
    return [line for axis in axes for line in picture(name, axis, [(curve, p) for a, curve, p in lines if a == axis])]


def picture(name: str, axis: str, lines: list[tuple[str, Points]]) -> list[str]:
    """Seconds over size, both logarithmic, as a picture in the page itself."""
    from math import log10

    xs = [log10(x) for _, points in lines for x, _ in points]
    ys = [log10(y) for _, points in lines for _, y in points]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)

    def at(x: float, y: float) -> str:
        across = 60 + 520 * (log10(x) - left) / ((right - left) or 1)
        up = 220 - 190 * (log10(y) - low) / ((high - low) or 1)
        return f"{across:.1f},{up:.1f}"

    paths = [
        f'<polyline points="{" ".join(at(x, y) for x, y in points)}" fill="none" stroke="currentColor" '
        f'stroke-opacity="0.45"><title>{curve or name}</title></polyline>'
        for curve, points in lines
    ]
    labels = [
        f'<text x="60" y="238">{10**left:g}</text>',
        f'<text x="320" y="238" text-anchor="middle">{axis}</text>',
        f'<text x="580" y="238" text-anchor="end">{10**right:g}</text>',
        f'<text x="56" y="222" text-anchor="end">{10**low:.2g} s</text>',
        f'<text x="56" y="36" text-anchor="end">{10**high:.2g} s</text>',
    ]
    title = f"{name}: seconds over {axis}, logarithmic"
    return [
        f'<svg viewBox="0 0 600 245" role="img" aria-label="{title}" font-size="11" fill="currentColor">',
        f"<title>{title}</title>",
        *paths,
        *labels,
        "</svg>",
        "",
    ]
