"""Events as they stand in the file, for tests of what is written and read."""

from __future__ import annotations

from typing import Any

from horae.journal import Draft, events
from horae.journal.events import Verb
from horae.journal.ledger import Obstacle
from horae.port import BlockKind, CheckpointMark, JobState

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
