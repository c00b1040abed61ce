"""The numbers of a line, and the line without them: what makes reading fast, and the same however it is cut.

Training logs repeat a few line shapes with other numbers. `tokenise` splits a line into its numbers and its
canonical text, in which every number is one private character that says its kind. Rules and the generic reader
see canonical text only, so what they say about a line is a function of its shape: it is worked out once a shape,
kept as a plan, and later lines of that shape are read by one regular expression made from it (`matcher`).

A number inside a word is part of the word (`Acc@1`, `top5`, `conv2d_1`, `fp16`), except after the words that
programs glue to their counters (`epoch3`, `step-100`), and `loss0.69`.
"""

from __future__ import annotations

import re

INT, DEC, DUR = "\ue000", "\ue001", "\ue002"  #: whole number; decimal; clock time or duration (1:02:03.5)
PRIVATE = INT + DEC + DUR
_SCRUB = {ord(c): "\ufffd" for c in PRIVATE}

_KINDS = {
    INT: r"[1-9]\d{0,2}(?:,\d{3})+(?![\d.])|\d+",
    DEC: r"[1-9]\d{0,2}(?:,\d{3})+\.\d+|\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+(?:[eE][-+]?\d+)?",
    DUR: r"\d+(?:(?::\d\d){1,2}(?:[.,]\d+)?(?!\d|:\d)|h\d\d?m(?:\d\d?s)?(?![0-9A-Za-z])|m\d\d?s(?![0-9A-Za-z]))",
}
_PLAIN = {
    INT: r"\d+",
    DEC: r"\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+(?:[eE][-+]?\d+)?",
    DUR: r"\d+(?::\d\d){1,2}(?:\.\d+)?(?!\d|:\d)",
}
_GROUP_KIND = (None, DUR, DEC, INT)
_NUMBER = re.compile(f"({_KINDS[DUR]})|({_KINDS[DEC]})|({_KINDS[INT]})")
_NUMBER_CSV = re.compile(f"({_PLAIN[DUR]})|({_PLAIN[DEC]})|({_PLAIN[INT]})")
_DIGIT = re.compile(r"[0-9]")
_DIGITS = re.compile(r"[0-9]+")
_GLUED = re.compile(r"(?i)(?:epoch|step|iter|iteration|batch)-?$")
_LONGEST_GLUED = len("iteration-")
#: `loss0.690`: a value glued to its name; `loss1` is another loss.
_LOSS = re.compile(r"(?i)(?<![a-z])loss$")
_DECIMAL = re.compile(r"\d+\.\d")


def _starts(text: str, at: int) -> bool:
    """Whether a number may begin here: not inside a word, unless behind a word that counters are glued to."""
    if at == 0:
        return True
    before = text[at - 1]
    if (before.isalnum() and before < "\u2e80") or before in "_@.":
        if before in "T_" and at > 1 and text[at - 2].isdigit():
            return True
        glued = _GLUED.search(text, max(at - _LONGEST_GLUED, 0), at) or (
            _DECIMAL.match(text, at) and _LOSS.search(text, max(at - 6, 0), at)
        )
        return glued is not None
    if before == "-" and at > 1 and text[at - 2].isalpha():
        return _GLUED.search(text, max(at - _LONGEST_GLUED, 0), at) is not None
    return True


def tokenise(text: str, thousands: bool = True) -> tuple[str, list[str]]:
    """(canonical text, the numbers in their order, as printed). `thousands` False: a comma always separates."""
    if any(c in text for c in PRIVATE):
        text = text.translate(_SCRUB)
    number = _NUMBER if thousands else _NUMBER_CSV
    parts: list[str] = []
    numbers: list[str] = []
    at = look = 0
    while (digit := _DIGIT.search(text, look)) is not None:
        start = digit.start()
        if start and text[start - 1] == "." and _starts(text, start - 1) and start - 1 >= at:
            start -= 1
        m = number.match(text, start) if _starts(text, start) else None
        if m is None:
            run = _DIGITS.match(text, digit.start())
            look = run.end() if run else start + 1
            continue
        parts.append(text[at:start])
        parts.append(_GROUP_KIND[m.lastindex or 0] or "")
        numbers.append(m.group())
        at = look = m.end()
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


def is_duration(text: str) -> bool:
    """Whether a token is a DUR."""
    return ":" in text or text[-1:] in ("s", "m")


_LETTERED = re.compile(r"(?:(\d+)h)?(\d+)m(?:(\d+)s)?")


def duration(text: str) -> float:
    """Seconds of a DUR token: [h:]mm:ss[.fff], or 1h02m03s."""
    seconds = 0.0
    if lettered := _LETTERED.fullmatch(text):
        text = ":".join(part or "0" for part in lettered.groups())
    for part in text.replace(",", ".").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds


#: The fill of a progress bar: it differs on every line and says nothing that the numbers do not.
_BLOCKS = re.compile(rb"(?:\xe2[\x94-\x97][\x80-\xbf])+(?:\xe2[\x94-\x97][\x80-\xbf]| )*")
#: What stands between the cells of a drawn table, where there are several.
_COLUMN_SIGNS = (b"\xe2\x94\x82", b"\xe2\x94\x83", b"\xe2\x95\x91", b"\xe2\x94\x86")
_CELLS = 3  #: so many of them divide cells; fewer are a frame
_BRACKETS = re.compile(rb"\[[=>.]{8,}\]")
_HASHES = re.compile(rb"\|#{2,}[ .-]*\|")
_FILL = bytes(range(0x80, 0xC0)) + b"\xe2#=>.- 0123456789"


def without_bar(raw: bytes) -> bytes:
    """The line without the fill of its bar."""
    at = raw.find(b"%|")
    if at < 0 and b"[" not in raw and b"\xe2" not in raw:
        return raw
    if at >= 0:
        end = raw.find(b"|", at + 2)
        if 0 < end - at < 1200 and not raw[at + 2 : end].strip(_FILL):
            raw = raw[: at + 2] + raw[end:]
    if b"\xe2\x94" in raw or b"\xe2\x96" in raw or b"\xe2\x95" in raw:
        raw = _BLOCKS.sub(b"", _with_cells(raw))
    if b"[=" in raw or b"[." in raw or b"[>" in raw:
        raw = _BRACKETS.sub(b"[]", raw)
    if b"|#" in raw:
        raw = _HASHES.sub(b"||", raw)
    return raw


def _with_cells(raw: bytes) -> bytes:
    """The row of a drawn table with the sign between its cells that rows of other tables have."""
    if sum(map(raw.count, _COLUMN_SIGNS)) < _CELLS:
        return raw
    for sign in _COLUMN_SIGNS:
        raw = raw.replace(sign, b"|")
    return raw


_BAR_PLACES = (
    (re.escape("%||"), r"%\|[\u2000-\u2fff#=>.\- 0-9]{0,380}+\|"),
    (re.escape("[]"), r"\[(?:[=>.]{8,}+)?+\]"),
)


def with_bar(regex: re.Pattern[str]) -> re.Pattern[str] | None:
    """From an expression for lines without their bar, one for the same lines with it.

    It matches no line that would not match without its bar; None where the place of the bar is not in the
    expression.
    """
    for empty, filled in _BAR_PLACES:
        at = regex.pattern.find(empty)
        if at >= 0 and regex.pattern.find(r"%\|") in (-1, at):
            return re.compile(regex.pattern.replace(empty, filled, 1))
    return None
