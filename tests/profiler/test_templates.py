"""Templates learnt from a log itself: an unknown format is read by how its columns behave, prose is no training."""

from __future__ import annotations

import json
import math
import random

import pytest

from profiler import evidence
from profiler.model import Run
from profiler.roles import Role, role
from profiler.rules.book import load
from profiler.rules.templates import columns
from profiler.runs import learner, persistence
from profiler.runs.reader import LogReader
from profiler.runs.sane import TWO
from tests.profiler.others import WORDLESS, WORDLESS_HELD, judge, labelled, read
from tests.profiler.score import Tally

BOOK = load()


def falling(count: int, seed: int = 1, noise: float = 0.06) -> list[float]:
    dice = random.Random(seed)
    return [round(2 + 4 * math.exp(-4 * k / count) + dice.gauss(0, noise), 4) for k in range(count)]


def log(count: int = 30, form: str = "zz {i:>6} | q {y:.4f} | {z:.3f}") -> str:
    dice = random.Random(2)
    rows = enumerate(falling(count))
    return "".join(form.format(i=50 * k + 50, y=y, z=dice.uniform(0.4, 0.44)) + "\n" for k, y in rows)


def runs_of(text: str) -> list[Run]:
    reader = LogReader(BOOK)
    reader.feed(text.encode())
    return reader.runs()


# --- columns ---


@pytest.mark.parametrize(
    ("values", "whole", "wanted"),
    [
        ([10.0 * k for k in range(20)], True, Role.COUNTER),
        ([float(k * k) for k in range(20)], True, Role.CLOCK),
        ([k // 5 for k in range(20)], True, Role.STAIRS),
        ([0.5] * 20, False, Role.CONSTANT),
        (falling(20), False, Role.DECAYING),
        (falling(20)[:7], False, Role.OTHER),
        ([60 - 1.5 * k for k in range(20)], False, Role.OTHER),
        ([0.001 * 0.9**k for k in range(20)], False, Role.RATIO),
        ([0.001 * (1 + math.cos(k / 7)) for k in range(20)], False, Role.RATIO),
        (falling(20)[::-1], False, Role.OTHER),
        ([random.Random(k).uniform(0, 1) for k in range(20)], False, Role.RATIO),
    ],
    ids=["steps", "bytes", "epochs", "same", "loss", "few", "countdown", "decay", "cosine", "rising", "noise"],
)
def test_a_column_is_what_it_behaves_like(values: list[float], whole: bool, wanted: Role) -> None:
    assert role(values, whole) is wanted


def test_a_noisy_countdown_is_no_loss() -> None:
    dice = random.Random(3)
    assert role([60 - 1.4 * k + dice.uniform(-2, 2) for k in range(40)], False) is Role.OTHER


@pytest.mark.parametrize("word", ["residual", "remaining", "lr", "lag", "temperature"])
def test_a_word_may_contradict(word: str) -> None:
    lines = [f"zz {10 * k} {{}} {y}" for k, y in enumerate(falling(20))]
    assert columns([line.format("kappa") for line in lines]) is not None
    assert columns([line.format(word) for line in lines]) is None


def test_of_two_columns_that_decay_neither_is_the_loss() -> None:
    told = columns([f"zz {10 * k} {y} {z}" for k, (y, z) in enumerate(zip(falling(20), falling(20, 5), strict=True))])
    assert told is not None
    assert (told.counter, told.loss) == (0, None)


# --- logs ---


@pytest.mark.parametrize("path", [WORDLESS, WORDLESS_HELD], ids=["seen", "held"])
def test_forms_without_a_known_word(path: object) -> None:
    total = Tally()
    for entry in labelled(path):  # type: ignore[arg-type]
        total.add(judge(entry, read(entry["log"])))
    assert total.right >= 0.95 * total.told, total.off
    assert len(total.wrong) <= 0.02 * total.told, total.wrong


def test_the_first_lines_count_though_they_were_understood_later() -> None:
    run = read(log())[0]
    assert run["format"] == "learnt"
    assert (run["iterations"]["first"], run["iterations"]["last"]) == (50, 1500)
    assert run["loss"]["n"] == 30
    assert run["loss"]["first"] == [50, falling(30)[0]]
    assert learner.NOTE in run["warnings"]
    assert run["evidence"]["loss.last"]["confidence"] >= evidence.THRESHOLD


@pytest.mark.parametrize("cut", [1, 37, 4096])
def test_pieces_and_restarts_change_nothing(cut: int) -> None:
    data = log(300).encode()
    whole = LogReader(BOOK)
    whole.feed(data)
    cut_up = LogReader(BOOK)
    for at in range(0, len(data), cut):
        cut_up.feed(data[at : at + cut])
        if at % (cut * 50) == 0:
            cut_up = persistence.load(json.loads(json.dumps(persistence.dump(cut_up))), BOOK)
    assert cut_up.runs() == whole.runs() != []


def test_words_win_over_what_was_learnt() -> None:
    text = log(20) + "".join(f"step {k} loss {3 - k / 100:.2f}\n" for k in range(20))
    assert [run["format"] for run in read(text)] == ["generic"]


def test_a_log_full_of_other_lines_costs_little_and_tells_nothing() -> None:
    dice = random.Random(4)
    words = ["".join(dice.choice("abcdefgh") for _ in range(5)) for _ in range(999)]
    reader = LogReader(BOOK)
    for _ in range(2 * learner.STRANGERS):
        line = f"{' '.join(dice.choice(words) for _ in range(6))} {dice.randrange(999)} {dice.random():.3f}\n"
        reader.feed(line.encode())
    assert reader.runs() == []
    assert not reader.learner.open
    assert reader.learner.templates == []


def test_digits_that_stand_elsewhere_are_no_row() -> None:
    odd = "a{i} b 7 q.{i}\n", "a b {i}7 q.{i}\n", "a b 7 q{i}.\n", "{i}a b 7 q. {i}\n"
    for form in odd:
        lines = [(odd[0] if k % 3 else form).replace("{i}", str(k)) for k in range(300)]
        assert runs_of("".join(lines)) == []


def test_a_failure_behind_it_is_its_end() -> None:
    text = log() + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    runs = runs_of(text)
    assert [run.failure.kind.value if run.failure else None for run in runs] == ["out-of-memory"]


# --- counters that are none ---


def test_a_counter_that_wanders_is_none() -> None:
    dice = random.Random(5)
    lines = [f"accepted {dice.randrange(100, 900)} of 1000 cost {dice.uniform(40, 41):.2f}\n" for _ in range(30)]
    assert read("".join(lines)) == []


def test_of_two_logs_in_one_file_no_number_is_told() -> None:
    pairs = [(f"step {k} loss {3 - k / 100:.3f}", f"step {10 * k} loss {5 - k / 50:.3f}") for k in range(1, 30)]
    (run,) = read("".join(f"{a}\n{b}\n" for a, b in pairs))
    assert (run["iterations"], run["loss"], run["iteration_time"]) == (None, None, None)
    assert run["warnings"] == [TWO]


def test_many_short_trials_are_runs() -> None:
    trial = "step 10 loss 0.9{k}\nstep 20 loss 0.8{k}\nstep 30 loss 0.7{k}\n"
    assert len(read("".join(trial.replace("{k}", str(k)) for k in range(8)))) == 8


def test_a_job_that_resumes_further_on_each_time_is_runs() -> None:
    parts = [
        f"resuming from checkpoint step {k * 100}\nstep {k * 100 + 50} loss {5 - k / 10}\nstep {k * 100 + 100} loss 4\n"
        f"step {k * 100 + 150} loss 3.9\n"
        for k in range(8)
    ]
    assert len(read("".join(parts))) == 8


def test_the_sum_of_columns_that_fall_is_the_loss() -> None:
    """A loss and its parts without a word: `0/9 50/999  2.10  0.51  2.61`."""
    parts = [falling(30, seed, 0.02) for seed in (1, 2)]
    rows = [
        f"0/9 {50 * k + 50}/1999 {a:.4f} {b:.4f} {a + b:.4f}\n" for k, (a, b) in enumerate(zip(*parts, strict=True))
    ]
    (run,) = runs_of("".join(rows))
    last = run.points[-1]
    assert last.losses[0].value == pytest.approx(sum(p[-1] for p in parts), abs=1e-3)
