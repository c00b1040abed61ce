"""Bars without a name, one among the states of another: whose counter is the training's."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.profiler.others import read

RATE = 0.5


def bar(steps: Iterable[int], total: int, seconds: float = RATE) -> str:
    states = []
    for step in steps:
        done = f"{step * 100 // total:3}%|{'█' * (step * 10 // total):<10}| {step}/{total}"
        states.append(
            f"\r{done} [{int(step * seconds) // 60:02}:{int(step * seconds) % 60:02}<00:00, {seconds:.2f}s/it]"
        )
    return "".join(states)


def loss(step: int, an_epoch: int) -> str:
    return f"\n{{'loss': {4 - step / 100:.4f}, 'learning_rate': 1e-05, 'epoch': {step / an_epoch:.2f}}}\n"


def held_out(step: int, an_epoch: int) -> str:
    return f"\n{{'eval_loss': {5 - step / 100:.4f}, 'eval_runtime': 9.1, 'epoch': {step / an_epoch:.2f}}}\n"


@pytest.mark.parametrize("ends", [100, 80, 50])
@pytest.mark.parametrize("sets", [1, 2])
def test_evaluations_in_the_middle_and_at_the_end_are_no_training(ends: int, sets: int) -> None:
    log = []
    for part in range(0, ends, 10):
        log += [bar(range(part + 1, part + 11), 100), loss(part + 10, 50)]
        if part % 20 == 10 or part + 10 == ends:
            log += [bar(range(1, 10), 10 + 5 * n, 1.1) for n in range(sets)] + [held_out(part + 10, 50)]
    (run,) = read("".join(log))
    assert (run["iterations"]["last"], run["iterations"]["total"]) == (ends, 100)
    assert run["iteration_time"]["median"] == pytest.approx(RATE, rel=0.02)
    assert run["loss"]["last"][1] == 4 - ends / 100
    assert run["validation"]["loss"]["last"][1] == 5 - ends / 100


def test_an_evaluation_after_all_is_no_training() -> None:
    log = "".join(bar(range(part + 1, part + 11), 30) + loss(part + 10, 30) for part in range(0, 30, 10))
    (run,) = read(log + bar(range(1, 10), 10, 1.1) + held_out(30, 30))
    assert (run["iterations"]["last"], run["iterations"]["total"]) == (30, 30)


def test_a_bar_that_steps_once_for_each_shorter_one_counts_epochs_of_the_training() -> None:
    log = "".join(bar(range(1, 11), 10) + bar([epoch], 40, 5.0) for epoch in range(1, 7))
    (run,) = read(log + bar(range(1, 8), 10))
    assert run["iteration_time"]["median"] == pytest.approx(RATE, rel=0.02)


def test_a_full_bar_before_the_training_is_not_its() -> None:
    """What was read in, or cut into words: nothing was trained yet."""
    log = bar(range(1, 201), 200, 0.01)
    log += "".join(bar(range(part + 1, part + 11), 100) + loss(part + 10, 50) for part in range(0, 100, 10))
    (run,) = read(log)
    assert (run["iterations"]["last"], run["iterations"]["total"]) == (100, 100)


def training(steps: Iterable[int], total: int, an_epoch: int, seconds: float = RATE) -> str:
    """A bar, a loss each ten steps, and what the Trainer says as it ends, behind which the bar is drawn once more."""
    drawn = [bar([step], total, seconds) + (loss(step, an_epoch) if step % 10 == 0 else "") for step in steps]
    ends = f"\n{{'train_runtime': {total * seconds:.2f}, 'train_loss': 2.5, 'epoch': {total / an_epoch:.2f}}}\n"
    return "".join(drawn) + ends + bar([total, total], total, seconds) + "\n"


@pytest.mark.parametrize(("second", "an_epoch"), [(120, 50), (80, 100), (80, 10), (40, 100)])
def test_two_trainings_of_one_program_are_two_runs(second: int, an_epoch: int) -> None:
    """Longer or shorter than the first, its epochs go back or on."""
    before, after = read(training(range(1, 81), 80, 100) + training(range(1, second + 1), second, an_epoch, 2.0))
    assert (before["iterations"]["last"], before["iterations"]["total"], before["loss"]["n"]) == (80, 80, 8)
    assert (after["iterations"]["last"], after["iterations"]["total"]) == (second, second)
    assert after["loss"]["n"] == second // 10
    assert before["iteration_time"]["median"] == pytest.approx(RATE, rel=0.02)
    assert after["iteration_time"]["median"] == pytest.approx(2.0, rel=0.02)


def test_what_is_evaluated_after_the_end_is_of_the_training_that_ended() -> None:
    log = training(range(1, 81), 80, 100) + bar(range(1, 21), 20, 0.01) + held_out(80, 100)
    (run,) = read(log + "***** train metrics *****\n  train_loss = 2.5\n  train_runtime = 0:00:40.00\n")
    assert (run["iterations"]["last"], run["iterations"]["total"], run["loss"]["n"]) == (80, 80, 8)
    assert run["validation"]["loss"]["last"][1] == pytest.approx(4.2)
    assert run["iteration_time"]["median"] == pytest.approx(RATE, rel=0.02)


def test_a_bar_that_ran_over_what_was_trained_before_times_nothing_by_its_rate() -> None:
    """Resumed at step 60: sixty steps within a tenth of a second, then a few real ones."""
    skipped = "\r  0%|          | 0/150 [00:00<?, ?it/s]\r 44%|████▍     | 66/150 [00:00<00:00, 637.96it/s]"
    states = [(70, 0, 637.96), (100, 0, 637.96), (130, 1, 93.65), (150, 1, 93.65)]
    rest = "".join(f"{loss(n, 100)}\r {n}|█| {n}/150 [00:0{s}<00:00, {rate}it/s]" for n, s, rate in states)
    (run,) = read(skipped + rest.replace(" 70|", " 47%|").replace("0|█", "0%|█"))
    assert run["loss"]["n"] == 4
    assert run["iteration_time"] is None


def test_a_bar_that_ran_over_what_was_trained_before_times_by_its_clock() -> None:
    skipped = "\r  0%|          | 0/150 [00:00<?, ?it/s]\r 40%|████      | 60/150 [00:00<00:00, 637.96it/s]"
    states = [f"\r{n * 100 // 150:3}%|█| {n}/150 [00:{(n - 60) // 2:02}<00:09, 2.00it/s]" for n in range(61, 151)]
    told = [state + (loss(n, 100) if n % 10 == 0 else "") for n, state in zip(range(61, 151), states, strict=True)]
    (run,) = read(skipped + "".join(told))
    assert run["iteration_time"]["median"] == pytest.approx(0.5, rel=0.05)
