"""Reads rule files: formats as data. Whatever is wrong with one is said with its line.

A rule file:

    format: my-trainer                  # name, shown as the run's format
    title: what prints it
    rules:
      - name: step
        kind: train                     # train validation epoch context setup start pause end ignore; auto with pairs
        needs: ["it=", "L="]            # literals that every such line holds: the cheap test, case counts
        pattern: 'it={iteration}/{iterations} L={loss} {to:dt=}{step_time}ms'
        fields: {step_time: {unit: ms}} # what a number is beyond its name
        scope: run                      # where the counter counts: run or epoch; left out: told by its behaviour
        examples:
          - line: 'it=10/400 L=2.31 lr=1e-3 dt=12.5ms'
            gives: {iteration: 10, iterations: 400, loss: 2.31, step_time: 0.0125}

A pattern is a regular expression in which `{field}` or `{field:type}` stands for a number (types: int, dec, num,
dur, any; spoken: `2 minutes and 3.5 seconds`) and `{to:text}` skips to a text; numbers elsewhere are written
`{:num}`. It is searched anywhere in the line and sees every number as one unit, so it must not spell digits except
inside words. `pairs: true` reads the rest of the line as key-value pairs with `words: {key: field}` before the
`lexicon`; the key "*" stands for every key that neither knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from profiler.model import LossKind
from profiler.rules.lexicon.units import FIELDS, TIME_UNITS, Meaning
from profiler.rules.plan import LINE_KINDS
from profiler.rules.rule import BadRules, Example, Rule
from profiler.text.tokens import DEC, DUR, INT, PRIVATE

_DIGITS = b"0123456789"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NAN = r"[nN][aA][nN]|[iI]nf(?:inity)?|INF"
_TYPES = {
    "int": INT,
    "dec": rf"[-+]?(?:{DEC}|{_NAN})",
    "num": rf"[-+]?(?:[{INT}{DEC}]|{_NAN})",
    "dur": rf"(?:{INT} days?,? )?{DUR}|{INT}-{DUR}",
    "list": rf"{INT}(?:,\s?{INT})*",
    "items": rf"[^\[\](){{}}]*?{INT}(?:[^\[\](){{}}{PRIVATE}]*{INT})*[^\[\](){{}}{PRIVATE}]*",
    "ratio": rf"{INT} ?/ ?{INT}",
    "spoken": rf"(?:{INT} days?,? )?(?:{INT} hours?,? (?:and )?)?(?:{INT} minutes?,? (?:and )?)?[{INT}{DEC}] seconds?",
    "any": rf"(?:{INT} days?,? )?{DUR}|[-+]?(?:[{INT}{DEC}]|{_NAN})",
}
_DEFAULT_TYPES = {
    **dict.fromkeys(
        [
            "iteration",
            "iterations",
            "iterations_per_epoch",
            "epochs",
            "world",
            "gpus",
            "nodes",
            "rank",
            "accumulation",
            "samples",
            "epoch_count",
        ],
        "int",
    ),
}
_PLACE = re.compile(r"\{(to:)((?:[^{}\\]|\\.)+)\}|\{([A-Za-z_][A-Za-z_0-9]*|)(#\d)?(?::([a-z]+))?\}")
_KEYS = {
    *(
        "name",
        "kind",
        "needs",
        "without",
        "pattern",
        "pairs",
        "words",
        "fields",
        "scope",
        "unit",
        "bar",
        "loss_kind",
    ),
    *(
        "series",
        "header",
        "examples",
        "total",
        "values",
        "time_is",
    ),
}
_KINDS = (*LINE_KINDS, "loose", "ignore", "auto")
#: Key -> what it may be, and what that is called.
_CHOICES = {
    "scope": (("run", "epoch"), "scope"),
    "unit": (("iteration", "micro-batch", "sample"), "unit"),
    "time_is": (("step", "window", "elapsed"), "time_is"),
    "loss_kind": (tuple(LossKind), "kind"),
}
_FIELD_KEYS = {
    "is",
    "unit",
    "kind",
    "name",
    "of_rank",
    "of",
}
_EXAMPLE_KEYS = {"line", "gives", "kind"}
_SPECIAL = {"stamp", "rank"}


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
    _known(
        data,
        {
            "format",
            "title",
            "rules",
            "late",
        },
        where,
        "",
    )
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


class _Bad:
    """Refuses what is wrong with one rule, by the line of the key."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.at, self.lines, self.where = data["__line__"], data["__lines__"], where

    def __call__(self, key: str, message: str, remedy: str = "") -> BadRules:
        return BadRules(message, where=self.where, line=self.lines.get(key, self.at), field=key, remedy=remedy)


def _rule(data: Any, format_name: str, where: str, title: str, late: bool) -> Rule:
    if not isinstance(data, dict):
        raise BadRules("a rule is a mapping", where=where, field="rules")
    _known(data, _KEYS, where, "rules")
    bad = _Bad(data, where)
    kind = _check_kind(data, bad)
    _check_types(data, bad)
    fields = _fields(data, bad)
    pattern = None
    if data.get("pattern") is not None:
        pattern = _pattern(str(data["pattern"]), fields, lambda message, remedy="": bad("pattern", message, remedy))
    elif not data.get("pairs") and not (kind == "ignore" and data.get("needs")):
        raise bad("pattern", "a rule needs a pattern or `pairs: true`")
    _check_choices(data, bad)
    return Rule(
        format=format_name,
        name=data["name"],
        kind=kind,
        needs=tuple(n.encode().translate(None, _DIGITS).decode("latin-1") for n in data.get("needs", [])),
        without=tuple(data.get("without", ())),
        pattern=pattern,
        pairs=bool(data.get("pairs", False)),
        words={k.lower(): _word(k, v, bad) for k, v in _clean(data.get("words", {})).items()},
        fields=fields,
        values=_values(data, bad),
        scope=data.get("scope"),
        unit=data.get("unit"),
        bar=bool(data.get("bar", False)),
        total=bool(data.get("total", True)),
        header=bool(data.get("header", False)),
        loss_kind=LossKind(data["loss_kind"]) if data.get("loss_kind") else None,
        series=str(data.get("series", "")),
        time_is=str(data.get("time_is", "")),
        lists=frozenset(re.findall(r"\{([a-z_]+):(?:list|items)\}", str(data.get("pattern", "")))),
        examples=_examples(data, kind, bad),
        at=bad.at,
        where=where,
        title=title,
        late=late,
    )


def _check_kind(data: Mapping[str, Any], bad: _Bad) -> str:
    name, kind = data.get("name"), data.get("kind", "train")
    if not isinstance(name, str) or not name:
        raise bad("name", "a rule needs a name")
    if kind not in _KINDS:
        raise bad("kind", f"unknown kind {kind!r}", "one of " + ", ".join(_KINDS))
    if kind == "auto" and not data.get("pairs"):
        raise bad("kind", "kind auto reads pairs only", "add `pairs: true`")
    return str(kind)


def _check_types(data: Mapping[str, Any], bad: _Bad) -> None:
    for key in ("needs", "without"):
        texts = data.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(t, str) and t for t in texts):
            raise bad(key, "a list of texts", 'for example ["loss"]')
    for key in (
        "pairs",
        "bar",
        "total",
        "header",
    ):
        if not isinstance(data.get(key, False), bool):
            raise bad(key, "true or false")


def _check_choices(data: Mapping[str, Any], bad: _Bad) -> None:
    for key, (allowed, called) in _CHOICES.items():
        if data.get(key) is not None and data[key] not in allowed:
            raise bad(key, f"unknown {called} {data[key]!r}", "one of " + ", ".join(allowed))


def _fields(data: Mapping[str, Any], bad: _Bad) -> dict[str, Any]:
    fields = _clean(data.get("fields", {}))
    for key, options in fields.items():
        if not isinstance(options, dict) or set(options) - _FIELD_KEYS:
            raise bad("fields", f"{key}: a mapping of {', '.join(sorted(_FIELD_KEYS))}")
        _check_options("fields", key, options, FIELDS | _SPECIAL, bad)
    return fields


def _values(data: Mapping[str, Any], bad: _Bad) -> dict[str, float]:
    values = _clean(data.get("values", {}))
    for key, value in values.items():
        if key not in FIELDS or not _is_number(value):
            raise bad("values", f"{key}: not a field with a number", "fields: " + ", ".join(sorted(FIELDS)))
    return {k: float(v) for k, v in values.items()}


def _examples(data: Mapping[str, Any], kind: str, bad: _Bad) -> tuple[Example, ...]:
    told = data.get("examples", [])
    if not isinstance(told, list):
        raise bad("examples", "a list of examples", "examples: [{line: ..., gives: {...}}]")
    examples = tuple(_example(e, bad.where, bad.at, kind) for e in told)
    if not examples:
        raise bad("examples", "a rule needs an example line", "examples: [{line: ..., gives: {...}}]")
    return examples


def _clean(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        return {}
    return {k: _clean(v) if isinstance(v, dict) else v for k, v in data.items() if not k.startswith("__")}


def _check_options(
    where: str, key: str, options: Mapping[str, Any], known: frozenset[str] | set[str], bad: Any
) -> None:
    """What a number is: a field, of a known kind, in a known unit."""
    what = options.get("is", key)
    if not isinstance(what, str) or what not in known:
        raise bad(where, f"{key}: not a field: {what!r}", "fields: " + ", ".join(sorted(FIELDS)))
    if options.get("kind") is not None and options["kind"] not in list(LossKind):
        raise bad(where, f"{key}: unknown kind {options['kind']!r}", "one of " + ", ".join(LossKind))
    if options.get("of") not in (None, "error", "inverse"):
        raise bad(where, f"{key}: of {options['of']!r}", "one of error, inverse")
    unit = options.get("unit")
    counted = {"run", "epoch"} if what == "elapsed" else set()
    if unit is not None and (
        not isinstance(unit, str) or (unit not in TIME_UNITS | dict.fromkeys(counted) and "/" not in unit)
    ):
        raise bad(where, f"{key}: unknown unit {unit!r}", "a unit of time (s, ms, us, min, h) or a rate (samples/s)")
    if options.get("of") == "inverse" and str(unit).partition("/")[0] not in TIME_UNITS:
        raise bad(where, f"{key}: an inverse needs a time over something", "for example {of: inverse, unit: ms/sample}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _word(key: str, value: Any, bad: Any) -> Meaning:
    options = value if isinstance(value, dict) else {"is": value}
    what = str(options.get("is"))
    _check_options("words", key, {"is": what, **options}, FIELDS, bad)
    kind = LossKind(options["kind"]) if options.get("kind") else None
    unit = str(options.get("unit", ""))
    return Meaning(
        what, name=key, scale=TIME_UNITS.get(unit, 1.0), kind=kind, unit=unit, of_rank=bool(options.get("of_rank"))
    )


def _example(data: Any, where: str, at: int, kind: str) -> Example:
    if not isinstance(data, dict) or not isinstance(data.get("line"), str):
        raise BadRules("an example is {line: ..., gives: {...}}", where=where, line=at, field="examples")
    _known(data, _EXAMPLE_KEYS, where, "examples")
    gives = _clean(data.get("gives", {}))
    for name, value in gives.items():
        if not _is_number(value):
            raise BadRules(f"{name} is no number: {value!r}", where=where, line=data["__line__"], field="gives")
    return Example(data["line"], gives, str(data.get("kind", kind)), data["__line__"])


def _pattern(source: str, fields: Mapping[str, Any], bad: Any) -> re.Pattern[str]:
    def place(m: re.Match[str]) -> str:
        if m.group(1):
            return f"(?>.*?{re.escape(m.group(2))})"
        wide = " *" if source[: m.start()].endswith(" ") else ""  # columns that are set right have more blanks
        name, again, kind = m.group(3), m.group(4), m.group(5)
        kind = kind or _DEFAULT_TYPES.get(name, "num")
        if kind not in _TYPES:
            raise bad(f"unknown type {kind!r} in {m.group()}", "types: " + ", ".join(_TYPES))
        if not name:
            return f"{wide}(?:{_TYPES[kind]})"
        if name not in FIELDS | _SPECIAL and name not in fields:
            raise bad(
                f"{{{name}}} is no field", "fields: " + ", ".join(sorted(FIELDS)) + "; or say `fields: {…: {is: …}}`"
            )
        return f"{wide}(?P<{name}{'__' + again[1:] if again else ''}>{_TYPES[kind]})"

    text = _PLACE.sub(place, source)
    try:
        return re.compile(text)
    except re.error as e:
        raise bad(f"not a regular expression: {e}") from None
