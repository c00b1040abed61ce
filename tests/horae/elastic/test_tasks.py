"""What a framework is told of its gang: TF_CONFIG and DMLC_*, made anew for every shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.elastic.supervisor.tasks import FRAMEWORK, SERVERS, Task, TaskLayout
from yarn_bridge.on_node.gate import Opening

WORKERS = ["ha", "ha", "hb"]
MEMBERS = ["ha", "hb"]


def asks(*roles: tuple[str, int]) -> str:
    return json.dumps([{"role": role, "count": count, "command": ["serve"]} for role, count in roles])


def told(framework: str, position: int, ranks: list[str], servers: str = "", **env: str) -> dict[str, str]:
    words = {FRAMEWORK: framework, **env}
    TaskLayout({SERVERS: servers}, ranks, MEMBERS, 20000).fit(words, position)
    return words


def config(words: dict[str, str]) -> Any:
    return json.loads(words["TF_CONFIG"])


def test_servers_are_numbered_within_their_role_and_stand_beside_the_members_in_turn() -> None:
    cluster = TaskLayout({SERVERS: asks(("ps", 2), ("scheduler", 1))}, ["ha", "hb"], MEMBERS, 20000)
    assert cluster.tasks == [
        Task("worker", 0, "ha"), Task("worker", 1, "hb"), Task("ps", 0, "ha"), Task("ps", 1, "hb"),
        Task("scheduler", 0, "ha"),
    ]  # fmt: skip
    beside = cluster.beside(0, {"A": "b", "CUDA_VISIBLE_DEVICES": "0"}, "/")
    assert [(each.rank, each.label, each.serves, each.argv) for each in beside] == [
        (2, b"ps-0: ", True, ["serve"]), (4, b"scheduler-0: ", True, ["serve"]),
    ]  # fmt: skip
    assert beside[0].env == {"A": "b", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize(
    "text",
    ["x", "{}x", "3", "[3]", '[{"role": "ps"}]', '[{"role": "worker", "count": 1, "command": ["x"]}]',
     '[{"role": "ps", "count": 1, "command": []}]', '[{"role": "ps", "count": "x", "command": ["x"]}]'],
)  # fmt: skip
def test_servers_that_cannot_be_read_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="HORAE_SERVERS cannot be read"):
        TaskLayout({SERVERS: text}, ["ha"], ["ha"], 1)


def test_tensorflow_workers_form_a_cluster_with_a_chief() -> None:
    cluster = {"chief": ["ha:20002"], "worker": ["ha:20003", "hb:20004"]}
    assert config(told("tensorflow", 0, WORKERS)) == {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    third = told("tensorflow", 2, WORKERS)
    assert config(third) == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert (third["_TASK_TYPE"], third["_TASK_INDEX"]) == ("worker", "1")


def test_tensorflow_parameter_servers_come_after_the_ranks() -> None:
    found = config(told("tensorflow", 4, WORKERS, asks(("ps", 2))))
    assert found["cluster"]["ps"] == ["ha:20005", "hb:20006"]
    assert found["task"] == {"type": "ps", "index": 1}


def test_alone_there_is_no_cluster_and_none_is_inherited() -> None:
    found = told("tensorflow", 0, ["ha"], TF_CONFIG="{}", _TASK_INDEX="7", A="b")
    assert found == {FRAMEWORK: "tensorflow", "A": "b", "_TASK_TYPE": "chief", "_TASK_INDEX": "0"}


def test_mxnet_finds_its_root() -> None:
    servers = asks(("ps", 2), ("scheduler", 1))
    found = told("mxnet", 3, WORKERS, servers, DMLC_ROLE="old")
    del found[FRAMEWORK]
    assert found == {
        "DMLC_ROLE": "server",
        "DMLC_PS_ROOT_URI": "ha",
        "DMLC_PS_ROOT_PORT": "20007",
        "DMLC_NUM_SERVER": "2",
        "DMLC_NUM_WORKER": "3",
    }
    assert told("mxnet", 0, WORKERS, servers)["DMLC_ROLE"] == "worker"
    assert told("mxnet", 5, WORKERS, servers)["DMLC_ROLE"] == "scheduler"
    assert told("mxnet", 0, ["ha"], DMLC_ROLE="old") == {FRAMEWORK: "mxnet"}


def test_other_frameworks_keep_what_the_user_set() -> None:
    for framework in ("pytorch", "", "jax"):
        assert told(framework, 0, WORKERS, TF_CONFIG="mine") == {FRAMEWORK: framework, "TF_CONFIG": "mine"}


names = st.lists(st.tuples(st.integers(1, 4), st.sampled_from("abc")), min_size=1, max_size=5)


@given(names, st.integers(0, 3))
def test_all_members_of_a_shape_are_told_the_same_cluster(gangs: list[tuple[int, str]], servers: int) -> None:
    """Whatever the shape: one cluster, one task for each process, one address for each task."""
    members: list[dict[str, Any]] = [
        {"name": f"w{i}", "gpus": gpus, "host": host} for i, (gpus, host) in enumerate(gangs)
    ]
    env = {FRAMEWORK: "tensorflow", SERVERS: asks(("ps", servers))}
    seen: list[dict[str, str]] = []
    for member in members:
        opening = Opening({"epoch": 1, "members": members, "port": 21000}, member["name"])
        seen += [each.env for each in opening.members(["x"], env, "/", member["name"])]
    world = sum(gpus for gpus, _ in gangs)
    assert len(seen) == world + servers
    assert sorted(int(env["RANK"]) for env in seen if "RANK" in env) == list(range(world))
    if len(seen) == 1:
        assert "TF_CONFIG" not in seen[0]
        return
    found = [config(env) for env in seen]
    assert all(each["cluster"] == found[0]["cluster"] for each in found)
    addresses = [address for listed in found[0]["cluster"].values() for address in listed]
    assert len(set(addresses)) == len(addresses) == len(seen)
    places = {(each["task"]["type"], each["task"]["index"]) for each in found}
    assert places == {(role, i) for role, listed in found[0]["cluster"].items() for i in range(len(listed))}
