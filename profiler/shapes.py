"""Which lines say something, and how: worked out once a shape of line, remembered, and asked cheaply.

Lines that are equal but for their digits share a `Shape`. For a line that was never seen, literals decide whether
any rule, the generic reader, a failure or the head of a table could be in it; most lines of a log end there. A shape
that keeps coming gets a regular expression of its own. All of this is a cache: it changes no answer.
"""

from __future__ import annotations

import re

from profiler import failures, generic, tables
from profiler.plan import Plan
from profiler.rule import Rule
from profiler.rules import RuleBook
from profiler.tokens import PRIVATE, matcher, tokenise, with_bar

LONGEST = 16384  #: bytes of a line that are read; a training line is shorter
_DIGITS = b"0123456789"
_SCRUB = {ord(c): "\ufffd" for c in PRIVATE}
_CACHE = 8192  #: shapes remembered
_CACHED_KEY = 600  #: bytes of a shape that is remembered
_COMPILED = 400  #: regular expressions kept
_HITS = 6  #: expressions tried for lines that are equal but for their digits
_TAGS = ("[", "(", ": ")  #: how a line begins that may carry a rank's tag
_MANY = 100  #: new shapes in a block from which it is worth asking what the block holds at all
_OFTEN = 3  #: times a shape must come before it gets an expression: making one costs a thousand matches


class Shape:
    """What is known of lines that are equal but for their digits."""

    __slots__ = ("candidates", "fails", "generic", "heads", "hits", "seen")

    def __init__(self, candidates: list[Rule], generic: bool, fails: bool, heads: bool) -> None:
        self.candidates = candidates
        self.generic = generic
        self.fails = fails
        self.heads = heads
        #: (expression, plan or None when nothing reads such lines)
        self.hits: list[tuple[re.Pattern[str], Plan | None]] = []
        #: canonical text -> its plan, and how often it came
        self.seen: dict[str, tuple[Plan | None, int]] = {}


def _alone(rule: Rule, candidates: list[Rule]) -> bool:
    """Whether no other rule of its format may want the line."""
    return not any(other.format == rule.format and other is not rule for other in candidates)


class Shapes:
    """The shapes seen with one rule book."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._known: dict[bytes, Shape | None] = {}
        self._compiled = 0
        self._rules = book.gates
        self._fails: tuple[str, ...] = failures.GATES
        self._triggers: tuple[str, ...] = generic.TRIGGERS
        self._heads = True
        self._narrowed = False
        #: by the text of the expression: an expression itself is hashed anew, all of it, each time it is asked for
        self._drawn: dict[str, re.Pattern[str] | None] = {}
        self._block: bytes | None = None
        self._new = 0  #: new shapes in this block

    def block(self, data: bytes | None) -> None:
        """The lines asked next are parts of `data`. None: of any text."""
        if self._narrowed:
            self._rules, self._fails, self._triggers = self.book.gates, failures.GATES, generic.TRIGGERS
            self._heads, self._narrowed = True, False
        self._block, self._new = data, 0

    def _narrow(self, data: bytes) -> None:
        """Look only for what is in the block: worth it when many of its lines are new."""
        self._rules = tuple(g for g in self.book.gates if g.encoded in data)
        self._fails = tuple(f for f, encoded in failures.ENCODED_GATES if encoded in data)
        lower = data.lower()
        self._triggers = tuple(t for t, encoded in generic.ENCODED_TRIGGERS if encoded in lower)
        self._heads, self._narrowed = tables.may_be_head(lower), True

    def of(self, raw: bytes) -> Shape | None:
        """The shape of a line; None when nothing can be in it."""
        key = raw.translate(None, _DIGITS)
        known = self._known
        if key in known:
            return known[key]
        shape = self._look(key, raw) if len(raw) <= LONGEST else None
        if len(key) <= _CACHED_KEY:
            if len(known) >= _CACHE:
                known.clear()
                self._compiled = 0
            known[key] = shape
        return shape

    def _look(self, key: bytes, raw: bytes) -> Shape | None:
        self._new += 1
        if self._new == _MANY and self._block is not None:
            self._narrow(self._block)
        text = key.decode("latin-1")
        candidates = self.book.candidates(text, self._rules)
        if not text.startswith(_TAGS) and any(_alone(rule, candidates) for rule in candidates if rule.ignores_all):
            return None
        lower = text.lower()
        generic = False
        if len(key) < len(raw) or "nan" in lower:
            for trigger in self._triggers:
                if trigger in lower:
                    generic = True
                    break
        fails = False
        for gate in self._fails:
            if gate in text:
                fails = failures.suspects(text)
                break
        heads = self._heads and tables.may_be_head(key.lower())
        if candidates or generic or fails or heads:
            return Shape(candidates, generic, fails, heads)
        return None

    def plan(self, shape: Shape, text: str) -> tuple[Plan, tuple[str, ...]] | None:
        """The plan for a line that none of the shape's expressions matched, and the numbers that it takes."""
        if not shape.candidates and not shape.generic:
            return None
        text = text.translate(_SCRUB)
        canonical, numbers = tokenise(text)
        plan, count = shape.seen.get(canonical, (None, 0))
        if count == 0:
            plan = self.book.plan(text, canonical, numbers, shape.candidates, shape.generic)
        if len(shape.seen) < 64 or canonical in shape.seen:
            shape.seen[canonical] = (plan, count + 1)
        if count + 1 >= _OFTEN and len(shape.hits) < _HITS:
            self._compile(shape, canonical, plan)
        return None if plan is None else (plan, plan.pick(numbers))

    def with_bar(self, regex: re.Pattern[str]) -> re.Pattern[str] | None:
        """The expression for the same lines with their bar still in them (see `without_bar`); None where it is
        not known where the bar stood."""
        if regex.pattern not in self._drawn:
            if len(self._drawn) >= _COMPILED:
                self._drawn.clear()
            self._drawn[regex.pattern] = with_bar(regex)
        return self._drawn[regex.pattern]

    def _compile(self, shape: Shape, canonical: str, plan: Plan | None) -> None:
        if plan is None and (shape.fails or shape.heads):
            return  # such lines must be looked at each time
        if self._compiled >= _COMPILED:
            self._known.clear()
            self._compiled = 0
        self._compiled += 1
        shape.hits.append((matcher(canonical, set()) if plan is None else plan.regex(), plan))
