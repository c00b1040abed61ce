"""Reading in pieces, with state written and read between: always the answer of one pass. Real excerpts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from profiler.estimates.summary import summarise
from profiler.model import Run
from profiler.rules.book import builtin_rules, load
from profiler.runs import persistence
from profiler.runs.reader import LogReader

DATA = Path(__file__).with_name("data")
LOGS = sorted(p for p in DATA.iterdir() if p.name != "MANIFEST.tsv")
BOOK = load()

#: excerpt -> of each run: format, last iteration (and total), last epoch, last loss, failure
WANTED: dict[str, list[tuple[Any, ...]]] = {
    "arena_tfjob_estimator.md": [("tf-estimator", 600, None, None, 0.24215397, None)],
    "csv_results-mobilenetv2_1.0.csv": [("generic", None, None, 60, 1.7651091814041138, None)],
    "deepspeed_chat_sft-step1.log": [("deepspeed", 70, None, 1, None, None)],
    "detectron2-tx2dl_R50-FPN.log": [("detectron2", 299, None, None, 0.3553, None)],
    "dllogger_json-synergy_bert.json": [("dllogger", 29, None, 0, 8.15625, None)],
    "fairseq_old-v05_dgx1_transformer.txt": [("fairseq", 3930, None, 1, 7.507, None)],
    "gluoncv_maskrcnn_horovod_mpirun-24xp3dn.log": [("gluoncv", 99, None, 0, 2.438, None)],
    "hf_trainer_deepspeed_tqdm-bigscience_n4.out": [("tqdm", 16, 16, None, None, None)],
    "keras_bar-fchollet_5.2_convnet.log": [
        ("keras", 100, 100, 30, 0.0387, None),
        ("keras", 100, 100, 11, 0.5708, None),
    ],
    "keras_verbose2-kanji.txt": [("keras", None, None, 19, 0.4847, None), ("keras", None, None, 4, 0.0941, None)],
    "lightning_bar-walk-jump_o.log": [("tqdm", 1, 2, 3, 0.27, None)],
    "llmc-modded-nanogpt_2024-10-13.log": [("llmc", 257, None, None, 6.1244, None)],
    "megatron-bigscience_n8_dp1_tp4_pp8.out": [("megatron", 200, 1000, None, 7.534106, "killed")],
    "mlperf_gnmt-v05_dgx1.txt": [("gnmt", 10, 3416, 0, 10.35824, None)],
    "mlperf_mll_tpu_resnet-v06_google.txt": [("mllog", None, None, 12, None, None)],
    "mmseg_json-twins_upernet_svt_s.txt": [("mmcv", 16100, None, 13, 0.96765, None)],
    "modded_nanogpt-2024-10-10_muon.log": [("modded-nanogpt", 129, 6200, None, 5.1224, None)],
    "mxnet_resnet-v06_dgx1.txt": [("mxnet", 240, None, 1, None, None)],
    "opennmt_ansi-horie_jparacrawl.md": [("opennmt", 2500, 40000, None, 3.53, None)],
    "pytorch_imagenet_meter-cybertronai_debug.log": [("pytorch-meter", 45, 157, 1, 5.0789, None)],
    "pytorch_ncf_tqdm-v05_dgx2h.txt": [("tqdm", 95, 95, 2, None, None)],
    "synergy_audio_stdout.out": [("pytorch-meter", 9, 398, 0, 5.4047, None)],
    "tf_cnn_benchmarks-lambda_1xRTX2080maxq_fp32_resnet50.log": [("tf-cnn-benchmarks", 100, 100, None, 7.888, None)],
    "tf_cnn_benchmarks-lambda_1xRTX2080maxq_fp32_vgg16_FAILED.log": [(None, None, None, None, None, "out-of-memory")],
    "tf_estimator-adanet_objective.log": [("tf-estimator", 400, None, None, 0.03159466, None)],
    "titan_losses-llama3_cuda.txt": [("generic", 20, None, None, 2.9748668670654297, None)],
}


def runs_of(data: bytes) -> list[Run]:
    reader = LogReader(BOOK)
    reader.feed(data)
    return reader.runs()


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.name)
def test_excerpt(path: Path) -> None:
    """What excerpts of real logs tell."""
    got = []
    for summary in map(summarise, runs_of(path.read_bytes())):
        i, e = summary.iterations, summary.epochs
        last = None if summary.loss is None else pytest.approx(summary.loss.last[1], rel=1e-5)
        failure = None if summary.failure is None else summary.failure.kind.value
        got.append((summary.format, i and i.last, i and i.total, e and e.last, last, failure))
    assert got == WANTED[path.name]


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.name)
def test_pieces_and_restarts_change_nothing(path: Path) -> None:
    """Random pieces, questions in between, and the state through JSON: the same runs as in one pass."""
    data = path.read_bytes()
    whole = runs_of(data)
    dice = random.Random(path.name)
    for restarts in (False, True):
        reader, at = LogReader(BOOK), 0
        while at < len(data):
            size = dice.randint(1, max(2, len(data) // 4))
            reader.feed(data[at : at + size])
            at += size
            if dice.random() < 0.5:
                reader.runs()
            if restarts:
                reader = persistence.load(json.loads(json.dumps(persistence.dump(reader))), BOOK)
        assert reader.runs() == whole


def epochs(*numbers: int) -> str:
    return "".join(f"{i},{2 - i / 100:.3f},{3 - i / 100:.3f}\n" for i in numbers)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("epoch,train_loss,val_loss\n" + epochs(*range(300)), [299]),
        ("epoch,train_loss,val_loss\n" + epochs(*range(40), *range(20, 60), *range(5)), [39, 59, 4]),
        ("".join(f"Epoch {i + 1}/90\n187/187 [==] - 6s 3ms/step - loss: {2 - i / 90:.4f}\n" for i in range(90)), [90]),
    ],
    ids=["table", "table-begun-again", "turns"],
)
def test_short_ways_change_nothing(text: str, last: list[int]) -> None:
    """Epochs one after another, and two lines that take turns, are read the short way: the answer is the long one's."""
    whole, piecewise = LogReader(BOOK), LogReader(BOOK)
    whole.feed(text.encode())
    for i, line in enumerate(text.encode().splitlines(keepends=True)):
        piecewise.feed(line)
        if i % 7 == 3:  # what was read the short way is settled by asking, and by writing the state
            piecewise.runs()
            piecewise = persistence.load(json.loads(json.dumps(persistence.dump(piecewise))), BOOK)
    found = [summarise(run).to_json(points=True) for run in whole.runs()]
    assert [run["epochs"]["last"] for run in found] == last
    assert found == [summarise(run).to_json(points=True) for run in piecewise.runs()]


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.name)
def test_answer_so_far_is_the_answer_of_that_much(path: Path) -> None:
    """Asked in the middle, the reader says what a reader of the text up to there would say."""
    data = path.read_bytes()
    reader = LogReader(BOOK)
    half = len(data) // 2
    reader.feed(data[:half])
    assert reader.runs() == runs_of(data[:half])
    reader.feed(data[half:])
    assert reader.runs() == runs_of(data)


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.name)
def test_other_line_ends_and_encodings(path: Path) -> None:
    """Windows line ends and UTF-16 tell the same."""
    text = path.read_bytes().decode("utf-8", "replace")
    if "\r" not in text:
        assert runs_of(text.replace("\n", "\r\n").encode()) == runs_of(text.encode())
    assert runs_of(text.encode("utf-16")) == runs_of(text.encode())


def test_state_of_other_rules_is_refused() -> None:
    """A state is of the rules it was read by; other rules read the log again."""
    reader = LogReader(BOOK)
    reader.feed(b"step 1 loss 0.5\n")
    saved = persistence.dump(reader)
    with pytest.raises(persistence.Stale, match="rules"):
        persistence.load(saved, BOOK.without(["keras"]))
    with pytest.raises(persistence.Stale, match="damaged"):
        persistence.load({**saved, "runs": {}}, BOOK)


def test_closed_runs_survive_json() -> None:
    """Runs that ended are kept whole in the state."""
    log = b"".join(b"step %d loss %.3f\n" % (i, 5 - i / 100) for _ in range(3) for i in range(10, 200, 10))
    reader = LogReader(BOOK)
    reader.feed(log + b"slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2024-05-01T10:00:00 ***\n")
    again = persistence.load(json.loads(json.dumps(persistence.dump(reader))), BOOK)
    assert len(again.runs()) == 3
    assert again.runs() == reader.runs()


@pytest.mark.parametrize(
    ("tail", "last"),
    [
        ("step 4 loss 2.3", 3),  # four decimals before: cut in half
        ("step 4 loss 2.3333", 4),
        ("step 4 lo", 3),
        ("step 4", 3),
    ],
)
def test_half_a_line_at_the_end(tail: str, last: int) -> None:
    """A number that may have lost its end is not taken; a whole one is, though its line has no end yet."""
    log = "step 1 loss 2.5555\nstep 2 loss 2.4444\nstep 3 loss 2.3444\n" + tail
    (run,) = runs_of(log.encode())
    with_loss = [p for p in run.train if p.losses]
    assert with_loss[-1].iteration == last
    assert run.positions == last


def test_half_of_a_counter_is_no_step_back() -> None:
    """`step 10` of `step 1000` is not believed."""
    log = "".join(f"loss 0.5555 step {i}\n" for i in range(997, 1000)) + "loss 0.5555 step 10"
    (run,) = runs_of(log.encode())
    assert run.last_iteration == 999


def test_points_of_many_runs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many long runs keep their first and last points, an even sample between, and no more than the budget."""
    monkeypatch.setattr("profiler.runs.boundaries.CLOSED_POINTS", 1500)
    reader = LogReader(BOOK, limit=300)
    for n in range(12):
        reader.feed(b"".join(b"step %d loss %.4f lr 0.001\n" % (i, 1 / i) for i in range(1, 1000)))
        reader.feed(b"".join(b"noise %x %d something else\n" % (i * 7919 + n, i) for i in range(300)))
    runs = reader.runs()
    assert len(runs) == 12
    assert sum(len(r.points) for r in runs[:-1]) <= 1500
    assert all((r.points[0].iteration, r.points[-1].iteration, r.positions) == (1, 999, 999) for r in runs)


def test_many_new_shapes_at_once_are_read_as_one_by_one() -> None:
    """Past a hundred new shapes in a piece, only what the piece may hold is looked for; `Top1` loses its digit."""
    data = DATA.with_name("pasted.yaml").read_bytes()
    names = [f"{a}{b}" for a in "bdfghjkl" for b in "bdfghjklmpqsvwxz"]
    short = "".join(f"{n} {n[::-1]} says nothing\n" for n in names) + "Epoch 54 loss 0.25\nTop1: 91.81\n"
    for text in (data, short.encode(), short.replace("\n", "\r\n").encode()):
        apart = LogReader(BOOK)
        for line in text.splitlines(keepends=True):
            apart.feed(line)
        assert apart.runs()
        assert repr(runs_of(text)) == repr(apart.runs())  # nan is not equal to itself


def test_lines_are_counted() -> None:
    """The number of lines, with and without an end of the last."""
    for log, lines in ((b"", 0), (b"a\n", 1), (b"a\nb", 2), (b"a\n\n\n", 3)):
        reader = LogReader(BOOK)
        reader.feed(log)
        reader.feed(b"")
        assert reader.lines == lines


def test_every_rule_is_reachable() -> None:
    """No rule is hidden behind a gate that its own example does not pass."""
    for rule in builtin_rules():
        for example in rule.examples:
            key = example.line.encode().translate(None, b"0123456789").decode("latin-1")
            if rule.needs:
                assert rule in BOOK.candidates(key, BOOK.gates), (rule.full_name, example.line)


def test_aggregated_logs_of_yarn_hold_a_run_a_container() -> None:
    """As `yarn logs` prints them: each container's files, with heads and feet of YARN's own between."""
    lines = []
    for number in (1, 2):
        lines += [f"Container: container_1700000000000_0001_01_00000{number} on n{number}.example.com_45454"]
        lines += ["LogAggregationType: AGGREGATED", "=" * 70, "LogType:stdout"]
        lines += ["LogLastModifiedTime:Tue Nov 21 10:00:00 +0000 2023", "LogLength:12345", "LogContents:"]
        lines += [
            f"Epoch: [{at // 5}][{at % 5 * 100}/500]\tTime  0.250 ( 0.260)\tLoss {number + 15.0 / at:.4e} (2.5e+00)"
            for at in range(5, 20)
        ]
        lines += ["", "End of LogType:stdout", "*" * 70, ""]
    found = runs_of("\n".join(lines).encode())
    assert [(run.format, len(run.points), run.points[-1].iteration) for run in found] == [
        ("pytorch-meter", 15, 400)
    ] * 2
    for number, run in enumerate(found, start=1):
        loss = summarise(run).loss
        assert loss is not None
        assert loss.last[1] == pytest.approx(number + 15.0 / 19, rel=1e-4)
