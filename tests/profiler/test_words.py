"""The lexicon: what the words beside a number say."""

from __future__ import annotations

import pytest

from profiler.model import LossKind
from profiler.rules.lexicon.sides import side_of
from profiler.rules.lexicon.units import rate_of
from profiler.rules.lexicon.words import meaning


@pytest.mark.parametrize(
    ("key", "unit", "what"),
    [
        ("Training loss", "", "loss"),
        ("lm loss", "", "loss"),
        ("total_loss", "", "loss"),
        ("Loss/tok", "", "loss"),
        ("loss_cls", "", "part"),
        ("ObjLoss", "", "part"),
        ("BoxScaleLoss", "", "part"),
        ("val_loss", "", "validation_loss"),
        ("eval_loss", "", "validation_loss"),
        ("acc", "", "accuracy"),
        ("Acc@1", "", "accuracy"),
        ("top-1", "", "accuracy"),
        ("Validation-accuracy", "", "validation_accuracy"),
        ("elapsed time per iteration (ms)", "", "step_time"),
        ("ms/batch", "", "step_time"),
        ("", "s/it", "step_time"),
        ("", "it/s", "step_rate"),
        ("global_step/sec", "", "step_rate"),
        ("steps_per_sec", "", "step_rate"),
        ("Speed", "samples/sec", "throughput"),
        ("CurSamplesPerSec", "", "throughput"),
        ("AvgSamplesPerSec", "", "throughput_average"),
        ("avg. samples / sec", "", "throughput_average"),
        ("Tok/s", "", "throughput"),
        ("Tokens/s/device", "", "throughput"),
        ("avg_batch_cost", "sec", "step_time_average"),
        ("epoch", "", "epoch"),
        ("Num Epochs", "", "epochs"),
        ("num_updates", "", "iteration"),
        ("global_step", "", "iteration"),
        ("Total optimization steps", "", "iterations"),
        ("learning rate", "", "lr"),
        ("took", "s", "window_time"),
    ],
)
def test_meaning(key: str, unit: str, what: str) -> None:
    """Keys of many programs mean one of a few things."""
    found = meaning(key, unit)
    assert found is not None
    assert found.what == what


@pytest.mark.parametrize(
    "key",
    [
        "loss scale",
        "loss_weight",
        "best loss",
        "grad norm",
        "consumed samples",
        "number of skipped iterations",
        "Acc@5",
        "num zeros",
        "memory",
        "Data",
        "warmup_epochs",
        "lr_decay_epoch",
        "jitter",
        "ppl",
    ],
)
def test_what_is_left_alone(key: str) -> None:
    """A number is taken only with a word that says what it is."""
    found = meaning(key)
    assert found is None or found.what == "skip"


def test_scales_and_ranks() -> None:
    """Units become seconds and rates a second; a rank's own rate says so."""
    rate = rate_of("us/step")
    assert rate is not None and rate.scale == 1e-6
    rate = rate_of("tokens/s/gpu")
    assert rate is not None and rate.of_rank and rate.unit == "tokens/s"
    rate = rate_of("samples/min")
    assert rate is not None and rate.scale == pytest.approx(1 / 60)
    average = meaning("Average Loss")
    assert average is not None and average.kind is LossKind.RUNNING


def test_sides() -> None:
    """Validation words make a line validation unless it speaks of training too."""
    assert side_of("Test: ") == "validation"
    assert side_of("Train and test") == "train"
    assert side_of("iteration 5") == ""
