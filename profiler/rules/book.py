"""The rule book: all rules, asked in order, and what a line is by them.

The built-in rules are the files of `formats/`; a site's own files (the form is told in `rulefile`) come before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from profiler.rules import generic
from profiler.rules.plan import Plan
from profiler.rules.rule import BadRules, Example, Rule
from profiler.rules.rulefile import load_text
from profiler.text import ranks, trials
from profiler.text.tokens import DUR, INT, PRIVATE, tokenise, without_bar

_DIGITS = b"0123456789"
#: Texts of which a rule's literals hold one: a line without them needs no look at those rules. Rare ones first.
_GATES = (
    ":::ML",
    "poch",
    "%|",
    "oss",
    "tep",
    "ccuracy",
    "/s",
    "/it",
    "orld",
    "ORLD",
    "atch",
    "ter",
    ": ",
    "= ",
    "=",
)
#: A line that a program printed while its bar stood there. A line is read once: a bar that tells its rate counts, and
#: a stamped line behind it does not.
_BEHIND_BAR = re.compile(
    rf"%\|[^\[\]|]*+\|?[^\[\]|]*+\[(?:[^\[\]]*\](?=[A-Za-z{{]|\s?\[{INT},{INT}\]<)"
    rf"|[^\[\]<]{{0,80}}<\?[^\[\]]{{0,80}}\](?={INT}[-/]{INT}[-/]{INT}[ T]{DUR}))"
)
_TOLD = ("train", "epoch", "validation")
_FROM_THE_TEXT = (
    "auto",
    "ignore",
    "trial",
    "pause",
    "end",
)  #: kinds of rules that look at the text behind what stands before it
#: Kinds of lines that give way to all that words find, but for this.
_GIVES_WAY = {"trial": ("setup",), "pause": ("setup", "context")}
#: How a line begins that may carry a rank's tag.
_TAGGED = re.compile(rf"\s*[\[({INT}]|\s*[Rr]ank")


@dataclass(frozen=True, slots=True)
class Gate:
    """A text, and the rules that need it: no look at them for a line without it."""

    text: str
    needs: tuple[tuple[str, list[Rule]], ...]


class RuleBook:
    """All rules, in the order in which they are asked; and the plans of the shapes seen so far."""

    def __init__(self, rules: Iterable[Rule], *, generic: bool = True) -> None:
        self.rules = tuple(rules)
        self.generic = generic
        self.always = [rule for rule in self.rules if not rule.needs]
        behind: dict[str, dict[str, list[Rule]]] = {}
        for rule in self.rules:
            if rule.needs:
                gate = next((g for g in _GATES if any(g in n for n in rule.needs)), max(rule.needs, key=len))
                behind.setdefault(gate, {}).setdefault(max(rule.needs, key=len), []).append(rule)
        self.gates = tuple(Gate(g, tuple(needs.items())) for g, needs in behind.items())
        self._order = {rule.full_name: i for i, rule in enumerate(self.rules)}

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.format for r in self.rules))

    def without(self, formats: Iterable[str]) -> RuleBook:
        """The same book with some formats switched off."""
        off = set(formats)
        return RuleBook((r for r in self.rules if r.format not in off), generic=self.generic)

    def candidates(self, key: str, gates: Iterable[Gate]) -> list[Rule]:
        """The rules whose literals are all in a line; `key` is the line without its digits, as latin-1."""
        found = list(self.always)
        for gate in gates:
            if gate.text in key:
                for need, rules in gate.needs:
                    if need in key:
                        found.extend(r for r in rules if all(n in key for n in r.needs))
        if len(found) > 1:
            found.sort(key=lambda r: self._order[r.full_name])
        return found

    def plan_of(self, text: str) -> Plan | None:
        """The plan for the shape of `text`, found from the beginning."""
        key = text.encode("utf-8", "replace").translate(None, _DIGITS).decode("latin-1")
        canonical, numbers = tokenise(text)
        return self.plan(
            text, canonical, numbers, self.candidates(key, self.gates), bool(numbers) or "nan" in key.lower()
        )

    def plan(
        self, text: str, canonical: str, numbers: list[str], candidates: Iterable[Rule], generic_too: bool
    ) -> Plan | None:
        """The plan for the shape of `text` (with its canonical form and numbers); None when nothing reads it."""
        look = _Look(text, canonical, numbers)
        reads = self.generic and generic_too and bool(numbers)
        aside: Plan | None = None
        for rule in candidates:
            if look.behind is not None and rule.late:
                break
            plan = rule.plan(canonical, look.prefix.start if rule.kind in _FROM_THE_TEXT else 0)
            if plan is not None and plan.kind in _GIVES_WAY:
                aside = aside or plan
            elif plan is not None:
                return look.ignored(plan) if rule.kind == "ignore" else look.placed(plan)
        if look.behind is not None:
            found = self._behind_bar(look, look.behind.end(), candidates)
            if found is not None:
                return found.plan
        plan = generic.assemble(canonical, look.prefix.start, "generic/pairs") if reads else None
        if plan is None or (aside is not None and plan.kind in _GIVES_WAY[aside.kind]):
            plan = aside  # a line that names a trial and tells a loss is first of all a loss
        return None if plan is None else look.placed(plan)

    def _behind_bar(self, look: _Look, end: int, candidates: Iterable[Rule]) -> _Found | None:
        """What a program printed behind its bar, else the bar itself; None when no rule decides."""
        own = ranks.strip(look.canonical, look.numbers, end)
        plan = generic.assemble(look.canonical, own.start, "generic/pairs") if self.generic else None
        if plan is not None and not plan.bar and plan.kind in _TOLD:
            return _Found(_placed(plan, look.prefix if look.prefix.clock is not None else own, look.text))
        for rule in candidates:
            plan = rule.plan(look.canonical, look.prefix.start, end) if rule.late else None
            if plan is not None:
                return _Found(None if rule.kind == "ignore" else look.placed(plan))
        return None


@dataclass(frozen=True, slots=True)
class _Found:
    plan: Plan | None  #: None: a rule says that the line is of no use


class _Look:
    """A line that is looked at, and what stands before its text, worked out when it is asked for."""

    def __init__(self, text: str, canonical: str, numbers: list[str]) -> None:
        self.text, self.canonical, self.numbers = text, canonical, numbers
        self.behind = _BEHIND_BAR.search(canonical) if "%|" in canonical else None

    @cached_property
    def prefix(self) -> ranks.Prefix:
        return ranks.strip(self.canonical, self.numbers)

    def placed(self, plan: Plan) -> Plan:
        return _placed(plan, self.prefix, self.text)

    def ignored(self, plan: Plan) -> Plan | None:
        """A line of no interest still tells that there are ranks, where one wrote it."""
        if not _TAGGED.match(self.canonical):
            return None
        if self.prefix.rank is None and self.prefix.fixed_rank is None:
            return None
        return self.placed(Plan(plan.rule, "setup", self.canonical))


def _placed(plan: Plan, prefix: ranks.Prefix, text: str) -> Plan:
    plan.sample = text
    if plan.clock is None:
        plan.clock = prefix.clock
    if plan.rank is None:
        plan.rank, plan.fixed_rank = prefix.rank, prefix.fixed_rank
    if plan.clock is not None:  # what dates the line is no time of anything else
        stamp = set(plan.clock.tokens)
        plan.fields = tuple(f for f in plan.fields if f.token not in stamp)
    plan.source = prefix.source
    if plan.rank is None and plan.fixed_rank is None and plan.kind in (*_TOLD, "loose"):
        plan.tag = trials.tag(plan.canonical, prefix.start)
    return plan.compile()


def load(paths: Iterable[Path] = (), *, builtin: bool = True) -> RuleBook:
    """The book of a site's files (asked first, in their order) and the built-in ones. Site files are checked."""
    rules: list[Rule] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise BadRules(str(e), where=str(path), remedy="give a readable YAML file") from None
        site = load_text(text, str(path))
        check(site)
        rules.extend(site)
    if builtin:
        rules.extend(builtin_rules())
    return RuleBook(rules)


_BUILTIN: list[Rule] = []


def builtin_rules() -> list[Rule]:
    if not _BUILTIN:
        folder = Path(__file__).with_name("formats")
        for path in sorted(folder.glob("*.yaml")):
            _BUILTIN.extend(load_text(path.read_text(encoding="utf-8"), path.name))
        _BUILTIN.sort(key=lambda r: r.late)
    return _BUILTIN


def read_line(book: RuleBook, line: str) -> tuple[Plan, dict[str, Any]] | None:
    """One line as the book reads it: the plan and the values of its fields."""
    line = without_bar(line.encode("utf-8", "replace")).decode("utf-8", "replace")
    plan = book.plan_of(line)
    if plan is None:
        return None
    groups = groups_of(plan, line)
    values: dict[str, Any] = {}
    for f in plan.fields:
        name = f.name if f.what == "part" else f.what
        values.setdefault(name, plan.value(f, groups))
    rank = plan.rank_of(groups)
    if rank is not None:
        values["rank"] = rank
    return plan, values


def groups_of(plan: Plan, line: str) -> tuple[str, ...]:
    """The numbers that a plan takes from a line of its shape."""
    bare = without_bar(line.encode("utf-8", "replace")).decode("utf-8", "replace")
    return plan.pick(tokenise(_scrubbed(bare))[1])


def _scrubbed(line: str) -> str:
    return line.translate({ord(c): "\ufffd" for c in PRIVATE})


def check(rules: Iterable[Rule]) -> None:
    """Each rule's examples, read by that rule's format alone. Raises BadRules naming the example's line."""
    rules = list(rules)
    book = RuleBook(rules, generic=False)
    for rule in rules:
        for example in rule.examples:
            _check_example(book, rule, example)


def _check_example(book: RuleBook, rule: Rule, example: Example) -> None:
    where = {"where": rule.where, "line": example.at, "field": f"{rule.full_name} example"}
    read = read_line(book, example.line)
    if read is None:
        if rule.kind == "ignore":
            return
        raise BadRules("no rule of this format reads it", **where, remedy="mend needs, pattern or the example")  # type: ignore[arg-type]
    plan, values = read
    if plan.rule != rule.full_name:
        raise BadRules(f"is read by {plan.rule} instead", **where, remedy="put the more specific rule first")  # type: ignore[arg-type]
    if rule.kind == "auto" and example.kind not in ("auto", plan.kind):
        raise BadRules(f"is read as {plan.kind}, not {example.kind}", **where)  # type: ignore[arg-type]
    for name, wanted in example.gives.items():
        got = values.get(name)
        wrong = got is None or (
            got != wanted and not abs(float(got) - float(wanted)) <= 1e-9 * max(1, abs(float(wanted)))
        )
        if wanted != wanted:  # noqa: PLR0124 - nan
            wrong = got is None or got == got  # noqa: PLR0124
        if wrong:
            shown = ", ".join(f"{k}={v:g}" for k, v in values.items())
            raise BadRules(f"{name} should be {wanted}, read {got} ({shown})", **where)  # type: ignore[arg-type]


__all__ = [
    "BadRules",
    "Rule",
    "RuleBook",
    "builtin_rules",
    "check",
    "groups_of",
    "load",
    "load_text",
    "read_line",
]
