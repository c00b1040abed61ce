"""One run as read -> the answer of `horae profile` for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from profiler.estimates.curves import (
    Curve,
    accuracy_curve,
    falls_together,
    loss_curve,
    loss_summary,
    series_summary,
    tells_two_sorts,
    validation_curves,
)
from profiler.estimates.iteration import Timing, timing
from profiler.estimates.loss import fit_of
from profiler.evidence import Evidence, confidence, known, some
from profiler.model import Epochs, Iterations, Kind, Point, Run, RunSummary
from profiler.runs.sane import sane

ERRORS = "what is called an accuracy falls as a loss does: it may be the share that is wrong, and is not told"

SORTS = "two losses of each position, always the same of them the higher: of two sorts, and none is told"


def summarise(run: Run, *, target: float | None = None) -> RunSummary:
    """Everything the run tells. `target`: the loss asked for; None: where the fitted curve has levelled off.

    Never raises for what a log may say; a part that cannot be told is None.
    """
    run = sane(run)
    times = timing(run)
    loss = loss_curve(run)
    accuracy: Curve | None = accuracy_curve(run)
    wrong: tuple[str, ...] = ()
    if loss is None and tells_two_sorts(run):
        accuracy, wrong = None, (SORTS,)
    if falls_together(accuracy, loss):
        accuracy, wrong = None, (ERRORS,)
    held_out_loss, held_out_accuracy = validation_curves(run)
    forecast, notes = fit_of(
        loss,
        target=target,
        total=run.total_iterations if run.scope != "epoch" else None,
        iterations_per_epoch=run.iterations_per_epoch,
    )
    told = RunSummary(
        format=run.format,
        lines=(run.first_line, run.last_line),
        iterations=_iterations(run),
        epochs=_epochs(run),
        iteration_time=times.iteration,
        epoch_time=times.epoch,
        throughput=times.throughput,
        loss=loss_summary(run, loss),
        accuracy=series_summary(accuracy, named=True),
        validation_loss=series_summary(held_out_loss, named=False),
        validation_accuracy=series_summary(held_out_accuracy, named=False),
        fit=forecast,
        ranks=run.ranks,
        gpus=run.gpus,
        warm_up=times.warm_up,
        failure=run.failure,
        warnings=(*run.warnings, *wrong, *times.warnings, *notes),
    )
    return _weighed(told, run, times)


def _weighed(told: RunSummary, run: Run, times: Timing) -> RunSummary:
    """The answer with its evidence, less what is not sure enough to be told."""
    evidence = {} if times.evidence is None else {"iteration_time.median": times.evidence}
    doubted: dict[str, Any] = {}
    notes: list[str] = []
    train = _lines(run, lambda p: p.kind is not Kind.VALIDATION)
    for part, (name, says) in _PARTS.items():
        if getattr(told, part) is None:
            continue
        lines = _lines(run, says) or (train if part in _OF_TRAINING else [])
        if part == "failure" and run.failure is not None:
            lines = [run.failure.line]
        ground = known(run.format, len(set(lines)))
        evidence[name] = Evidence(confidence(name, ground), some(lines), (), ground)
        if not evidence[name].told and part != "failure":
            doubted[part] = None
            notes.append(f"{name} is not told: right in {evidence[name].confidence:.0%} where the log is like this one")
    return replace(told, **doubted, evidence=evidence, warnings=(*told.warnings, *notes))


def _held(p: Point) -> bool:
    return p.kind is Kind.VALIDATION or bool(p.validation_losses or p.validation_accuracies)


#: Part of the answer -> its field, and which points say it.
_PARTS: Mapping[str, tuple[str, Callable[[Point], object]]] = {
    "iterations": ("iterations.last", lambda p: p.iteration is not None),
    "epochs": ("epochs.last", lambda p: p.epoch is not None),
    "epoch_time": ("epoch_time.median", lambda p: p.epoch_s is not None),
    "throughput": ("throughput.median", lambda p: p.throughput is not None),
    "loss": ("loss.last", lambda p: p.losses and not p.redrawn),
    "accuracy": ("accuracy.last", lambda p: p.accuracies and not p.redrawn),
    "validation_loss": ("validation.loss.last", _held),
    "validation_accuracy": ("validation.accuracy.last", _held),
    "failure": ("failure.kind", lambda p: False),
}
_OF_TRAINING = ("epochs", "epoch_time")  #: told by all of its lines, where no line says it


def _lines(run: Run, says: Callable[[Point], object]) -> list[int]:
    return [p.line for p in run.points if says(p)]


def _iterations(run: Run) -> Iterations | None:
    if run.first_iteration is None or run.last_iteration is None:
        return None
    return Iterations(
        first=run.first_iteration,
        last=run.last_iteration,
        total=run.total_iterations,
        scope=run.scope or "run",
        unit=run.unit or "iteration",
    )


def _epochs(run: Run) -> Epochs | None:
    if run.last_epoch is None:
        return None
    return Epochs(last=run.last_epoch, total=run.total_epochs, iterations_per_epoch=run.iterations_per_epoch)
