"""Each row of the tables that read lines without a rule decides the line that stands beside it."""

from __future__ import annotations

import pytest

from profiler.rules import beside, counters, generic, kinds, pairs, places
from profiler.rules.book import load, read_line
from profiler.rules.lexicon import words
from profiler.text.tokens import tokenise, without_bar
from tests.profiler import others


def canonical(line: str) -> str:
    return tokenise(without_bar(line.encode()).decode())[0]


@pytest.mark.parametrize("row", beside.MENDS, ids=lambda row: row.line)
def test_a_key_means_something_beside_others(row: beside.Mend) -> None:
    marks = pairs.scan(canonical(row.line))
    around = beside.Beside.of(marks)
    decided = [next((r for r in beside.MENDS if r.test(m, around)), None) for m in marks]
    assert row in decided
    beside.mend(marks)
    assert row.what in {m.what for m in marks}


@pytest.mark.parametrize("row", counters.COUNTS, ids=lambda row: row.line)
def test_a_counter_without_a_word(row: counters.Count) -> None:
    body = canonical(row.line)
    line = counters.Line(pairs.scan(body), body, bar=False)
    assert next((r for r in counters.COUNTS if r.test(line)), None) is row


@pytest.mark.parametrize("row", kinds.KINDS, ids=lambda row: row.line)
def test_what_a_line_is_for(row: kinds.Reading) -> None:
    said = generic.said(canonical(row.line), 0)
    assert said is not None
    assert kinds.reading(said) is row


@pytest.mark.parametrize("row", words.SENSES, ids=lambda row: row.key)
def test_what_a_key_says(row: words.Sense) -> None:
    key = words.Key(row.key, words.words_of(row.key), row.unit)
    assert words.sense(key) is row


@pytest.mark.parametrize("row", places.PLACES, ids=lambda row: row.line)
def test_what_a_number_is_to_the_one_before(row: places.Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = []

    def place(mark: places.Mark, where: places.Place) -> bool:
        decided.append(next((r for r in places.PLACES if r.test(mark, where)), None))
        return places.place(mark, where)

    monkeypatch.setattr(pairs, "place", place)
    pairs.scan(canonical(row.line))
    assert row in decided


def test_a_cell_between_tabs_may_hold_words_and_a_stamp() -> None:
    rows = "".join(f"{k}0\timages/sec: 87{k}.2 +/- 0.1 (jitter = 2.0)\t7.{9 - k}\t 15987742{k}4\n" for k in range(1, 9))
    run = others.read("Step\tImg/sec\ttotal_loss\tat\n" + rows, generic=True)[0]
    assert (run["iterations"]["last"], run["loss"]["last"]) == (80, [80, 7.1])
    assert run["throughput"] == {"median": pytest.approx(874.7, abs=0.01), "unit": "samples/s"}


@pytest.mark.parametrize(
    ("line", "what", "value"),
    [
        ("[Epoch 3] time cost 43.8s, valid loss 5.43, valid ppl 228.1", "epoch_time", 43.8),
        ("[Epoch 3] valid loss 5.43, time cost 43.8s", "epoch_time", None),
        ("step 30 loss 2.31 21889/22994 tok/s", "throughput", 22994),
        ('eval_accuracy: {"value": 0.25, "metadata": {"epoch_num": 4}}', "validation_accuracy", 0.25),
        ("[Epoch 3] validation: err-top1=0.25 err-top5=0.1", "accuracy", 0.75),
        ("Epoch 1/16, Total Micro Batches 460", "iterations_per_epoch", 460),
        ("num_cropping_iterations: 1", "iterations", None),
        ("total optimization steps = 2090", "iterations", 2090),
        ("INFO:net:06:22:53 Epoch: 0, Batch: 49/70, Loss=5.92", "iteration", 49),
    ],
)
def test_what_a_line_tells(line: str, what: str, value: float | None) -> None:
    everything = load()
    read = read_line(everything.without(everything.formats), line)
    assert (None if read is None else read[1].get(what)) == value


HEAD_OF_ERRORS = "{}step      rmse_val    rmse_trn    rmse_e_val  rmse_e_trn         lr\n"


@pytest.mark.parametrize("sign", ["# ", "#  ", "%  "])
def test_a_head_behind_the_sign_of_a_comment(sign: str) -> None:
    """numpy.savetxt and plotters: the sign is no column, and rows have one cell less. An error of one side is the loss
    of that side; those of energies and forces are neither."""
    rows = "".join(
        f"{100 * k:7d}      {9 - k}.5e+00    {8 - k}.4e+00    1.{k}e-01  1.{k}e-01    1.0e-03\n" for k in range(5)
    )
    (run,) = others.read(HEAD_OF_ERRORS.format(sign) + rows)
    assert (run["iterations"]["first"], run["iterations"]["last"]) == (0, 400)
    assert (run["loss"]["name"], run["loss"]["n"], run["loss"]["last"]) == ("rmse_trn", 5, [400, 4.4])
    assert run["validation"]["loss"]["last"] == [400, 5.5]


def test_a_sign_before_a_head_set_by_single_blanks() -> None:
    rows = "".join(f"{k} {9 - k}.5 0.00{k + 1}\n" for k in range(5))
    (run,) = others.read("# epoch loss rate\n" + rows)
    assert (run["epochs"]["last"], run["loss"]["last"]) == (4, [4, 5.5])


def test_a_sign_that_heads_a_column_of_indices_is_that_column() -> None:
    rows = "".join(f"{100 * k}  {k}  {9 - k}.5\n" for k in range(1, 6))
    (run,) = others.read("#  epoch  loss\n" + rows)
    assert (run["iterations"]["last"], run["epochs"]["last"], run["loss"]["last"]) == (500, 5, [500, 4.5])


def test_a_loss_comes_before_errors_of_both_sides() -> None:
    rows = "".join(f"{k},{9 - k}.5,0.{k + 1},0.{k + 2}\n" for k in range(1, 6))
    (run,) = others.read("epoch,loss,train_rmse,val_rmse\n" + rows)
    assert (run["loss"]["name"], run["validation"]) == ("loss", None)
