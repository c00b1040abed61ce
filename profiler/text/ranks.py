"""Who wrote a line and when: launcher prefixes, log levels and stamps before the text itself.

Works on canonical text, so it runs once a line shape. `strip` walks over what launchers and loggers put in front
(`[1,7]<stderr>:`, `3: `, `[rank2]:`, `(Worker pid=12)`, `pod-1 | `, `I0927 00:37:33.25 1402 file.py:115]`,
`2018-09-05 12:37:52,222 - logger.py:96 - `, `INFO:root:`) and says where the text begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
_NO_NAME = (
    r"(?i:train|training|val|valid|validation|test|testing|eval|evaluation|dev|epoch|step|iter|iteration|batch|lr"
    r"|\w*(?:loss|acc|accuracy|time|speed))\b"
)
_LEVELS = (
    re.compile(rf"{_LEVEL}\s+-\s+(?!{_NO_NAME})[A-Za-z_]\w*(?:\.\w+)*\s+-\s+"),
    re.compile(rf"\[{_LEVEL}(?:[|:][\w./<>-]+(?::{_N})?)+\]:?\s*(?:-\s+|>>\s+)?"),
    re.compile(rf"{_LEVEL}:[\w./<>-]+(?::{_N})?:\s*(?:-\s+|>>\s+)?"),
    re.compile(rf"\[[\w.]+\]\[{_LEVEL}\]:?\s*(?:-\s+)?"),  # Hydra's
    re.compile(rf"\[\s*{_LEVEL}\s*\]:?\s*(?:-\s+)?"),
    re.compile(rf"\[\s*{_LEVEL}\s*:\s*(?=[{INT}{DUR}])"),
    re.compile(rf"(?![IWED]\s*[:|-]?\s*[{INT}{DEC}]){_LEVEL}\s*(?::|\||-|\s)\s*(?=\S)"),  # `E: 1` counts
    re.compile(rf"\[[\w.]+\.[\w.]+(?::{_N})?(?::\w+)?\]:?\s*"),
    re.compile(rf"[\w./<>-]+\.(?:py|cc|cpp|cu|h|c|go|rs):{_N}(?::\w+\(?\)?)?\]?\s*(?:-|\||:|>>)?\s*"),
    re.compile(rf"(?:[\w]+\.)+\w+(?::\w+)*(?::{_N})?\s+(?:{_LEVEL}):?\s*(?:-\s+)?"),
    re.compile(rf"(?:\w+\.)+\w+(?::[\w<>]+)?:{_N}\s+-\s+"),
    re.compile(rf"[A-Za-z_]\w*:[\w<>]+:{_N}\s+-\s+"),
    re.compile(rf"(?:[A-Za-z_]\w*)(?:\.\w+)*\s+-\s+(?={_LEVEL}\b)"),
    re.compile(rf"{_N}\s+(?=[\w./-]+\.(?:py|cc|cpp|h|go):{_N}\])"),
    re.compile(rf"@[\w./-]+\.py:{_N}\]\s*"),
    re.compile(rf"[a-z]\w*\s+[\w./-]+\.py:{_N}\]\s*"),
    re.compile(r"(?:[a-z_]\w*\.)+[a-z_]\w*\s+-\s+"),
    re.compile(rf"[A-Z]?(?:{_N}|\d{{1,9}})\s+(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+(?=\S)"),
    re.compile(rf"[\w.{INT}-]+\t{_LEVEL}\t"),
    re.compile(  # syslog, journald: host, program and process
        rf"[\w.{INT}{DEC}-]+ (?!(?i:epoch|step|iter|iteration|batch|round|fold|trial)\[)"
        rf"[A-Za-z_][\w./{INT}{DEC}-]*\[{_N}\]: "
    ),
    re.compile(r"\[(?!(?i:train|training|val|valid|validation|test|eval|evaluation|dev)\])[A-Za-z_]+\]\s+"),
)
#: The number of a line, as `cat -n` and `grep -n` put it before one: no counter.
_NUMBERED = re.compile(rf" {{2,}}{_N}\t(?=\s*[^{PRIVATE}\s-])|(?:[\w./-]+\.(?:log|txt|out|err):){_N}:(?=\S|\s)")
_NUMBER_BEFORE = re.compile(rf" {{2,}}{_N}\t\[?")
#: How a line begins that has a counter of its own.
_COUNTS_ITSELF = re.compile(rf"(?i)\s*(?:epochs?|ep|(?:global_?)?steps?|iters?|iterations?|batch)\s?[:=\[# ]\s?{_N}")
_UNIX = re.compile(rf"{_N}[\t ]\s*")
_SEPARATORS = re.compile(r"[\s\u3000]*(?:[\])|>,;:-](?=[\s\])|>,;:-]|\S)[\s\u3000]*)?")
_OPEN = re.compile(r"[\s\u3000]*[\[(<]?")
_SECONDS = re.compile(rf":::MLL\s(?P<t>{DEC})|:::MLPv[\w.]+\s\w+\s(?P<t2>{DEC})|^\[?(?P<t3>{DEC})\]\s")
#: A time of the wall clock among the pairs of a JSON line.
_STAMPED = re.compile(
    rf"\"(?:ts|time|timestamp|_timestamp|created|wall_time|walltime|time_ms)\": ?\"?(?P<t>[{INT}{DEC}])"
)
#: The same among pairs of plain text: `time: 1591830576.33, epoch: 0`.
_STAMPED_PAIR = re.compile(
    rf"(?i)(?:^|[\s,;|\[(])(?:time|timestamp|ts|wall_?time)\s?[:=]\s?(?P<t>[{INT}{DEC}])(?![\w.])"
)
_STAMP_KEY = re.compile(r"(?i)[\"'](?:ts|time|@?timestamp|asctime|date|datetime|created_at|logged_at)[\"']: ?[\"']?$")
_TAGS = re.compile(rf"(?:[\w./@{INT}-]+\s+){{1,3}}[\[(]?")
_TAGS_LONG = 60  #: canonical characters of such words
_SAYS = re.compile(rf"(?i)epoch|step|iter|batch|loss|{DEC}|{DUR}|(?<!\S){INT}(?!\S)")
_PREFIXES = 12  #: at most so many stand before a text
_JSON = 1500  #: canonical characters of a JSON line in which it is looked for


@dataclass(frozen=True, slots=True)
class Prefix:
    start: int  #: where the text begins in the canonical line
    clock: clock.Clock | None = None
    rank: int | None = None  #: token with the rank
    fixed_rank: int | None = None  #: the rank itself, where it is spelt within a word
    source: str = ""  #: pod, host, process


def is_now(text: str) -> bool:
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
    head = _Head(canonical, numbers)
    for _ in range(_PREFIXES):
        if not head.step() and not head.over_another(numbers):
            break
    stamp = head.stamp or _stamp_inside(canonical, numbers, head)
    return Prefix(head.at, stamp, head.rank, head.fixed, head.source)


class _Head:
    """The way over what stands before the text of a line."""

    def __init__(self, canonical: str, numbers: list[str]) -> None:
        self.canonical, self.found = canonical, clock.find(canonical, numbers)
        self.first = numbers[0] if numbers else ""
        self.at = 0
        self.stamp: clock.Clock | None = None
        self.rank: int | None = None
        self.fixed: int | None = None
        self.source = ""
        self.twice = False  #: a second stamp was looked for

    def step(self) -> bool:
        """Go over the next prefix; False: here the text begins."""
        before = self.at
        if self._over_stamp() or (before == 0 and (self._over_tags() or self._over_number())):
            return True
        space = len(self.canonical) - len(self.canonical[before:].lstrip(" \t\u3000"))
        if self._over_rank(space):
            return True
        matched = _first(_LEVELS, self.canonical, space)
        if matched is None and not self.source and before == 0:
            matched = _first(_SOURCES, self.canonical, space)
            self.source = matched.group().strip() if matched is not None else ""
        if matched is not None:
            self.at = matched.end()
        return self.at != before

    def _over_tags(self) -> bool:
        """Go over words that a shipper put before the program's own stamp: pod, container, unit."""
        if self.found is None or self.found[0].form == "clock" or not 1 < self.found[1] <= _TAGS_LONG:
            return False
        tags = self.canonical[: self.found[1]]
        if not _TAGS.fullmatch(tags) or _SAYS.search(tags):
            return False
        self.at = len(tags.rstrip("[( "))
        return self._over_stamp()

    def _over_number(self) -> bool:
        """Go over a number before the whole line: the line's own, or the time at which a shipper took it."""
        numbered = _NUMBERED.match(self.canonical) or self._numbers_stamped()
        timed = _UNIX.match(self.canonical) if is_now(self.first) and "." not in self.first else None
        if timed is not None:
            self.stamp = clock.Clock((0,), "epoch-seconds")
        found = numbered or timed
        self.at = self.at if found is None else found.end()
        return found is not None

    def _numbers_stamped(self) -> re.Match[str] | None:
        """The line's own number before its stamp."""
        matched = _NUMBER_BEFORE.match(self.canonical)
        return matched if matched is not None and self.found and self.found[1] == matched.end() else None

    def _over_stamp(self) -> bool:
        opened = _OPEN.match(self.canonical, self.at)
        if self.found is None or self.stamp is not None or not opened or abs(opened.end() - self.found[1]) > 1:
            return False
        self.stamp = self.found[0]
        self.at = _after_stamp(self.canonical, self.found[2])
        return True

    def over_another(self, numbers: list[str]) -> bool:
        """Go over a second stamp, the program's own behind its logger's or a shipper's, and what follows it. Where it
        has a date it counts: a shipper takes many lines at once."""
        if self.stamp is None or self.twice:
            return False
        self.twice = True
        before = _token(self.canonical, self.at)
        found = clock.find(self.canonical[self.at :], numbers[before:])
        if found is None or self.canonical[self.at : self.at + found[1]].strip(" \t[(<"):
            return False
        own = found[0]
        if own.form != "clock":
            self.stamp = replace(own, tokens=tuple(token + before for token in own.tokens))
        self.at = _after_stamp(self.canonical, self.at + found[2])
        return True

    def _over_rank(self, space: int) -> bool:
        matched = _first(_RANKS, self.canonical, space)
        told_before = self.rank is not None or self.fixed is not None
        if matched is None or (told_before and not self._names_rank(matched)):
            return False
        dated = self.found is not None and self.found[1] == matched.end()
        if not dated and _counts(matched, self.canonical, self.stamp):
            return False
        told = matched.groupdict()
        if told.get("rank"):
            self.rank = _token(self.canonical, matched.start("rank"))
        elif told.get("fixed"):
            self.fixed = int(told["fixed"])
        self.at = matched.end()
        return True

    def _names_rank(self, matched: re.Match[str]) -> bool:
        """Whether a program calls its own rank so, behind the number that a launcher gave its node: `0: [RANK 3]`."""
        bare = self.canonical[: self.at].strip()
        return bare == f"{_N}:" and matched.group().lower().startswith("[rank")


def _first(patterns: Iterable[re.Pattern[str]], canonical: str, at: int) -> re.Match[str] | None:
    return next((m for p in patterns if (m := p.match(canonical, at))), None)


def _stamp_inside(canonical: str, numbers: list[str], head: _Head) -> clock.Clock | None:
    """A time of the wall clock that is no prefix: among the pairs of a JSON line, near the text's beginning, or in a
    bracket at its end."""
    paired = (_STAMPED if "{" in canonical[:80] else _STAMPED_PAIR).search(canonical, 0, _JSON)
    if paired is not None and is_now(numbers[_token(canonical, paired.start("t"))]):
        return clock.Clock((_token(canonical, paired.start("t")),), "epoch-seconds")
    seconds = _SECONDS.search(canonical[:80])
    if seconds:
        group = next(g for g in ("t", "t2", "t3") if seconds.group(g))
        return clock.Clock((_token(canonical, seconds.start(group)),), "epoch-seconds")
    if head.found is None or (head.found[0].form == "clock" and not head.found[0].afternoon):
        return None
    found, begins, ends = head.found
    before, behind = canonical[:begins], canonical[ends:]
    if begins - head.at < 40 or _STAMP_KEY.search(canonical, max(begins - 24, 0), begins):
        return found
    return found if before.endswith("[") and behind.strip() == "]" else None


def _counts(m: re.Match[str], canonical: str, stamp: clock.Clock | None) -> bool:
    """`0: ` before a bare loss is a counter, not a rank: a rank's tag has a text behind it that is a line itself."""
    if not re.fullmatch(rf"{_N}: ", m.group()):
        return False
    if stamp is not None:
        return True
    rest = canonical[m.end() :]
    if _COUNTS_ITSELF.match(rest):
        return False
    return re.match(rf"\s*(?:-?[{PRIVATE}]|[a-z][\w ]{{0,12}}[=:]\s*[{PRIVATE}]|\w+:\s[{PRIVATE}])", rest) is not None


def _after_stamp(canonical: str, at: int) -> int:
    m = re.compile(
        rf"(?:Z|[+-]{_N}(?::?{_N})?|[+-]{DUR}|\s?UTC|\s?GMT|\s[A-Z]{{3,4}}(?=[\s\]])|,{_N})?(?:\s?[\])>])?\s*(?:[-|:]\s+)?:?\s*"
    ).match(canonical, at)
    return m.end() if m else at
