"""Which loss a line of progress tells: one that was reported, once; and what a Trainer's checkpoint holds."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from horae.elastic.frameworks import keras_, transformers_
from horae.elastic.sdk.progress import Progress
from tests.profiler.others import read


def lines(capsys: pytest.CaptureFixture[str], losses: list[Any]) -> str:
    progress = Progress(total=len(losses), global_batch=8, world=1, epoch=1, every_s=0.0)
    progress.begin(0)
    for step, loss in enumerate(losses, start=1):
        progress.step_done(step, loss, float(step))
    return capsys.readouterr().out


def test_a_job_that_reports_no_loss_has_none_and_did_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = read(lines(capsys, [None] * 20))
    assert (run["loss"], run["failure"]) == (None, None)
    assert run["iterations"]["last"] == 20


def test_a_loss_that_is_reported_now_and_then_is_told_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = read(lines(capsys, [None if step % 5 else 4 - step / 10 for step in range(1, 21)]))
    assert (run["loss"]["n"], run["loss"]["first"], run["loss"]["last"]) == (4, [5, 3.5], [20, 2.0])


def test_a_loss_that_is_no_number_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = read(lines(capsys, [3.0, 2.0, *[float("nan")] * 18]))
    assert run["failure"]["kind"] == "nan-loss"


def test_a_trainers_loss_is_told_once_by_a_line_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    history: list[dict[str, Any]] = [{"step": 20, "loss": 3.0}]
    loss = transformers_.newest_loss(history, None)
    assert loss is not None and transformers_.newest_loss([*history, {"step": 20, "eval_loss": 9.0}], loss) is loss
    progress = Progress(total=None, global_batch=8, world=1, epoch=1, every_s=3600.0)
    progress.step_done(1, None, 0.0)  # the first is printed, the second is not due
    progress.step_done(2, loss, 0.0)
    assert not loss.told
    progress.step_done(3, loss, 0.0, last=True)
    assert loss.told and "step=3 loss=3.0000 " in capsys.readouterr().out
    newer = transformers_.newest_loss([*history, {"step": 30, "loss": 2.0}], loss)
    assert newer is not None and not newer.told and newer.detach() == 2.0


def test_a_trainer_that_logged_nothing_has_no_loss() -> None:
    assert transformers_.newest_loss([{"step": 5, "eval_loss": 9.0}], None) is None


def test_of_a_mean_so_far_the_steps_since_the_last_line_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    losses = [8.0, 4.0, 2.0, 1.0, 0.5, 0.25]
    mean = keras_.MeanSoFar()
    progress = Progress(total=None, global_batch=8, world=1, epoch=1, every_s=3600.0)
    for step in range(1, 7):
        progress.step_done(step, mean.now(sum(losses[:step]) / step), 0.0, last=step in (1, 3, 6))
    told = re.findall(r"step=(\d) loss=(\S+)", capsys.readouterr().out)
    assert told == [("1", "8.0000"), ("3", "3.0000"), ("6", "0.5833")]


@pytest.mark.parametrize(("mode", "kept"), [("distributed", ["of all"]), ("not_parallel", "of one")])
def test_random_numbers_are_kept_as_the_trainer_reads_them(
    monkeypatch: pytest.MonkeyPatch, mode: str, kept: object
) -> None:
    """One rank alone, started as a rank, is distributed to the Trainer: seen on a GPU, dropout drew others."""
    random = SimpleNamespace(
        get_rng_state=lambda: "of one", get_rng_state_all=lambda: ["of all"],
    )  # fmt: skip
    cuda = SimpleNamespace(is_available=lambda: True, random=random)
    torch = SimpleNamespace(cuda=cuda, random=SimpleNamespace(get_rng_state=lambda: "cpu"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    state = transformers_._random_numbers(SimpleNamespace(parallel_mode=SimpleNamespace(value=mode)))
    assert state["cuda"] == kept and state["cpu"] == "cpu"
