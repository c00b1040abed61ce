"""Each number says how sure it is; what is not sure enough is not told."""

from __future__ import annotations

from typing import Any

import pytest

from profiler import evidence
from profiler.estimates.report import why
from profiler.estimates.sources import from_elapsed
from profiler.evidence import Ground, confidence, known, some
from profiler.rules.book import load
from profiler.runs.reader import LogReader
from tests.profiler import reliability
from tests.profiler.others import read, summaries

CLOCKED = "".join(f"2024-06-01 12:{m:02}:00 step {m * 10} loss {5 - m / 10:.2f} step_time {{}}\n" for m in range(1, 9))


def test_a_time_that_the_stamps_confirm_is_surer_than_one_they_correct() -> None:
    confirmed, corrected = (summaries(CLOCKED.replace("{}", text))[0] for text in ("6.02", "0.75"))
    assert confirmed.iteration_time is not None and confirmed.iteration_time.source == "printed"
    assert corrected.iteration_time is not None and corrected.iteration_time.median == pytest.approx(6.0)
    sure, less = (run.evidence["iteration_time.median"] for run in (confirmed, corrected))
    assert (sure.ground, less.ground) == (Ground.CONFIRMED, Ground.CORRECTED)
    assert sure.confidence > less.confidence
    assert sure.against == () and "the printed time" in less.against[0]
    assert sure.lines and set(sure.lines) <= set(range(1, 9))
    assert "cannot be the time" in " ".join(corrected.warnings)


def test_a_time_of_a_micro_batch_or_of_a_step_is_not_told_where_nothing_decides() -> None:
    lines = [f"step {i} | loss {3 - i / 100} | time per batch 0.25s" for i in (10, 20, 30, 40)]
    plain = read("\n".join(lines) + "\n")[0]
    assert plain["iteration_time"]["median"] == 0.25
    told = read("\n".join(["gradient_accumulation_steps: 8", *lines]) + "\n")[0]
    assert told["iteration_time"] is None
    assert told["evidence"]["iteration_time.median"]["confidence"] < evidence.THRESHOLD
    assert "micro-batch" in told["warnings"][0]
    assert told["loss"]["n"] == 4


def test_the_answer_names_lines_and_confidence_of_each_number() -> None:
    run = summaries("".join(f"step {i} loss {3 - i / 100}\n" for i in range(1, 40)))[0]
    body = run.to_json()["evidence"]
    assert set(body) == {"iterations.last", "loss.last"}
    assert body["loss.last"]["lines"][0] == 1 and body["loss.last"]["lines"][-1] == 39
    assert 0.5 < body["loss.last"]["confidence"] < 1
    rows = {row[0]: row for row in why(run)}
    assert rows["loss.last"][1] == "2.61"
    assert rows["iterations.last"][1] == "39"


def test_a_ground_that_was_not_counted_for_a_field_has_the_share_of_all() -> None:
    assert confidence("no.such", Ground.GENERIC) == confidence("any", Ground.GENERIC)
    assert known("keras", 9) is Ground.RULE and known(None, 2) is Ground.GENERIC_FEW
    assert some(range(100)) == (0, 33, 66, 99)


def test_a_rate_with_one_digit_gives_way_to_the_bars_own_clock() -> None:
    bar = "train: {p}%|#| {i}/1000 [{t}<9:00:00, 0.02it/s, loss=2.{i}]\n"
    log = "".join(
        bar.format(p=i // 10, i=i, t=f"{i * 45 // 3600}:{i * 45 // 60 % 60:02}:{i * 45 % 60:02}")
        for i in (20, 40, 60, 80)
    )
    reader = LogReader(load())
    reader.feed(log.encode())
    assert len(from_elapsed(reader.runs()[0], bar=True)) >= 2
    assert read(log)[0]["iteration_time"]["median"] == pytest.approx(45.0)


def test_a_counter_that_goes_back_begins_a_run_and_no_number_is_a_mean_of_two() -> None:
    steps = (100, 150, 200, 250, 300, 350, 250, 300, 350, 400)
    runs = read("".join(f"step {s} loss {5 - s / 200 + n / 100:.3f}\n" for n, s in enumerate(steps)))
    assert [(r["iterations"]["first"], r["iterations"]["last"]) for r in runs] == [(100, 350), (250, 400)]
    assert runs[0]["loss"]["last"] == [350, 3.3]


def test_losses_without_an_index_are_never_averaged() -> None:
    run = read("Epoch 1\nloss: 2.4\nloss: 2.0\nEpoch 2\nloss: 1.6\nloss: 1.2\n")[0]
    assert run["loss"]["first"] == [1, 2.0]
    assert run["loss"]["last"] == [2, 1.2]


def test_a_counter_from_zero_does_not_meet_the_end_of_the_epoch_before() -> None:
    run = read("".join(f"Epoch={e} Step={s} Loss={3 - e - s / 100}\n" for e in (1, 2) for s in (0, 20, 40)))[0]
    assert run["loss"]["n"] == 6
    assert run["loss"]["last"][1] == 0.6


@pytest.mark.parametrize(
    ("label", "found", "ok"),
    [
        ({"validation": {"any": [None, {"loss": {"last": ["*", 0.5]}}]}}, 0.5, True),
        ({"validation": {"any": [None, {"loss": {"last": ["*", 0.5]}}]}}, 0.6, False),
        ({"validation": {"any": [{"loss": {"n": 8}}, {"loss": {"last": ["*", 0.5]}}]}}, 0.6, True),
    ],
    ids=["one of two ways", "neither", "a way that leaves it open"],
)
def test_a_label_of_several_ways_is_followed_to_the_field(label: dict[str, Any], found: float, ok: bool) -> None:
    value, spoken = reliability._of(label, "validation.loss.last")
    assert spoken
    assert reliability.right("validation.loss.last", value, [8, found]) is ok
