"""Which lines say something, and how: worked out once a shape of line, remembered, and asked cheaply.

Lines that are equal but for their digits share a `Shape`. For a line that was never seen, literals decide whether
any rule, the generic reader, a failure or the head of a table could be in it; most lines of a log end there. A shape
that keeps coming gets a regular expression of its own. All of this is a cache: it changes no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from profiler.rules import generic, tables
from profiler.rules.book import Gate, RuleBook
from profiler.rules.lexicon.telling import may_tell
from profiler.rules.plan import Plan
from profiler.rules.rule import Rule
from profiler.text import failures
from profiler.text.tokens import PRIVATE, matcher, tokenise, with_bar

LONGEST = 16384  #: bytes of a line that are read; a training line is shorter
_DIGITS = b"0123456789"
_BREAKS = bytes.maketrans(b"\r", b"\n")
_SCRUB = {ord(c): "\ufffd" for c in PRIVATE}
_CACHE = 8192  #: shapes remembered
_CACHED = 1 << 22  #: and bytes of them
_CACHED_KEY = 4096  #: bytes of a shape that is remembered
_SEEN = 1 << 15  #: characters of canonical lines remembered of a shape
_COMPILED = 400  #: regular expressions kept
_HITS = 6  #: expressions tried for lines that are equal but for their digits
_TAGS = ("[", "(", ": ")  #: how a line begins that may carry a rank's tag
_WORDS = 1 << 16  #: words remembered of the blocks before
_MANY = 100  #: new shapes in a block from which it is worth asking what the block holds at all
_OFTEN = 3  #: times a shape must come before it gets an expression: making one costs a thousand matches


class Shape:
    """What is known of lines that are equal but for their digits."""

    __slots__ = (
        "candidates",
        "fails",
        "generic",
        "heads",
        "hits",
        "seen",
    )

    def __init__(self, candidates: list[Rule], generic: bool, fails: bool, heads: bool) -> None:
        self.candidates = candidates
        self.generic = generic
        self.fails = fails
        self.heads = heads
        #: (expression, plan or None when nothing reads such lines)
        self.hits: list[tuple[re.Pattern[str], Plan | None]] = []
        #: canonical text -> its plan, and how often it came
        self.seen: dict[str, tuple[Plan | None, int]] = {}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for in lines that were never seen."""

    gates: tuple[Gate, ...]
    fails: tuple[str, ...] = failures.GATES
    triggers: tuple[str, ...] = generic.TRIGGERS
    heads: bool = True
    #: Words of which a line without numbers, and one with them, holds one where anything can be in it. None: any line.
    words: Set[bytes] | None = None
    numbered: Set[bytes] | None = None


class Vocabulary:
    """Which texts the blocks of a log may hold, by their words: most that are looked for are in none of them.

    A text is searched for a literal at 2 GB/s, which is slow for hundreds of them: only words that no block had before
    are searched, and without each word of a literal it is in no block. A line that holds none of the words in which
    one of them was found holds none of them.
    """

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._words: set[bytes] = set()
        self._held: set[str] = set()
        self._sought, self._lowered = _sought(book), _lowered()
        self._marks = _Marks()
        self._telling: set[bytes] = set()
        self._numbered: set[bytes] = set()
        self._wanted: Wanted | None = None

    def take(self, block: bytes) -> Wanted:
        """What may be in lines of this block, or of those before."""
        words = set(block.translate(_BREAKS, _DIGITS).split())
        if len(self._words) > _WORDS:
            self._words.clear()
            self._telling.clear()
            self._numbered.clear()
        new = words - self._words
        self._words |= new
        text = _listed(new)
        if self._learn(text) or self._wanted is None:
            self._wanted = self._all_held()
            known, self._marks = self._marks, _Marks.of(self._wanted)
            self._tell(_listed(self._words), self._marks.without(known))
        self._tell(text, self._marks)
        return self._wanted

    def _tell(self, words: str, marks: _Marks) -> None:
        """Note which of some words hold something that is looked for."""
        lower = words.lower()
        self._telling.update(_holding(words, words, marks.cased), _holding(lower, words, marks.lower))
        self._numbered.update(_holding(lower, words, marks.numbered), self._telling)

    def _learn(self, words: str) -> bool:
        """Note which literals are in some words; whether there are new ones."""
        lower = words.lower()
        held = {part for part in self._sought if part in words}
        held.update(_LOWER + part for part in self._lowered if part in lower)
        if held <= self._held:
            return False
        self._held |= held
        return True

    def _all_held(self) -> Wanted:
        def held(literal: str, mark: str = "") -> bool:
            return all(mark + part in self._held for part in literal.split())

        gates = []
        for gate in filter(lambda g: held(g.text), self.book.gates):
            kept = [(need, [r for r in rules if all(map(held, r.needs))]) for need, rules in gate.needs if held(need)]
            if needs := tuple((need, rules) for need, rules in kept if rules):
                gates.append(Gate(gate.text, needs))
        fails = tuple(filter(held, failures.GATES))
        triggers = tuple(t for t in generic.TRIGGERS if held(t, _LOWER))
        heads = any(held(t, _LOWER) for t in _HEADS)
        if self.book.always:
            return Wanted(tuple(gates), fails, triggers, heads)
        return Wanted(tuple(gates), fails, triggers, heads, self._telling, self._numbered)


_LOWER = "lower "  #: before a literal that is looked for in small letters
_HEADS = tuple(word.decode("latin-1") for word in (*tables.MEASURES, *tables.ABROAD))


def _each(literals: Iterable[str]) -> Iterator[tuple[str]]:
    return ((literal,) for literal in literals)


def _marks_of(wanted: Iterable[Sequence[str]]) -> frozenset[str]:
    """Of literals that a line must all hold the longest word, with a break where a word begins or ends there."""
    return frozenset(max((part for literal in all_ for part in _bounded(literal)), key=len) for all_ in wanted)


def _bounded(literal: str) -> Iterator[str]:
    words = "\n".join(literal.split())
    text = "\n" * literal[:1].isspace() + words + "\n" * literal[-1:].isspace()
    return (text[max(m.start() - 1, 0) : m.end() + 1] for m in re.finditer(r"[^\n]+", text))


@dataclass(frozen=True, slots=True)
class _Marks:
    """What a word holds that makes its line worth a look."""

    cased: frozenset[str] = frozenset()  #: of rules and failures
    lower: frozenset[str] = frozenset()  #: of heads, and of the word nan
    numbered: frozenset[str] = frozenset()  #: of the generic reader, which wants numbers too

    @classmethod
    def of(cls, wanted: Wanted) -> _Marks:
        rules = (rule.needs for gate in wanted.gates for _, rules in gate.needs for rule in rules)
        lower = _marks_of(_each((*(_HEADS if wanted.heads else ()), "nan")))
        return cls(_marks_of((*rules, *_each(wanted.fails))), lower, _marks_of(_each(wanted.triggers)))

    def without(self, other: _Marks) -> _Marks:
        return _Marks(self.cased - other.cased, self.lower - other.lower, self.numbered - other.numbered)


def _listed(words: Iterable[bytes]) -> str:
    """Words, each between breaks of its own."""
    return b"\n\n".join((b"", *words, b"")).decode("latin-1")


def _holding(text: str, words: str, marks: Iterable[str]) -> Iterator[bytes]:
    """The words in which any of the marks stands; `text` is `words`, as they are or in small letters."""
    for mark in marks:
        at = text.find(mark)
        while at >= 0:
            inside = at + mark.startswith("\n")
            end = text.find("\n", inside)
            yield words[text.rfind("\n", 0, inside) + 1 : end].encode("latin-1")
            at = text.find(mark, end)


def _words_of(literals: Iterable[str]) -> Iterator[str]:
    return (part for literal in literals for part in literal.split())


@lru_cache(maxsize=8)
def _sought(book: RuleBook) -> tuple[str, ...]:
    """The words of all literals that a book asks for. Once a book: an arbiter begins to read a log for each job."""
    gated = [part for gate in book.gates for need, rules in gate.needs for part in _parts(gate, need, rules)]
    return tuple(dict.fromkeys((*gated, *_words_of(failures.GATES))))


@lru_cache
def _lowered() -> tuple[str, ...]:
    """Those that are looked for in small letters."""
    return tuple(dict.fromkeys(_words_of((*generic.TRIGGERS, *_HEADS))))


def _parts(gate: Gate, need: str, rules: Iterable[Rule]) -> Iterator[str]:
    return _words_of((gate.text, need, *(n for rule in rules for n in rule.needs)))


def _may_be_head(lower: bytes, *, numbers: bool) -> bool:
    """Whether a line in lower case may be the head of a table."""
    return tables.may_be_head(lower) or (not numbers and tables.may_be_foreign_head(lower))


def _triggers(text: str, wanted: Wanted, *, numbered: bool) -> bool:
    """Whether a line may say something to the generic reader."""
    lower = text.lower()
    if not numbered and "nan" not in lower:
        return False
    return any(map(lower.__contains__, wanted.triggers)) and may_tell(text)


def _alone(rule: Rule, candidates: list[Rule]) -> bool:
    """Whether no other rule of its format may want the line."""
    return not any(other.format == rule.format and other is not rule for other in candidates)


class Shapes:
    """The shapes seen with one rule book."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._known: dict[bytes, Shape | None] = {}
        self._compiled = 0
        self._size = 0  #: bytes of the shapes known
        self._all = self._wanted = Wanted(book.gates)
        self._vocabulary = Vocabulary(book)
        #: by the text of the expression: an expression itself is hashed anew, all of it, each time it is asked for
        self._drawn: dict[str, re.Pattern[str] | None] = {}
        self._block: bytes | None = None
        self._new = 0  #: new shapes in this block
        self._many = False  #: the block before had many

    def block(self, data: bytes | None) -> None:
        """The lines asked next are parts of `data`. None: of any text."""
        self._wanted = self._all
        self._many = self._new >= _MANY
        self._block, self._new = data, 0

    def silent(self, raw: bytes) -> bool:
        """Whether a line as it stands in the block is known to say nothing."""
        wanted = self._wanted
        if wanted.words is None or wanted.numbered is None:
            return False
        key = raw.translate(None, _DIGITS)
        if key in self._known:
            return self._known[key] is None
        silent = (wanted.words if len(key) == len(raw) else wanted.numbered).isdisjoint(key.split())
        self._new += silent
        return silent

    def of(self, raw: bytes, whole: bool = True) -> Shape | None:
        """The shape of a line; None when nothing can be in it. `whole`: it is as it stands in the block."""
        key = raw.translate(None, _DIGITS)
        known = self._known
        if key in known:
            return known[key]
        wanted = self._ask() if whole else self._all
        words = wanted.words if len(key) == len(raw) else wanted.numbered
        if words is not None and words.isdisjoint(key.split()):
            return None
        shape = self._look(key, raw, wanted) if len(raw) <= LONGEST else None
        if len(key) <= _CACHED_KEY:
            self._size += len(key)
            if len(known) >= _CACHE or self._size > _CACHED:
                known.clear()
                self._compiled, self._size = 0, len(key)
            known[key] = shape
        return shape

    def _ask(self) -> Wanted:
        """What is looked for in another new line of this block."""
        self._new += 1
        if self._block is not None and self._new == (1 if self._many else _MANY):
            self._wanted = self._vocabulary.take(self._block)  # worth it when many of its lines are new
        return self._wanted

    def _look(self, key: bytes, raw: bytes, wanted: Wanted) -> Shape | None:
        text = key.decode("latin-1")
        candidates = self.book.candidates(text, wanted.gates)
        if not text.startswith(_TAGS) and any(_alone(rule, candidates) for rule in candidates if rule.ignores_all):
            return None
        generic = _triggers(text, wanted, numbered=len(key) < len(raw))
        fails = any(map(text.__contains__, wanted.fails)) and failures.suspects(text)
        heads = wanted.heads and _may_be_head(key.lower(), numbers=len(key) < len(raw))
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
        if len(shape.seen) < min(64, _SEEN // max(len(canonical), 1)) or canonical in shape.seen:
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
            self._compiled = self._size = 0
        self._compiled += 1
        shape.hits.append((matcher(canonical, set()) if plan is None else plan.regex(), plan))
