"""What an event's class says is what stands in the file, and what older and newer arbiters wrote is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horae.journal import Draft, Event, Kind, events
from horae.journal.events import Verb
from horae.journal.fold import _FOLDS
from horae.journal.form import _FORMS, numbered, read
from horae.journal.ledger import Obstacle
from horae.journal.schema import VERSION
from horae.port import BlockKind, CheckpointMark, JobState
from tests.horae.arbiter.site import spec
from tests.horae.journal.written import form

FORMS = Path(__file__).parent / "forms"

#: Events, and what the version that had no classes for them wrote.
WRITTEN: list[tuple[Draft, dict[str, Any]]] = [
    (events.Recovered("lost"), {"why": "lost", "next_id": None}),
    (events.Alerted("disk", "full"), {"what": "disk", "text": "full", "remedy": ""}),
    (events.JobHeld("1", "ann", "later"), {"by": "ann", "text": "later"}),
    (events.ModeSet("main", "observe", "root"), {"mode": "observe", "by": "root", "releasing": False}),
    (events.AgentNamed("main", "ann/a", None), {"app": "ann/a", "by": None}),
    (
        events.JobSeen("1", JobState.LOST, 2, {}, {}, 3.0),
        {"state": "lost", "epoch": 2, "allocation": {}, "holding": {}, "since_s": 3.0},
    ),
    (
        events.JobSeen(
            "1",
            JobState.RUNNING,
            2,
            {"n1": 2},
            {"k80": 2},
            3.0,
            exit_code=0,
            checkpoint=CheckpointMark(1, 5.0, 2.0),
            blocked=Obstacle(BlockKind.LIMIT, "QOSMaxGRES", 2.0, cap=4),
            native="R",
            time_left_s=60.0,
        ),
        {
            "state": "running",
            "epoch": 2,
            "allocation": {"n1": 2},
            "holding": {"k80": 2},
            "since_s": 3.0,
            "exit_code": 0,
            "checkpoint": {"epoch": 1, "step": 5.0, "time_s": 2.0},
            "blocked": {"kind": "limit", "text": "QOSMaxGRES", "since_s": 2.0, "cap": 4},
            "native": "R",
            "time_left_s": 60.0,
        },
    ),
    (events.Measured("1", {"done": 5.0}), {"done": 5.0}),
    (events.Measured("1", {"done": 5.0}, 2.0), {"done": 5.0, "warmup_s": 2.0}),
    (
        events.Capped("main", "ann", 4, 9.0, "limit", "1", True),
        {"tenant": "ann", "cap": 4, "until_s": 9.0, "text": "limit", "alone": True},
    ),
    (events.Capped("main", "ann", 4, 9.0, "limit"), {"tenant": "ann", "cap": 4, "until_s": 9.0, "text": "limit"}),
    (events.LeftUnused("1", 0, (), 4.0, ""), {"gpus": 0, "which": [], "since_s": 4.0, "by": ""}),
    (events.KeptBack("1", None), {"guard": None, "text": "", "wanted": {}}),
    (events.PutAside("1", "raised", 9.0), {"text": "raised", "until_s": 9.0, "policy": ""}),
    (events.Probed("1", "main", over="done"), {"over": "done"}),
    (
        events.Probed("1", "main", "k80", 1, {"n1": 1}, 9.0, "worth"),
        {"gpu_type": "k80", "gpus": 1, "allocation": {"n1": 1}, "until_s": 9.0, "text": "worth"},
    ),
    (
        events.Decided("main", {"policy": "fifo", "fallback": "late"}),
        {"policy": "fifo", "fallback": "late", "targets": {}},
    ),
    (
        events.Decided("main", {"policy": "fifo"}, {"1": {"n1": 2}}, {}, {"1": {"n1": [9.0]}}, {"passes": {}}),
        {
            "policy": "fifo",
            "targets": {"1": {"n1": 2}},
            "reasons": {},
            "leases": {"1": {"n1": [9.0]}},
            "state": {"passes": {}},
        },
    ),
    (
        events.Intent("1", Verb.STOP, grace_s=5.0, text="room"),
        {"verb": "checkpoint_and_stop", "grace_s": 5.0, "text": "room"},
    ),
    (
        events.Intent("1", Verb.START, 3, {"n1": 2}, {"k80": 2}),
        {"verb": "start", "epoch": 3, "allocation": {"n1": 2}, "holding": {"k80": 2}},
    ),
    (events.Answered("1", Verb.START), {"verb": "start", "error": None}),
    (
        events.Answered("1", Verb.START, "TryLater", "busy", 2.0),
        {"verb": "start", "error": "TryLater", "text": "busy", "retry_s": 2.0},
    ),
    (events.Ended("1", JobState.FAILED, 4.0), {"state": "failed", "ended_s": 4.0, "text": ""}),
]  # fmt: skip


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
