"""Each row of the tables that read lines without a rule decides the line that stands beside it."""

from __future__ import annotations

import pytest

from profiler.rules import counters, generic, kinds, pairs, places, words
from profiler.text.tokens import tokenise, without_bar


def canonical(line: str) -> str:
    return tokenise(without_bar(line.encode()).decode())[0]


@pytest.mark.parametrize("row", counters.MENDS, ids=lambda row: row.line)
def test_a_key_means_something_beside_others(row: counters.Mend) -> None:
    marks = pairs.scan(canonical(row.line))
    beside = counters.Beside.of(marks)
    decided = [next((r for r in counters.MENDS if r.test(m, beside)), None) for m in marks]
    assert row in decided
    counters.mend(marks)
    assert row.what in {m.what for m in marks}


@pytest.mark.parametrize("row", counters.COUNTS, ids=lambda row: row.line)
def test_a_counter_without_a_word(row: counters.Count) -> None:
    body = canonical(row.line)
    line = counters.Line(pairs.scan(body), body, bar=False)
    assert next((r for r in counters.COUNTS if r.test(line)), None) is row


@pytest.mark.parametrize("row", kinds.KINDS, ids=lambda row: row.line)
def test_what_a_line_is_for(row: kinds.Reading) -> None:
    said = generic.said(canonical(row.line), 0)
    assert said is not None
    assert kinds.reading(said) is row


@pytest.mark.parametrize("row", words.SENSES, ids=lambda row: row.key)
def test_what_a_key_says(row: words.Sense) -> None:
    key = words.Key(row.key, words.words_of(row.key), row.unit)
    assert words.sense(key) is row


@pytest.mark.parametrize("row", places.PLACES, ids=lambda row: row.line)
def test_what_a_number_is_to_the_one_before(row: places.Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = []

    def place(mark: places.Mark, where: places.Place) -> bool:
        decided.append(next((r for r in places.PLACES if r.test(mark, where)), None))
        return places.place(mark, where)

    monkeypatch.setattr(pairs, "place", place)
    pairs.scan(canonical(row.line))
    assert row in decided
