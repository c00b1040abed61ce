"""What stands between the API's verbs and the arbiter: what people type of a job is found, whatever stands behind the
cluster's own number in its id, and who asks much waits before the core works for him."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from horae.api.arbiter import ArbiterBackend
from horae.arbiter.requests.commands import NoSuchJob
from horae.arbiter.service import Arbiter
from horae.journal import JobRecord, Ledger
from horae.port import LogChunk, TryLater
from tests.horae.arbiter.site import spec


class _Arbiter:
    """Remembers of which job each request was."""

    def __init__(self) -> None:
        record = JobRecord("14.6b02f9201c2bbd09fe1", spec("train"), "gpu", "lab", "app", "ann", 0.0)
        self.core = SimpleNamespace(ledger=Ledger(jobs={record.id: record}), now_s=lambda: 0.0)
        self.asked: list[str] = []

    def view(self, look: Callable[[Any], Any]) -> Any:
        return look(self.core)

    def read_log(self, job: str, offset: int, by: object) -> LogChunk:
        self.asked.append(job)
        return LogChunk(b"", 0)

    def command(self, what: Callable[[Any], Any]) -> Any:
        return what(self)

    def hold(self, job: str, *_: object) -> None:
        self.asked.append(job)

    def unhold(self, job: str, *_: object) -> None:
        self.asked.append(job)

    def history_lots(self, job: str, **_: object) -> list[object]:
        self.asked.append(job)
        return []


def test_a_jobs_number_is_enough() -> None:
    arbiter = _Arbiter()
    backend = ArbiterBackend(cast(Arbiter, arbiter))
    backend.log("14", 0, by="ann")
    backend.hold("14", by="ann", why="")
    backend.unhold("14.6b02f9201c2bbd09fe1", by="ann")
    backend.history(job="14", after=None, since_s=None, limit=5)
    assert set(arbiter.asked) == {"14.6b02f9201c2bbd09fe1"}
    assert len(arbiter.asked) == 4
    with pytest.raises(NoSuchJob):
        backend.hold("1", by="ann", why="")


def test_while_a_dry_run_is_answered_no_other_takes_the_cores_time() -> None:
    """Ten thousand jobs of one cost the core's thread a third of a second; a flood of them would be late rounds."""
    arbiter, began, go_on = _Arbiter(), threading.Event(), threading.Event()

    def looks(_look: Callable[[Any], Any]) -> Any:
        arbiter.asked.append("a dry run")
        began.set()
        assert go_on.wait(60)
        raise TryLater("no cluster here")

    arbiter.view = looks  # type: ignore[method-assign]
    backend = ArbiterBackend(cast(Arbiter, arbiter))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(backend.dry_run, [spec("a")], by="ann")
        try:
            assert began.wait(60)
            for _ in range(5):
                with pytest.raises(TryLater, match="somebody else's dry run"):
                    backend.dry_run([spec(f"j{i}") for i in range(100)], by="eve")
        finally:
            go_on.set()
        with pytest.raises(TryLater, match="no cluster here"):
            first.result(60)
    assert arbiter.asked == ["a dry run"]
    with pytest.raises(TryLater, match="no cluster here"):
        backend.dry_run([spec("b")], by="ben")
