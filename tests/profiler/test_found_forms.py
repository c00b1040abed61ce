"""Forms of logs that public repositories hold, with made-up values: what was read wrong of them at first."""

from __future__ import annotations

import math

import pytest

from tests.profiler.others import read


def falling(i: int) -> float:
    return 0.3 + 2 * math.exp(-i / 5) + 0.004 * math.sin(i * 2.7)


def test_several_accuracies_of_one_position_have_no_mean() -> None:
    """Heads of one network, each on a line of its own behind the loss; a number in their names is no value."""
    lines = []
    for k in range(8):
        lines.append(f"Epoch: [3][{10 * k}/250]\tTime 1.2{k} (1.2{k})\tLoss {falling(k):.4f} ({falling(k):.4f})")
        lines += [f"Prec@1 {head:>3} {50 + k}.{i}00 (49.{k}00)" for i, head in enumerate(("", "k", "0", "001", "05"))]
    (run,) = read("\n".join(lines) + "\n")
    assert run["accuracy"] is None
    assert run["loss"]["n"] == 8


@pytest.mark.parametrize("first", [0, 1])
def test_an_epoch_told_behind_its_batches_is_theirs(first: int) -> None:
    lines = []
    for epoch in range(3):
        lines += [f"batch: {k}/800  loss: {falling(8 * epoch + k // 100):.4f}" for k in range(100, 801, 100)]
        lines.append(f"Epoch [{epoch + first}]/[3] Training Phase Loss: {falling(8 * epoch + 4):.4f}")
        lines.append(f"Epoch [{epoch + first}]/[3] Validation Phase Loss: {falling(8 * epoch + 3):.4f}")
    (run,) = read("\n".join(lines) + "\n")
    assert run["loss"]["n"] == 24
    assert run["loss"]["first"] == [100, pytest.approx(falling(1), abs=1e-4)]
    assert run["loss"]["last"][0] == 2400
    assert run["validation"]["loss"]["last"][0] == 2400


def test_a_counter_whose_values_are_not_printed_yet_has_its_total() -> None:
    lines = []
    for k in range(1, 6):
        lines.append(f"2024-05-01 10:00:{10 * k}.000\thost:0\tolmo.train:990\tINFO\t[step={10 * k}/4000,epoch=0]")
        lines += [f"    train/CrossEntropyLoss={falling(k):.3f}", "    throughput/device/batches_per_second=1.0000"]
    (run,) = read("\n".join(lines[:-2]) + "\n")
    assert run["iterations"]["total"] == 4000
    assert run["loss"]["last"][0] == 40


def test_a_counter_alone_between_dashes_counts_the_values_below_it() -> None:
    lines = [
        "Namespace(batch_size=32, gpu=0, max_epoch=201)",
        "pid: 1234",
        "**** EPOCH 000 ****",
        "2024-05-01 10:00:00.123456",
    ]
    for k in range(1, 9):
        lines += [f" -- {10 * k:03} / 1234 --", f"mean loss: {falling(k):.6f}", f"segmentation accuracy: 0.5{k}1234"]
    (run,) = read("\n".join(lines) + "\n")
    assert run["epochs"]["iterations_per_epoch"] == 1234
    assert run["iterations"]["total"] is None, "it is no end of the run"
    assert run["loss"]["first"] == [10, pytest.approx(falling(1), abs=1e-6)]
    assert (run["loss"]["n"], run["loss"]["last"][0]) == (8, 80)


def test_an_epoch_lasts_as_the_stamps_of_epochs_say_where_nothing_else_is_told() -> None:
    lines = [f"2024-05-01 10:{k:02}:{2 * k:02},500 INFO:Epoch {k}: Train Loss={falling(k):.4f}" for k in range(1, 9)]
    (run,) = read("\n".join(lines) + "\n")
    assert run["epoch_time"]["median"] == pytest.approx(62)
    assert run["iteration_time"] is None
    (few,) = read("\n".join(lines[:3]) + "\n")
    assert few["epoch_time"] is None


def test_a_rule_gives_way_to_words_that_an_evaluation_prints() -> None:
    """The lines of an evaluation are those of training but for their first word."""
    lines = []
    for epoch in range(2):
        for k in range(0, 60, 10):
            lines.append(
                f"TRAINING - Epoch: [{epoch}][{k}/60]\tTime 0.31 (0.31)\tLoss {falling(6 * epoch + k // 10):.4f}"
            )
        lines += [f"EVALUATING - Epoch: [{epoch}][{k}/20]\tTime 0.11 (0.11)\tLoss {2.5 - epoch}" for k in (0, 10)]
    (run,) = read("\n".join(lines) + "\n")
    assert run["loss"]["n"] == 12
    assert run["iteration_time"]["median"] == pytest.approx(0.31)
    assert run["validation"]["loss"]["last"][1] == 1.5


def test_seconds_elapsed_are_since_the_beginning() -> None:
    lines = [f"Iteration:{k}\n{3.5 * k:.4f} seconds elapsed, finished iteration {k}" for k in (1, 2)]
    (run,) = read("\n".join(lines) + "\n")
    assert run["iteration_time"] is None or run["iteration_time"]["median"] == pytest.approx(3.5)


def test_a_time_of_one_digit_gives_way_to_the_time_of_an_epoch_within_its_rounding() -> None:
    bars = (
        f"Epoch {k}/9\n10/10 [=====] - {24 + k % 3}s {2 + k % 2}s/step - loss: {falling(k):.4f}" for k in range(1, 10)
    )
    (run,) = read("\n".join(bars) + "\n")
    assert run["iteration_time"]["median"] == pytest.approx(2.5, abs=0.11)


def test_a_bar_between_whose_states_epochs_begin_counts_them() -> None:
    """It stands one behind; a step of it is no iteration."""
    lines = []
    for k in range(1, 7):
        lines += [f"Epoch : {k}", f"Epoch {k}: 100%|██████████| 46/46 [00:24<00:00,  1.90it/s]"]
        lines.append(f" {k}0%|█         | {k - 1}/9 [0{k}:15<03:26, 25.80s/it]Training loss: {falling(k):.4f}")
        lines.append(f" {k}0%|█         | {k}/9 [0{k}:17<02:59, 25.69s/it]Validation loss: 3.{k}")
    (run,) = read("\n".join(lines) + "\n")
    assert run["iteration_time"] is None or run["iteration_time"]["median"] < 1
    assert run["iterations"] is None or run["iterations"]["total"] != 9
    assert run["epochs"]["last"] == 6


def test_a_column_says_of_which_data_a_row_is() -> None:
    lines = ["accuracy | loss | epoch | train | time", "-- | -- | -- | -- | --"]
    for k in range(6):
        lines += [
            f"0.{50 + k} | {falling(k):.3f} | {k} | True | 00:21",
            f"0.{40 + k} | 3.{9 - k}00 | {k} | False | 00:01",
        ]
    (run,) = read("\n".join(lines) + "\n")
    assert run["loss"]["last"] == [5, pytest.approx(falling(5), abs=1e-3)]
    assert run["accuracy"]["last"] == [5, 0.55]
    assert run["validation"]["loss"]["last"] == [5, 3.4]
    assert run["validation"]["accuracy"]["last"] == [5, 0.45]


def test_a_loss_behind_the_accuracy_of_a_test_is_the_tests() -> None:
    lines = []
    for k in range(1, 6):
        lines += [
            f"\tepoch {k}: train acc: 6{k}.6%, loss: {falling(k):.6f}",
            f"With Adam it is test acc: 5{k}.8%, loss: 4.{k}",
        ]
    (run,) = read("\n".join(lines) + "\n")
    assert run["loss"]["last"] == [5, pytest.approx(falling(5), abs=1e-6)]
    assert run["validation"]["loss"]["last"][1] == 4.5
    summed = "".join(f"Epoch: {k}/9 | Test. Acc.: 9{k}.3% | Loss: 4.{k}\n" for k in range(1, 6))
    (run,) = read(summed)
    assert run["loss"] is None


def test_a_later_epoch_ends_the_evaluation_of_the_one_before() -> None:
    lines = []
    for k in range(1, 7):
        lines += [f"Epoch {k}", "  Training measures:", f"    loss = {falling(k):.6f}, accuracy = 0.9{k}"]
        lines += ["  Validation measures:", f"    accuracy = 0.8{k}, AUC = 0.88"]
    (run,) = read("\n".join(lines) + "\n")
    assert run["loss"]["last"] == [6, pytest.approx(falling(6), abs=1e-6)]
    assert run["accuracy"]["last"] == [6, 0.96]
    assert run["validation"]["accuracy"]["last"] == [6, 0.86]


def test_times_of_one_epoch_that_grow_are_none_of_it() -> None:
    lines = [f"Epoch 3 Loss {falling(k):.4f}\nTime taken for 1 epoch: {38 + k / 6:.4f} secs" for k in range(9)]
    (run,) = read("\n".join(lines) + "\n")
    assert run["epoch_time"] is None


def test_a_bar_without_a_total_counts_where_a_loss_stands_on_it() -> None:
    states = (
        f"Epoch {e}: {k}it [00:{2 * k:02}, 2.0s/it, loss={falling(9 * e + k):.4f}]"
        for e in (1, 2)
        for k in range(1, 10)
    )
    (run,) = read("\n".join(states) + "\n")
    assert run["iterations"]["last"] == 9
    assert run["iteration_time"]["median"] == pytest.approx(2)
    told = read("".join(f"{k}it [00:{2 * k:02}, 2.0s/it]\n" for k in range(1, 10)))
    assert all(run["iterations"] is None for run in told), "it may prepare data"


def test_epochs_that_begin_again_at_the_first_are_another_run() -> None:
    """Where one process prints them, it was started again; of several the line may come late."""
    epochs = [(1, 2.7), (2, 2.6), (1, 2.8), (2, 2.5), (3, 2.4), (4, 2.3)]
    lines = [f"Epoch {e}/100 [{130 + e}.0s] | Train Loss: {loss} | Val Loss: {loss - 1:.1f}" for e, loss in epochs]
    runs = read("\n".join(lines) + "\n")
    assert [(run["epochs"]["last"], run["loss"]["n"]) for run in runs] == [(2, 2), (4, 4)]
    twice = [line for e in (1, 2, 3) for line in (f"Epoch {e}: loss {3 - e / 10}", f"Epoch {e}: loss {3.1 - e / 10}")]
    late = [*twice[:3], twice[4], twice[3], twice[5]]
    assert len(read("\n".join(late) + "\n")) == 1


@pytest.mark.parametrize(
    "prompt", ["(venv) ann@node:~/project$ python finetune.py", "(venv) project % python finetune.py"]
)
def test_behind_a_shells_prompt_another_training_begins(prompt: str) -> None:
    first = [f"Epoch {e} | Train Loss: {2 - e / 10:.2f} | Val Loss: 1.2" for e in range(1, 4)]
    second = [f"Fine-Tune Epoch {e} | Train Loss: {1 - e / 10:.2f} | Val Loss: 0.9" for e in range(1, 4)]
    runs = read("\n".join([*first, "", prompt, *second]) + "\n")
    assert [run["loss"]["first"][1] for run in runs] == [1.9, 0.9]


def test_an_accuracy_that_is_called_trainings_is_the_trainings() -> None:
    lines = []
    for e in range(1, 5):
        lines += [f"Epoch {e} | Batch {b}/900 | Train Loss {3 - e / 10 - b / 9000:.4f}" for b in (300, 600, 900)]
        lines += [
            "F1 score: 0.91",
            f"Accuracy: 0.9{e}",
            f"Epoch {e} | Train Acc 0.2{e} | Train Loss {2.9 - e / 10:.2f}",
        ]
    (run,) = read("\n".join(lines) + "\n")
    assert run["accuracy"] is None or run["accuracy"]["last"][1] == 0.24


def test_what_was_read_of_a_checkpoint_is_no_evaluation() -> None:
    resumed = "  meta: {'iteration': 23, 'best_iteration': 15, 'distill_val_loss': 1.3549}"
    (run,) = read("\n".join([resumed, *(f"step {i} loss {3 - i / 10:.2f}" for i in range(1, 9))]) + "\n")
    assert run["validation"] is None
