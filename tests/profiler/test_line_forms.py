"""How a line writes what it tells: durations in words, shares, names before several numbers, steps in a window."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.rules.book import load, read_line
from tests.profiler.others import read

BOOK = load()


def values(line: str) -> dict[str, Any]:
    told = read_line(BOOK, line)
    assert told is not None
    return told[1]


@pytest.mark.parametrize(
    ("lasted", "seconds"),
    [
        ("1 hour, 2 minutes and 3.5 seconds", 3723.5),
        ("1 minute and 42.6 seconds", 102.6),
        ("2 hours 5 minutes", 7500),
        ("2 h 5 min", 7500),
        ("1h 20m 5s", 4805),
        ("1h 20m", 4800),
        ("1.5h", 5400),
        ("20m 5.25s", 1205.25),
        ("1d 2h 3m", 93780),
        ("1 day, 3:20:10", 98410),
        ("3 min 20 s", 200),
    ],
)
def test_a_duration_is_all_of_its_parts(lasted: str, seconds: float) -> None:
    assert values(f"epoch 3 loss 0.5 time: {lasted}")["window_time"] == pytest.approx(seconds)


@pytest.mark.parametrize("lasted", ["0:01:23", "0:01:23.456789"])
def test_what_an_epoch_was_completed_in(lasted: str) -> None:
    assert values(f"Epoch 5 completed in {lasted}")["epoch_time"] == pytest.approx(83, abs=0.5)
    assert "epoch_time" not in values(f"Epoch 5 completed at {lasted}")


def test_a_count_of_a_total_is_a_share_and_no_counter() -> None:
    told = values("epoch 5 loss 0.3 accuracy 9123/10000 (91.23%)")
    assert told["accuracy"] == pytest.approx(0.9123)
    assert values("epoch 5 loss 0.3 correct 9123/10000") == {"epoch": 5, "loss": 0.3}


@pytest.mark.parametrize("window", ["10 it / 2.1 s", "time/10iter 2.1", "2.1s(10 iters)"])
def test_how_long_so_many_steps_took(window: str) -> None:
    assert values(f"step 50, loss 0.3, {window}")["step_time"] == pytest.approx(0.21)


@pytest.mark.parametrize(
    "line",
    [
        "epoch 3 train/val loss: 0.31/0.42",
        "epoch 3 loss (train/val): 0.31/0.42",
        "epoch 3 loss (train, val): 0.31, 0.42",
    ],
)
def test_names_of_both_sides_before_both_numbers(line: str) -> None:
    assert values(line) == {"epoch": 3, "loss": 0.31, "validation_loss": 0.42}


@pytest.mark.parametrize("line", ["step 100 (loss, acc): 2.31, 0.12", "step 100 [loss, acc] = [2.31, 0.12]"])
def test_each_name_has_its_number(line: str) -> None:
    assert values(line) == {"iteration": 100, "loss": 2.31, "accuracy": 0.12}
    more = values("step 100 (loss, acc): 2.31, 0.12, 7.1")
    assert "accuracy" not in more or more["accuracy"] == 0.12


def test_a_cell_says_behind_its_number_what_it_counts() -> None:
    assert values("| epoch 019 | 0161656 updates | words/s   14482| trainloss     1.94")["iteration"] == 161656


def test_of_an_epoch_within_an_epoch() -> None:
    told = values("epoch_out: 2, epoch_in: 7, loss: 0.31")
    assert (told["epoch"], told["iteration"]) == (2, 7)


@pytest.mark.parametrize(
    "before",
    [
        "1714557600000\t",
        "1714557600 ",
        "     12\t",
        "train.log:12:",
        "[2024-05-01 10:00:00,123][trainer][INFO] - ",
        "0: 2024-05-01 10:00:00.12: ",
        "2024-05-01T10:00:00.1Z [2024-05-01 09:59:58,123][trainer][INFO] - ",
    ],
)
def test_what_stands_before_a_line_counts_nothing(before: str) -> None:
    told = values(f"{before}step 5 loss 2.3")
    assert (told["iteration"], told["loss"], "epoch" in told) == (5, 2.3, False)
    assert values(f"{before}Epoch 1/3") | {"rank": 0} == {"epoch": 1, "epochs": 3, "rank": 0}


def test_a_row_of_numbers_begins_with_its_counter() -> None:
    assert values("   100\t0.35 loss")["iteration"] == 100


def test_the_programs_own_stamp_tells_how_long_its_steps_take() -> None:
    """A shipper takes many lines at once, and all have its time."""
    own = [
        f"2024-05-01 10:{k // 6:02}:{k % 6 * 10:02},000 INFO step {10 * k} loss {3 - k / 50:.3f}\n" for k in range(30)
    ]
    flushed = [f"2024-05-01T10:{k // 8:02}:59.123Z {line}" for k, line in enumerate(own)]
    (run,) = read("".join(flushed))
    assert run["iteration_time"]["median"] == pytest.approx(1.0)


def test_two_times_of_each_step_of_the_one_rank_that_prints_are_none() -> None:
    lines = []
    for k in range(1, 9):
        lines += [f"[rank0]: Learning iteration {k}/300", f"[rank0]: loss: {3 - k / 50:.3f}"]
        lines += ["[rank0]: Steps per second: 6400", "[rank0]: Iteration time: 0.24s"]
    (run,) = read("\n".join(lines) + "\n")
    assert run["iteration_time"] is None
