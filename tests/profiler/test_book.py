"""Formats as data: every example of every rule file, and what is wrong with a bad file."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.rules.book import BadRules, Rule, RuleBook, builtin_rules, check, load, load_text, read_line
from profiler.runs.reader import LogReader

RULES = builtin_rules()
NAMED = [
    "keras",
    "tf-estimator",
    "tf-cnn-benchmarks",
    "pytorch-meter",
    "pytorch-mnist",
    "word-lm",
    "hf-trainer",
    "tqdm",
    "lightning",
    "timm",
    "detectron2",
    "mmcv",
    "deepspeed",
    "megatron",
    "torchtitan",
    "nanogpt",
    "modded-nanogpt",
    "llmc",
    "fairseq",
    "opennmt",
    "marian",
    "horovod",
    "mxnet",
    "gluoncv",
    "paddle",
    "mindspore",
    "jax",
    "composer",
    "mllog",
    "dllogger",
    "yolo",
    "horae",
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.full_name)
def test_examples(rule: Rule) -> None:
    """Each rule reads its own example lines, asked together with the other rules of its format."""
    check([r for r in RULES if r.format == rule.format])
    assert rule.examples


def test_formats_that_must_be_there() -> None:
    """The families that sites meet have rules."""
    assert set(NAMED) <= {r.format for r in RULES}


@pytest.mark.parametrize("rule", [r for r in RULES if r.kind != "ignore"], ids=lambda r: r.full_name)
def test_no_other_format_takes_the_line(rule: Rule) -> None:
    """Asked all together, a rule's example is read as what the rule says, by whichever format."""
    book = RuleBook(RULES)
    for example in rule.examples:
        read = read_line(book, example.line)
        assert read is not None, example.line
        _, values = read
        for name in ("iteration", "epoch", "loss", "accuracy"):
            wanted = example.gives.get(name)
            if wanted is not None and wanted == wanted:  # noqa: PLR0124 - nan
                held = values.get(name, values.get(f"validation_{name}"))
                assert held == pytest.approx(wanted), (example.line, read[0].rule)


SITE = """\
format: my-trainer
title: the site's own
rules:
  - name: step
    needs: ["it=", "L="]
    pattern: 'it={iteration}/{iterations} L={loss} {to:dt=}{step_time}ms'
    fields: {step_time: {unit: ms}}
    scope: run
    examples:
      - line: 'it=10/400 L=2.31 lr=1e-3 dt=12.5ms'
        gives: {iteration: 10, iterations: 400, loss: 2.31, step_time: 0.0125}
"""


def test_a_sites_own_file(tmp_path: Path) -> None:
    """A site's file is asked before the built-in ones."""
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    reader = LogReader(load([path]))
    reader.feed(b"it=10/400 L=2.31 lr=1e-3 dt=12.5ms\nit=20/400 L=2.21 lr=1e-3 dt=12.6ms\n")
    (run,) = reader.runs()
    assert (run.format, run.last_iteration, run.total_iterations) == ("my-trainer", 20, 400)
    assert [p.step_s for p in run.points] == [0.0125, 0.0126]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("format: my-trainer", "format: My Trainer", 1, "lower-case"),
        ("    scope: run", "    scope: day", 8, "scope"),
        ("    scope: run", "    scoop: run", 8, "unknown key 'scoop'"),
        ("{loss}", "{los}", 6, "{los} is no field"),
        ("{iteration}/", "{iteration:hex}/", 6, "unknown type 'hex'"),
        ("dt=}{step_time}", "dt=}({step_time}", 6, "not a regular expression"),
        ("loss: 2.31,", "loss: 9.99,", 10, "loss should be 9.99"),
        ("{unit: ms}", "{units: ms}", 7, "step_time"),
        ("  - name: step", "  - nome: step", 4, "unknown key 'nome'"),
        ("{unit: ms}", "{unit: fortnight}", 7, "unknown unit 'fortnight'"),
        ("{unit: ms}", "{is: speed}", 7, "not a field: 'speed'"),
        ("{unit: ms}", "{of: half}", 7, "one of error, inverse"),
        ('["it=", "L="]', '"it="', 5, "a list of texts"),
        ("    scope: run", "    bar: maybe", 8, "true or false"),
        ("    scope: run", "    values: {world: many}", 8, "not a field with a number"),
        ("    scope: run", "    words: {dt: speed}", 8, "not a field: 'speed'"),
        ("loss: 2.31,", "loss: much,", 10, "loss is no number"),
        (
            "    examples:\n      - line: 'it=10/400 L=2.31 lr=1e-3 dt=12.5ms'\n        gives: "
            "{iteration: 10, iterations: 400, loss: 2.31, step_time: 0.0125}\n",
            "",
            4,
            "needs an example",
        ),
        ("rules:", "rules: [", 4, ""),
        (SITE, "", 1, "empty"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    """Whatever is wrong with a rule file is said with its line."""
    assert old in SITE
    path = tmp_path / "site.yaml"
    path.write_text(SITE.replace(old, new))
    with pytest.raises(BadRules) as caught:
        load([path])
    assert caught.value.where == str(path)
    assert caught.value.line == line, caught.value
    assert says in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is an error for people, too."""
    with pytest.raises(BadRules, match="No such file"):
        load([tmp_path / "none.yaml"])


def test_formats_can_be_switched_off() -> None:
    """Without a family's rules its lines fall to the generic reader."""
    book = load().without(["keras"])
    line = "100/100 [==============================] - 9s - loss: 0.6898 - acc: 0.5285"
    read = read_line(book, line)
    assert read is not None
    assert read[0].rule == "generic/pairs"
    assert read[1]["loss"] == 0.6898


def test_rules_name_unique() -> None:
    """No two rules of a format share a name."""
    names = [r.full_name for r in RULES]
    assert len(names) == len(set(names))


def test_load_text_gives_line_of_each_rule() -> None:
    """A rule knows its line, for errors at use."""
    (rule,) = load_text(SITE, "site.yaml")
    assert (rule.at, rule.where) == (4, "site.yaml")


def test_the_sdks_epoch_is_its_start() -> None:
    """`epoch=` of the SDK numbers the job's starts: it is no pass over the data, and a restart ends no run."""
    reader = LogReader(load())
    reader.feed(
        b"[horae] start step=0 world=2 epoch=1 checkpoint=none\n"
        b"[horae] step=10/40 loss=2.3100 iter_s=0.0123 world=2 epoch=1 t=3.2\n"
        b"[horae] step=20/40 loss=2.2100 iter_s=0.0123 world=2 epoch=1 t=4.2\n"
        b"[horae] start step=20 world=4 epoch=2 checkpoint=step-20\n"
        b"[horae] step=30/40 loss=2.0100 iter_s=0.0063 world=4 epoch=2 t=5.9\n"
    )
    (run,) = reader.runs()
    assert (run.last_epoch, run.total_epochs, run.scope) == (None, None, "run")
    assert (run.first_iteration, run.last_iteration, run.total_iterations, run.ranks) == (10, 30, 40, 4)
