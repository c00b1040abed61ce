"""Lines that nothing explains, clustered while they are few, and the runs of the template that is training's.

A log is learnt from its beginning: a template that was met late has lost its first points, so what did not show
within the first `STRANGERS` sorts of lines that nothing explains is not learnt. What was learnt is told only where the
rules and words found no training at all; a learnt counter that begins again and again was none, and nothing is told.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from zlib import crc32

from profiler.model import Run
from profiler.rules.plan import Plan
from profiler.rules.templates import MOST_NUMBERS, Columns, Template, columns, words_in
from profiler.runs.run_reader import Runs
from profiler.text.tokens import tokenise

STRANGERS = 512  #: sorts of lines that are looked at until a template is found
TEMPLATES = 64
ALIKE_LONG = 8  #: templates of lines with as many words
LONGEST = 600  #: bytes of a line that is looked at
HITS = 4  #: expressions kept of the template that was found
MOST_RUNS = 3  #: a learnt counter that begins again more often is none
_DIGITS = b"0123456789"
NOTE = "no word says what its columns are: they were told by how they behave"


class Learner:
    def __init__(self, limit: int) -> None:
        self.runs = Runs(limit)
        self.templates: list[Template] = []
        self.found: Template | None = None
        self.open = True
        #: lines that are equal but for their digits (a sum of them), and their template; None: nothing is left to learn
        self.known: dict[int, Template | None] = {}
        self._hits: list[tuple[re.Pattern[str], Plan]] = []

    def take(self, line: int, raw: bytes) -> None:
        """A line that nothing explains."""
        if len(raw) > LONGEST:
            return
        key = raw.translate(None, _DIGITS)
        if len(raw) - len(key) < 2:
            return
        if self.found is not None:
            self._go_on(line, raw, self.found)
            return
        sort = crc32(key)
        if sort not in self.known:
            if len(self.known) >= STRANGERS:
                self.close()
                return
            self.known[sort] = self._template(line, raw)
        else:
            template = self.known[sort]
            if template is not None and not self._learn(template, line, raw):
                self.known[sort] = None

    def _go_on(self, line: int, raw: bytes, found: Template) -> None:
        """Take a line of the template that was found."""
        if len(raw.split()) != len(found.words):
            return
        text = raw.decode("utf-8", "replace")
        for regex, plan in self._hits:
            m = regex.fullmatch(text)
            if m is not None:
                self.runs.row(plan, m.groups(), line, False)
                return
        words = words_in(tokenise(text)[0])
        if len(words) == len(found.words) and found.fits(words):
            self._row(line, text)

    def _template(self, line: int, raw: bytes) -> Template | None:
        """The template of a line, one of its own where there is none yet; None: there can be none."""
        text = raw.decode("utf-8", "replace")
        canonical, numbers = tokenise(text)
        if not 2 <= len(numbers) <= MOST_NUMBERS:
            return None
        words = words_in(canonical)
        like = [t for t in self.templates if len(t.words) == len(words)]
        template = next((t for t in like if t.fits(words)), None)
        if template is not None:
            return template if self._learn(template, line, raw) else None
        if len(like) >= ALIKE_LONG or len(self.templates) >= TEMPLATES:
            once = next((t for t in like or self.templates if t.seen == 1), None)
            if once is None:
                return None
            self.templates.remove(once)
        made = Template(words, [(line, text)], 1)
        self.templates.append(made)
        return made

    def _learn(self, template: Template, line: int, raw: bytes) -> bool:
        """Whether a template has more to learn, now that this line of it came."""
        if template.judged:
            return False
        text = raw.decode("utf-8", "replace")
        words = words_in(tokenise(text)[0])
        if len(words) != len(template.words) or not template.fits(words):
            return True  # equal but for its digits, which stand elsewhere
        if template.take(line, text, words):
            self.found, self.templates, self.known = template, [template], {}
            for at, row in template.rows:
                self._row(at, row)
            template.rows = []
        return True

    def _row(self, line: int, text: str) -> None:
        told = self.found.columns if self.found is not None else None
        plan = told.plan(text) if told is not None else None
        if plan is None:
            return
        if len(self._hits) < HITS:
            self._hits.append((plan.regex(), plan))
        self.runs.row(plan, plan.pick(tokenise(text)[1]), line, False)

    def told(self) -> list[Run]:
        """The runs of the template that is training's, or of one that is as far as it was read."""
        reader = self if self.found is not None else self._so_far()
        runs = [run for run in reader.runs.all() if run.points]
        if len(runs) > MOST_RUNS:
            return []
        return [replace(run, warnings=(*run.warnings, NOTE)) for run in runs]

    def _so_far(self) -> Learner:
        """A learner that judges each template by the rows that it has, this one left alone."""
        probe = Learner(self.runs.bounds.most)
        held = [t for t in self.templates if t.rows]
        held.sort(key=lambda t: t.seen, reverse=True)
        for template in held:
            made = columns([text for _, text in template.rows])
            if made is None:
                continue
            probe.found = Template(template.words, [], template.seen, made)
            for line, text in template.rows:
                probe._row(line, text)
            break
        return probe

    def close(self) -> None:
        """Nothing is left to learn."""
        self.runs = Runs(self.runs.bounds.most)
        self.templates, self.found, self.open = [], None, False
        self._hits, self.known = [], {}

    def copy(self) -> Learner:
        """A copy that may be read on without changing this one."""
        new = Learner.from_json(self.to_json(), self.runs.copy())
        new._hits = list(self._hits)
        return new

    def to_json(self) -> dict[str, Any]:
        """All but its runs."""
        place = {id(t): at for at, t in enumerate(self.templates)}
        return {
            "open": self.open,
            "found": None if self.found is None else place[id(self.found)],
            "known": [[sort, place.get(id(t)) if t is not None else None] for sort, t in self.known.items()],
            "templates": [
                [t.words, [list(r) for r in t.rows], t.seen, None if t.columns is None else t.columns.to_json()]
                for t in self.templates
            ],
        }

    @classmethod
    def from_json(cls, state: dict[str, Any], runs: Runs) -> Learner:
        self = cls(runs.bounds.most)
        self.runs, self.open = runs, state["open"]
        for words, rows, seen, told in state["templates"]:
            made = None if told is None else Columns.from_json(told)
            self.templates.append(Template(list(words), [(at, text) for at, text in rows], seen, made))
        self.found = None if state["found"] is None else self.templates[state["found"]]
        self.known = {sort: None if at is None else self.templates[at] for sort, at in state["known"]}
        return self
