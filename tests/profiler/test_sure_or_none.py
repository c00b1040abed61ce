"""A number that is told is so, or it is not told: what looked like one and was none."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
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


def nested(last: bool = True) -> list[str]:
    lines = []
    for k in range(1, 13):
        lines.append(f"[{50 * k}/5000] loss: {falling(k):.4f} dt: 0.42s")
        if k % 4 == 0 and (last or k < 12):
            lines += ["Evaluating...", *(f"[{j}/20] loss: {0.5 + falling(k):.4f} dt: 0.10s" for j in range(5, 25, 5))]
    return lines


@pytest.mark.parametrize("last", [True, False])
def test_an_evaluation_whose_lines_look_like_trainings_is_one(last: bool) -> None:
    run = alone(nested(last))
    assert (run["iterations"]["first"], run["iterations"]["last"], run["iterations"]["total"]) == (50, 600, 5000)
    assert run["loss"]["n"] == 12
    assert run["loss"]["last"] == [600, pytest.approx(falling(12), abs=1e-4)]
    assert run["iteration_time"]["median"] == pytest.approx(0.42)
    assert run["validation"]["loss"]["n"] == 2 + last


def test_a_second_shorter_training_is_a_run_of_its_own() -> None:
    lines = [f"[{10 * k}/100] loss: {falling(k):.4f}" for k in range(1, 10)]
    lines += [f"[{10 * k}/50] loss: {falling(k, 3):.4f}" for k in range(1, 6)]
    assert [run["iterations"]["total"] for run in read("\n".join(lines) + "\n")] == [100, 50]


def test_passes_over_other_data_between_those_of_training_are_evaluations() -> None:
    lines = []
    for e in range(3):
        lines += [f"[{k}/100] loss: {falling(5 * e + k / 20):.4f}" for k in range(20, 101, 20)]
        lines += [f"[{k}/40] loss: {1 + falling(5 * e + 5):.4f}" for k in range(20, 41, 20)]
    run = alone(lines)
    assert run["iterations"]["total"] == 100
    assert run["loss"]["n"] == 15
    assert run["loss"]["last"][1] == pytest.approx(falling(15), abs=1e-4)
    assert run["validation"]["loss"]["last"][1] == pytest.approx(1 + falling(15), abs=1e-4)


def test_bars_without_words_and_of_another_length_time_nothing() -> None:
    lines = []
    for e in range(1, 4):
        lines += [f"Epoch {e}: 100%|##| {k}/100 [00:{k // 2:02}<00:10, 2.00it/s]" for k in (20, 60, 100)]
        lines += [f"100%|##| {k}/20 [00:01<00:10, 10.00it/s]" for k in (10, 20)]
        lines.append(f"Epoch {e}: train loss {falling(e):.4f}, val loss {falling(e):.4f}")
    assert alone(lines)["iteration_time"]["median"] == pytest.approx(0.5)


def test_passes_that_nobody_numbered_lie_behind_each_other() -> None:
    run = alone([f"Train {(k % 6 + 1) * 50}/300 loss {falling(k):.4f}" for k in range(14)])
    assert run["loss"]["n"] == 14
    assert run["loss"]["last"] == [2 * 300 + 100, pytest.approx(falling(13), abs=1e-4)]


def test_seconds_of_an_epoch_are_none_of_an_iteration() -> None:
    run = alone([f"epoch={k / 4:.4f} loss {falling(k):.4f} total_time {84.0 * k:.1f}" for k in range(1, 12)])
    assert run["iteration_time"] is None


def test_how_long_an_epoch_has_lasted_is_not_its_time() -> None:
    lines = [
        f"Epoch {e}/9, Step {k}/6 loss {falling(6 * e + k):.4f} time this epoch {0.42 * k:.2f}s"
        for e in range(1, 4)
        for k in range(1, 7)
    ]
    assert alone(lines)["epoch_time"] is None


def test_a_time_of_so_many_steps() -> None:
    run = alone([f"step {100 * k} loss {falling(k):.4f} time per 100 steps: {42 + k / 10:.1f} s" for k in range(1, 9)])
    assert run["iteration_time"]["median"] == pytest.approx(0.424, abs=0.002)


def test_a_number_with_a_unit_is_no_loss_because_of_the_word_behind_it() -> None:
    run = alone([f"it={10 * k} 42{k}ms loss/train: {falling(k):.4f}" for k in range(1, 9)])
    assert run["loss"]["last"] == [80, pytest.approx(falling(8), abs=1e-4)]
    of = alone([f"Step: {k} of 5000 sec/batch 0.42 loss {falling(k):.4f}" for k in range(1, 9)])
    assert of["loss"]["last"] == [8, pytest.approx(falling(8), abs=1e-4)]
    assert of["iteration_time"]["median"] == pytest.approx(0.42)


def test_e_is_no_level_before_a_number() -> None:
    run = alone([f"E: {1 + k // 6} | I: {k % 6} | loss: {falling(k):.4f}" for k in range(14)])
    assert (run["epochs"]["last"], run["iterations"]["last"]) == (3, 1)
    assert run["loss"]["n"] == 14


def test_what_an_epoch_was_so_far_is_not_averaged() -> None:
    run = alone([f"epoch={1 + k // 6} num_batches={k % 6 + 1} loss {falling(k):.4f}" for k in range(14)])
    assert run["loss"]["last"][1] == pytest.approx(falling(13), abs=1e-4)


def test_a_time_that_the_clock_confirms_stands_against_an_epochs() -> None:
    lines = []
    for e in range(1, 4):
        lines += [
            f"2024-05-02 09:{7 * e + k // 60:02}:{k % 60:02},000 - INFO - "
            f"epoch {e} step {k}/300 loss {falling(e):.3f} 1.00 s/step"
            for k in range(0, 300, 20)
        ]
        lines.append(f"2024-05-02 09:{7 * e + 5:02}:00,000 - INFO - epoch {e} took 60.2 s, loss {falling(e):.4f}")
    run = alone(lines)
    assert run["iteration_time"]["median"] == pytest.approx(1.0)
    assert any("epoch" in warning for warning in run["warnings"])


def test_units_in_brackets_of_a_head() -> None:
    run = alone(["step,loss [nats],wall time [s]", *(f"{50 * k},{falling(k):.4f},{21.0 * k:.2f}" for k in range(1, 9))])
    assert run["loss"]["n"] == 8


def test_a_date_of_a_json_line_wherever_it_stands() -> None:
    lines = [
        f'{{"_step": {100 * k}, "gpu_mem": 31.2, "scale": 65536, "loss": {falling(k):.4f}, '
        f'"ts": "2024-05-02T09:{k:02}:00Z"}}'
        for k in range(8)
    ]
    assert alone(lines)["iteration_time"]["median"] == pytest.approx(0.6)


def test_a_bare_number_before_the_name_of_a_loss_counts() -> None:
    run = alone([f"{e:4} train loss: {falling(e):.5f} test acc: {89 + e / 3:.2f}%" for e in range(1, 11)])
    assert run["loss"]["n"] == 10
    assert run["loss"]["last"] == [10, pytest.approx(falling(10), abs=1e-4)]
    assert read("".join(f"{c} acc: 0.9{c}\n" for c in range(10))) == []


def test_a_value_glued_to_its_name() -> None:
    run = alone([f"EPOCH[{e}/1000] loss{falling(e):.3f}-|Sample:1.23|" for e in range(1, 9)])
    assert run["loss"]["last"] == [8, pytest.approx(falling(8), abs=1e-3)]


def test_a_date_behind_a_bar_is_no_counter() -> None:
    bar = "Training steps:  5%|#  | {k}/20 [0{k}:05<39:35, 65.1s/it, loss=nan]12/24/2024 16:6{k}:44 - hello"
    run = alone([bar.format(k=k) for k in range(1, 9)])
    assert run["iterations"]["last"] == 8
    assert run["iterations"]["total"] == 20


def test_of_a_value_before_and_a_value_now_the_latter_counts() -> None:
    lines = [
        line
        for e in range(1, 5)
        for line in (
            f"Epoch {e}: train loss {falling(e):.4f}",
            f"epoch {e} val loss: {1 / e:.4f} --> {1 / (e + 1):.4f}",
        )
    ]
    assert alone(lines)["validation"]["loss"]["last"] == [4, 0.2]


def test_a_counter_that_stands_still_over_epochs_counts_nothing_and_no_mean_is_told() -> None:
    run = alone([f"[15-5 / step 0] Epoch {1 + k // 6}, Foo {10 * k}/290, Loss={falling(k):.4f}" for k in range(1, 13)])
    assert run["iterations"] is None
    assert run["loss"]["last"] == [3, pytest.approx(falling(12), abs=1e-4)]


def test_a_counter_in_a_bracket_numbers_a_stage_where_another_has_a_total() -> None:
    run = alone([f"[15-5 / step 0] Epoch 1, Iter {10 * k}/290, Loss={falling(k):.4f}" for k in range(1, 13)])
    assert run["iterations"]["last"] == 120
    assert run["loss"]["n"] == 12


def test_held_out_numbers_beside_an_epoch_end_it_and_begin_no_run() -> None:
    steps = [f"[{k}/40] Loss: {falling(k // 10):.4f}" for k in (10, 20, 30, 40)]
    lines = [line for e in (1, 2, 3) for line in (*steps, f"Epoch: 0{e}, Test IoU: 0.6{e}01")]
    run = alone(lines)
    assert run["epochs"]["last"] == 3
    assert run["loss"]["n"] == 12


def test_an_epoch_told_first_behind_a_full_counter_begins_no_run() -> None:
    steps = [f"[{k}/40] Loss: {falling(k // 10):.4f}" for k in (10, 20, 30, 40)]
    assert alone([*steps, "Epoch 1", *steps, "Epoch 2", *steps])["loss"]["n"] == 12


def test_a_whole_number_before_the_name_of_a_loss_counts_though_no_sign_follows() -> None:
    run = alone([f"{e:4d} train loss {falling(e):8.5f} test acc: {90 + e / 2}% duration 7.{e}s" for e in range(1, 9)])
    assert run["loss"]["last"] == [8, pytest.approx(falling(8), abs=1e-4)]
    assert run["validation"]["accuracy"]["n"] == 8


def test_a_rate_in_instances_has_its_unit_in_its_name() -> None:
    run = alone([f"epoch: [1/5], iter: {10 * k}, loss: {falling(k):.4f}, ips: 21.{k}" for k in range(1, 9)])
    assert run["throughput"] == {"median": pytest.approx(21.45), "unit": "samples/s"}


def _epochs_of(lasting: float, apart: int) -> list[dict[str, Any]]:
    began = datetime(2024, 3, 5, 20, 17)
    stamps = [(began + timedelta(minutes=apart * i)).strftime("%Y-%m-%d-%H-%M") for i in range(6)]
    return read("".join(f"{s}: epoch: {i} | loss {3 / (i + 1):.4f} | time {lasting}\n" for i, s in enumerate(stamps)))


@pytest.mark.parametrize(("lasting", "apart", "told"), [(660.0, 665, False), (660.0, 11, True), (660.0, 3, False)])
def test_a_time_of_an_epoch_that_its_stamps_do_not_allow_is_not_told(lasting: float, apart: int, told: bool) -> None:
    """660 beside stamps of eleven hours are minutes, or of something else."""
    (run,) = _epochs_of(lasting, apart)
    assert (run["epoch_time"] is not None) is told
    assert any("660 s, its lines are" in text for text in run["warnings"]) is not told


def test_lines_that_count_nothing_and_measure_nothing_are_no_run() -> None:
    log = "".join(f"12:00:{i:02d} epoch-processor: lag={90 - i} batch=500 took {120 + i}ms\n" for i in range(20))
    assert read(log) == []


def test_of_a_list_parted_by_blanks_none_is_the_accuracy() -> None:
    log = "".join(f"step {i} loss {3 / i:.4f}\nstep {i} train acc: [0.{i}1 0.{i}2 0.10]\n" for i in range(1, 9))
    (run,) = read(log)
    assert run["loss"]["n"] == 8
    assert run["accuracy"] is None


@pytest.mark.parametrize(
    "line",
    [
        "[D] iter {i} loss {low:.4f}\n[G] iter {i} loss {high:.4f}",
        "---\nepoch: {i}\ntrain:\n  loss: {low:.4f}\n  accuracy: 0.9\nvalid:\n  loss: {high:.4f}\n  accuracy: 0.8",
    ],
    ids=["two networks", "blocks whose heads are not read"],
)
def test_of_two_losses_of_which_always_one_is_the_higher_none_is_told(line: str) -> None:
    """Neither their mean nor the last of them is a loss that anybody trained with."""
    run = alone([line.format(i=i, low=0.2 + 2 / i, high=0.4 + 2.4 / i) for i in range(1, 12)])
    assert run["loss"] is None and run["accuracy"] is None
    assert any("of two sorts" in text for text in run["warnings"])


def test_of_ranks_that_differ_now_this_way_and_now_that_the_mean_is_the_loss() -> None:
    run = alone([f"iter {i} loss {2 / i + 0.2 * ((i + r) % 2):.4f}" for i in range(1, 12) for r in (0, 1)])
    assert run["loss"]["n"] == 11


def test_a_side_in_a_bracket_at_the_end() -> None:
    run = alone(
        [
            f"epoch {i}: loss={(1 + r) * 2 / i:.4f} in {20 - 18 * r}.0s ({side})"
            for i in range(1, 9)
            for r, side in enumerate(("fit", "held out"))
        ]
    )
    assert run["loss"]["last"] == [8, 0.25]
    assert run["validation"]["loss"]["last"][1] == 0.5
    assert run["epoch_time"]["median"] == 20.0


def test_a_counter_that_goes_on_by_batches_counts_samples() -> None:
    """Nobody asks for a line every 640 iterations; of lines every 64, 100 or 500 nothing is guessed."""

    def counted(every: int, total: int) -> dict[str, Any]:
        lines = [f"Epoch {e}: [{k * every}/{total}] loss: {falling(9 * e + k):.4f}" for e in range(3) for k in range(9)]
        run = alone(lines)
        return {"unit": run["iterations"]["unit"], "length": run["epochs"]["iterations_per_epoch"]}

    assert counted(640, 30000) == {"unit": "sample", "length": None}
    assert counted(6400, 60000) == {"unit": "sample", "length": None}
    for every, total in ((64, 600), (100, 938), (500, 4800), (640, 6400)):
        assert counted(every, total) == {"unit": "iteration", "length": total}


def test_a_counter_of_its_own_that_counts_one_an_epoch_times_no_iteration() -> None:
    run = alone(
        [
            text
            for e in range(6)
            for text in (
                f"Epoch: {e}, train loss: {falling(e):.4f}",
                f"Training finished iteration {e + 1}. Total running time: {18 * (e + 1)}s",
            )
        ]
    )
    assert run["epochs"]["last"] == 5
    assert run["iterations"] is None and run["iteration_time"] is None


def test_the_length_of_an_epoch_is_its_time_over_that_of_an_iteration_where_the_counter_says_so_too() -> None:
    def length(per_step_ms: float) -> float | None:
        lines = [
            text
            for e in range(1, 6)
            for text in (
                f"epoch: {e} step: 1875, loss is {falling(e):.4f}",
                f"Train epoch time: 12187.5 ms, per step time: {per_step_ms} ms",
            )
        ]
        told: float | None = alone(lines)["epochs"]["iterations_per_epoch"]
        return told

    assert length(6.5) == 1875
    assert length(13.0) is None


def test_of_two_losses_whose_one_name_goes_on_where_the_other_ends_the_first_is_the_whole() -> None:
    lines = "step {i}: {name}: {value:.4f}"
    run = alone(
        [
            lines.format(i=10 * i, name=name, value=falling(i) * share)
            for i in range(1, 10)
            for name, share in (("loss/output", 1), ("loss/output-xent", 3))
        ]
    )
    assert run["loss"] is None or run["loss"]["last"][1] == pytest.approx(falling(9), abs=1e-4)


def test_a_rule_reads_numbers_that_are_set_right_in_a_wider_column() -> None:
    """Else lines of 11.02 and of 9.22 were two losses, and the first of them was lost."""
    run = alone(
        [
            f"step {i:4d}/18865 | loss {13.5 - i:9.6f} (+0.12z)| norm 4.0763 (+0.24z)| lr 3.00e-07 | {2911 + i}.00 ms "
            f"| 56.0% bf16 MFU | 180106 tok/s"
            for i in range(1, 12)
        ]
    )
    assert (run["format"], run["loss"]["n"], run["loss"]["first"]) == ("llmc", 11, [1, 12.5])


@pytest.mark.parametrize(("words", "runs"), [("Running loglikelihood requests: ", 0), ("Steps: ", 1), ("", 1)])
def test_a_bar_whose_words_speak_of_no_training_is_none_without_a_loss(words: str, runs: int) -> None:
    states = (
        f"{words}{2 * k:3d}%|{'#' * (k // 5):10}| {100 * k}/5000 [00:{k:02d}<01:00, 100.00it/s]" for k in range(1, 40)
    )
    assert len(read("\r".join(states) + "\n")) == runs


def test_lines_behind_host_program_and_process() -> None:
    """As journald prints them; a head of an epoch is one there too, and `Epoch[3]:` is no program."""
    lines = [
        text
        for e in range(8)
        for text in (
            f"Epoch {e}",
            f"train_loss {-falling(e):.4f}",
            f"val_loss {-falling(e) / 2:.4f}",
            "Epoch time: 96.4 s",
        )
    ]
    run = alone([f"Mar 05 10:{i:02d}:00 node17 train.sh[48211]: {text}" for i, text in enumerate(lines)])
    assert run["epochs"]["last"] == 7 and run["loss"]["n"] == 8
    heads = alone([f"Mar 05 10:{i:02d}:00 Train Epoch[{i}]: loss {falling(i):.4f}" for i in range(8)])
    assert heads["epochs"]["last"] == 7


def test_rows_of_an_index_a_side_and_a_value() -> None:
    trained = [f"{i} train {9 / (i + 1) + 2:.6f}" for i in range(20)]
    run = alone(["0 val 10.9499", "0 hella 0.2476", *trained, "19 val 2.6131", "19 hella 0.2513"])
    assert (run["iterations"]["last"], run["loss"]["n"], run["loss"]["last"]) == (19, 20, [19, 2.45])
    assert run["validation"]["loss"]["last"] == [19, 2.6131]


@pytest.mark.parametrize("side", ["", "train "])
def test_what_rises_without_a_name_is_no_loss(side: str) -> None:
    run = alone([f"{i} {side}{0.3 + i / 40:.4f}" for i in range(20)])
    assert run["loss"] is None and run["iterations"]["last"] == 19


def test_the_total_of_one_counter_is_not_anothers() -> None:
    counted = [(p, s) for p in (1, 2) for s in range(16 if p == 1 else 4, 652, 16)]
    run = alone([f"iteration:{p} step:{s}/652, NER loss:{falling(p * 40 + s / 16):.6f}" for p, s in counted])
    assert (run["iterations"]["last"], run["iterations"]["total"], run["iterations"]["scope"]) == (644, 652, "epoch")
    assert run["loss"]["n"] == len(counted)


def test_an_ordinal_counts() -> None:
    run = alone([line for i in range(1, 19) for line in (f"current step: {i}th step", f"batch loss:{falling(i):.6f}")])
    assert run["iterations"]["last"] == 18 and run["loss"]["last"] == [18, round(falling(18), 6)]


def test_epochs_told_in_two_forms_of_line_are_counted_together() -> None:
    best = {0, 1, 2, 4, 7, 9, 12}
    run = alone([f"{'[NEW BEST] ' * (i in best)}Epoch #{i}: train_loss={falling(i):.6f}" for i in range(16)])
    assert run["epochs"]["last"] == 15 and run["loss"]["last"][0] == 15


def test_of_an_epoch_told_twice_the_second_behind_words_of_testing_is_held_out() -> None:
    told = [f"epoch: {i},  loss is: {falling(i):.6f}\ntesting in eval mode…\n" for i in range(8)]
    held = [f"epoch: {i},  loss is: {falling(i) + 0.2:.6f}\nNow continue training…" for i in range(8)]
    run = alone([a + b for a, b in zip(told, held, strict=True)])
    assert run["loss"]["n"] == 8 and run["loss"]["last"] == [7, round(falling(7), 6)]
    assert run["validation"]["loss"]["last"] == [7, round(falling(7) + 0.2, 6)]


def table_with(head: str, seconds: float) -> dict[str, Any]:
    """Rows whose elapsed time grows by so much."""
    rows = [f"{50 * k}   {k * seconds:.17f}   {falling(k):.9f}" for k in range(10)]
    return alone([f"Iteration   {head}   Loss", *rows])


def test_an_elapsed_time_that_grows_by_little_and_tells_no_unit_is_of_hours() -> None:
    """Fifty iterations of training and a row about them in 0.03 s: it is hours, which nothing says."""
    run = table_with("Wall_Time", 0.0313)
    assert run["iteration_time"] is None
    assert "Wall_Time grows by 0.0313 a row, in a unit that is not told" in run["warnings"][0]
    assert table_with("Wall_Time", 31.3)["iteration_time"]["median"] == pytest.approx(0.626)
    assert table_with("wall_time_s", 0.0313)["iteration_time"]["median"] == pytest.approx(0.000626)


def test_a_rate_beside_the_time_of_a_window_is_of_a_step() -> None:
    """Caffe: the rate was divided by the hundred iterations of the window, though the stamps said otherwise."""
    lines = [
        f"I0718 04:{2 * k:02d}:03.865905 23375 solver.cpp:218] Iteration {100 * k} (0.8334 iter/s, 119.99s/100 iters), "
        f"loss = {falling(k):.4f}"
        for k in range(1, 4)
    ]
    assert alone(lines)["iteration_time"]["median"] == pytest.approx(1.2, rel=0.01)


def test_a_held_out_loss_in_a_language_without_blanks_stays_beside_trainings() -> None:
    lines = [f"Epoch {k} 完成 | 训练损失: {falling(k):.4f} | 验证损失: {falling(k) + 1:.4f}" for k in range(6)]
    run = alone(lines)
    assert run["loss"]["last"] == [5, round(falling(5), 4)]
    assert run["validation"]["loss"]["last"] == [5, round(falling(5) + 1, 4)]


def test_a_clock_of_twelve_hours_names_no_value_and_stands_for_the_epoch() -> None:
    told = [f"Epoch {k} @ {(9 + k) % 12 or 12}:27 {'PM' if k < 3 else 'AM'}" for k in range(6)]
    run = alone([f"{head} : {falling(k):.4f} C.E. Loss, 94.28% Accuracy" for k, head in enumerate(told)])
    assert run["loss"]["last"] == [5, round(falling(5), 4)]
    assert run["epoch_time"]["median"] == pytest.approx(3600)


def bar_of(total: int, each_s: float) -> str:
    """The states of a bar without a name."""
    states = []
    for done in range(total // 10, total + 1, total // 10):
        lasted = f"{int(done * each_s) // 60:02d}:{int(done * each_s) % 60:02d}"
        states.append(f"\r{100 * done // total:3d}%|###   | {done}/{total} [{lasted}<00:10, {1 / each_s:.2f}it/s]")
    return "".join(states)


@pytest.mark.parametrize("head", ["", "-------第 {} 轮训练开始-------\n", "Starting epoch {}\n"])
def test_a_longer_bar_behind_a_full_one_evaluates(head: str) -> None:
    """Held-out samples one by one behind the batches of training: 25 times too short an iteration was told."""
    bars = f"{bar_of(100, 0.5)}\n{bar_of(1500, 0.02)}\n"
    text = "".join(f"{head.format(k)}{bars}epoch {k} | train_loss: {falling(k):.4f}\n" for k in range(4))
    (run,) = read(text)
    assert run["iteration_time"]["median"] == pytest.approx(0.5)
    assert (run["iterations"]["last"], run["iterations"]["total"]) == (100, 100)


def test_a_curve_of_two_columns_that_begins_again_is_of_two_trainings() -> None:
    rows = [f"{k},{falling(k):.4f}" for k in range(1, 24)]
    first, second = read("\n".join([*rows, *rows[:9]]) + "\n")
    assert (first["loss"]["n"], second["loss"]["n"]) == (23, 9)
    assert second["loss"]["first"] == [1, round(falling(1), 4)]


def test_the_loss_of_an_autoencoder_is_the_whole_of_reconstruction_and_divergence() -> None:
    lines = [f"ITER {500 * k}. loss_vae: {falling(k):.4f}; loss_recon: 0.{40 - k}; loss_kl: 29{k}.5" for k in range(9)]
    assert alone(lines)["loss"]["last"] == [4000, round(falling(8), 4)]


def test_steps_of_accumulation_are_no_accuracy() -> None:
    steps = [f"step:{k}/900 train_loss:{falling(k):.4f} step_avg:51.5ms" for k in range(1, 9)]
    assert alone(["  --train_steps = 900", "  --grad_acc_steps = 4", *steps])["accuracy"] is None


def test_beside_the_loss_of_a_policy_val_is_short_for_value() -> None:
    rows = [f"{k},{falling(k) + 1:.4f},{falling(k):.4f},{falling(k) / 4:.4f}" for k in range(1, 9)]
    run = alone(["iter,loss,pol_loss,val_loss", *rows])
    assert run["validation"] is None
    assert run["loss"]["last"] == [8, round(falling(8) + 1, 4)]
    held = alone(["iter,loss,policy_loss,value_loss,val_loss", *(f"{row},0.9{k}" for k, row in enumerate(rows))])
    assert held["validation"]["loss"]["last"] == [8, 0.97]
    lines = [f"iter {k} loss {falling(k) + 1:.4f} pol_loss {falling(k):.4f} val_loss 0.8{k}" for k in range(1, 9)]
    assert alone(lines)["validation"] is None


def test_a_loss_at_two_counters_is_told_behind_the_second() -> None:
    lines = [f"Loss at epoch {e} and iteration {400 * k} is {falling(3 * e + k)}" for e in range(4) for k in range(3)]
    run = alone(lines)
    assert run["iterations"]["last"] == 800
    assert run["loss"]["n"] == 12
    assert run["loss"]["last"][1] == pytest.approx(falling(11))


def test_the_time_of_a_batch_in_short() -> None:
    lines = [f"(Iter {20 * k}) d_real: {falling(k):.4f}, d_fake: 0.1{k}, btime: 0.{510 + k} s" for k in range(1, 9)]
    assert alone(lines)["iteration_time"]["median"] == pytest.approx(0.5145)
