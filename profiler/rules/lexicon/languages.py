"""Words of other languages that the lexicon knows, and lines in which they are English."""

from __future__ import annotations

import re

from profiler.rules.lexicon.units import LEXICON
from profiler.text.tokens import INT

#: Words of other languages, each with the English one.
FOREIGN = dict(pair.split("=") for pair in LEXICON["foreign"].split())
_ABROAD = re.compile(
    "|".join(
        rf"(?<![^\W_])(?<!\b[^\W\d_]_){word}(?![^\W_])" if len(word.encode()) < 3 * len(word) else word
        for word in sorted(FOREIGN, key=len, reverse=True)
    ),
    re.IGNORECASE,
)
#: What a line has that may hold a word of those languages: letters of one that parts no words, or such a word. Looking
#: for all of them at each place of a line costs a hundred times as much.
_UNDIVIDED = re.compile("[\u3040-\ud7ff]")
_DIVIDED = re.compile(r"[^\W\d_]+")
#: What a word is set off by until its neighbours are known: two blanks would part the words of one name.
_EDGE = "\0"
_BESIDE = re.compile(f"(?: ?{_EDGE})+ ?")
#: "第 3 轮": the number stands before what it counts.
_COUNTED = {"轮": "epoch", "步": "step", "次": "iteration"}
_ORDINAL = re.compile(rf"第\s?({INT})\s?([{''.join(_COUNTED)}])")
#: Those words as a line's bytes hold them, read as latin-1 and in small letters: for the cheap test of a line.
FOREIGN_TRIGGERS = (
    *dict.fromkeys(
        form.encode().decode("latin-1").lower()
        for word, english in FOREIGN.items()
        if english
        in (
            "epoch",
            "step",
            "iteration",
            "loss",
            "accuracy",
            "batch",
        )
        for form in (word, word.capitalize(), word.upper())
    ),
    "第".encode().decode("latin-1").lower(),
)


def english(text: str) -> str:
    """A line in which the words of other languages that the lexicon knows are English. The numbers stay."""
    if _UNDIVIDED.search(text) is None and FOREIGN.keys().isdisjoint(_DIVIDED.findall(text.lower())):
        return text
    if "第" in text:
        text = _ORDINAL.sub(lambda m: f" {_COUNTED[m.group(2)]} {m.group(1)} ", text)
    return _BESIDE.sub(" ", _ABROAD.sub(_english, text))


def _english(m: re.Match[str]) -> str:
    word = FOREIGN[m.group().lower()].replace("_", " ")
    if m.group()[0] < "\u2e80":
        return word
    return f"{_EDGE}{word}{_EDGE}"  # no blanks stand between those words
