"""Records written over several lines tell what they tell on one."""

from __future__ import annotations

import json
import random
from pprint import pformat
from typing import Any

import pytest

from profiler.rules.book import load
from profiler.runs import persistence
from profiler.runs.reader import LogReader
from tests.profiler.mutations import fields
from tests.profiler.others import DISTANT, DISTANT_HELD, FOREIGN_HELD, FRAMEWORKS_HELD, OTHERS, THIN, labelled, read

BOOK = load()
NAMES = (
    "llamafactory-jsonl",
    "json-iter-num",
    "json-nested",
    "json-slashes",
    "wandb-history-jsonl",
    "jsonl-unknown-keys",
)
LOGS = {
    e["name"]: [json.loads(line) for line in e["log"].splitlines() if line.strip()]
    for path in (DISTANT, DISTANT_HELD, FOREIGN_HELD, FRAMEWORKS_HELD, OTHERS, THIN)
    for e in labelled(path)
    if e["name"] in NAMES
}
STEPS = [{"epoch": i // 4, "step": 10 * i, "loss": round(9 / (i + 2), 4), "lr": 3e-4} for i in range(1, 13)]


def lines_each(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(r) + "\n" for r in records)


def printed_wide(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(r, indent=4) + "\n" for r in records)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_over_several_lines_is_the_record(name: str) -> None:
    there = fields(read(lines_each(LOGS[name])))
    assert fields(read(printed_wide(LOGS[name]))) == there
    assert fields(read(json.dumps(LOGS[name], indent=2))) == there


@pytest.mark.parametrize("width", [20, 40])
def test_as_python_prints_it(width: int) -> None:
    printed = "".join(pformat(r, width=width) + "\n" for r in STEPS)
    assert fields(read(printed)) == fields(read(lines_each(STEPS)))


def test_what_is_around_a_list_of_records_counts_nothing() -> None:
    around = {"best_metric": None, "epoch": 3.0, "global_step": 215337, "log_history": STEPS, "max_steps": 300}
    (run,) = read(json.dumps(around, indent=2))
    assert (run["iterations"]["first"], run["iterations"]["last"]) == (10, 120)
    assert run["loss"]["last"] == [120, STEPS[-1]["loss"]]


def test_a_configuration_is_no_record() -> None:
    config = {"steps_per_print": 10, "train_batch_size": 256, "fp16": {"enabled": True, "loss_scale": 0}}
    steps = "".join(f"step {i} loss {3 - i / 100:.3f}\n" for i in range(1, 30))
    (run,) = read(json.dumps(config, indent=2) + "\n" + steps)
    assert (run["iterations"]["first"], run["iterations"]["last"], run["loss"]["n"]) == (1, 29, 29)


def test_a_record_that_never_ends_hides_nothing() -> None:
    steps = "".join(f"step {i} loss {3 - i / 100:.3f}\n" for i in range(1, 30))
    (run,) = read('{\n"epoch": 1,\n"loss": 2.31,\n' + steps)
    assert (run["iterations"]["last"], run["loss"]["last"]) == (29, [29, 2.71])
    members = "".join(f'"key{i}": {i},\n' for i in range(500))
    (run,) = read("{\n" + members + steps)
    assert run["iterations"]["last"] == 29


@pytest.mark.parametrize("seed", range(3))
def test_pieces_and_restarts_change_nothing(seed: int) -> None:
    data = (printed_wide(STEPS[:5]) + json.dumps({"epoch": 2, "history": STEPS[5:]}, indent=2)).encode()
    whole = LogReader(BOOK)
    whole.feed(data)
    dice = random.Random(seed)
    reader, at = LogReader(BOOK), 0
    while at < len(data):
        size = dice.randint(1, 90)
        reader.feed(data[at : at + size])
        at += size
        if dice.random() < 0.2:
            reader.runs()
            reader = persistence.load(json.loads(json.dumps(persistence.dump(reader))), BOOK)
    assert reader.runs() == whole.runs()
