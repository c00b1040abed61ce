"""Damaged logs: whatever the text, the reader answers, in time linear in it, and the answer is JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler.estimates.summary import summarise
from profiler.rules.book import load
from profiler.runs import persistence
from profiler.runs.reader import LogReader
from tests.fuzzing import Target, attack
from tests.profiler.others import labelled

DATA = Path(__file__).with_name("data")
SEEDS = [p.read_bytes() for p in sorted(DATA.iterdir()) if p.name != "MANIFEST.tsv"]
SEEDS += [entry["log"].encode() for entry in labelled()]
BOOK = load()
COUNT = 150  #: mutated logs in a test run; `make soak` reads ten thousand

WORDS = [
    b"loss",
    b"epoch",
    b"step",
    b"nan",
    b"inf",
    b"-",
    b"1e999",
    b"9" * 400,
    b"[",
    b"]",
    b"(",
    b"{",
    b'"',
    b":",
    b"=",
    b"/",
    b"%|",
    b"\r",
    b"\b" * 5,
    b"\x1b[A",
    b"\x1b[31m",
    b"\0",
    b"\xff\xfe",
    b"\xe2\x96\x88",
    "\ue000".encode(),
    b"Traceback",
    b"it/s",
    b"1/0",
    b"0/0",
    b":::MLLOG {",
    b"Epoch 1/",
    b"1 day, ",
    b"12:60:99",
    b"\n",
    b"\t",
    b"\xe3\x80\x80",
]


def mutated(dice: random.Random) -> bytes:
    """A log with pieces cut, doubled, moved, replaced, mixed with another."""
    data = bytearray(dice.choice(SEEDS))
    for _ in range(dice.randint(1, 12)):
        at = dice.randrange(len(data) + 1)
        size = dice.randint(0, 200)
        kind = dice.randrange(7)
        if kind == 0:
            del data[at : at + size]
        elif kind == 1:
            data[at:at] = data[at : at + size] * dice.randint(1, 4)
        elif kind == 2:
            data[at:at] = dice.choice(WORDS) * dice.choice([1, 1, 1, 2, 50])
        elif kind == 3:
            data[at : at + 8] = dice.randbytes(dice.randint(0, 12))
        elif kind == 4:
            other = dice.choice(SEEDS)
            start = dice.randrange(len(other))
            data[at:at] = other[start : start + size]
        elif kind == 5:
            digits = [i for i, c in enumerate(data[at : at + 400], at) if 48 <= c <= 57]
            for i in digits:
                data[i] = dice.randint(48, 57)
        else:
            data = bytearray(data.replace(b"\n", b"\r")) if dice.random() < 0.3 else data
    return bytes(data)


def assert_read(data: bytes, dice: random.Random) -> None:
    reader, at = LogReader(BOOK), 0
    while at < len(data):
        size = dice.choice([1, 17, 400, 100_000])
        reader.feed(data[at : at + size])
        at += size
    runs = reader.runs()
    text = json.dumps([summarise(run).to_json(points=True) for run in runs], allow_nan=False)
    assert isinstance(json.loads(text), list)
    if dice.random() < 0.2:
        again = persistence.load(json.loads(json.dumps(persistence.dump(reader))), BOOK)
        assert len(again.runs()) == len(runs)


@pytest.mark.parametrize("seed", range(5))
def test_mutated_logs(seed: int) -> None:
    """No text makes the reader fail, and every answer is JSON without nan."""
    dice = random.Random(seed)
    for _ in range(COUNT // 5):
        data = mutated(dice)
        assert_read(data, dice)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(100, 110))
def test_ten_thousand_mutated_logs(seed: int) -> None:
    """The same, 10,000 times."""
    dice = random.Random(seed)
    for _ in range(1000):
        assert_read(mutated(dice), dice)


#: The same reader within the harness's bounds of time and memory.
TARGET = Target("training-log", lambda raw: assert_read(raw, random.Random(1)), (), SEEDS, WORDS, count=30)


def test_damaged_logs_are_read_within_bounds() -> None:
    attack(TARGET)


@pytest.mark.soak
def test_damaged_logs_are_read_within_bounds_for_long() -> None:
    attack(TARGET, soak=True)


def adversaries() -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """Lines made to be slow: their reading must cost no more than their length."""
    for word in (
        b"(",
        b"[",
        b"loss ",
        b"1,",
        b"1:",
        b"0.",
        b"1/2 ",
        b"epoch 1 ",
        b"loss: nan ",
        b"a=1 ",
        b"| ",
        b"1 day, ",
        b'{"',
        b"%|",
        b"\xe2\x96\x88",
        b"INFO:",
        b"[1]",
        b"a.b.",
        b"2024-05-01 ",
        b"iteration 1/ 2 | ",
        b"Epoch: [1][2/3]\t",
        b"- - ",
        b"step=1, skipped=1, ",
        b"1e5e5",
        b"-+-+",
        b"a_b/c ",
        b"\x1b[",
        b"\x1b]",
        b"x\b",
        b"9",
    ):
        yield word.decode("latin-1"), lambda n, w=word: w * (n // len(w))


@pytest.mark.parametrize(("name", "make"), list(adversaries()), ids=lambda x: x if isinstance(x, str) else "")
def test_long_lines_of_one_thing(name: str, make: Callable[[int], bytes]) -> None:
    """Long repetitions are read; the test's own time limit is the hang detector."""
    for n in (1_000, 16_000, 300_000):
        line = make(n)
        assert_read(line + b"\n" + line[: n // 2] + b"x\n", random.Random(1))


def test_a_date_without_a_year_that_can_be() -> None:
    log = (
        b"Jan 05 10:00:00 99999999999999999999 step 1 loss 2.0\nJan 05 10:00:01 " + b"9" * 5000 + b" step 2 loss 2.0\n"
    )
    assert_read(log, random.Random(1))


def test_a_clock_that_stands_still_times_nothing() -> None:
    log = b"".join(b"2024-05-01 10:00:00.1234567 step %d loss 2.0\n" % i for i in range(1, 30))
    reader = LogReader(BOOK)
    reader.feed(log)
    (run,) = reader.runs()
    assert summarise(run).iteration_time is None


#: What a line without an end may be made of.
STORMS = {
    **{"letters": b"x", "words": b"the loss of step ", "numbers": b"1.5 ", "nothing": b"\0", "no text": b"\xff\xfe"},
    **{"colours": b"\x1b[31m", "upwards": b"\x1b[A", "titles": b"\x1b]0;t", "backspaces": b"ab\b\b"},
    **{"states": b"\rloss 0.5 step 39", "erased": b"\x1b[2K\r 39%|##", "json": b'{"a": 1, '},
}


def ride_out(storm: bytes, megabytes: float) -> None:
    """A line of so many megabytes, written piece by piece among the lines of a training."""
    lines = [b"step %d loss %.4f\n" % (i, 9 / i) for i in range(1, 80)]
    piece, reader = storm * (65536 // len(storm)), LogReader(BOOK)
    reader.feed(b"".join(lines[:39]))
    for _ in range(int(megabytes * 1e6) // len(piece)):
        reader.feed(piece)
    held = len(json.dumps(persistence.dump(reader)))
    reader.feed(b"\n" + b"".join(lines[39:]))
    (run,) = reader.runs()
    assert (run.first_iteration, run.last_iteration, run.positions) == (1, 79, 79)
    assert held < 1 << 20, "of a line without an end only a part is kept"


@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
def test_a_line_without_an_end_is_not_kept_and_costs_no_point(storm: bytes) -> None:
    ride_out(storm, 0.5)


@pytest.mark.soak
@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS)
def test_a_line_of_a_hundred_megabytes_is_not_kept_and_costs_no_point(storm: bytes) -> None:
    ride_out(storm, 100)


@pytest.mark.parametrize("form", ["[rank%s]: ", "[trainer%s]: ", "rank %s: ", "[1,%s]<stdout>: ", "%s 1.0 "])
def test_a_rank_of_thousands_of_digits_is_none(form: str) -> None:
    """Python reads no such number: it raised, out of the whole round."""
    for digits in (10, 5000):
        assert_read((form % ("9" * digits) + "step 1 loss 2.0\n").encode() * 8, random.Random(1))


def test_thousands_of_evaluations_between_lines_of_training() -> None:
    """Each is set aside by a look at its neighbours, however much was joined before it."""
    log = bytearray()
    for k in range(3000):
        log += b"[%d/90000] loss: 0.7%d\n" % (10 * k + 10, k % 97)
        log += b"[5/20] loss: 0.8\n[10/20] loss: 0.9\n" if k % 2 else b""
    assert_read(bytes(log), random.Random(1))
    reader = LogReader(BOOK)
    reader.feed(bytes(log))
    (run,) = reader.runs()
    assert (run.total_iterations, run.last_iteration) == (90000, 30000)


@pytest.mark.parametrize(
    "line",
    [
        b"losses: [" + b"1.5, " * 40_000 + b"], step: 3\n",
        b"lr=0.1 " * 20_000 + b"\tepoch 1: loss 2.0\n",
        b"time per 100 steps: " * 20_000 + b"42.0 s\n",
        b'{"ts": "' * 20_000 + b"2024-05-02T09:00:00Z\n",
        b"1.30k/10.0k [13:00<1:27:30, " * 20_000 + b"\n",
        b"12<" * 20_000 + b"13:00<1:00, 8.7img/s\n",
        b"| model | loss | step |\n" * 5_000,
    ],
    ids=["list", "settings", "per", "stamps", "thousands", "bars", "heads"],
)
def test_what_the_mends_look_for_a_hundred_thousand_times(line: bytes) -> None:
    assert_read(line * 3, random.Random(1))
