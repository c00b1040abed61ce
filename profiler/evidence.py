"""How sure a number is, which lines made it, and what spoke against it.

Every number has a ground: what made it, and whether anything else in the log says the same. How often numbers of a
ground are right was counted on the labelled logs with the rules of each log's own family switched off, so that the
log was one the reader did not know (`python -m tests.profiler.reliability`); that share is the confidence. A number
below `THRESHOLD` is not told: a policy that believes a wrong time gives GPUs to the wrong job, one that has none asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

THRESHOLD = 0.65
LINES = 4  #: lines named of each number


class Ground(StrEnum):
    # of an iteration's time
    CONFIRMED = "confirmed"  #: another source says the same within 20 %
    PRINTED = "printed"  #: a rule that knows the format read it; nothing to hold it against
    WORDS = "words"  #: by the words beside it alone; nothing to hold it against
    CLOCK = "clock"  #: differences of stamps, three or more
    TWO_STAMPS = "two stamps"  #: fewer
    CORRECTED = "corrected"  #: what was printed cannot be, a clock is used
    DISPUTED = "disputed"  #: another source says otherwise
    UNIT_UNKNOWN = "unit unknown"  #: of a micro-batch or of a step, of a rank or of all: nothing in the log decides
    # of anything else
    RULE = "rule"  #: a rule that knows the format, three lines or more
    RULE_FEW = "rule, few lines"
    GENERIC = "generic"  #: the generic reader, three lines or more
    GENERIC_FEW = "generic, few lines"
    LEARNT = "learnt"  #: by how a column behaves: no word says what it is


_TABLE: Mapping[str, Mapping[str, float]] = yaml.safe_load(
    Path(__file__).with_name("evidence.yaml").read_text(encoding="utf-8")
)


@dataclass(frozen=True, slots=True)
class Evidence:
    confidence: float
    lines: tuple[int, ...] = ()
    against: tuple[str, ...] = ()
    ground: Ground | None = None

    def to_json(self) -> dict[str, Any]:
        return {"confidence": self.confidence, "lines": list(self.lines), "against": list(self.against)}

    @property
    def told(self) -> bool:
        return self.confidence >= THRESHOLD


def confidence(field: str, ground: Ground) -> float:
    """The share of right ones among numbers of this field (all fields, where it was seen too rarely) and ground."""
    of_field = _TABLE.get(field, {})
    return of_field.get(ground.value, _TABLE["any"].get(ground.value, 0.5))


def known(fmt: str | None, lines: int) -> Ground:
    """The ground of a number that is no time."""
    if fmt == "learnt":
        return Ground.LEARNT
    if fmt in (None, "generic"):
        return Ground.GENERIC if lines >= 3 else Ground.GENERIC_FEW
    return Ground.RULE if lines >= 3 else Ground.RULE_FEW


def some(lines: Sequence[int]) -> tuple[int, ...]:
    """A few of the lines: the first, the last, and some between."""
    told = sorted(set(lines))
    if len(told) <= LINES:
        return tuple(told)
    return tuple(told[i * (len(told) - 1) // (LINES - 1)] for i in range(LINES))
