"""What a column of numbers is by how it behaves: nothing here reads a word.

A counter goes on by equal steps; a loss falls, fast at first and slower later, and now and then rises, or falls now
faster and now slower: what falls smoothly is a schedule or a countdown. Every test is strict: a column that may be two
things is `OTHER`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import median

FEWEST = 8  #: values of which anything is said
REGULAR = 0.6  #: share of a counter's steps that are the same
DISTINCT = 0.6  #: share of a loss' values that are different
FALLS = -0.6  #: rank correlation of a loss with its place, at most; of few values `FEW_FALL`
FEW_FALL = -0.8
FEW = 12
CURVED = 1.5  #: the first half of a loss falls so many times as far as the second
FAR = 0.05  #: share of its first level that a loss falls, at least
ROUGH = 0.4  #: share of its bends that turn round, of what only falls and is a loss
RISES = (0.02, 0.6)  #: share of the steps of a loss that go up


class Role(StrEnum):
    COUNTER = "counter"  #: whole, rises by equal steps
    STAIRS = "stairs"  #: whole, rises by one now and then: an epoch beside a counter
    CLOCK = "clock"  #: rises, by unequal steps
    CONSTANT = "constant"
    RATIO = "ratio"  #: between 0 and 1, and no loss
    DECAYING = "decaying"  #: a loss
    OTHER = "other"


def role(values: Sequence[float], whole: bool) -> Role:
    """The role of a column. `whole`: all its numbers were printed without a point."""
    if len(values) < FEWEST:
        return Role.OTHER
    if len(set(values)) == 1:
        return Role.CONSTANT
    steps = [b - a for a, b in pairwise(values)]
    if min(steps) > 0:
        return Role.COUNTER if whole and values[0] >= 0 and _regular(steps) else Role.CLOCK
    if whole:
        return Role.STAIRS if values[0] >= 0 and min(steps) == 0 and max(steps) == 1 else Role.OTHER
    if _decays(values, steps):
        return Role.DECAYING
    return Role.RATIO if min(values) >= 0 and max(values) <= 1 else Role.OTHER


def stride(values: Sequence[float]) -> float:
    """The step that most of a counter's steps are."""
    return Counter(b - a for a, b in pairwise(values)).most_common(1)[0][0]


def _regular(steps: Sequence[float]) -> bool:
    return Counter(steps).most_common(1)[0][1] >= REGULAR * len(steps)


def _decays(values: Sequence[float], steps: Sequence[float]) -> bool:
    count = len(values)
    rising = sum(step > 0 for step in steps) / len(steps)
    if min(values) <= 0 or len(set(values)) < DISTINCT * count or rising > RISES[1]:
        return False
    if rising < RISES[0] and not _rough(steps):
        return False
    quarter = max(count // 4, 2)
    start, end = median(values[:quarter]), median(values[-quarter:])
    at = (count - quarter) // 2
    middle = median(values[at : at + quarter])
    curved = start - middle > CURVED * max(middle - end, 0.0)
    far = start - end >= FAR * start
    return far and curved and _correlation(values) <= (FALLS if count >= FEW else FEW_FALL)


def _rough(steps: Sequence[float]) -> bool:
    """Whether what only falls falls now faster and now slower: a schedule is smooth."""
    bends = [b - a for a, b in pairwise(steps)]
    turns = sum(a * b < 0 for a, b in pairwise(bends))
    return len(steps) >= FEW - 1 and turns >= ROUGH * len(bends)


def _correlation(values: Sequence[float]) -> float:
    """Spearman's, of the values with their places."""
    count = len(values)
    ranked = sorted(range(count), key=lambda i: values[i])
    apart = sum((place - at) ** 2 for place, at in enumerate(ranked))
    return 1 - 6 * apart / (count * (count**2 - 1))
