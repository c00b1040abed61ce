"""Options of the local cluster: what is understood, and the remedy in what is not."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from horae import machine_gpus
from horae.local.options import parse
from policy.model import BadInput, Node


def nodes(value: Any) -> tuple[Node, ...]:
    return parse({"state": "/x", "nodes": value}).nodes


def test_groups_are_counted_by_type() -> None:
    found = nodes("v100:2x4, k80:2, v100:1x8")
    assert [(node.name, node.gpu_type, node.gpus) for node in found] == [
        ("v100-1", "v100", 4),
        ("v100-2", "v100", 4),
        ("k80-1", "k80", 2),
        ("v100-3", "v100", 8),
    ]


def test_nodes_one_by_one() -> None:
    (node,) = nodes([{"name": "n1", "gpu_type": "a100", "gpus": 2, "rack": "r", "cpus": 8, "memory": 1_000_000}])
    assert node == Node("n1", "a100", 2, rack="r", cpus=8.0, memory=1_000_000)


def test_the_home_folder_is_understood() -> None:
    assert parse({"state": "~/x", "nodes": "a:1"}).state == Path.home() / "x"


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"nodes": "a:1"}, "state", "folder"),
        ({"state": "/x", "nodes": "a:1", "node": 3}, "node", "known: account, keep_free_bytes, keep_s, least_uid"),
        ({"state": "/x", "nodes": "v100"}, "nodes", "TYPE:NODESxGPUS"),
        ({"state": "/x", "nodes": "v100:0x4"}, "nodes", "TYPE:NODESxGPUS"),
        ({"state": "/x", "nodes": ""}, "nodes", "TYPE:NODESxGPUS"),
        ({"state": "/x", "nodes": 3}, "nodes", "neither text nor a list"),
        ({"state": "/x", "nodes": []}, "nodes", "at least one node"),
        ({"state": "/x", "nodes": ["n1"]}, "nodes[0]", "not a node"),
        ({"state": "/x", "nodes": [{"name": "n/1", "gpu_type": "a", "gpus": 1}]}, "nodes[0].name", "letters"),
        ({"state": "/x", "nodes": [{"name": "n1", "gpu_type": "a", "gpus": True}]}, "nodes[0].gpus", "at least 1"),
        ({"state": "/x", "nodes": [{"name": "n1", "gpu_type": "a", "gpus": 1, "cpu": 1}]}, "nodes[0].cpu", "known"),
        ({"state": "/x", "nodes": [{"name": "n1", "gpu_type": "a", "gpus": 1, "cpus": 0}]}, "nodes[0].cpus", "above 0"),
        ({"state": "/x", "nodes": [{"name": "n1", "gpu_type": "a", "gpus": 1}] * 2}, "nodes", "same name"),
        ({"state": "/x", "nodes": "a:1", "speeds": {"a": 0}}, "speeds.a", "above 0"),
        ({"state": "/x", "nodes": "a:1", "speeds": 2}, "speeds", "map"),
        ({"state": "/x", "nodes": "a:1", "log_limit_bytes": 0}, "log_limit_bytes", "at least 4096"),
        ({"state": "/x", "nodes": "a:1", "keep_free_bytes": "1G"}, "keep_free_bytes", "a number of bytes"),
        ({"state": "/x", "nodes": "a:1", "pass_env": "HOME"}, "pass_env", "list"),
        ({"state": "/x", "nodes": "a:1", "pass_env": ["A", "B=1"]}, "pass_env[1]", "not a variable's name"),
        ({"state": "/x", "nodes": "a:1", "account": 5}, "account", "such as horae"),
        ({"state": "/x", "nodes": "a:1", "account": "a/b"}, "account", "such as horae"),
        ({"state": "/x", "nodes": "a:1", "least_uid": 0}, "least_uid", "from 1 to"),
        ({"state": "/x", "nodes": "a:1", "least_uid": True}, "least_uid", "from 1 to"),
        ({"state": "/x", "nodes": "a:1", "least_uid": 1 << 32}, "least_uid", "from 1 to"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_field(options: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(BadInput, match=r".") as refused:
        parse(options)
    assert refused.value.field == field
    assert words in str(refused.value)


def test_real_gpus_are_the_slots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho '0, NVIDIA A100-SXM4-80GB'\necho '1, Tesla K80'\necho '2, NVIDIA A100-SXM4-80GB'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = parse({"state": str(tmp_path), "nodes": "auto"})
    assert [(node.gpu_type, node.gpus) for node in found.nodes] == [("a100-sxm4", 2), ("k80", 1)]
    assert [found.slots(node) for node in found.nodes] == [(0, 2), (1,)]


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found'", "echo"])
def test_without_real_gpus_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(BadInput, match=r"no GPU found on this machine.*v100:2x4"):
        parse({"state": str(tmp_path)})


@pytest.mark.parametrize(
    ("product", "gpu_type"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-hbm3"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA", "gpu"),
    ],
)
def test_names_of_types(product: str, gpu_type: str) -> None:
    assert machine_gpus.type_of(product) == gpu_type


def test_the_use_of_gpus_is_read_without_waiting_for_it() -> None:
    asked, answer = Event(), Event()

    def slow(what: str) -> str:
        asked.set()
        assert answer.wait(20)
        return "0, GPU-a, 97\n1, GPU-b, 0\n2, GPU-c, [N/A]\n" if what.startswith("gpu=") else ""

    use = machine_gpus.Use(slow)
    assert use.newest() == {}, "nobody knows it yet"
    assert asked.wait(20)
    assert use.newest() == {}
    answer.set()
    until = time.monotonic() + 240
    while not use.newest():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert use.newest() == {0: 0.97, 1: 0.0}, "a GPU in parts tells no number"


def test_who_holds_a_gpu_is_told_as_long_as_he_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as holder:
        listings = {
            "gpu": "0, GPU-a, 97\n1, GPU-b, 0\n2, GPU-d, [N/A]\n",
            "compute-apps": f"GPU-b, {holder.pid}\nGPU-b, 999999999\nGPU-c, 1\nGPU-a, [N/A]\nGPU-d, 1\n",
        }
        # What serves others is root's: a user's program of that name is a stranger's all the same.
        monkeypatch.setattr(machine_gpus, "_name", lambda pid: "nvidia-cuda-mps" if pid == 1 else "sleep")
        use = machine_gpus.Use(lambda what: listings[what.partition("=")[0]])
        assert not use.refresh(), "nobody has looked yet"
        until = time.monotonic() + 240
        while not use.refresh():
            assert time.monotonic() < until
            time.sleep(0.01)
        everything = {"n": (0, 1), "m": (2,)}
        assert use.strangers(everything, {}) == {"n": {1: [holder.pid]}}
        assert use.strangers(everything, {"n": {1}}) == {}
        monkeypatch.setattr(machine_gpus, "_name", lambda _: "nvidia-cuda-mps")
        assert bool(use.strangers(everything, {})) == (os.getuid() != 0)
        holder.kill()
    assert use.strangers(everything, {}) == {}, "without another look"
