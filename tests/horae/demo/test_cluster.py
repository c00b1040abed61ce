"""Taking the stage down."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from horae.demo.cluster import RunningDemo


class Cluster:
    """A client and a service in one: the last job leaves when it is let."""

    def __init__(self) -> None:
        self.asked, self.let, self.stopped = threading.Event(), threading.Event(), 0

    def status(self) -> dict[str, Any]:
        self.asked.set()
        assert self.let.wait(90)
        return {"jobs": []}

    def stop(self) -> None:
        self.stopped += 1


def test_who_closes_second_waits_for_the_first(tmp_path: Path) -> None:
    """A terminal that goes away has the process end itself after the close: in the middle of it, jobs would stay."""
    cluster, folder = Cluster(), tmp_path / "demo"
    folder.mkdir()
    stage = RunningDemo(folder, cast(Any, cluster), cast(Any, cluster), keep=False)
    first, second = (threading.Thread(target=stage.close) for _ in range(2))
    first.start()
    assert cluster.asked.wait(90)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    cluster.let.set()
    for thread in (first, second):
        thread.join(90)
    assert (cluster.stopped, folder.exists()) == (1, False)


def test_an_arbiter_that_does_not_answer_is_stopped_all_the_same(tmp_path: Path) -> None:
    cluster, folder = Cluster(), tmp_path / "demo"
    folder.mkdir()
    cluster.status = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        RunningDemo(folder, cast(Any, cluster), cast(Any, cluster), keep=False).close()
    assert (cluster.stopped, folder.exists()) == (1, False)
