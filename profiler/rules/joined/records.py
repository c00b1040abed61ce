"""Records written over several lines, one member each, made one line before anything reads them.

    {                                   {'accuracy': 0.01,
        "epoch": 3,                      'loss': 10.2587,
        "main/loss": 0.53                'step': 0}
    },

Read line by line such a file tells values without their counter. A record is believed when a second one with the same
names came: a configuration comes once. Of an object that holds a list of objects those are the records, and what it
says of itself is how all of it ended. What is no record stays as it was written.
"""

from __future__ import annotations

import re
from typing import Any

from profiler.rules.book import RuleBook
from profiler.rules.joined.boxes import Boxes
from profiler.text.terminal import State

LONGEST = 64  #: lines of a record
WIDEST = 1024  #: bytes of one of them
SORTS = 64  #: sets of names that are known
_TELLING = (
    "train",
    "epoch",
    "validation",
)
_MEMBER = re.compile(rb"[\"'][\w ./@%+-]{1,80}[\"']\s*:\s*(\S.*)")
_NAMES = re.compile(rb"[\"'][^\"']+[\"']\s*:")
#: Behind the brace that opens a record, or its first member, its line ends.
_GOES_ON = re.compile(rb"[{,][ \t]*[\r\n]")


class Records:
    """The record that is open between two pieces of a log, and the sorts of records that came."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self.boxes = Boxes()
        self.held: list[State] = []
        self.depth = 0  #: objects within the open record that the next line lies in
        self.list_begun = False
        #: by their names: the only one so far; True: more of them came; False: such tell nothing
        self.sorts: dict[bytes, State | bool] = {}

    def concerns(self, block: bytes | None) -> bool:
        """Whether a block may hold a part of a record that has lines of its own."""
        opens = block is None or (b"{" in block and _GOES_ON.search(block) is not None)
        return bool(self.held) or opens or self.boxes.concerns(block)

    def joined(self, states: list[State]) -> list[State]:
        """The lines with each record, and each box, as one; the same list where there is none."""
        states = self.boxes.joined(states, self.book.plan_of)
        if not self.held and not any(map(_opens, states)):
            return states
        out: list[State] = []
        for state in states:
            if self.held and self._take(state, out):
                continue
            out += self.held
            self.held = []
            if _opens(state):
                self._open(state)
            else:
                out.append(state)
        return out

    def rest(self) -> list[State]:
        """What may be read of a box that is still open."""
        return self.boxes.rest(self.book.plan_of)

    def _open(self, state: State) -> None:
        self.held = [state]
        self.depth = 0
        self.list_begun = False

    def _take(self, state: State, out: list[State]) -> bool:
        """Take the next line of the open record; whether it is one."""
        text = state[1].strip()
        if self.list_begun:  # of objects: what stands around them counts nothing
            if text == b"{":
                self._open(state)
            return text == b"{"
        member = _MEMBER.fullmatch(text)
        value = text if member is None else member.group(1)
        closes = value.count(b"}") - value.count(b"{")
        if state[2] or len(self.held) >= LONGEST or len(text) > WIDEST or (member is None and closes < 1):
            return False
        self.held.append(state)
        self.list_begun = value == b"["
        self.depth -= closes
        if self.depth < 0:
            self._close(state[0], out)
        return True

    def _close(self, number: int, out: list[State]) -> None:
        whole = b" ".join(raw.strip() for _, raw, _ in self.held).rstrip(b",")
        names = b"".join(_NAMES.findall(whole))
        known = self.sorts.get(names)
        if known is None:
            plan = self.book.plan_of(whole.decode("utf-8", "replace"))
            known = self._learn(names, plan is not None and plan.kind in _TELLING and (number, whole, False))
        elif known is not False:
            out += [(number, whole, False)] if known is True else [known, (number, whole, False)]
            self.sorts[names] = True
        if known is False:
            out += self.held
        self.held = []

    def _learn(self, names: bytes, record: State | bool) -> State | bool:
        """What is known of records with these names, the first of which came."""
        if len(self.sorts) >= SORTS:
            return False
        self.sorts[names] = record
        return record

    def to_json(self) -> dict[str, Any]:
        return {
            "boxes": self.boxes.to_json(),
            "held": [_saved(s) for s in self.held],
            "depth": self.depth,
            "list": self.list_begun,
            "sorts": {n.decode("latin-1"): s if isinstance(s, bool) else _saved(s) for n, s in self.sorts.items()},
        }

    @classmethod
    def from_json(cls, state: dict[str, Any], book: RuleBook) -> Records:
        self = cls(book)
        self.boxes = Boxes.from_json(state.get("boxes", {}))
        self.held = [_loaded(s) for s in state["held"]]
        self.depth = state["depth"]
        self.list_begun = state["list"]
        sorts = state["sorts"].items()
        self.sorts = {n.encode("latin-1"): s if isinstance(s, bool) else _loaded(s) for n, s in sorts}
        return self


def _opens(state: State) -> bool:
    """Whether a line begins a record that goes on below it."""
    raw = state[1]
    if b"{" not in raw[:40] or b"}" in raw or state[2]:
        return False
    text = raw.strip()
    if text == b"{":
        return True
    first = text[:1] == b"{" and text.endswith(b",")
    return first and _MEMBER.fullmatch(text[1:]) is not None


def _saved(state: State) -> list[Any]:
    return [state[0], state[1].decode("latin-1"), state[2]]


def _loaded(state: list[Any]) -> State:
    return state[0], state[1].encode("latin-1"), state[2]
