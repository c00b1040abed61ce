"""Output: JSON for scripts, plain columns for pipes, colour for terminals. Nothing here knows what it prints."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from horae import visible

STATE_STYLES = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "green",
    "stopping": "magenta",
    "stopped": "yellow",
    "lost": "bold red",
    "failed": "bold red",
    "completed": "dim",
    "cancelled": "dim",
    "up": "green",
    "drain": "yellow",
    "down": "bold red",
}

#: State letters as squeue shortens them, with ours for what Slurm does not have.
LETTERS = {
    "queued": "PD",
    "starting": "CF",
    "running": "R",
    "stopping": "SG",
    "stopped": "S",
    "suspended": "SU",
    "completed": "CD",
    "failed": "F",
    "cancelled": "CA",
    "lost": "NF",
}


_MANY = 500  #: rows


@dataclass(frozen=True, slots=True)
class Column:
    """`title` as Slurm would head it. `last`: takes the rest of the line and is cut there on a terminal."""

    title: str
    right: bool = False
    style: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with a style of its own."""

    text: str
    style: str = ""


def emit_json(value: Any) -> None:
    """One JSON document on standard output, ASCII alone: no terminal obeys it, every reader reads it."""
    sys.stdout.write(f"{_indented(value)}\n")


def _indented(value: Any) -> str:
    """Of many rows by pydantic, which takes a moment to load and then an eighth of the standard library's time."""
    rows = value.values() if isinstance(value, dict) else [value]
    if not any(isinstance(found, list) and len(found) > _MANY for found in rows):
        return json.dumps(value, indent=2, ensure_ascii=True, default=str)
    from pydantic_core import to_json

    return to_json(value, indent=2, ensure_ascii=True, fallback=str).decode()


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | Cell]],
    *,
    header: bool = True,
    file: IO[str] | None = None,
) -> None:
    """Aligned columns: styled and cut to the width on a terminal, plain and whole anywhere else."""
    out = sys.stdout if file is None else file
    if out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        _rich(columns, [[_cell(c) for c in row] for row in rows], header, out)
        return
    titles = [[c.title for c in columns]] if header else []
    _plain(columns, [*titles, *rows], out)


def _plain(columns: Sequence[Column], lines: Sequence[Sequence[str | Cell]], out: IO[str]) -> None:
    """Column by column: tables have thousands of lines."""
    told = []
    for column, found in zip(columns, zip(*lines, strict=True), strict=False):
        cells = [cell.text if isinstance(cell, Cell) else cell for cell in found]
        if visible.hidden("".join(cells)) is not None:
            cells = [visible.neutral(cell) for cell in cells]
        width = max(map(len, cells))
        told.append([cell.rjust(width) if column.right else cell.ljust(width) for cell in cells])
    out.write("".join([" ".join(cells).rstrip() + "\n" for cells in zip(*told, strict=True)]))


def _cell(found: str | Cell) -> Cell:
    cell = found if isinstance(found, Cell) else Cell(found)
    return Cell(visible.neutral(cell.text), cell.style)


#: Terminal cells of a column at most, and what the last one has at least where it holds so much.
_WIDEST, _LAST = 40, 20


def _rich(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], header: bool, out: IO[str]) -> None:
    """The last column takes what room is left; the others are whole. Lines that are longer than the terminal all the
    same are wrapped by it, as squeue's are: half a job's number would be worse."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    lines = [[Cell(column.title, "bold") for column in columns]] if header else []
    lines += [
        [Cell(cell.text, cell.style or column.style) for cell, column in zip(row, columns, strict=True)] for row in rows
    ]
    widths = [max((cell_len(line[index].text) for line in lines), default=0) for index in range(len(columns))]
    *firm, last = (min(width, _WIDEST) for width in widths)
    console = Console(file=out, highlight=False)
    rest = max(console.width - sum(firm) - len(firm), min(last, _LAST))
    for line in lines:
        cells = [Text(cell.text, style=cell.style) for cell in line]
        for cell, column, width in zip(cells, columns, (*firm, rest), strict=True):
            cell.truncate(width, overflow="ellipsis")
            cell.align(
                "right" if column.right else "left",
                min(width, widths[-1]) if column is columns[-1] else width,
            )
        console.print(Text(" ").join(cells), soft_wrap=True)


def state(name: str, label: str | None = None) -> Cell:
    """A state in its colour; the word is always there, colour only repeats it."""
    return Cell(name if label is None else label, STATE_STYLES.get(name, ""))


def print_pairs(pairs: Iterable[tuple[str, str]], *, file: IO[str] | None = None) -> None:
    """`name  value` lines, aligned."""
    shown = [(visible.neutral(name), value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{name.ljust(width)}  {visible.below(value, width + 2)}", file=file)


def note(text: str) -> None:
    """A remark that is not the answer: standard error, so that pipes stay clean."""
    print(visible.below(text), file=sys.stderr)


def emit_json_line(value: Any) -> None:
    """One JSON document on one line, at once: for streams."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True, default=str) + "\n")
    sys.stdout.flush()
