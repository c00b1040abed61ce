"""Trainings that run at once and write in turns into one log are runs of their own; ranks of one training are not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from profiler.model import Run
from profiler.rules.book import load
from profiler.runs import persistence
from profiler.runs.reader import LogReader

TURNS = (0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0)
BOOK = load()

TAGGED: dict[str, Callable[[int, int, float], str]] = {
    "trial": lambda w, i, loss: f"[Trial {3 + w}] epoch {i}/6 train_loss: {loss:.4f}",
    "fold": lambda w, i, loss: f"fold-{w}: epoch {i}: loss={loss:.4f}",
    "settings": lambda w, i, loss: (
        f"2024-05-01 09:00:0{i} [lr={10 ** -(w + 3):g},bs=32] step {100 * i} loss {loss:.4f}"
    ),
    "name": lambda w, i, loss: json.dumps({"run_id": "ab"[w], "epoch": i, "loss": round(loss, 4)}),
    "process": lambda w, i, loss: f"(train_fn pid={4711 + w}) epoch {i} loss {loss:.4f}",
}


def log(line: Callable[[int, int, float], str], losses: Callable[[int, int], float]) -> list[bytes]:
    counts = [0, 0]
    out = []
    for w in TURNS:
        counts[w] += 1
        out.append(line(w, counts[w], losses(w, counts[w])).encode() + b"\n")
    return out


def apart(w: int, i: int) -> float:
    return (2.0 + w) / i + 0.1 * w


def runs_of(lines: list[bytes], restart: bool = False) -> list[Run]:
    reader = LogReader(BOOK)
    for at, line in enumerate(lines):
        reader.feed(line)
        if restart and at == 6:
            reader = persistence.load(json.loads(json.dumps(persistence.dump(reader))), BOOK)
    return reader.runs()


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("name", TAGGED)
def test_each_training_is_a_run(name: str, restart: bool) -> None:
    runs = runs_of(log(TAGGED[name], apart), restart)
    assert len(runs) == 2
    for w, run in enumerate(runs):
        assert [p.losses[0].value for p in run.points] == [round(apart(w, i), 4) for i in range(1, 7)]
        assert run.positions == 6
        assert run.ranks is None
        assert (run.last_epoch or run.last_iteration) in (6, 600)


def test_processes_that_differ_now_this_way_and_now_that_are_ranks() -> None:
    noisy = log(TAGGED["process"], lambda w, i: 2.0 / i + (0.01 if (w + i) % 2 else -0.01))
    (run,) = runs_of(noisy)
    assert len({p.epoch for p in run.points}) == 6


@pytest.mark.parametrize(("processes", "runs"), [(5, 5), (65, 1)])
def test_more_processes_than_anybody_compares_are_ranks(processes: int, runs: int) -> None:
    lines = [
        f"(train_fn pid={100 + w}) epoch {i} loss {(1 + w) / i:.4f}\n".encode()
        for i in range(1, 7) for w in range(processes)
    ]  # fmt: skip
    assert len(runs_of(lines)) == runs


def test_a_tag_that_never_changes_says_nothing() -> None:
    lines = [json.dumps({"run_id": "a", "step": i, "loss": round(2 / i, 4)}).encode() + b"\n" for i in range(1, 9)]
    bare = [json.dumps({"step": i, "loss": round(2 / i, 4)}).encode() + b"\n" for i in range(1, 9)]
    (tagged,), (plain,) = runs_of(lines), runs_of(bare)
    assert [(p.iteration, p.losses, p.rank) for p in tagged.points] == [
        (p.iteration, p.losses, p.rank) for p in plain.points
    ]


def test_settings_that_move_on_are_no_names() -> None:
    lines = [f"[loss={2 / i:.3f},acc={i / 9:.2f}] step {i} loss {2 / i:.3f}\n".encode() for i in range(1, 9)]
    (run,) = runs_of(lines)
    assert run.last_iteration == 8
