"""The time at which a line was written, from whatever stamp it carries.

A stamp is recognised on the canonical text of a line (`find`), so that it is worked out once a shape; `Clock.read`
turns its numbers into seconds. Zones are ignored: only differences within one log are used. A stamp without a date
gives the seconds of the day; `Days` carries it over midnight.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache

from profiler.text.tokens import DEC, DUR, INT, PRIVATE, duration

_MONTHS = {
    m: i
    for i, m in enumerate(
        (
            "jan",
            "feb",
            "mar",
            "apr",
            "may",
            "jun",
            "jul",
            "aug",
            "sep",
            "oct",
            "nov",
            "dec",
        ),
        1,
    )
}
_I, _D, _N = INT, DUR, DEC
_DATE = f"(?:(?P<a>{_I})(?P<sep>[-/.])(?P<b>{_I})(?:(?P=sep)(?P<c>{_I}))?)"
_NAMED = (
    rf"(?:(?:[A-Z][a-z]{{2}},?\s+)?(?:(?P<month>[A-Z][a-z]{{2}})\s+(?P<day>{_I})"
    rf"|(?P<day2>{_I})[ -](?P<month2>[A-Z][a-z]{{2}})))"
)
_STAMP = re.compile(
    rf"(?:{_DATE}|{_NAMED}(?:[ -,]+(?P<year>{_I}))?|(?P<compact>{_I})|\b[IWEF]\d{{4}}(?:\d{{4}})?)?"
    rf"(?:[T ,_-]|\s{{1,2}}|:)?(?P<clock>{_D})(?:\s?(?P<half>[AaPp][Mm])\b)?(?:\s(?P<lateyear>{_I}))?"
)
_TOGETHER = re.compile(rf"(?<![\w.<=-]){_I}[-_]{_I}(?![\w.])")
_DASHED = re.compile(rf"(?<![\w.<=-]){_I}-{_I}-{_I}[-_ ]{_I}-{_I}(?:-{_I})?(?![\w.-])")
_AFTERNOON = {"": 0, "am": -1, "pm": 1}
_HEAD = 120  #: canonical characters in which a stamp is looked for


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the numbers of a stamp are among the numbers of a line; `at` turns those into groups of a match."""

    tokens: tuple[int, ...]
    form: str  #: "epoch-seconds", "clock", "ymd", "dmy", "md", "compact", "named", "together", "dashed"
    month: int = 0
    afternoon: int = 0  #: 1 pm, -1 am, 0 a day of 24 hours

    def at(self, slots: dict[int, int]) -> Clock:
        return replace(self, tokens=tuple(slots[t] for t in self.tokens))

    def read(self, groups: Sequence[str]) -> tuple[float, bool] | None:
        """(seconds, whether they include the date); None for numbers that are no time."""
        texts = [groups[t] for t in self.tokens]
        if self.form == "epoch-seconds":
            seconds = float(texts[0])
            if seconds > 1e14:
                seconds /= 1e6
            elif seconds > 1e11:
                seconds /= 1e3
            return (seconds, True) if 1e8 < seconds < 1e10 else None
        texts, clock = _with_colons(self.form, texts)
        if clock.count(":") < 2 and self.form == "clock" and not self.afternoon:
            return None
        seconds = duration(clock) if clock.count(":") == 2 else duration(clock) * 60
        if seconds > 86401:
            return None
        if self.afternoon:
            seconds = seconds % 43200 + (43200 if self.afternoon > 0 else 0)
        if self.form == "clock":
            return seconds, False
        days = _days(self.form, self.month, *texts[:-1])
        return (seconds, False) if days is None else (days * 86400.0 + seconds, True)


def _with_colons(form: str, texts: list[str]) -> tuple[list[str], str]:
    """The numbers of a stamp, of which the last is the time of day, and that time."""
    if form == "dashed":
        texts = [*texts[:3], ":".join((*texts[3:], "0")[:3])]
    clock = texts[-1]
    if form == "together":
        clock = f"{clock[:2]}:{clock[2:4]}:{clock.ljust(6, '0')[4:]}"
    return texts, clock


@lru_cache(maxsize=256)
def _days(form: str, month: int, *numbers: str) -> int | None:
    """Days since year 1; a date without a year is put in a leap year, `Days` unrolls New Year."""
    try:
        n = [int(x.replace(",", "")) for x in numbers]
        if form in ("compact", "together"):
            y, rest = divmod(n[0], 10000)
            return date(y, rest // 100, rest % 100).toordinal()
        if form == "named":
            return date(n[1] if len(n) > 1 else 2000, month, n[0]).toordinal()
        if form in ("ymd", "dashed"):
            return date(n[0], n[1], n[2]).toordinal()
        if form == "md":
            return date(2000, n[0], n[1]).toordinal()
        day, middle, year = n
        year += 2000 if year < 100 else 0
        if day > 31:  # a two-digit year first
            return date(day + (2000 if day < 100 else 0), middle, n[2]).toordinal()
        return (date(year, day, middle) if day <= 12 else date(year, middle, day)).toordinal()
    except (ValueError, OverflowError):
        return None


def find(canonical: str, numbers: list[str]) -> tuple[Clock, int, int] | None:
    """The stamp of a line and the span of canonical text that it takes; None without one.

    `numbers` only tell apart forms that look alike (a year is written with four digits).
    """
    head = canonical[:_HEAD]
    if DUR not in head:
        return _run_together(head, numbers) or _dashed(head, numbers) or _at_end(canonical, numbers)
    for m in _STAMP.finditer(head):
        start = m.start() + m.group().startswith(":")  # INFO:name:06:22:53
        before = head[:start]
        if before and (before[-1].isalnum() or before[-1] in "<=") and not before.endswith(("T",)):
            continue
        if head[m.end() : m.end() + 1] == "<" or re.search(
            r"(?i)(?:eta|time|elapsed|remaining|in|took)[\s:=]*$", before
        ):
            continue
        made = _form(m, numbers)
        if made is not None:
            return made, start, m.end()
    return _at_end(canonical, numbers)


def _at_end(canonical: str, numbers: list[str]) -> tuple[Clock, int, int] | None:
    """A date and a time in a bracket behind all that a line says, however long it is."""
    m = _STAMP.match(canonical, canonical.rfind("[") + 1)
    if m is None or not m.group("a"):
        return None
    before, behind = canonical[: m.start()], canonical[m.end() :]
    if not before.endswith("[") or behind.strip() != "]":
        return None
    made = _form(m, numbers)
    return None if made is None else (made, m.start(), m.end())


def _run_together(head: str, numbers: list[str]) -> tuple[Clock, int, int] | None:
    """20240304-101112, 20240304-1011."""
    m = _TOGETHER.search(head)
    if m is None:
        return None
    first = sum(c in PRIVATE for c in head[: m.start()])
    day, clock = numbers[first], numbers[first + 1]
    if (
        len(day) != 8
        or not day.startswith(("19", "20"))
        or len(clock) not in (4, 6)
        or _days("compact", 0, day) is None
    ):
        return None
    return Clock((first, first + 1), "together"), m.start(), m.end()


def _dashed(head: str, numbers: list[str]) -> tuple[Clock, int, int] | None:
    """2024-03-04-10-11-12, 2024-03-04_10-11."""
    m = _DASHED.search(head)
    if m is None:
        return None
    first = sum(c in PRIVATE for c in head[: m.start()])
    count = sum(c in PRIVATE for c in m.group())
    day = numbers[first : first + 3]
    if (
        len(day[0]) != 4
        or any(len(n) != 2 for n in numbers[first + 1 : first + count])
        or _days("ymd", 0, *day) is None
    ):
        return None
    return Clock(tuple(range(first, first + count)), "dashed"), m.start(), m.end()


def _tokens_before(m: re.Match[str], at: int) -> int:
    return sum(c in PRIVATE for c in m.string[:at])


def _form(m: re.Match[str], numbers: list[str]) -> Clock | None:
    first = _tokens_before(m, m.start())
    tokens = tuple(range(first, _tokens_before(m, m.end())))
    clock_token = _tokens_before(m, m.start("clock"))
    afternoon = _AFTERNOON[(m.group("half") or "").lower()]
    if m.group("a"):
        whole = "ymd" if len(numbers[tokens[0]]) == 4 else "dmy"
        form = whole if m.group("c") else "md"
        days = tuple(t for t in tokens if t < clock_token)
        if _days(form, 0, *(numbers[t] for t in days)) is None:
            return None  # 20/120 0:00:08
        return Clock((*days, clock_token), form, afternoon=afternoon)
    month = m.group("month") or m.group("month2")
    if month:
        if month.lower() not in _MONTHS:
            return None
        dates = [t for t in tokens if t != clock_token]
        return Clock((*dates, clock_token), "named", month=_MONTHS[month.lower()], afternoon=afternoon)
    if m.group("compact"):
        if len(numbers[tokens[0]]) != 8:
            return Clock((clock_token,), "clock", afternoon=afternoon) if numbers[clock_token].count(":") == 2 else None
        return Clock((tokens[0], clock_token), "compact", afternoon=afternoon)
    if numbers[clock_token].count(":") < 2 and not afternoon:
        return None
    return Clock((clock_token,), "clock", afternoon=afternoon)


class Days:
    """Carries stamps without a date over midnight."""

    __slots__ = ("day", "last")

    def __init__(self, day: float = 0.0, last: float | None = None) -> None:
        self.day = day
        self.last = last

    def place(self, seconds: float) -> float:
        """Seconds since the first day's midnight. A step back of a clock by less than half a day is left as it is."""
        t = self.day + seconds
        last = self.last
        if last is not None:
            if t < last - 43200:
                self.day += 86400
                t += 86400
            elif t > last + 43200 and self.day >= 86400:
                return t - 86400  # a line of another rank from just before midnight
        self.last = t
        return t
