"""Boxes of one value a line, made one line before anything reads them.

    ----------------------------
    | loss         | 0.0812    |
    | time/        |           |
    |    fps       | 512       |
    | step         | 10        |
    ----------------------------

The counter of such a box may stand below its values, or above them: read line by line a value would belong to the box
before. A box is believed when its line says something of training; what is none stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from profiler.rules.plan import Plan
from profiler.text.terminal import State

LONGEST = 64  #: rows of a box
_WIDEST = 256  #: bytes of one of them
_SHORTEST = 8  #: signs of the line above and below it
_TELLING = (
    "train",
    "epoch",
)
_ROW = re.compile(rb"\s*\|\s*([A-Za-z][^|]*?)\s*\|\s*([^|\s][^|]*?)?\s*\|\s*")
_INSIDE = re.compile(rb"\s*\|\s{3,}")  #: how a row begins that is one of a group


class Boxes:
    """The box that is open between two pieces of a log."""

    def __init__(self) -> None:
        self.held: list[State] = []
        self.rule = ""  #: that read the newest box

    def concerns(self, block: bytes | None) -> bool:
        """Whether a block may hold a part of a box."""
        if self.held or block is None:
            return True
        return b"--------" in block and (b"\n|" in block or block.rstrip().endswith(b"--------"))

    def joined(self, states: list[State], plan_of: Callable[[str], Plan | None]) -> list[State]:
        """The lines with each box as one; the same list where there is none."""
        if not self.held and not any(map(_is_edge, states)):
            return states
        out: list[State] = []
        for state in states:
            if self.held and _is_edge(state) and len(self.held) > 1:
                out += self._boxed(state, plan_of)
                self.held = []
            elif _is_edge(state):
                out += self.held
                self.held = [state]
            elif self.held and _is_row(state) and len(self.held) <= LONGEST:
                self.held.append(state)
            else:
                out += [*self.held, state]
                self.held = []
        return out

    def rest(self, plan_of: Callable[[str], Plan | None]) -> list[State]:
        """The rows of the open box, as one where they tell already what the box before told."""
        if len(self.held) < 2:
            return self.held
        whole = b", ".join(_members(self.held[1:]))
        plan = plan_of(whole.decode("utf-8", "replace"))
        told = plan is not None and plan.kind in _TELLING and plan.rule == self.rule
        if told:
            return [(self.held[-1][0], whole, False)]
        return [] if self.rule else self.held  # values whose counter is not there yet

    def _boxed(self, edge: State, plan_of: Callable[[str], Plan | None]) -> list[State]:
        """The lines of a box that ends with an edge: one line of its values, where that says something of training."""
        whole = b", ".join(_members(self.held[1:]))
        plan = plan_of(whole.decode("utf-8", "replace"))
        if plan is None or plan.kind not in _TELLING:
            return [*self.held, edge]
        self.rule = plan.rule
        return [(edge[0], whole, False)]

    def to_json(self) -> dict[str, Any]:
        held = [[number, raw.decode("latin-1"), redrawn] for number, raw, redrawn in self.held]
        return {"held": held, "rule": self.rule}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Boxes:
        self = cls()
        self.held = [(number, raw.encode("latin-1"), redrawn) for number, raw, redrawn in state.get("held", [])]
        self.rule = state.get("rule", "")
        return self


def _is_edge(state: State) -> bool:
    raw = state[1]
    return raw[:1] == b"-" and len(raw) >= _SHORTEST and not raw.strip().strip(b"-") and not state[2]


def _is_row(state: State) -> bool:
    return len(state[1]) <= _WIDEST and not state[2] and _ROW.fullmatch(state[1]) is not None


def _members(rows: list[State]) -> list[bytes]:
    members, group = [], b""
    for _, raw, _ in rows:
        found = _ROW.fullmatch(raw)
        if found is None:
            continue
        name, value = found.groups()
        if value is None:
            group = name if name.endswith(b"/") else b""
        else:
            inside = _INSIDE.match(raw) is not None
            members.append((group if inside else b"") + name + b": " + value)
    return members
