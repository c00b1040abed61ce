"""Which of several trainings that run at once wrote a line: `[Trial 3]`, `fold-1:`, `"run_id": "a1f3"`, its settings.

A tag says so only beside others: a log in which one tag never gives way to another and comes back has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiler.text.tokens import INT, PRIVATE

NEAR = 60  #: canonical characters behind the beginning of a text within which it may be tagged
_NUMBER = rf"[{INT}\d]{{1,9}}"
_NAMES = r"(?:trial|fold|run|experiment|exp|config|candidate|member|study)"
_TAGS = (
    re.compile(rf"(?i)(?<![^\s\[(|])[\[(]\s*{_NAMES}[\s_#:=-]*{_NUMBER}\s*[\])]"),
    re.compile(rf"(?i)(?<![^\s\[(|]){_NAMES}[\s_#:=-]{{0,2}}{_NUMBER}\s?[:|>](?=\s)"),
    re.compile(r"\[[A-Za-z]\w*=[^\[\]=,]+(?:,\s*[A-Za-z]\w*=[^\[\]=,]+)*\](?=\s)"),
    re.compile(r"^[A-Za-z]\w*=[^\s=,]+(?:[ ,;]\s?[A-Za-z]\w*=[^\s=,]+)*\t"),  # parallel --tag
)
_PAIRED = re.compile(
    r'(?i)"(?:trial|run|experiment|exp|fold|model|member)(?:_?(?:id|name|no|number|index))?": ?'
    rf'(?:"[^"]{{1,60}}"|{INT})'
)
#: Processes of which each may be a training, or a rank of one: how their losses behave decides.
_PROCESS = re.compile(rf"\((?![A-Za-z_]*(?i:worker|rank|actor))[A-Za-z_]\w* pid={INT}[^)]*\)")
#: Settings that change as training goes on.
_MOVES = re.compile(r"(?i)epoch|step|iter|loss|acc|time|eta|rate\b|mem|gpu|rank|progress|seen")


@dataclass(frozen=True, slots=True)
class Tag:
    text: str  #: as the canonical line has it
    tokens: tuple[int, ...]  #: its numbers
    sure: bool  #: False: it may be a rank's


def tag(canonical: str, start: int) -> Tag | None:
    """The tag of a line whose text begins at `start`."""
    found = _PAIRED.search(canonical) if canonical[start : start + 1] == "{" else None
    if found is None:
        found = next((m for p in _TAGS if (m := p.search(canonical, 0, start + NEAR))), None)
    if found is not None and not _MOVES.search(found.group()):
        return _made(canonical, found, sure=True)
    found = _PROCESS.match(canonical)
    return None if found is None else _made(canonical, found, sure=False)


def _made(canonical: str, m: re.Match[str], *, sure: bool) -> Tag:
    first = sum(canonical.count(c, 0, m.start()) for c in PRIVATE)
    count = sum(m.group().count(c) for c in PRIVATE)
    return Tag(m.group(), tuple(range(first, first + count)), sure)
