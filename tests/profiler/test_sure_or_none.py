"""A number that is told is so, or it is not told: what looked like one and was none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.profiler.others import DISTANT, judge, labelled, read


def falling(i: int, first: float = 2.3, last: float = 0.3) -> float:
    return last + (first - last) * math.exp(-i / 5) + 0.004 * math.sin(i * 2.7)


def alone(lines: list[str]) -> dict[str, Any]:
    (run,) = read("\n".join(lines) + "\n")
    return run


@pytest.mark.parametrize("entry", labelled(DISTANT), ids=lambda e: e["name"])
def test_of_forms_never_met_no_number_is_wrong(entry: dict[str, Any]) -> None:
    assert not judge(entry, read(entry["log"])).wrong


def test_a_rate_in_brackets_is_no_average_of_the_time_before_it() -> None:
    run = alone([f"Epoch {e} in 3.21{e}s (583.2{e} batches/s): avg loss {falling(e):.4f}" for e in range(8)])
    assert run["epoch_time"]["median"] == pytest.approx(3.214, abs=0.01)
    assert run["iteration_time"]["median"] == pytest.approx(1 / 583.2, rel=0.01)


def test_of_several_losses_in_one_bracket_none_is_the_loss() -> None:
    run = alone([f"step: {100 * k}, losses: [{falling(k):.3f}, 0.71, 19.2], lr: 1e-4, 2.0 it/s" for k in range(8)])
    assert run["loss"] is None
    assert run["iteration_time"]["median"] == pytest.approx(0.5)
    one = alone([f"step: {100 * k}, loss: [{falling(k):.3f}], lr: 1e-4" for k in range(8)])
    assert one["loss"]["n"] == 8


def test_a_bar_counts_what_its_own_rate_is_of() -> None:
    bars = [
        f"Epoch 1/5:  13%|#   | {8 * k}/4580 [01:{k:02}<07:33,  8.00img/s, loss={falling(k):.3f}]" for k in range(9)
    ]
    run = alone(bars[1:])
    assert run["iterations"]["unit"] == "sample"
    assert run["iteration_time"] is None
    batches = alone([line.replace("img/s", "it/s") for line in bars[1:]])
    assert batches["iterations"]["unit"] == "iteration"
    assert batches["iteration_time"]["median"] == pytest.approx(0.125)


def test_a_total_that_rises_is_of_what_was_done() -> None:
    lines = [
        line
        for k in range(1, 8)
        for line in (f"num_steps_trained: {4000 * k}", f"training_iteration: {k}", f"loss: {falling(k):.4f}")
    ]
    assert alone(lines)["iterations"]["total"] is None
    steady = alone([line if "trained" not in line else "num_steps: 4000" for line in lines])
    assert steady["iterations"]["total"] == 4000


def test_the_newest_index_is_told_though_its_values_stand_above_it() -> None:
    lines = [line for k in range(1, 7) for line in (f"time_this_iter_s: 2.8{k}", f"training_iteration: {k}")]
    assert alone(lines)["iterations"]["last"] == 6


def test_of_losses_on_lines_of_their_own_one_may_be_the_sum_of_the_others() -> None:
    lines = []
    for k in range(1, 7):
        parts = {"spectral_loss": round(falling(k), 4), "mel_loss": round(0.7 + falling(k) / 2, 4)}
        whole = {"generator_loss": round(sum(parts.values()), 4)}
        lines += [f"(Steps: {100 * k}) train/{name} = {value:.4f}." for name, value in (parts | whole).items()]
    run = alone(lines)
    assert run["loss"]["name"] == "train/generator_loss"
    assert run["loss"]["last"] == [600, pytest.approx(0.7 + 1.5 * falling(6), abs=1e-3)]


def test_a_table_of_results_is_no_progress() -> None:
    head = ["| model | loss | step |", "|---|---|---|"]
    assert read("\n".join([*head, "| base | 2.91 | 1000 |", "| ours | 2.84 | 1000 |"]) + "\n") == []
    run = alone([*head, "| base | 2.91 | 1000 |", "| base | 2.84 | 2000 |"])
    assert run["loss"]["n"] == 2


def test_trainings_whose_settings_stand_before_a_tab_are_told_apart() -> None:
    lines = [
        f"lr={lr}\tepoch {e}: loss {falling(e, first):.4f}" for e in range(6) for lr, first in ((0.1, 2), (0.3, 3))
    ]
    assert [run["loss"]["n"] for run in read("\n".join(lines) + "\n")] == [6, 6]


def test_one_training_that_goes_through_its_settings_again_is_one() -> None:
    lines = [f"lr={0.1 if e % 4 < 2 else 0.01}\tepoch {e}: loss {falling(e):.4f}" for e in range(12)]
    assert alone(lines)["loss"]["n"] == 12


def test_a_bar_in_thousands() -> None:
    bars = [
        f"train:  1%|#  | {k / 10:.2f}k/10.0k [{k:02}:00<1:27:30, 1.67it/s, loss={falling(k):.2f}]"
        for k in range(11, 20)
    ]
    run = alone(bars)
    assert (run["iterations"]["last"], run["iterations"]["total"]) == (1900, 10000)
    assert run["iteration_time"]["median"] == pytest.approx(0.6, rel=0.03)


def test_an_epochs_head_behind_tabs_of_a_logger() -> None:
    lines = []
    for e in range(3):
        lines.append(f"2024-05-02 09:0{e}:00,123\t44k\tINFO\tTrain Epoch: {e} [15%]")
        lines += [
            f"2024-05-02 09:0{e}:{k:02},124\t44k\tINFO\tstep: {100 * e + k}, loss: {falling(k):.3f}" for k in range(5)
        ]
    assert alone(lines)["epochs"]["last"] == 2
