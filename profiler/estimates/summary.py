"""One run as read -> the answer of `horae profile` for it."""

from __future__ import annotations

from profiler.estimates.curves import accuracy_curve, loss_curve, loss_summary, series_summary, validation_curves
from profiler.estimates.iteration import timing
from profiler.estimates.loss import fit_of
from profiler.model import Epochs, Iterations, Run, RunSummary
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
    return RunSummary(
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
