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
