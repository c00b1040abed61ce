"""Which side the words of a text are of: training, or held-out data."""

from __future__ import annotations

import re

from profiler.rules.lexicon.words import TRAINING, VALIDATION, words_of

#: cpu_test: what a name ends with says nothing of a side.
_OF_A_NAME = re.compile(
    r"(?<![A-Za-z])(?!(?:on|after|before|end|start|begin|the|of|running|full)[_-])[A-Za-z]{2,}[_-](?=[A-Za-z]+:)"
)


#: What a whole cell is set to.
_SET_TO = re.compile(r"[:=]\s*[\"']?([A-Za-z]+)[\"']?\s*[,;|}]")


def opening_side(text: str) -> str:
    """The side that the words before a line's first value say; the last word of a name that a colon ends is none. What
    is set to a side says it before all other words: `Phase: Training, Dataset used: Validation`."""
    told = [side for word in _SET_TO.findall(text) if (side := side_of(word))]
    if told:
        return told[-1]
    return side_of(_OF_A_NAME.sub("x", text) if "_" in text or "-" in text else text)


#: `epoch 3 loss 2.31 (held out)`: a side in a bracket of its own, at the end.
_CLOSING = re.compile(r"[\[(]\s*([A-Za-z][A-Za-z _-]{1,24})\s*[\])]\s*$")


def closing_side(text: str) -> str:
    """The side that a bracket at the end of a line says."""
    told = _CLOSING.search(text)
    return "" if told is None else side_of(told.group(1))


def side_of(text: str) -> str:
    """ "train", "validation" or "" as the words of a text say; both words: "train"."""
    words = set(words_of(text))
    if words & TRAINING:
        return "train"
    return "validation" if words & VALIDATION else ""
