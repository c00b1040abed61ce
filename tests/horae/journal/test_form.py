"""What an event's class says is what stands in the file, and what older and newer arbiters wrote is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horae.journal import Draft, Event, Kind, events
from horae.journal.fold import _FOLDS
from horae.journal.form import _FORMS, numbered, read
from horae.journal.schema import VERSION
from tests.horae.arbiter.site import spec
from tests.horae.journal.samples import WRITTEN
from tests.horae.journal.written import form

FORMS = Path(__file__).parent / "forms"


@pytest.mark.parametrize(("draft", "data"), WRITTEN, ids=lambda value: type(value).__name__)
def test_an_event_stands_in_the_file_as_it_always_did_and_is_read_back(draft: Draft, data: dict[str, Any]) -> None:
    row = numbered(draft, 7, 2.0, 1.0)
    assert row.data == data
    assert (row.seq, row.wall_s, row.at_s, row.kind) == (7, 2.0, 1.0, draft.kind)
    told = read(row)
    assert type(told) is type(draft)
    assert numbered(told, 7, 2.0, 1.0) == row


def test_a_specification_is_read_as_one() -> None:
    draft = events.Submitted("1", spec("a"), "main", "ann", "a", "ann", 1.0)
    assert read(numbered(draft, 1, 1.0, 1.0)) == draft


def test_what_a_newer_arbiter_wrote_beside_is_left_alone() -> None:
    row = Event(1, 1.0, 1.0, Kind.HELD, {"by": "ann", "text": "later", "colour": "blue"}, "1")
    assert read(row) == events.JobHeld("1", "ann", "later")


def test_what_lacks_a_field_is_no_event() -> None:
    with pytest.raises(TypeError):
        read(Event(1, 1.0, 1.0, Kind.HELD, {"by": "ann"}, "1"))
    with pytest.raises(LookupError):
        read(Event(1, 1.0, 1.0, Kind.ENDED, {"state": "dancing", "ended_s": 1.0}, "1"))


def test_each_kind_has_its_class_and_its_fold() -> None:
    assert set(_FORMS) == set(_FOLDS) == set(Kind)


def test_what_is_written_is_what_its_version_says() -> None:
    """Else an arbiter that was put back would take what it does not know for damage, or leave it out, and begin with
    what the cluster shows: holds, priorities and the GPUs of what it cannot read would be lost to it."""
    recorded = FORMS / f"{VERSION}.txt"
    assert recorded.exists() and recorded.read_text() == form(), (
        "what stands in a journal has changed: raise VERSION in horae/journal/schema.py, with a migration (`as_it_is` "
        f"where what stood there before is read as it is), and `python -m {form.__module__} > forms/VERSION.txt`"
    )
