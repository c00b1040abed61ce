"""Who wrote a line and when: launcher prefixes, log levels and stamps before the text itself.

Works on canonical text, so it runs once a line shape. `strip` walks over what launchers and loggers put in front
(`[1,7]<stderr>:`, `3: `, `[rank2]:`, `(Worker pid=12)`, `pod-1 | `, `I0927 00:37:33.25 1402 file.py:115]`,
`2018-09-05 12:37:52,222 - logger.py:96 - `, `INFO:root:`) and says where the text begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from profiler.text import clock
from profiler.text.tokens import DEC, DUR, INT, PRIVATE

_N = INT
_RANKS = (
    re.compile(rf"\[{_N},(?P<rank>{_N})\]\s?<?(?:stdout|stderr|stddiag)>?:?\s?"),
    re.compile(rf"\[{_N},mpirank:(?P<rank>{_N}),[\w{INT}-]+\]<(?:stdout|stderr)>:\s?"),
    re.compile(rf"\[(?P<rank>{_N})\]<(?:stdout|stderr)>:?\s?"),
    re.compile(rf"(?P<rank>{_N}): "),
    re.compile(
        rf"[\[(]?(?:[Rr]ank|RANK|[Pp]roc(?:ess)?|[Ww]orker|global_rank|[Tt]ask)[ :=#-]*(?P<rank>{_N})[\])]?"
        r"(?:\s*[:|]\s*|\]\s*|\)\s*|\s+-\s+)"
    ),
    re.compile(r"\[(?:[a-z]+)?rank(?P<fixed>\d{1,9})\]:?\s*"),
    re.compile(r"\[(?:default|trainer|worker|train)(?P<fixed>\d{1,9})\]:\s?"),
    re.compile(rf"\[default{_N}\]:\s?"),
)
_SOURCES = (
    re.compile(r"\((?:[A-Za-z_]\w*\s+)?pid=[^)]*\)\s?"),
    re.compile(r"\[pod/[^\]]*\]\s"),
    re.compile(rf"[\w.{INT}{DEC}-]+\s*\|\s(?=\S)(?!.*\|\s*$)"),
    re.compile(rf"(?=[\w.-]*[a-z])[a-z][\w.{INT}-]*[-\d{INT}]:\s"),
)
_LEVEL = (
    r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|NOTICE|TRACE|SUCCESS"
    r"|[Dd]ebug|[Ii]nfo|[Ww]arning|[Ee]rror|I|W|E|D)"
)
_LEVELS = (
    re.compile(rf"\[{_LEVEL}(?:[|:][\w./<>-]+(?::{_N})?)+\]:?\s*(?:-\s+|>>\s+)?"),
    re.compile(rf"{_LEVEL}:[\w./<>-]+(?::{_N})?:\s*(?:-\s+|>>\s+)?"),
    re.compile(rf"\[\s*{_LEVEL}\s*\]:?\s*(?:-\s+)?"),
    re.compile(rf"{_LEVEL}\s*(?::|\||-|\s)\s*(?=\S)"),
    re.compile(rf"\[[\w.]+\.[\w.]+(?::{_N})?(?::\w+)?\]:?\s*"),
    re.compile(rf"[\w./<>-]+\.(?:py|cc|cpp|cu|h|c|go|rs):{_N}(?::\w+\(?\)?)?\]?\s*(?:-|\||:|>>)?\s*"),
    re.compile(rf"(?:[\w]+\.)+\w+(?::\w+)*(?::{_N})?\s+(?:{_LEVEL}):?\s*(?:-\s+)?"),
    re.compile(rf"(?:\w+\.)+\w+(?::[\w<>]+)?:{_N}\s+-\s+"),
    re.compile(rf"(?:[A-Za-z_]\w*)(?:\.\w+)*\s+-\s+(?={_LEVEL}\b)"),
    re.compile(rf"{_N}\s+(?=[\w./-]+\.(?:py|cc|cpp|h|go):{_N}\])"),
    re.compile(rf"@[\w./-]+\.py:{_N}\]\s*"),
    re.compile(rf"[a-z]\w*\s+[\w./-]+\.py:{_N}\]\s*"),
    re.compile(r"(?:[a-z_]\w*\.)+[a-z_]\w*\s+-\s+"),
    re.compile(r"\[(?!(?i:train|training|val|valid|validation|test|eval|evaluation|dev)\])[A-Za-z_]+\]\s+"),
)
_SEPARATORS = re.compile(r"[\s\u3000]*(?:[\])|>,;:-](?=[\s\])|>,;:-]|\S)[\s\u3000]*)?")
_OPEN = re.compile(r"[\s\u3000]*[\[(<]?")
_SECONDS = re.compile(rf":::MLL\s(?P<t>{DEC})|:::MLPv[\w.]+\s\w+\s(?P<t2>{DEC})|^\[?(?P<t3>{DEC})\]\s")
#: A time of the wall clock among the pairs of a JSON line.
_STAMPED = re.compile(
    rf"\"(?:ts|time|timestamp|_timestamp|created|wall_time|walltime|time_ms)\": ?\"?(?P<t>[{INT}{DEC}])"
)
_JSON = 1500  #: canonical characters of a JSON line in which it is looked for


@dataclass(frozen=True, slots=True)
class Prefix:
    start: int  #: where the text begins in the canonical line
    clock: clock.Clock | None = None
    rank: int | None = None  #: token with the rank
    fixed_rank: int | None = None  #: the rank itself, where it is spelt within a word
    source: str = ""  #: pod, host, process


def _is_now(text: str) -> bool:
    """Whether a number is the seconds, or milliseconds, of a date of our time, and not a duration."""
    digits = text.partition(".")[0]
    return digits.isdigit() and (len(digits) == 10 or len(digits) == 13) and digits[0] in "123"


def _token(canonical: str, at: int) -> int:
    return sum(canonical.count(c, 0, at) for c in PRIVATE)


def strip(canonical: str, numbers: list[str], behind: int = 0) -> Prefix:
    """Where the text of a line begins, and what stands before it. `behind`: where the line itself begins, when
    a program printed it behind something else."""
    if behind:
        before = _token(canonical, behind)
        own = strip(canonical[behind:], numbers[before:])
        shifted = None if own.clock is None else replace(own.clock, tokens=tuple(t + before for t in own.clock.tokens))
        return replace(
            own, start=own.start + behind, clock=shifted, rank=None if own.rank is None else own.rank + before
        )
    at = 0
    stamp: clock.Clock | None = None
    rank: int | None = None
    fixed: int | None = None
    source = ""
    found = clock.find(canonical, numbers)
    for _ in range(12):
        before = at
        opened = _OPEN.match(canonical, at)
        if found is not None and stamp is None and opened and abs(opened.end() - found[1]) <= 1:
            stamp = found[0]
            at = _after_stamp(canonical, found[2])
            continue
        space = len(canonical) - len(canonical[at:].lstrip(" \t\u3000"))
        matched = None
        if rank is None and fixed is None:
            matched = next((m for r in _RANKS if (m := r.match(canonical, space))), None)
            if matched is not None and _counts(matched, canonical, stamp):
                matched = None
        if matched is not None:
            groups = matched.groupdict()
            if groups.get("rank"):
                rank = _token(canonical, matched.start("rank"))
            elif groups.get("fixed"):
                fixed = int(matched.group("fixed"))
            at = matched.end()
            continue
        matched = next((m for r in _LEVELS if (m := r.match(canonical, space))), None)
        if matched is None and not source and at == 0:
            matched = next((m for r in _SOURCES if (m := r.match(canonical, space))), None)
            if matched is not None:
                source = matched.group().strip()
        if matched is not None:
            at = matched.end()
        if at == before:
            break
    if stamp is None:
        seconds = _SECONDS.search(canonical[:80])
        paired = _STAMPED.search(canonical, 0, _JSON) if "{" in canonical[:80] else None
        if paired is not None and _is_now(numbers[_token(canonical, paired.start("t"))]):
            stamp = clock.Clock((_token(canonical, paired.start("t")),), "epoch-seconds")
        elif seconds:
            group = next(g for g in ("t", "t2", "t3") if seconds.group(g))
            stamp = clock.Clock((_token(canonical, seconds.start(group)),), "epoch-seconds")
        elif found is not None and found[1] - at < 40 and found[0].form != "clock":
            stamp = found[0]
    return Prefix(at, stamp, rank, fixed, source)


def _counts(m: re.Match[str], canonical: str, stamp: clock.Clock | None) -> bool:
    """`0: ` before a bare loss is a counter, not a rank: a rank's tag has a text behind it that is a line itself."""
    if not re.fullmatch(rf"{_N}: ", m.group()):
        return False
    if stamp is not None:
        return True
    rest = canonical[m.end() :]
    return re.match(rf"\s*(?:-?[{PRIVATE}]|[a-z][\w ]{{0,12}}[=:]\s*[{PRIVATE}]|\w+:\s[{PRIVATE}])", rest) is not None


def _after_stamp(canonical: str, at: int) -> int:
    m = re.compile(
        rf"(?:Z|[+-]{_N}(?::?{_N})?|[+-]{DUR}|\s?UTC|\s?GMT|\s[A-Z]{{3,4}}(?=[\s\]])|,{_N})?[\])>]?\s*(?:[-|:]\s+)?:?\s*"
    ).match(canonical, at)
    return m.end() if m else at
