"""Sources that contradict each other: the better one is told, or none, never a number that was never printed."""

from __future__ import annotations

from typing import Any

import pytest

from profiler.evidence import Ground, confidence
from profiler.roles import Role, role
from profiler.rules.book import load, read_line
from tests.profiler.others import read

FALLING = [9.41, 7.22, 6.13, 5.04, 4.35, 3.76, 3.27, 2.98, 2.69, 2.41]


def only(log: str) -> dict[str, Any]:
    runs = read(log)
    assert len(runs) == 1, runs
    return runs[0]


def test_lines_behind_the_words_that_an_evaluation_begins_are_of_it() -> None:
    lines = []
    for epoch in (0, 1):
        lines += [f"Epoch: [{epoch}][{i}/200] Loss {9 - i / 50 - 4 * epoch:.3f}" for i in (50, 100, 150, 200)]
        lines += [f"--- validate (epoch={epoch})-----------"]
        lines += [f"Epoch: [{epoch}][{i}/39] Loss {3.5 - epoch}" for i in (10, 20, 30)]
    run = only("\n".join(lines) + "\n")
    assert run["iterations"]["total"] == 200 and run["epochs"]["last"] == 1
    assert (run["loss"]["n"], run["loss"]["last"]) == (8, [400, 1.0])
    assert run["validation"]["loss"] == {"n": 2, "last": [400, 2.5]}


def test_training_that_goes_on_behind_an_evaluation_that_said_nothing_is_training() -> None:
    lines = [f"step {i} loss {x}" for i, x in enumerate(FALLING[:5])] + ["Running evaluation"]
    lines += [f"step {i} loss {x}" for i, x in enumerate(FALLING[5:], 5)]
    assert only("\n".join(lines) + "\n")["loss"]["n"] == 10


def test_what_an_epoch_is_so_far_is_no_mean() -> None:
    lines = [f"Epoch {1 + i // 5} complete [{20 * (i % 5)}%] Loss: {x}" for i, x in enumerate(FALLING)]
    assert only("\n".join(lines) + "\n")["loss"]["last"] == [2, 2.41]


def test_micro_batches_of_one_step_are_no_mean() -> None:
    lines = ["gradient_accumulation_steps=2"]
    lines += [f"micro {i} (optimizer step {i // 2 + 1}/1000) loss {x}" for i, x in enumerate(FALLING)]
    assert only("\n".join(lines) + "\n")["loss"]["last"][1] == 2.41


def test_an_accuracy_that_falls_as_the_loss_does_is_none() -> None:
    log = "".join(f"Epoch: [1][{i}/50] Loss {x} top1 {99 - i}.8\n" for i, x in enumerate(FALLING, 1))
    run = only(log)
    assert run["accuracy"] is None and run["loss"]["n"] == 10
    assert any("share that is wrong" in text for text in run["warnings"])


def test_times_of_epochs_since_the_first_are_no_times_of_epochs() -> None:
    log = "".join(f"Epoch {10 * i}, Time {8000 * i + 9 * i}.5s, Loss {x}\n" for i, x in enumerate(FALLING[:6], 1))
    assert only(log)["epoch_time"]["median"] == pytest.approx(800.9, rel=0.01)


def test_two_times_of_each_step_are_none() -> None:
    block = "Learning iteration {}/900\n Steps per second: 6400\n Mean value loss: {}\n Iteration time: 0.24s\n"
    run = only("".join(block.format(i, x) for i, x in enumerate(FALLING)))
    assert run["iteration_time"] is None
    assert any("0.24 s" in text and "neither is used" in text for text in run["warnings"]), run["warnings"]


def test_a_coarse_clock_is_read_by_its_mean() -> None:
    seconds = [0, 18, 37, 55, 74, 92, 111, 129, 148, 166]
    stamps = [f"2024-03-04 10:{15 + s // 60}:{s % 60:02d}" for s in seconds]
    rows = zip(stamps, FALLING, strict=True)
    log = "".join(f"{stamp} step {100 * i} loss {x}\n" for i, (stamp, x) in enumerate(rows, 1))
    assert only(log)["iteration_time"]["median"] == pytest.approx(0.1844, rel=0.005)


def test_a_bar_that_counts_epochs_times_epochs() -> None:
    log = "".join(
        f"\rEpoch {i}/400:   1%|          | {i}/400 [00:0{i}<16:37,  2.50s/it, train_loss={x}]"
        for i, x in enumerate(FALLING[:8], 1)
    )
    run = only(log + "\n")
    assert run["iteration_time"] is None and run["iterations"] is None
    assert run["epoch_time"]["median"] == 2.5 and run["epochs"]["last"] == 8


def test_a_stamp_is_no_time_and_a_date_that_cannot_be_is_no_stamp() -> None:
    log = "".join(f"Time: 20240502-09{7 * i:02d}, Epoch: {i}, Loss: {x}\n" for i, x in enumerate(FALLING[:8]))
    run = only(log)
    assert run["epoch_time"]["median"] == 420 and run["epochs"]["last"] == 7, "what lies between them is"
    read_as = read_line(load(), "Epoch 0/9 ---- 20/120 0:00:08 2.44it/s loss: 1.84")
    assert read_as is not None and read_as[1]["iteration"] == 20 and read_as[0].clock is None


def test_a_number_that_stands_still_counts_nothing() -> None:
    log = "".join(f"nsamp = {9000 + i}, loss = {x}, gnorm_batch = 12.1\n" for i, x in enumerate(FALLING))
    for run in read(log):
        assert run["iterations"] is None and run["loss"] is None


@pytest.mark.parametrize(
    ("line", "kind", "told"),
    [
        ("Phase: Training, Dataset used: Validation, Epoch: 3, Accuracy: 0.69", "validation", {"accuracy": 0.69}),
        ("Phase: Training, Dataset used:      Train, Epoch: 3, Accuracy: 0.69", "epoch", {"accuracy": 0.69}),
        ("[P7 train] epoch 3 - Objective: 28.3 %", "", {}),
        ("loss in epoch 1 iteration 3: 0.59", "train", {"epoch": 1, "iteration": 3, "loss": 0.59}),
    ],
)
def test_lines(line: str, kind: str, told: dict[str, float]) -> None:
    found = read_line(load(), line)
    if not kind:
        assert found is None or "loss" not in found[1]
        return
    assert found is not None and found[0].kind == kind
    held = {name.replace("validation_", ""): value for name, value in found[1].items()}
    assert {name: held.get(name) for name in told} == told


def test_the_total_that_a_noun_follows_is_of_samples() -> None:
    log = "".join(f"[Train Epoch: 1/20] [{100 * i}/1034 images] loss={x}\n" for i, x in enumerate(FALLING, 1))
    assert only(log)["iterations"]["unit"] == "sample"


def test_losses_that_nobody_translated_are_not_summed() -> None:
    line = "Epoca {} di 20: perdita di addestramento {}, perdita di collaudo {:.2f}, accuratezza 0.5{}\n"
    run = only("".join(line.format(i, x, x + 1, i) for i, x in enumerate(FALLING[:9], 1)))
    assert run["loss"] is None and run["accuracy"]["n"] == 9


def test_a_held_out_whole_stands_before_its_parts() -> None:
    line = "125/125 - 10s - 71ms/step - a_loss: {0} - loss: {1:.2f} - val_a_loss: {0} - val_loss: {2:.2f}"
    log = "".join(f"Epoch {i}/30\n{line.format(x, 2 * x, 3 * x)}\n" for i, x in enumerate(FALLING, 1))
    assert only(log)["validation"]["loss"]["last"][1] == 7.23


def test_a_loss_that_is_the_mean_of_its_parts_is_the_loss() -> None:
    line = "step {} Loc Loss: {:.2f} Cls Loss: {:.2f} Tot Loss: {:.2f}\n"
    log = "".join(line.format(i, x, x + 1, x + 0.5) for i, x in enumerate(FALLING))
    assert only(log)["loss"]["last"] == [9, 2.91]


def test_what_falls_roughly_may_be_a_loss_and_what_falls_smoothly_is_none() -> None:
    rough = [2.4 / (1 + 0.3 * i) + 0.02 * (i % 2) for i in range(24)]
    smooth = [2.4 * 0.9**i for i in range(24)]
    assert role(rough, whole=False) is Role.DECAYING
    assert role(smooth, whole=False) is not Role.DECAYING


def test_what_is_surest_was_right_as_often_where_no_reader_was_changed() -> None:
    assert confidence("loss.last", Ground.RULE) < 0.95 < confidence("epochs.last", Ground.GENERIC)
