"""Every reader over what real daemons of three generations answered (`record.py`): all must see the same cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.clients import versions
from slurm_plugin.clients.command_reading import JOB_FIELDS, NODE_FIELDS, job_rows_of, node_rows_of, settings_of
from slurm_plugin.clients.rest_reading import job_rows, node_rows
from slurm_plugin.clients.sealed import PLAIN
from slurm_plugin.jobs.holdings import health, held_gpus
from slurm_plugin.records import JobRow, NodeRow
from tests.slurm_plugin.recordings import RECORDED, whole

RELEASES = sorted(path.name for path in RECORDED.iterdir())
BODIES = sorted(path.relative_to(RECORDED) for path in RECORDED.glob("*/rest-*.json"))
FACTS: dict[str, dict[str, Any]] = {
    # name -> what any reader must say of that job
    "running": {"state": "RUNNING", "nodes": ("n1", "n2"), "gpus_per_node": 2, "limit_s": 7200.0, "held": False},
    "exited": {"state": "SPECIAL_EXIT", "reason": "JobHeldUser", "restarts": 1, "exit_code": 86, "nodes": ()},
    "done": {"state": "COMPLETED", "exit_code": 0, "nodes": ("n4",)},
    "failed": {"state": "FAILED", "exit_code": 7},
    "cancelled": {"state": "CANCELLED"},
    "dependent": {"state": "PENDING", "dependency": "afterany:1(unfulfilled)", "reason": "Dependency"},
    "held, 'quoted' \"é\"": {"state": "PENDING", "held": False, "limit_s": 5400.0, "uid": 2001, "user": "alice"},
    "blocked": {"state": "PENDING", "gpus_per_node": 4, "num_nodes": 1},
}


def by_command(release: str) -> tuple[list[JobRow], list[NodeRow]]:
    folder = RECORDED / release
    odd: list[str] = []
    jobs = job_rows_of(whole(folder / "squeue.txt", JOB_FIELDS), PLAIN, {}, odd)
    assert odd == []
    return list(jobs.values()), node_rows_of(whole(folder / "sinfo.txt", NODE_FIELDS))


def by_rest(body: Path) -> tuple[list[JobRow], list[NodeRow]]:
    said = json.loads((RECORDED / body).read_text())
    odd: list[str] = []
    rows = job_rows(said["jobs"]["jobs"], ["dl"], said["now_s"], odd)
    assert odd == []
    return rows, node_rows(said["nodes"]["nodes"], ["dl"])


@pytest.mark.parametrize("release", RELEASES)
def test_the_commands_tell_what_was_done(release: str) -> None:
    rows, nodes = by_command(release)
    assert_told(rows)
    assert [(node.name, node.gpu_types, node.used) for node in nodes] == [
        ("n1", {"v100": 4}, 2), ("n2", {"v100": 4}, 2), ("n3", {"k80": 4}, 1), ("n4", {"k80": 4}, 0),
    ]  # fmt: skip
    assert [health(node.state).value for node in nodes] == ["up", "up", "up", "drain"]


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_slurmrestd_tells_what_was_done(body: Path) -> None:
    assert_told(by_rest(body)[0])


@pytest.mark.parametrize("release", RELEASES)
def test_sinfo_tells_who_has_not_registered(release: str) -> None:
    """Of such a node it has no version."""
    settings = settings_of((RECORDED / release / "config.txt").read_text())
    text = whole(RECORDED / release / "sinfo.txt", NODE_FIELDS)
    without = text.replace(settings["SLURM_VERSION"] + PLAIN.record, "N/A" + PLAIN.record, 1)
    assert [node.registered for node in node_rows_of(text)] == [True] * 4
    assert [node.registered for node in node_rows_of(without)] == [False, True, True, True]


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_slurmrestd_tells_who_has_not_registered(body: Path) -> None:
    nodes = json.loads((RECORDED / body).read_text())["nodes"]["nodes"]
    assert all(node.registered for node in node_rows(nodes, ["dl"])), "where it is not told nothing changes"
    bare = body.stem == "rest-v0.0.38"
    for node, at_s in zip(nodes, (0, 1_795_707_000, 1_795_707_000, 1_795_707_000), strict=True):
        node["slurmd_start_time"] = at_s if bare else {"set": True, "infinite": False, "number": at_s}
    assert [node.registered for node in node_rows(nodes, ["dl"])] == [False, True, True, True]


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_slurmrestd_tells_what_a_node_has_now_of_what_it_may_have(body: Path) -> None:
    """By that Slurm judges a constraint, and so do the commands (`features_act`) and pyslurm."""
    nodes = json.loads((RECORDED / body).read_text())["nodes"]["nodes"]
    bare = isinstance(nodes[0]["features"], str)
    for node in nodes:
        node["features"], node["active_features"] = ("a,b", "a") if bare else (["a", "b"], ["a"])
    assert {node.features for node in node_rows(nodes, ["dl"])} == {("a",)}


def assert_told(rows: list[JobRow]) -> None:
    named = {row.name: row for row in rows}
    for name, facts in FACTS.items():
        assert {key: getattr(named[name], key) for key in facts} == facts, name
    array = {row.id: row for row in rows if row.name == "array"}
    assert {name: row.state for name, row in array.items()} == {
        "2_1": "PENDING", "2_2": "RUNNING", "2_3": "PENDING", "2_4": "PENDING", "2_5": "PENDING", "2_6": "PENDING",
    }  # fmt: skip
    assert array["2_3"].slurm_id == 2, "not split off yet"
    assert array["2_2"].slurm_id != 2
    assert held_gpus(named["running"]) == {"n1": 2, "n2": 2}
    assert named["running"].comment == "horae:min=1,max=8 edited"
    assert all(row.admin_comment.startswith("horae=") for row in rows)


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_slurmrestd_and_the_commands_agree_on_every_field(body: Path) -> None:
    (by_cli, cli_nodes), (rows, nodes) = by_command(body.parts[0]), by_rest(body)
    assert {row.id: alike(row) for row in rows} == {row.id: alike(row) for row in by_cli}
    lefts = {row.id: row.left_s for row in by_cli}
    assert all((row.left_s is None) == (lefts[row.id] is None) for row in rows)
    assert all(abs((row.left_s or 0) - (lefts[row.id] or 0)) < 5 for row in rows)
    assert [replace(node, state="") for node in nodes] == [replace(node, state="") for node in cli_nodes]
    assert [health(node.state) for node in nodes] == [health(node.state) for node in cli_nodes]


def alike(row: JobRow) -> JobRow:
    """Without what the two may say otherwise: the time left moves, squeue shows the memory that a waiting job asks
    for as allocated, and some versions put the job's number into the path of its output."""
    stdout = (row.stdout or "").partition("out-")[0]
    return replace(row, left_s=None, alloc_memory=row.alloc_memory if row.nodes else None, stdout=stdout)


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_names_the_versions_that_were_served(release: str) -> None:
    major, minor = release.split(".")
    served = {body.stem.removeprefix("rest-") for body in BODIES if body.parts[0] == release}
    assert set(versions.RELEASES[int(major), int(minor)].rest) == served
    assert list(versions.REST) == sorted(versions.REST, reverse=True), "the newest is asked for first"
    settings = settings_of((RECORDED / release / "config.txt").read_text())
    assert settings["SLURM_VERSION"].startswith(f"{major}.{minor}")
