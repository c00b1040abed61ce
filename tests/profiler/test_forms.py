"""Short logs in the forms that programs print, read from text to JSON (`forms.yaml`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from profiler.estimates.summary import summarise
from profiler.rules.book import load
from profiler.runs.reader import LogReader

FORMS = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text(encoding="utf-8"))
BOOK = load()


def read(log: str) -> list[dict[str, Any]]:
    reader = LogReader(BOOK)
    reader.feed(log.encode())
    return [summarise(run).to_json() for run in reader.runs()]


def differences(want: Any, got: Any, at: str = "") -> list[str]:
    """What is asked for and not found."""
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return [f"{at}: found {got}"]
        return [d for k, v in want.items() for d in differences(v, got.get(k), f"{at}.{k}")]
    if isinstance(want, list):
        if not isinstance(got, list) or len(want) != len(got):
            return [f"{at}: found {got}"]
        return [d for i, (w, g) in enumerate(zip(want, got, strict=True)) for d in differences(w, g, f"{at}[{i}]")]
    if isinstance(want, float) or isinstance(got, float):
        return (
            []
            if got is not None and want is not None and got == pytest.approx(want, rel=1e-4)
            else [f"{at}: found {got}"]
        )
    return [] if want == got else [f"{at}: found {got}, not {want}"]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f["name"])
def test_form(form: dict[str, Any]) -> None:
    """Everything that a log tells is found, and no run more."""
    runs = read(form["log"])
    assert len(runs) == len(form["runs"])
    assert differences(form["runs"], runs) == []
