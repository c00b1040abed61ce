"""A box of one value a line tells what its line would."""

from __future__ import annotations

import json
import math

import pytest

from profiler.rules.book import load
from profiler.runs import persistence
from profiler.runs.reader import LogReader
from tests.profiler.mutations import fields
from tests.profiler.others import read

BOOK = load()


def falling(i: int) -> float:
    return 0.3 + 2 * math.exp(-i / 5) + 0.004 * math.sin(i * 2.7)


def box(rows: dict[str, object]) -> str:
    edge = "-" * 30
    return "\n".join((edge, *(f"| {name:<12} | {value!s:<11} |" for name, value in rows.items()), edge)) + "\n"


def counted_below(k: int) -> dict[str, object]:
    return {"grad_norm": 0.1, "loss": round(falling(k), 4), "mse": 0.08, "step": 10 * k}


def agent(k: int, trained: bool) -> dict[str, object]:
    rows: dict[str, object] = {"rollout/": "", "   ep_len_mean": 203, "time/": "", "   fps": 2581, "   iterations": k}
    rows["   total_timesteps"] = 2048 * k
    return rows | ({"train/": "", "   entropy_loss": -0.6, "   loss": round(falling(k), 4)} if trained else {})


def test_a_value_above_its_counter_is_of_it() -> None:
    (run,) = read("".join(box(counted_below(k)) for k in range(1, 9)))
    assert run["loss"]["first"] == [10, pytest.approx(falling(1), abs=1e-4)]
    assert run["loss"]["last"] == [80, pytest.approx(falling(8), abs=1e-4)]


def test_the_first_box_of_an_agent_counts_without_a_loss() -> None:
    (run,) = read("".join(box(agent(k, k > 1)) for k in range(1, 8)))
    assert (run["iterations"]["first"], run["iterations"]["last"], run["loss"]["n"]) == (2048, 14336, 6)
    assert run["throughput"]["median"] == 2581


def test_a_box_that_is_no_training_stays_as_it_was() -> None:
    settings = box({"name": "run", "batch size": 32, "lr": 0.1})
    assert read(settings) == []
    assert fields(read(settings + "step 1 loss 2.5\nstep 2 loss 2.4\n")) == fields(
        read("step 1 loss 2.5\nstep 2 loss 2.4\n")
    )


@pytest.mark.parametrize("rows", [2, 5])
def test_of_a_box_under_way_no_value_is_told_without_its_counter(rows: int) -> None:
    whole = "".join(box(counted_below(k)) for k in range(1, 9))
    under_way = "\n".join(box(counted_below(9)).splitlines()[:rows]) + "\n"
    last = {2: 80, 5: 90}[rows]
    (run,) = read(whole + under_way)
    assert run["loss"]["last"] == [last, pytest.approx(falling(last // 10), abs=1e-4)]


@pytest.mark.parametrize("size", [7, 64, 333])
def test_it_is_read_alike_however_it_is_cut_and_kept(size: int) -> None:
    log = "".join(box(agent(k, k > 1)) for k in range(1, 8)).encode()
    reader = LogReader(BOOK)
    for at in range(0, len(log), size):
        reader.feed(log[at : at + size])
        reader = persistence.load(json.loads(json.dumps(persistence.dump(reader))), BOOK)
    from profiler.estimates.summary import summarise

    assert [summarise(run).to_json() for run in reader.runs()] == read(log)
