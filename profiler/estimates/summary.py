"""One run as read -> the answer of `horae profile` for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler.estimates.curves import accuracy_curve, loss_curve, loss_summary, series_summary, validation_curves
from profiler.estimates.iteration import Timing, timing
from profiler.estimates.loss import fit_of
from profiler.evidence import Evidence, confidence, known, some
from profiler.model import Epochs, Iterations, Kind, Run, RunSummary
from profiler.runs.sane import sane


def summarise(run: Run, *, target: float | None = None) -> RunSummary:
    """Everything the run tells. `target`: the loss asked for; None: where the fitted curve has levelled off.

    Never raises for what a log may say; a part that cannot be told is None.
    """
    run = sane(run)
    times = timing(run)
    loss = loss_curve(run)
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
        accuracy=series_summary(accuracy_curve(run), named=True),
        validation_loss=series_summary(held_out_loss, named=False),
        validation_accuracy=series_summary(held_out_accuracy, named=False),
        fit=forecast,
        ranks=run.ranks,
        gpus=run.gpus,
        warm_up=times.warm_up,
        failure=run.failure,
        warnings=(*run.warnings, *times.warnings, *notes),
    )
    return _weighed(told, run, times)


def _weighed(told: RunSummary, run: Run, times: Timing) -> RunSummary:
    """The answer with its evidence, less what is not sure enough to be told."""
    train = [p.line for p in run.points if p.kind is not Kind.VALIDATION]
    held = [p.line for p in run.points if p.kind is Kind.VALIDATION or p.validation_losses or p.validation_accuracies]
    parts: dict[str, tuple[str, list[int]]] = {
        "iterations": ("iterations.last", [p.line for p in run.points if p.iteration is not None]),
        "epochs": ("epochs.last", [p.line for p in run.points if p.epoch is not None] or train),
        "epoch_time": ("epoch_time.median", [p.line for p in run.points if p.epoch_s is not None] or train),
        "throughput": ("throughput.median", [p.line for p in run.points if p.throughput is not None]),
        "loss": ("loss.last", [p.line for p in run.points if p.losses and not p.redrawn]),
        "accuracy": ("accuracy.last", [p.line for p in run.points if p.accuracies and not p.redrawn]),
        "validation_loss": ("validation.loss.last", held),
        "validation_accuracy": ("validation.accuracy.last", held),
        "failure": ("failure.kind", [] if run.failure is None else [run.failure.line]),
    }
    evidence = {} if times.evidence is None else {"iteration_time.median": times.evidence}
    doubted: dict[str, Any] = {}
    notes: list[str] = []
    for part, (name, lines) in parts.items():
        if getattr(told, part) is None:
            continue
        ground = known(run.format, len(set(lines)))
        evidence[name] = Evidence(confidence(name, ground), some(lines), (), ground)
        if not evidence[name].told and part != "failure":
            doubted[part] = None
            notes.append(f"{name} is not told: right in {evidence[name].confidence:.0%} where the log is like this one")
    return replace(told, **doubted, evidence=evidence, warnings=(*told.warnings, *notes))


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
