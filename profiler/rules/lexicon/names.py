"""Names that stand together before their numbers, each put before its own."""

from __future__ import annotations

import re

from profiler.text.tokens import DEC, INT

#: `[Avg. Loss, Loss]: [10.44, 7.16]`
_NAMES_AND_VALUES = re.compile(
    rf"(?P<head>(?i:\bloss(?:es)?|\bacc(?:uracy)?) )?[\[(]"
    rf"(?P<names>[\"']?[A-Za-z][\w. \"']*(?:,\s*[\"']?[A-Za-z][\w. \"']*)+)[\])]\s*[:=]\s*"
    rf"[\[(]?\s*(?P<values>-?[{INT}{DEC}](?:,\s*-?[{INT}{DEC}])+)\s*[\])]?"
)
#: `train/val loss: 0.31/0.42`, `loss (train/val): 0.31 / 0.42`, `loss/acc: 2.31/0.12`; whole numbers count
_TWO_NAMES = re.compile(
    rf"(?:(?P<head>\b[A-Za-z]+ )\()?(?<![\w/])(?P<a>[A-Za-z]\w*) ?/ ?(?P<b>[A-Za-z]\w*)(?: (?P<name>[A-Za-z]+))?\)?"
    rf"\s*[:=]\s*(?P<x>-?{DEC}) ?/ ?(?P<y>-?{DEC})(?! ?/)"
)
_QUOTES = " '\""


def named_each(body: str) -> str:
    """Of names that stand together before their numbers each before its own; of more of the ones no number has one."""
    if "," in body:
        body = _NAMES_AND_VALUES.sub(_each_named, body)
    return _TWO_NAMES.sub(_both_named, body) if "/" in body else body


def _each_named(m: re.Match[str]) -> str:
    names, values = m["names"].split(","), m["values"].split(",")
    if len(names) != len(values):
        return m["values"]
    head = m["head"] or ""
    told = zip(names, values, strict=True)
    return ", ".join(f"{head}{name.strip(_QUOTES)}: {value.strip()}" for name, value in told)


def _both_named(m: re.Match[str]) -> str:
    """Of `train/val loss: 0.31/0.42` each name before its number."""
    if m["name"] is not None:
        return f"{m['a']} {m['name']}: {m['x']}, {m['b']} {m['name']}: {m['y']}"
    head = m["head"] or ""
    return f"{head}{m['a']}: {m['x']}, {head}{m['b']}: {m['y']}"
