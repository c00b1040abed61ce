"""Formats as data: loads the rule files (`formats/*.yaml` and a site's own), checks them, and reads lines by them.

A rule file:

    format: my-trainer                  # name, shown as the run's format
    title: what prints it
    rules:
      - name: step
        kind: train                     # train validation epoch context setup start pause ignore; or auto with pairs
        needs: ["it=", "L="]            # literals that every such line holds: the cheap test, case counts
        pattern: 'it={iteration}/{iterations} L={loss} {to:dt=}{step_time}ms'
        fields: {step_time: {unit: ms}} # what a number is beyond its name
        scope: run                      # where the counter counts: run or epoch; left out: told by its behaviour
        examples:
          - line: 'it=10/400 L=2.31 lr=1e-3 dt=12.5ms'
            gives: {iteration: 10, iterations: 400, loss: 2.31, step_time: 0.0125}

A pattern is a regular expression in which `{field}` or `{field:type}` stands for a number (types: int, num, dur,
any) and `{to:text}` skips to a text; numbers elsewhere are written `{:num}`. It is searched anywhere in the line and
sees every number as one unit, so it must not spell digits except inside words. `pairs: true` reads the rest of the
line as key-value pairs with `words: {key: field}` before the lexicon of `words.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from profiler import generic, ranks
from profiler.clock import Clock
from profiler.pairs import scan
from profiler.plan import LINE_KINDS, Field, Plan
from profiler.points import LossKind
from profiler.tokens import DEC, DUR, INT, PRIVATE, tokenise, without_bar
from profiler.words import FIELDS, TIME_UNITS, Meaning

_DIGITS = b"0123456789"
#: Texts of which a rule's literals hold one: a line without them needs no look at those rules. Rare ones first.
_GATES = (":::ML", "poch", "%|", "oss", "tep", "ccuracy", "/s", "/it", "orld", "ORLD", "atch", "ter", ": ", "= ", "=")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NAN = r"[nN][aA][nN]|[iI]nf(?:inity)?|INF"
_TYPES = {
    "int": INT,
    "num": rf"[-+]?(?:[{INT}{DEC}]|{_NAN})",
    "dur": rf"(?:{INT} days?,? )?{DUR}|{INT}-{DUR}",
    "list": rf"{INT}(?:,\s?{INT})*",
    "items": rf"[^\[\](){{}}]*?{INT}(?:[^\[\](){{}}{PRIVATE}]*{INT})*[^\[\](){{}}{PRIVATE}]*",
    "ratio": rf"{INT} ?/ ?{INT}",
    "any": rf"(?:{INT} days?,? )?{DUR}|[-+]?(?:[{INT}{DEC}]|{_NAN})",
}
_DEFAULT_TYPES = {
    **dict.fromkeys(
        "iteration iterations iterations_per_epoch epochs world gpus nodes rank accumulation samples epoch_count".split(),
        "int",
    ),
}
_PLACE = re.compile(r"\{(to:)((?:[^{}\\]|\\.)+)\}|\{([A-Za-z_][A-Za-z_0-9]*|)(#\d)?(?::([a-z]+))?\}")
_KEYS = {
    "name", "kind", "needs", "without", "pattern", "pairs", "words", "fields", "scope", "unit", "bar", "loss_kind", "series",
    "header", "examples", "total", "values", "time_is",
}  # fmt: skip
_FIELD_KEYS = {"is", "unit", "kind", "name", "of_rank", "of"}
_EXAMPLE_KEYS = {"line", "gives", "kind"}
_SPECIAL = {"stamp", "rank"}
LONGEST = 4096  #: characters of a canonical line that patterns look at


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
    def full_name(self) -> str:
        return f"{self.format}/{self.name}"

    def plan(self, canonical: str, start: int) -> Plan | None:
        """The plan for a line of this canonical text; None when the rule does not read it."""
        if any(w in canonical for w in self.without):
            return None
        fields: list[Field] = []
        clock: Clock | None = None
        rank: int | None = None
        at = start
        if self.pattern is not None:
            m = self.pattern.search(canonical, 0, LONGEST)
            if m is None:
                return None
            at = m.end()
            unit = ""
            for group, text in m.groupdict().items():
                if text is None:
                    continue
                if group == "rank_":
                    continue
                if group == "unit_":
                    unit = text
                    continue
                name = group.split("__")[0]
                made = _field(name, text, canonical, m.start(group), self.fields.get(name, {}), self.lists)
                if made.what == "stamp":
                    clock = Clock((made.token,), "epoch-seconds")
                elif made.what == "rank":
                    rank = made.token
                else:
                    fields.append(made)
            if unit:
                fields = [replace(f, scale=TIME_UNITS[unit]) if f.what == "step_time" else f for f in fields]
        if self.pairs:
            if self.kind == "auto":
                plan = generic.assemble(canonical, start, self.full_name, self.words)
                if plan is None or plan.kind == "loose":
                    return None
                return self._finish(plan)
            have = {f.what for f in fields}
            more = [
                f
                for mark in scan(canonical, at, self.words)
                for f in generic.fields_of(mark, self.bar, self.kind == "validation")
            ]
            fields += [f for f in generic.one_each(more) if f.what == "part" or f.what not in have]
        fields += [Field(what, -1, constant=value) for what, value in self.values.items()]
        plan = Plan(self.full_name, self.kind, canonical, tuple(fields), clock=clock, rank=rank)
        return self._finish(plan)

    def _finish(self, plan: Plan) -> Plan:
        plan.scope, plan.unit, plan.bar, plan.needs_header = self.scope, self.unit, self.bar or plan.bar, self.header
        plan.loss_kind = self.loss_kind or plan.loss_kind
        plan.total = self.total and any(f.what == "loss" for f in plan.fields)
        plan.time_is = self.time_is
        plan.series = self.series or f"{self.full_name}:{plan.kind}"
        return plan


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
    if len(tokens) == 2:
        return Field(what, first + 1, more=((first, 86400.0),), **common)
    if tokens[0] == DUR:
        return Field(what, first, **common)
    return Field(what, first, scale=scale, negative=text.startswith("-"), **common)


#: How a line begins that may carry a rank's tag.
_TAGGED = re.compile(rf"\s*[\[({INT}]|\s*[Rr]ank")


@dataclass(frozen=True, slots=True)
class Gate:
    """A text, and the rules that need it: no look at them for a line without it."""

    text: str
    encoded: bytes
    needs: tuple[tuple[str, list[Rule]], ...]


class RuleBook:
    """All rules, in the order in which they are asked; and the plans of the shapes seen so far."""

    def __init__(self, rules: Iterable[Rule], *, generic: bool = True) -> None:
        self.rules = tuple(rules)
        self.generic = generic
        self._always = [rule for rule in self.rules if not rule.needs]
        behind: dict[str, dict[str, list[Rule]]] = {}
        for rule in self.rules:
            if rule.needs:
                gate = next((g for g in _GATES if any(g in n for n in rule.needs)), "")
                behind.setdefault(gate, {}).setdefault(max(rule.needs, key=len), []).append(rule)
        self.gates = tuple(Gate(g, g.encode("latin-1"), tuple(needs.items())) for g, needs in behind.items())
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
        found = list(self._always)
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
        return self.plan(text, canonical, numbers, self.candidates(key, self.gates), bool(numbers) or "nan" in key.lower())

    def plan(
        self, text: str, canonical: str, numbers: list[str], candidates: Iterable[Rule], generic_too: bool
    ) -> Plan | None:
        """The plan for the shape of `text` (with its canonical form and numbers); None when nothing reads it."""
        prefix: ranks.Prefix | None = None
        for rule in candidates:
            if rule.kind == "auto" and prefix is None:
                prefix = ranks.strip(canonical, numbers)
            plan = rule.plan(canonical, prefix.start if prefix is not None else 0)
            if plan is not None:
                if rule.kind == "ignore" and not _TAGGED.match(canonical):
                    return None
                if prefix is None:
                    prefix = ranks.strip(canonical, numbers)
                if rule.kind != "ignore":
                    return _placed(plan, prefix, text)
                if prefix.rank is None and prefix.fixed_rank is None:
                    return None
                return _placed(
                    Plan(rule.full_name, "setup", canonical), prefix, text
                )  # a rank wrote it: there are ranks
        if not (self.generic and generic_too) or not numbers:
            return None
        if prefix is None:
            prefix = ranks.strip(canonical, numbers)
        plan = generic.assemble(canonical, prefix.start, "generic/pairs")
        return None if plan is None else _placed(plan, prefix, text)


def _placed(plan: Plan, prefix: ranks.Prefix, text: str) -> Plan:
    plan.sample = text
    if plan.clock is None:
        plan.clock = prefix.clock
    if plan.rank is None:
        plan.rank, plan.fixed_rank = prefix.rank, prefix.fixed_rank
    plan.source = prefix.source
    return plan.compile()


# --- loading ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A YAML value that knows its line."""

    value: Any
    line: int
    where: str
    lines: dict[str, int] = field(default_factory=dict)


def _plain(node: yaml.Node) -> Any:
    """Python values of a node; mappings carry the lines of their keys under `__lines__`."""
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {"__lines__": {}, "__line__": node.start_mark.line + 1}
        for key, value in node.value:
            name = str(key.value)
            out["__lines__"][name] = key.start_mark.line + 1
            out[name] = _plain(value)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_plain(n) for n in node.value]
    return yaml.SafeLoader("").construct_object(node) if node.tag != "tag:yaml.org,2002:str" else node.value


def load_text(text: str, where: str) -> list[Rule]:
    """The rules of one file. Raises BadRules with the line of whatever is wrong."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise BadRules(str(getattr(e, "problem", None) or e), where=where, line=line, remedy="mend the YAML") from None
    if root is None:
        raise BadRules("the file is empty", where=where, line=1, remedy="give `format:` and `rules:`")
    data = _plain(root)
    if not isinstance(data, dict):
        raise BadRules("not a mapping", where=where, line=1, remedy="give `format:` and `rules:`")
    _known(data, {"format", "title", "rules", "late"}, where, "")
    name = data.get("format")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", name):
        raise BadRules(
            "needs a name of lower-case letters, digits and dashes",
            where=where,
            line=data["__lines__"].get("format", 1),
            field="format",
        )
    rules = data.get("rules")
    if not isinstance(rules, list) or not rules:
        raise BadRules("needs at least one rule", where=where, line=data["__lines__"].get("rules", 1), field="rules")
    return [_rule(r, name, where, str(data.get("title", "")), bool(data.get("late"))) for r in rules]


def _known(data: Mapping[str, Any], allowed: set[str], where: str, field_name: str) -> None:
    for key in data:
        if key not in allowed and not key.startswith("__"):
            raise BadRules(
                f"unknown key {key!r}",
                where=where,
                line=data["__lines__"][key],
                field=field_name,
                remedy="known: " + ", ".join(sorted(allowed)),
            )


def _rule(data: Any, format_name: str, where: str, title: str, late: bool) -> Rule:
    if not isinstance(data, dict):
        raise BadRules("a rule is a mapping", where=where, field="rules")
    at, lines = data["__line__"], data["__lines__"]
    _known(data, _KEYS, where, "rules")

    def bad(key: str, message: str, remedy: str = "") -> BadRules:
        return BadRules(message, where=where, line=lines.get(key, at), field=key, remedy=remedy)

    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise bad("name", "a rule needs a name")
    kind = data.get("kind", "train")
    kinds = (*LINE_KINDS, "loose", "ignore", "auto")
    if kind not in kinds:
        raise bad("kind", f"unknown kind {kind!r}", "one of " + ", ".join(kinds))
    if kind == "auto" and not data.get("pairs"):
        raise bad("kind", "kind auto reads pairs only", "add `pairs: true`")
    needs = data.get("needs", [])
    if not isinstance(needs, list) or not all(isinstance(n, str) and n for n in needs):
        raise bad("needs", "a list of texts", 'for example ["loss"]')
    fields = _clean(data.get("fields", {}))
    for key, options in fields.items():
        if not isinstance(options, dict) or set(options) - _FIELD_KEYS:
            raise bad("fields", f"{key}: a mapping of {', '.join(sorted(_FIELD_KEYS))}")
        if options.get("is", key) not in FIELDS | _SPECIAL:
            raise bad(
                "fields", f"{key}: not a field: {options.get('is', key)!r}", "fields: " + ", ".join(sorted(FIELDS))
            )
        if options.get("kind") is not None and options["kind"] not in list(LossKind):
            raise bad("fields", f"{key}: unknown kind {options['kind']!r}", "one of " + ", ".join(LossKind))
    pattern = None
    if data.get("pattern") is not None:
        pattern = _pattern(str(data["pattern"]), fields, lambda message, remedy="": bad("pattern", message, remedy))
    elif not data.get("pairs"):
        raise bad("pattern", "a rule needs a pattern or `pairs: true`")
    for key, allowed in (
        ("scope", ("run", "epoch")),
        ("unit", ("iteration", "micro-batch", "sample")),
        ("time_is", ("step", "window", "elapsed")),
    ):
        if data.get(key) is not None and data[key] not in allowed:
            raise bad(key, f"unknown {key} {data[key]!r}", "one of " + ", ".join(allowed))
    if data.get("loss_kind") is not None and data["loss_kind"] not in list(LossKind):
        raise bad("loss_kind", f"unknown kind {data['loss_kind']!r}", "one of " + ", ".join(LossKind))
    examples = tuple(_example(e, where, at, kind) for e in data.get("examples", []))
    if not examples:
        raise bad("examples", "a rule needs an example line", "examples: [{line: ..., gives: {...}}]")
    return Rule(
        format=format_name,
        name=name,
        kind=kind,
        needs=tuple(n.encode().translate(None, _DIGITS).decode("latin-1") for n in needs),
        without=tuple(data.get("without", ())),
        pattern=pattern,
        pairs=bool(data.get("pairs", False)),
        words={k.lower(): _word(k, v, bad) for k, v in _clean(data.get("words", {})).items()},
        fields=fields,
        values={k: float(v) for k, v in _clean(data.get("values", {})).items()},
        scope=data.get("scope"),
        unit=data.get("unit"),
        bar=bool(data.get("bar", False)),
        total=bool(data.get("total", True)),
        header=bool(data.get("header", False)),
        loss_kind=LossKind(data["loss_kind"]) if data.get("loss_kind") else None,
        series=str(data.get("series", "")),
        time_is=str(data.get("time_is", "")),
        lists=frozenset(re.findall(r"\{([a-z_]+):(?:list|items)\}", str(data.get("pattern", "")))),
        examples=examples,
        at=at,
        where=where,
        title=title,
        late=late,
    )


def _clean(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        return {}
    return {k: _clean(v) if isinstance(v, dict) else v for k, v in data.items() if not k.startswith("__")}


def _word(key: str, value: Any, bad: Any) -> Meaning:
    options = value if isinstance(value, dict) else {"is": value}
    what = options.get("is")
    if what not in FIELDS:
        raise bad("words", f"{key}: not a field: {what!r}", "fields: " + ", ".join(sorted(FIELDS)))
    kind = LossKind(options["kind"]) if options.get("kind") else None
    unit = str(options.get("unit", ""))
    return Meaning(
        what, name=key, scale=TIME_UNITS.get(unit, 1.0), kind=kind, unit=unit, of_rank=bool(options.get("of_rank"))
    )


def _example(data: Any, where: str, at: int, kind: str) -> Example:
    if not isinstance(data, dict) or not isinstance(data.get("line"), str):
        raise BadRules("an example is {line: ..., gives: {...}}", where=where, line=at, field="examples")
    _known(data, _EXAMPLE_KEYS, where, "examples")
    return Example(data["line"], _clean(data.get("gives", {})), str(data.get("kind", kind)), data["__line__"])


def _pattern(source: str, fields: Mapping[str, Any], bad: Any) -> re.Pattern[str]:
    def place(m: re.Match[str]) -> str:
        if m.group(1):
            return f"(?>.*?{re.escape(m.group(2))})"
        name, again, kind = m.group(3), m.group(4), m.group(5)
        kind = kind or _DEFAULT_TYPES.get(name, "num")
        if kind not in _TYPES:
            raise bad(f"unknown type {kind!r} in {m.group()}", "types: " + ", ".join(_TYPES))
        if not name:
            return f"(?:{_TYPES[kind]})"
        if name not in FIELDS | _SPECIAL and name not in fields:
            raise bad(
                f"{{{name}}} is no field", "fields: " + ", ".join(sorted(FIELDS)) + "; or say `fields: {…: {is: …}}`"
            )
        return f"(?P<{name}{'__' + again[1:] if again else ''}>{_TYPES[kind]})"

    text = _PLACE.sub(place, source)
    try:
        return re.compile(text)
    except re.error as e:
        raise bad(f"not a regular expression: {e}") from None


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
    if plan.rank is not None:
        values["rank"] = int(groups[plan.slots[plan.rank]].rsplit(",", 1)[-1])
    elif plan.fixed_rank is not None:
        values["rank"] = plan.fixed_rank
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
    if rule.kind == "auto" and example.kind != "auto" and plan.kind != example.kind:
        raise BadRules(f"is read as {plan.kind}, not {example.kind}", **where)  # type: ignore[arg-type]
    for name, wanted in example.gives.items():
        got = values.get(name)
        wrong = got is None or (
            got != wanted
            and not (wanted == ".nan" or abs(float(got) - float(wanted)) <= 1e-9 * max(1, abs(float(wanted))))
        )
        if wanted != wanted:  # noqa: PLR0124 - nan
            wrong = got is None or got == got  # noqa: PLR0124
        if wrong:
            shown = ", ".join(f"{k}={v:g}" for k, v in values.items())
            raise BadRules(f"{name} should be {wanted}, read {got} ({shown})", **where)  # type: ignore[arg-type]
