"""Whether a line may tell anything: the cheap test of its words, before any other look at it."""

from __future__ import annotations

import re

from profiler.rules.lexicon.languages import FOREIGN
from profiler.rules.lexicon.units import EPOCH, SAMPLE_NOUNS, STEP_NOUNS, words_for
from profiler.rules.lexicon.words import RATE_ABBREVIATIONS

#: One of these words, or a sign beside which numbers count without one, is in every line that says something.
_TELLING = frozenset(
    (
        *words_for("loss"),
        *words_for("accuracy"),
        *EPOCH,
        *words_for("iteration"),
        *STEP_NOUNS,
        *SAMPLE_NOUNS,
        *(f"k{noun}" for noun in SAMPLE_NOUNS),
        *RATE_ABBREVIATIONS,
        *FOREIGN,
        *(
            "top",
            "acc",
            "prec",
            "precision",
            "err",
            "error",
            "dt",
            "bt",
            "world",
        ),
        *(
            "worldsize",
            "gpu",
            "gpus",
            "ngpus",
            "batchsize",
            "bsz",
            "accumulation",
            "accum",
            "nproc",
            "ntasks",
        ),
    )
)
_SIGNS = re.compile(r"[\[|/<{(]")
_LETTERS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def may_tell(text: str) -> bool:
    """Whether the words of a line may tell something: a cheap test, for text in which they are parts of others."""
    if not text.isascii() or "oss" in text or "OSS" in text or _SIGNS.search(text):
        return True
    return not _TELLING.isdisjoint(map(str.lower, _LETTERS.findall(text)))
