"""What is wrong with a file, told by file, line, column and value."""

from __future__ import annotations

from policy.model import BadInput

#: Characters of a bad value that are shown.
SHOWN = 80
HEADER = "correct the file: nothing of it can be read as it is"
ROW = "correct the row, or leave such rows out and count them with --skip-bad"


class Malformed(BadInput):
    """Prints `FILE:LINE: column: what is wrong: value`. `line` counts from 1; 0 where a file has none."""

    def __init__(self, path: object, line: int, column: str, what: str, value: object, remedy: str = "") -> None:
        """`remedy`: else that of a header for the first line, and that of a row for others."""
        text = str(value)
        shown = text if len(text) <= SHOWN else text[:SHOWN] + "..."
        remedy = remedy or (HEADER if line <= 1 else ROW)
        super().__init__(what, where=str(path), line=line, field=column, value=shown, remedy=remedy)
        self.column, self.what = column, what

    def words(self, message: str) -> str:
        """With the value, and without the remedy, which is the same of every row."""
        return f"{self.where}:{self.line}: {self.field}: {self.message}: {self.value}"
