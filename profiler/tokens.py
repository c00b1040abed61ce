"""The numbers of a line, and the line without them: what makes reading fast, and the same however it is cut.

Training logs repeat a few line shapes with other numbers. `tokenise` splits a line into its numbers and its
canonical text, in which every number is one private character that says its kind. Rules and the generic reader
see canonical text only, so what they say about a line is a function of its shape: it is worked out once a shape,
kept as a plan, and later lines of that shape are read by one regular expression made from it (`matcher`).

A number inside a word is part of the word (`Acc@1`, `top5`, `conv2d_1`, `fp16`), except after the words that
programs glue to their counters (`epoch3`, `step-100`).
"""

from __future__ import annotations

import re

INT, DEC, DUR = "\ue000", "\ue001", "\ue002"  #: whole number; decimal; clock time or duration (1:02:03.5)
PRIVATE = INT + DEC + DUR
_SCRUB = {ord(c): "\ufffd" for c in PRIVATE}

_START = (
    r"(?:(?<![\w@.])(?<![A-Za-z]-)"
    r"|(?<=\dT)|(?<=\d_)"
    r"|(?<=[Ee]poch)|(?<=EPOCH)|(?<=[Ss]tep)|(?<=[Ii]ter)|(?<=[Bb]atch)|(?<=[Ee]poch-)|(?<=[Ss]tep-)|(?<=[Ii]ter-))"
)
_KINDS = {
    INT: r"[1-9]\d{0,2}(?:,\d{3})+(?![\d.])|\d+",
    DEC: r"[1-9]\d{0,2}(?:,\d{3})+\.\d+|\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+(?:[eE][-+]?\d+)?",
    DUR: r"\d+(?::\d\d){1,2}(?:[.,]\d+)?(?![\d:])",
}
_TOKEN = re.compile(f"{_START}(?:({_KINDS[DUR]})|({_KINDS[DEC]})|({_KINDS[INT]}))")
_PLAIN = {
    INT: r"\d+",
    DEC: r"\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+(?:[eE][-+]?\d+)?",
    DUR: r"\d+(?::\d\d){1,2}(?:\.\d+)?(?![\d:])",
}
_TOKEN_CSV = re.compile(f"{_START}(?:({_PLAIN[DUR]})|({_PLAIN[DEC]})|({_PLAIN[INT]}))")
_GROUP_KIND = (None, DUR, DEC, INT)


def tokenise(text: str, thousands: bool = True) -> tuple[str, list[str]]:
    """(canonical text, the numbers in their order, as printed). `thousands` False: a comma always separates."""
    if any(c in text for c in PRIVATE):
        text = text.translate(_SCRUB)
    parts: list[str] = []
    numbers: list[str] = []
    at = 0
    for m in (_TOKEN if thousands else _TOKEN_CSV).finditer(text):
        parts.append(text[at : m.start()])
        parts.append(_GROUP_KIND[m.lastindex or 0] or "")
        numbers.append(m.group())
        at = m.end()
    parts.append(text[at:])
    return "".join(parts), numbers


def matcher(canonical: str, wanted: set[int], thousands: bool = True) -> re.Pattern[str]:
    """A regular expression for every line of this shape; its groups are the numbers of `wanted`, in order.

    Numbers are atomic, so it runs in time linear in the line.
    """
    kinds = _KINDS if thousands else _PLAIN
    parts: list[str] = []
    index = 0
    literal: list[str] = []
    for c in canonical:
        if c in _KINDS:
            parts.append(re.escape("".join(literal)))
            literal.clear()
            parts.append(f"((?>{kinds[c]}))" if index in wanted else f"(?>{kinds[c]})")
            index += 1
        else:
            literal.append(c)
    parts.append(re.escape("".join(literal)))
    return re.compile("".join(parts))


def number(text: str) -> float:
    """The value of an INT or DEC token."""
    try:
        return float(text)
    except ValueError:
        return float(text.replace(",", ""))


def duration(text: str) -> float:
    """Seconds of a DUR token: [h:]mm:ss[.fff]."""
    seconds = 0.0
    for part in text.replace(",", ".").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds


#: The fill of a progress bar: it differs on every line and says nothing that the numbers do not.
_BLOCKS = re.compile(rb"(?:\xe2[\x94-\x97][\x80-\xbf])+(?:\xe2[\x94-\x97][\x80-\xbf]| )*")
_BRACKETS = re.compile(rb"\[[=>.]{8,}\]")
_STRIPES = re.compile(rb"%\|[#=>.\- \d]{3,400}\|")


def without_bar(raw: bytes) -> bytes:
    """The line without the fill of its bar."""
    if b"\xe2" in raw:
        raw = _BLOCKS.sub(b"", raw)
    if b"%|" in raw:
        raw = _STRIPES.sub(b"%||", raw)
    if b"[=" in raw or b"[." in raw or b"[>" in raw:
        raw = _BRACKETS.sub(b"[]", raw)
    return raw
