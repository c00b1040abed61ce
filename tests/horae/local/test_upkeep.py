"""Looking changes nothing; what is due is done for whom an arbiter in charge names, and for nobody else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.local.adapter import LocalCluster
from horae.local.options import parse
from horae.port import JobState
from tests.horae.elastic.exec_job import until
from tests.horae.local.cluster import Cluster

SLEEPS = "import time; time.sleep(600)"


def written(state: Path) -> dict[str, tuple[int, int, int]]:
    """All that stands in the cluster's folders but what running supervisors write themselves."""
    own = {"state.json", "output.log", "events"}
    found = {}
    for path in state.rglob("*"):
        if path.name not in own and not path.is_dir():
            seen = path.lstat()
            found[str(path)] = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
    return found


@pytest.fixture
def needy(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Four jobs that need something: one ended, one died, one stays after its time, one's node is down; one does
    not."""
    monkeypatch.setattr("horae.local.upkeep.PRESS_S", 0.0)
    cluster.running("died", SLEEPS, {"v100-1": 1})
    cluster.running("stays", SLEEPS, {"v100-2": 1})
    cluster.running("below", SLEEPS, {"k80-1": 1})
    cluster.running("runs", SLEEPS, {"v100-2": 1})
    cluster.submit("ended", "import sys; sys.exit(0)")
    cluster.port.start("ended", {"v100-1": 1}, 1)
    stays = cluster.supervisor("stays")
    os.kill(stays, signal.SIGSTOP)
    cluster.port.checkpoint_and_stop("stays", 0.0)
    os.kill(cluster.supervisor("died"), signal.SIGKILL)
    (cluster.state / "nodes" / "k80-1").write_text("down")
    until("two are over", lambda: not cluster.lives("ended") and not cluster.lives("died"))
    yield cluster
    if cluster.lives("stays"):
        os.kill(stays, signal.SIGCONT)


def test_looking_changes_nothing_and_shows_what_is_due(needy: Cluster) -> None:
    port = needy.port
    port.observe()  # from here on the time of the one who stays is over
    before = written(needy.state)
    looks = [port.observe() for _ in range(3)]
    assert written(needy.state) == before
    assert needy.lives("stays") and needy.lives("below")
    for seen in looks:
        assert {due.job for due in seen.due} == {"ended", "died", "stays", "below"}
        states = {job.id: job.state for job in seen.jobs}
        assert (states["ended"], states["died"], states["runs"]) == (
            JobState.COMPLETED,
            JobState.LOST,
            JobState.RUNNING,
        )
    assert port.follow_up(["stays", "ended", "runs", "nobody"]) == {}
    until("it is gone", lambda: not needy.lives("stays"))
    assert needy.lives("below") and needy.lives("runs")
    seen = port.observe()
    assert {due.job for due in seen.due} == {"died", "stays", "below"}, "its end is to be noted now"


def test_an_end_shows_the_same_until_it_is_noted_and_after(needy: Cluster) -> None:
    def shown() -> dict[str, tuple[object, ...]]:
        return {j.id: (j.state, j.since_s, j.exit_code, j.native) for j in needy.port.observe().jobs}

    before = shown()
    assert needy.port.follow_up(["ended", "died"]) == {}
    after = shown()
    assert [after[job] for job in ("ended", "died")] == [before[job] for job in ("ended", "died")]
    assert {due.job for due in needy.port.observe().due} == {"stays", "below"}


def test_nothing_is_due_to_who_did_not_claim_the_cluster(needy: Cluster) -> None:
    before = written(needy.state)
    watcher = LocalCluster(needy.options)
    assert watcher.observe().due == ()
    assert watcher.follow_up(["ended", "died", "stays", "below"]) == {}
    needy.port.observe()
    watcher.claim("another")
    assert needy.port.observe().due == ()
    assert needy.port.follow_up(["ended", "died", "stays", "below"]) == {}
    assert {path: found for path, found in written(needy.state).items() if not path.endswith("/claim")} == {
        path: found for path, found in before.items() if not path.endswith("/claim")
    }
    assert needy.lives("stays") and needy.lives("below")


def test_a_folder_whose_time_is_over_is_cleared_by_nobody_who_only_looks(cluster: Cluster) -> None:
    cluster.submit("over", "import sys; sys.exit(0)")
    cluster.port.start("over", {"v100-1": 1}, 1)
    cluster.wait("over", JobState.COMPLETED)
    port = LocalCluster(parse({"state": cluster.state, "nodes": "v100:2x2,k80:1x2", "keep_s": 0.01}))
    port.claim("tests")
    until("it is due", lambda: "over" in {due.job for due in port.observe().due})
    assert (cluster.state / "jobs" / "over").exists()
    assert port.follow_up(["over"]) == {}
    assert not (cluster.state / "jobs" / "over").exists()
    assert port.follow_up(["over"]) == {}


def test_who_only_looks_makes_no_folder(tmp_path: Path) -> None:
    port = LocalCluster(parse({"state": tmp_path / "state", "nodes": "v100:2x2"}))
    seen = port.observe()
    assert (len(seen.nodes), seen.jobs, seen.due, seen.claim) == (2, (), (), None)
    assert port.capabilities().cluster == "local (2 virtual nodes, 4 GPUs)"
    assert port.noticed() == 0
    assert not list(tmp_path.iterdir())


def test_what_was_interrupted_waits_for_an_arbiter_in_charge(cluster: Cluster) -> None:
    """Half thrown away by one that was killed: who only looks leaves it, who claims the cluster finishes it."""
    cluster.submit("over")
    folder = cluster.state / "jobs" / "over"
    gone = folder.rename(folder.with_name(".gone.over.0123abcd"))
    before = written(cluster.state)
    watcher = LocalCluster(cluster.options)
    watcher.observe()
    assert written(cluster.state) == before
    watcher.claim("another")
    assert not gone.exists()
