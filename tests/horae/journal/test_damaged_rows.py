"""Rows of wrong types: whoever asks hears of all the others, and what the ledger keeps of them harms no round."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from horae.api.privacy import public
from horae.arbiter.service import Arbiter
from horae.journal import Draft, Event, Journal, Kind, events
from horae.journal.form import numbered
from horae.views.sentences import sentence
from tests.horae.arbiter.site import ANN, Site, spec
from tests.horae.journal.samples import WRITTEN

VALUES = [None, 1, "x", [], {}, [1], {"a": 1}, True, -1.5, [[1]], {"a": {"b": "c"}}, float("nan")]


def damaged(row: Event) -> Iterator[Any]:
    """What could stand in its place: without a field, with each of another type."""
    yield {}
    for name in row.data:
        yield {key: value for key, value in row.data.items() if key != name}
        for value in VALUES:
            yield {**row.data, name: value}


@pytest.mark.parametrize("draft", [draft for draft, _ in WRITTEN], ids=lambda draft: type(draft).__name__)
def test_of_each_damaged_row_something_is_told(draft: Draft) -> None:
    row = numbered(draft, 7, 2.0, 1.0)
    for data in damaged(row):
        assert isinstance(sentence(Event(7, 2.0, 1.0, row.kind, data, row.job, row.pool)), str)
        assert isinstance(public.event({"seq": 7, "kind": row.kind.value, "data": data})["text"], str)


def test_history_tells_what_is_around_a_damaged_row(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([events.JobUnheld(str(number), "ann") for number in range(6)], durable=True)
    with closing(sqlite3.connect(journal.path)) as db, db:
        db.execute("UPDATE events SET data = '{\"by\": ' WHERE seq = 2")
        db.execute("UPDATE events SET data = '[1]' WHERE seq = 3")
        db.execute("UPDATE events SET data = x'00ff', wall_s = 'late' WHERE seq = 4")
        db.execute("UPDATE events SET kind = 'dance' WHERE seq = 5")
    found = journal.history()
    assert [event.seq for event in found] == [1, 2, 3, 4, 6]
    assert [event.data for event in found[:3:2]] == [{"by": "ann"}, {"damaged": "[1]"}]
    assert all(sentence(event) for event in found)
    journal.close()


@pytest.mark.parametrize(
    "told",
    [
        {"done": "far"},
        {"done": []},
        {"done": 5.0, "rates": 7},
        {"done": 5.0, "rates": {"k80": [1]}},
        {"loss": [[1]]},
        {"offset": {}},
        {"loss_forecast": "soon"},
        {"places": {"k80": {"2": None}}},
    ],
)
def test_measurements_of_wrong_types_are_left_out(tmp_path: Path, told: dict[str, Any]) -> None:
    """Else the arbiter would not start, or fail in each round."""
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", 1)], ANN)
    (other,) = site.commands.submit([spec("b", 1)], ANN)
    site.journal.append([events.Measured(job, told), events.Measured(other, {"done": 7.0})], durable=True)
    site.reopen()
    assert (site.journal.quarantined, site.job(job).measured) == (None, {})
    assert site.job(other).measured["done"] == 7.0
    site.run(5.0)
    assert "bug" not in site.core.ledger.alerts
    arbiter = Arbiter(site.config, site.fake, journal=site.journal)
    arbiter._journal.close()


def test_what_was_measured_is_as_it_was(tmp_path: Path) -> None:
    told = {"done": 5.0, "rates": {"k80": {"2": 3.0}}, "loss": [[1.0, 2.0]], "notes": ["x"], "offset": 7}
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", 1)], ANN)
    site.journal.append([events.Measured(job, told)], durable=True)
    site.reopen()
    assert site.job(job).measured == told
    assert json.loads(json.dumps(site.job(job).measured)) == told
    assert [e.kind for e in site.journal.history(kinds=[Kind.MEASURED])] == [Kind.MEASURED]
    site.close()
