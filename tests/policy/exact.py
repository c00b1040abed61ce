"""A textbook simplex in whole fractions: references that share neither solver nor tolerances with the policies.

Dense tableau, Bland's rule (which never cycles), an artificial variable for every row that zero does not satisfy.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Number = Fraction | int | float
Row = Sequence[Number]


def maximise(goal: Row, rows: Sequence[Row], up: Row) -> tuple[Fraction, list[Fraction]] | None:
    """The optimum (value, point) of max goal.x with rows.x <= up and x >= 0; None: infeasible. Must be bounded."""
    n, m = len(goal), len(rows)
    wrong = [i for i in range(m) if up[i] < 0]
    width = n + m + len(wrong)
    table = []
    basis = []
    for i, row in enumerate(rows):
        line = [Fraction(v) for v in row] + [Fraction(0)] * (m + len(wrong)) + [Fraction(up[i])]
        line[n + i] = Fraction(1)
        if i in wrong:
            line = [-v for v in line]
            line[n + m + wrong.index(i)] = Fraction(1)
            basis.append(n + m + wrong.index(i))
        else:
            basis.append(n + i)
        table.append(line)
    if wrong:
        phase = [Fraction(0)] * (n + m) + [Fraction(-1)] * len(wrong)
        if _run(table, basis, phase, width) != 0:
            return None
        for i in range(m):  # an artificial variable that stays, at 0, must not come back
            if basis[i] >= n + m:
                j = next((j for j in range(n + m) if table[i][j] != 0), None)
                if j is not None:
                    _pivot(table, basis, i, j)
    value = _run(table, basis, [Fraction(v) for v in goal] + [Fraction(0)] * (m + len(wrong)), n + m)
    point = [Fraction(0)] * n
    for i, j in enumerate(basis):
        if j < n:
            point[j] = table[i][-1]
    return value, point


def _run(table: list[list[Fraction]], basis: list[int], goal: list[Fraction], columns: int) -> Fraction:
    while True:
        gain = [goal[j] - sum(goal[b] * line[j] for b, line in zip(basis, table, strict=True)) for j in range(columns)]
        enter = next((j for j in range(columns) if gain[j] > 0), None)
        if enter is None:
            return sum((goal[b] * line[-1] for b, line in zip(basis, table, strict=True)), Fraction(0))
        ratios = [(line[-1] / line[enter], basis[i], i) for i, line in enumerate(table) if line[enter] > 0]
        assert ratios, "unbounded"
        _pivot(table, basis, min(ratios)[2], enter)


def _pivot(table: list[list[Fraction]], basis: list[int], row: int, column: int) -> None:
    by = table[row][column]
    table[row] = [v / by for v in table[row]]
    for i, line in enumerate(table):
        if i != row and line[column] != 0:
            factor = line[column]
            table[i] = [v - factor * w for v, w in zip(line, table[row], strict=True)]
    basis[row] = column
