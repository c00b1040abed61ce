"""Runs and points made by hand, for the tests of the estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from profiler.model import Kind, LossKind, Point, Run, Value


def point(line: int, kind: Kind = Kind.TRAIN, loss: float | None = None, **more: Any) -> Point:
    losses = () if loss is None else (Value("loss", loss, more.pop("loss_kind", LossKind.STEP)),)
    return Point(line=line, kind=kind, rule="made/by-hand", losses=more.pop("losses", losses), **more)


def run(points: Iterable[Point], **more: Any) -> Run:
    kept = tuple(points)
    counted = [p.iteration for p in kept if p.kind is Kind.TRAIN and p.iteration is not None]
    base: dict[str, Any] = {
        "format": "made",
        "first_line": 1,
        "last_line": max((p.line for p in kept), default=1),
        "points": kept,
        "scope": kept[0].scope if kept else None,
        "unit": "iteration",
        "first_iteration": counted[0] if counted else None,
        "last_iteration": counted[-1] if counted else None,
    }
    return Run(**{**base, **more})


def steps(seconds: Sequence[float], **more: Any) -> list[Point]:
    """One point a step with a printed time."""
    return [point(i, iteration=float(i), step_s=s, **more) for i, s in enumerate(seconds, 1)]
