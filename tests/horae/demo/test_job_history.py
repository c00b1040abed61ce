"""What the demo says about a job is what its log says, and it must see each way in which work can go wrong."""

from __future__ import annotations

from typing import Any

import pytest

from horae.demo.job_history import Story, read
from horae.demo.summary import restarts, summary


def log(*starts: tuple[int, int, int], stop_at: dict[int, int] | None = None, label: str = "0: ") -> str:
    """`starts`: (first step, last step, world); loss falls by a hundredth a step."""
    lines, before = ["noise", "step=9 of something else"], 0.0
    for epoch, (first, last, world) in enumerate(starts, 1):
        mark = f" checkpoint=step-{first}" if first else ""
        lines.append(f"{label}[horae] start step={first} world={world} epoch={epoch}{mark}")
        for step in range(first + 1, last + 1):
            before = 3.0 - step / 100
            end = f"iter_s=0.1 samples_s=9 world={world} epoch={epoch} t=1.0"
            lines.append(f"{label}[horae] step={step}/100 loss={before:.4f} {end}")
        if stop_at and epoch in stop_at:
            lines.append(f"{label}[horae] stopped at step {stop_at[epoch]}")
    return "\n".join(lines)


def test_a_clean_resize_loses_and_repeats_nothing() -> None:
    story = read(log((0, 40, 1), (40, 100, 4), stop_at={1: 40}))
    assert (story.done, story.total, story.worlds) == (100, 100, [1, 4])
    assert (story.repeated, story.skipped, story.forgotten) == (0, 0, 0)
    assert story.jumps() == pytest.approx([1.0], abs=0.1)


def test_lines_without_a_rank_are_read_too() -> None:
    assert read(log((0, 10, 1), label="")).done == 10


def test_a_crash_repeats_what_was_after_the_checkpoint() -> None:
    story = read(log((0, 40, 2), (30, 100, 2)))
    assert (story.repeated, story.skipped, story.forgotten) == (10, 0, 0)


def test_a_start_before_the_last_checkpoint_is_seen() -> None:
    assert read(log((0, 40, 2), (30, 100, 2), stop_at={1: 40})).forgotten == 1


def test_steps_that_nobody_did_are_seen() -> None:
    assert read(log((0, 40, 2), (50, 100, 2), stop_at={1: 40})).skipped == 10


def test_a_loss_that_jumps_is_seen() -> None:
    text = log((0, 40, 1), (40, 80, 2), stop_at={1: 40})
    text += "\n0: [horae] start step=80 world=1 epoch=3\n" + "\n".join(
        f"[horae] step={s}/100 loss=9.{s} iter_s=0.1 samples_s=9 world=1 epoch=3 t=1" for s in range(81, 85)
    )
    first, second = read(text).jumps()
    assert first < 2
    assert second > 100


def job(**changes: Any) -> dict[str, Any]:
    return {
        "id": "1", "name": "a", "app": "a", "tenant": "t", "state": "completed", "exit_code": 0, "range": "1:4",
        "submitted_s": 10.0, "ended_s": 40.0, "ran_s": 25.0, "attained": {"v100": 50.0}, "starts": 2, **changes,
    }  # fmt: skip


def account(story: Story, apps: Any = (), events: Any = (), **changes: Any) -> dict[str, Any]:
    from horae.demo.record import ShareRecord

    record = ShareRecord()
    tenant = {"name": "t", "weight": 1.0, "held": 2, "fair": 4.0}
    nodes = [{"gpus": 4, "health": "up"}]
    status = {"now_s": 10.0, "cluster": "c", "tenants": [tenant], "nodes": nodes}
    live = [{**job(), "ended": False, "allocation": {"n": 2}}]
    for now_s in (10.0, 20.0):
        record.add({**status, "now_s": now_s, "jobs": live})
    return summary(
        policy="p", framework="numpy", status={**status, "jobs": [job(**changes)]}, apps=apps, record=record,
        stories={"1": story}, events=events, interrupted=False,
    )  # fmt: skip


GOOD = read(log((0, 40, 1), (40, 100, 4), stop_at={1: 40}))


def test_a_good_run_is_ok_and_its_shares_add_up() -> None:
    found = account(GOOD)
    assert (found["ok"], found["lost"]) == (True, [])
    assert (found["utilisation"], found["seconds"]) == (0.5, 10.0)
    assert (found["tenants"][0]["gpu_s"], found["tenants"][0]["fair_gpu_s"]) == (20.0, 40.0)
    assert (found["jobs"][0]["jct_s"], found["jobs"][0]["resizes"], found["jobs"][0]["sizes"]) == (30.0, 1, [1, 4])


def test_apps_with_a_scheduler_are_in_the_account_with_their_trials() -> None:
    trial = {"id": "1", "name": "a", "state": "cancelled", "rank": None, "loss": 2.0, "step": 4.0, "parameters": {},
             "why": "lost", "held": 0}  # fmt: skip
    app = {"name": "t/tune", "tenant": "t", "scheduler": "hyperband", "phase": None, "completed": 0, "ended_early": 1,
           "best": None, "trials": [trial], "weight": None}  # fmt: skip
    found = account(GOOD, apps=[app, {**app, "name": "t/plain", "scheduler": None}])["apps"]
    assert [(a["name"], a["ended_early"], a["trials"][0]["why"]) for a in found] == [("t/tune", 1, "lost")]


@pytest.mark.parametrize(
    ("story", "changes", "words"),
    [
        (GOOD, {"state": "failed", "exit_code": 7}, "exit code 7"),
        (GOOD, {"state": "lost", "exit_code": None}, "lost"),
        (read(log((0, 90, 1))), {"starts": 1}, "after 90 of 100 steps"),
        (read(log((0, 40, 2), (30, 100, 2), stop_at={1: 40})), {}, "before its last complete checkpoint"),
        (read(log((0, 40, 2), (50, 100, 2), stop_at={1: 40})), {}, "left out 10 steps"),
        (GOOD, {"starts": 1}, "started 2 times, of which the arbiter knows 1"),
    ],
)
def test_whatever_went_wrong_is_told(story: Story, changes: dict[str, Any], words: str) -> None:
    found = account(story, **changes)
    assert not found["ok"]
    assert any(words in text for text in found["lost"])


def test_a_start_that_was_ordered_and_not_looked_at_yet_is_none_that_the_arbiter_does_not_know() -> None:
    """A trainer's first line may be there before the arbiter's next look."""
    ordered = [{"kind": "intent", "job": "1", "wall_s": 9.0, "data": {"verb": "start", "epoch": n}} for n in (1, 2)]
    assert account(GOOD, events=ordered, starts=1)["ok"]
    assert not account(GOOD, events=ordered[:1], starts=1)["ok"]


def test_pauses_are_from_the_request_to_the_next_running() -> None:
    def event(kind: str, wall_s: float, **data: Any) -> dict[str, Any]:
        return {"kind": kind, "job": "1", "wall_s": wall_s, "data": data}

    events = [
        event("seen", 1.0, state="running", since_s=1.0),
        event("intent", 10.0, verb="checkpoint_and_stop"),
        event("intent", 11.0, verb="checkpoint_and_stop"),
        event("seen", 11.5, state="running", since_s=1.0),
        event("intent", 12.0, verb="start"),
        event("seen", 13.0, state="running", since_s=12.5),
        event("intent", 20.0, verb="checkpoint_and_stop"),
    ]
    assert restarts(events) == [2.5]
