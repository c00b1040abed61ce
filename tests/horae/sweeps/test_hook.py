"""What jobs on record say of their app's scheduler, asked for at every decision and by everybody who lists apps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from horae.sweeps.hook import apps
from horae.views.apps import rows
from tests.horae.arbiter.site import ANN, Site, spec

NAME = "HORAE_SWEEP"
PLAIN: dict[str, Any] = {
    "scheduler": "external",
    "budget": None,
    "demand_max": None,
    "phases": [],
    "parameters": {"lr": 0.1},
}
WRONG = "[" + "1," * 1000 + "1]"


def test_each_job_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of 64 KiB in thousands of jobs were read anew at every decision: rounds took as long as that."""
    site = Site(tmp_path)
    texts = [WRONG] * 20 + [json.dumps({**PLAIN, "scheduler": f"none {i}"}) for i in range(20)] + [json.dumps(PLAIN)]
    site.commands.submit([spec(f"j{i}", 1, env={NAME: text}, app="one") for i, text in enumerate(texts)], ANN)
    loads, read = json.loads, []

    def counted(text: str) -> Any:
        read.append(text)
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)
    for _ in range(3):
        (app,) = apps(site.core.ledger, "main")
        (row,) = rows(site.core.ledger, site.config, {})
    assert (app.name, app.scheduler, row["scheduler"]) == ("ann/one", "external", "external")
    assert row["trials"][-1]["parameters"] == {"lr": 0.1}
    assert len(read) == len(texts)


def test_a_setting_is_an_answer_in_json(tmp_path: Path) -> None:
    site = Site(tmp_path)
    wrong = json.dumps({**PLAIN, "parameters": {"a": float("nan")}})
    site.commands.submit([spec("j", 1, env={NAME: wrong})], ANN)
    (row,) = rows(site.core.ledger, site.config, {})
    assert json.loads(json.dumps(row, allow_nan=False))["trials"][0]["parameters"] == {}


def test_a_scheduler_that_there_is_not_is_none(tmp_path: Path) -> None:
    """Its name is told to everybody."""
    site = Site(tmp_path)
    site.commands.submit([spec("j", 1, env={NAME: json.dumps({**PLAIN, "scheduler": "x" * 10_000})})], ANN)
    assert apps(site.core.ledger, "main") == () and rows(site.core.ledger, site.config, {}) == []
