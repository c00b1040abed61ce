"""Answers that are as large as what jobs brought along: made as they are read, and never whole in memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.api.arbiter import ArbiterBackend
from horae.api.peers import Caller
from horae.api.privacy import access
from horae.api.refusals import JsonLots
from horae.arbiter.service import Arbiter
from tests.horae.arbiter.site import ANN, Site, spec

MANY, LARGE = 40, 1 << 20


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[ArbiterBackend]:
    """Of an arbiter of jobs that bring a megabyte each."""
    site = Site(tmp_path)
    for number in range(MANY):
        site.commands.submit([spec(f"j{number}", env={"BIG": "x" * LARGE})], ANN)
    arbiter = Arbiter(site.config, site.fake, journal=site.journal)
    arbiter.start()
    yield ArbiterBackend(arbiter)
    arbiter.stop()


def read(backend: ArbiterBackend, caller: Caller, **asked: Any) -> Iterator[bytes]:
    wanted = {"job": None, "after": None, "since_s": None, "limit": 1000, **asked}
    answer = JsonLots("events", access.events(backend.history(**wanted), caller, access.AccessRules()))
    return answer.made


def test_history_of_large_jobs_is_never_whole_in_memory(backend: ArbiterBackend) -> None:
    made = read(backend, Caller(0, "root", operator=True))
    tracemalloc.start()
    size = sum(map(len, made))
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > MANY * LARGE
    assert peak < 12 * LARGE, "a lot of it at a time"


def test_nothing_is_missing_in_it(backend: ArbiterBackend) -> None:
    told = json.loads(b"".join(read(backend, Caller(0, "root", operator=True))))["events"]
    assert [event["seq"] for event in told] == sorted(event["seq"] for event in told)
    handed_in = [event for event in told if event["kind"] == "submitted"]
    assert [len(event["data"]["spec"]["env"]["BIG"]) for event in handed_in] == [LARGE] * MANY
    newest = json.loads(b"".join(read(backend, Caller(0, "root", operator=True), limit=3)))["events"]
    assert len(newest) == 3
    assert newest[-1]["seq"] >= told[-1]["seq"]
    assert json.loads(b"".join(read(backend, Caller(1002, "ben"), after=told[-1]["seq"] + 1000))) == {"events": []}
