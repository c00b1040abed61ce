"""One rule of a format: what it asks of a line, and the plan it makes for the line's shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from profiler.model import LossKind
from profiler.rules import beside, generic
from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.units import TIME_UNITS, Meaning
from profiler.rules.pairs import scan
from profiler.rules.plan import Field, Plan
from profiler.text.clock import Clock
from profiler.text.tokens import DEC, DUR, INT, PRIVATE

LONGEST = 4096  #: characters of a canonical line that patterns look at
BEFORE = 24  #: characters before a pattern whose words say on which side of training a line is


class BadRules(ValueError):
    """A rule file that a person can mend: file, line, what is wrong, what to do."""

    def __init__(
        self, message: str, *, where: str = "", line: int | None = None, field: str = "", remedy: str = ""
    ) -> None:
        self.message, self.where, self.line, self.field, self.remedy = message, where, line, field, remedy
        place = where + (f":{line}" if line is not None else "")
        parts = [place and f"{place}:", field and f"{field}:", message, remedy and f"({remedy})"]
        super().__init__(" ".join(p for p in parts if p))


@dataclass(frozen=True, slots=True)
class Example:
    line: str
    gives: Mapping[str, Any]
    kind: str
    at: int  #: line of the rule file


@dataclass(frozen=True, slots=True)
class Rule:
    format: str
    name: str
    kind: str
    needs: tuple[str, ...]  #: without digits, as latin-1, see `RuleBook.candidates`
    without: tuple[str, ...]
    pattern: re.Pattern[str] | None
    pairs: bool
    words: Mapping[str, Meaning]
    fields: Mapping[str, Mapping[str, Any]]
    values: Mapping[str, float]  #: fields that hold on every such line
    scope: Any
    unit: Any
    bar: bool
    total: bool
    header: bool
    loss_kind: LossKind | None
    series: str
    time_is: str
    lists: frozenset[str]  #: fields whose value is the number of numbers in their text
    examples: tuple[Example, ...]
    at: int
    where: str
    title: str = ""
    late: bool = False  #: its format reads what others read better, so it is asked after them

    @property
    def ignores_all(self) -> bool:
        """Every line with its literals is of no interest, whatever else is in it."""
        return self.kind == "ignore" and self.pattern is None

    @property
    def full_name(self) -> str:
        return f"{self.format}/{self.name}"

    def plan(self, line: str, start: int, end: int | None = None) -> Plan | None:
        """The plan for a line of this canonical text, of which only `[start:end]` is the rule's; None when the rule
        does not read it."""
        canonical = line[:end]
        if any(w in canonical for w in self.without):
            return None
        made = Plan(self.full_name, self.kind, line)
        at = start
        fields: list[Field] = []
        if self.pattern is not None:
            m = self.pattern.search(canonical, 0, LONGEST)
            if (
                m is None and self.kind in ("ignore", "trial", "pause", "end") and start
            ):  # what a logger put before it changes nothing
                m = self.pattern.search(canonical[start:], 0, LONGEST)
            if m is None or self._contradicted(canonical[: m.start()]):
                return None
            at = m.end()
            fields = self._captured(m, canonical, made)
        if self.pairs:
            if self.kind == "auto":
                return self._by_pairs(line, canonical, start)
            fields += self._beside(canonical, at, {f.what for f in fields})
        fields += [Field(what, -1, constant=value) for what, value in self.values.items()]
        made.fields = tuple(fields)
        return self._finish(made)

    def _contradicted(self, before: str) -> bool:
        """Whether the words right before what the pattern reads say that an evaluation prints it."""
        return self.kind in ("train", "epoch") and side_of(before[-BEFORE:]) == "validation"

    def _by_pairs(self, line: str, canonical: str, start: int) -> Plan | None:
        plan = generic.assemble(canonical, start, self.full_name, self.words)
        if plan is None or plan.kind == "loose":
            return None
        plan.canonical = line
        return self._finish(plan)

    def _captured(self, m: re.Match[str], canonical: str, plan: Plan) -> list[Field]:
        """The fields of the pattern's groups; the plan's stamp and rank."""
        fields: list[Field] = []
        told = {group: text for group, text in m.groupdict().items() if text is not None and group != "rank_"}
        unit = told.pop("unit_", "")
        for group, text in told.items():
            name = group.split("__")[0]
            made = _field(name, text, canonical, m.start(group), self.fields.get(name, {}), self.lists)
            if made.what == "stamp":
                plan.clock = Clock((made.token,), "epoch-seconds")
            elif made.what == "rank":
                plan.rank = made.token
            else:
                fields.append(made)
        if unit:
            fields = [replace(f, scale=TIME_UNITS[unit]) if f.what == "step_time" else f for f in fields]
        return fields

    def _beside(self, canonical: str, at: int, have: set[str]) -> list[Field]:
        """The fields of the pairs behind what the pattern read."""
        marks = scan(canonical, at, self.words)
        beside.mend(marks)
        more = [f for mark in marks for f in generic.fields_of(mark, self.bar, self.kind == "validation")]
        return [f for f in generic.one_each(more) if f.what == "part" or f.what not in have]

    def _finish(self, plan: Plan) -> Plan:
        plan.scope, plan.unit = self.scope, self.unit or plan.unit
        plan.bar, plan.needs_header = self.bar or plan.bar, self.header
        plan.loss_kind = self.loss_kind or plan.loss_kind
        plan.total = self.total and any(f.what == "loss" for f in plan.fields)
        plan.time_is = self.time_is
        plan.series = self.series or f"{self.full_name}:{plan.kind}{_described(plan) if plan.bar else ''}"
        return plan


MEASURES = " ="
_SPOKEN = re.compile(rf"[{INT}{DEC}] (days?|hours?|minutes?|seconds?)\b")
_VALUED = re.compile(rf"[A-Za-z]\s*[:=]\s*-?[{PRIVATE}]\S*\s*[;,|\s]\s*[A-Za-z]")


def _described(plan: Plan) -> str:
    """The words before a bar: bars with other words are other bars, and their counters are never mixed. Behind words
    with values (`G: 1.216; D: 1.17:   5%|`) stands MEASURES."""
    drawn, bar, _ = plan.canonical.partition("%|")
    words = re.findall(r"[A-Za-z]{2,}", drawn) if bar else []
    measures = MEASURES if _VALUED.search(drawn) else ""
    return f":{' '.join(words[-3:]).lower()}{measures}" if words else ""


def _field(name: str, text: str, canonical: str, at: int, options: Mapping[str, Any], lists: frozenset[str]) -> Field:
    first = sum(canonical.count(c, 0, at) for c in PRIVATE)
    tokens = [c for c in text if c in PRIVATE]
    what = str(options.get("is", name))
    unit = str(options.get("unit", ""))
    kind = LossKind(options["kind"]) if "kind" in options else None
    label = str(options.get("name", name))
    scale = TIME_UNITS.get(unit, 1.0)
    common: dict[str, Any] = {"name": label, "kind": kind, "unit": unit, "of_rank": bool(options.get("of_rank"))}
    if name in lists:
        return Field(what, -1, constant=float(len(tokens)), **common)
    if not tokens:
        return Field(what, -1, constant=float(text), **common)
    if "/" in text:
        return Field(what, first, over=first + 1, **common)
    if options.get("of") == "error":
        return Field(what, first, error=True, **common)
    if options.get("of") == "inverse":
        common["unit"] = str(options.get("unit", "")).partition("/")[2] + "s/s"
        return Field(what, first, scale=TIME_UNITS[unit.partition("/")[0]], inverse=True, **common)
    if spoken := _SPOKEN.findall(text):
        more = tuple((first + i, TIME_UNITS.get(word, 86400.0)) for i, word in enumerate(spoken[:-1]))
        return Field(what, first + len(more), more=more, **common)
    if len(tokens) == 2:
        return Field(what, first + 1, more=((first, 86400.0),), **common)
    if tokens[0] == DUR:
        return Field(what, first, **common)
    return Field(what, first, scale=scale, negative=text.startswith("-"), **common)
