"""Folders of ended jobs go after their time, and never with something that somebody still needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from horae.local.adapter import LocalCluster
from horae.local.options import parse
from horae.port import JobState, attend
from policy.model import BadInput
from tests.horae.elastic.exec_job import until
from tests.horae.local.cluster import Cluster

QUICK = "import sys; sys.exit(0)"


def ended(cluster: Cluster, name: str, **changes: Any) -> Path:
    """The folder of a job that ran to its end."""
    cluster.submit(name, QUICK, **changes)
    cluster.port.start(name, {"v100-1": 1}, 1)
    cluster.wait(name, JobState.COMPLETED)
    return cluster.state / "jobs" / name


def again(cluster: Cluster, keep_s: float | None) -> LocalCluster:
    """Another arbiter over the same folder."""
    port = LocalCluster(parse({"state": cluster.state, "nodes": "v100:2x2,k80:1x2", "keep_s": keep_s}))
    port.claim("tests")
    return port


def test_an_ended_jobs_folder_goes_after_its_time(cluster: Cluster) -> None:
    folder = ended(cluster, "a")
    kept = again(cluster, None)
    late = again(cluster, 3600.0)
    soon = again(cluster, 0.01)
    for port in (kept, late):
        assert [j.id for j in attend(port).jobs] == ["a"]
    until("it is gone", lambda: not attend(soon).jobs)
    assert not folder.exists()
    assert not list((cluster.state / "jobs").iterdir())
    assert [j.id for j in attend(late).jobs] == []


def test_an_end_is_shown_before_its_folder_goes(cluster: Cluster) -> None:
    """An arbiter that was down while the job ended learns of the end all the same."""
    ended(cluster, "a")
    time.sleep(0.05)
    assert [j.state for j in attend(again(cluster, 0.01)).jobs] == [JobState.COMPLETED]


def test_jobs_that_may_run_again_stay(cluster: Cluster) -> None:
    cluster.running("runs")
    cluster.running("stopped", where={"v100-2": 1})
    cluster.submit("waits")
    cluster.port.checkpoint_and_stop("stopped", 30.0)
    cluster.wait("stopped", JobState.STOPPED)
    ended(cluster, "over")
    port = again(cluster, 0.01)
    until("what is over is gone", lambda: len(attend(port).jobs) == 3)
    assert {j.id for j in attend(port).jobs} == {"runs", "stopped", "waits"}


@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_a_folder_with_checkpoints_in_it_stays(cluster: Cluster, whose: str) -> None:
    inside = cluster.state / "jobs" / "a" / "ck"
    folder = ended(cluster, "a", checkpoint=str(inside) if whose == "its own" else None)
    if whose == "another's":
        cluster.submit("b", checkpoint=f"file://{inside}")
    ended(cluster, "c")
    port = again(cluster, 0.01)
    until("another is gone", lambda: "c" not in {j.id for j in attend(port).jobs})
    assert folder.exists()


def test_a_folder_in_which_somebody_wrote_stays(cluster: Cluster) -> None:
    folder = ended(cluster, "a")
    (folder / "model.pt").write_text("precious")
    ended(cluster, "b")
    port = again(cluster, 0.01)
    until("the other is gone", lambda: "b" not in {j.id for j in attend(port).jobs})
    assert (folder / "model.pt").read_text() == "precious"


def test_a_link_in_a_folder_is_not_followed(cluster: Cluster, tmp_path: Path) -> None:
    folder = ended(cluster, "a")
    victim = tmp_path / "victim"
    victim.write_text("not yours")
    (folder / "reason").symlink_to(victim)
    port = again(cluster, 0.01)
    until("it is gone", lambda: not attend(port).jobs)
    assert victim.read_text() == "not yours"


def test_what_a_killed_arbiter_began_is_finished(cluster: Cluster) -> None:
    folder = ended(cluster, "a")
    folder.rename(folder.with_name(".gone.a.0123abcd"))
    again(cluster, None)
    assert not list((cluster.state / "jobs").iterdir())


@pytest.mark.parametrize("bad", [-1, "a week", True, float("inf"), float("nan")])
def test_times_that_cannot_be_are_refused(bad: object) -> None:
    with pytest.raises(BadInput, match="seconds, or null"):
        parse({"state": "/x", "nodes": "a:1", "keep_s": bad})
