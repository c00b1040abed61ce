"""Workers that stay and wait at the gate, as on YARN: real supervisors, a folder for the gate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.elastic import documents
from horae.elastic.gate import Opening
from horae.elastic.shape import free_ports
from tests.horae.elastic.exec_job import ELASTIC, ROOT, counter, until


class Yard:
    """Some workers and the arbiter's side of their gate."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gate = path / "gate"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def worker(self, name: str, source: str, gpus: int = 1, **env: str) -> None:
        home = self.path / name
        home.mkdir()
        (home / "train.py").write_text(textwrap.dedent(source))
        argv = [
            sys.executable,
            str(ELASTIC),
            "--gate",
            f"file://{self.gate}",
            "--member",
            name,
            "--gpus",
            str(gpus),
        ]
        argv += ["--checkpoint", str(self.path / "ckpt"), "--", sys.executable, str(home / "train.py")]
        env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
        self.workers[name] = subprocess.Popen(
            argv, cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(f"{name} waits", (self.gate / "members" / name).exists)

    def open(self, epoch: int, *members: str, gpus: int = 1) -> None:
        documents.put(str(self.gate / "epoch"), b"%d" % epoch)
        listed = [{"name": name, "gpus": gpus, "host": "127.0.0.1"} for name in members]
        self.say({"epoch": epoch, "state": "open", "members": listed, "port": free_ports()})

    def say(self, value: dict[str, Any]) -> None:
        documents.put(str(self.gate / "gate"), json.dumps(value).encode())

    def ack(self, name: str, epoch: int) -> dict[str, Any]:
        path = self.gate / "acks" / name

        def found() -> Any:
            value = json.loads(path.read_text()) if path.exists() else {}
            return value if value.get("epoch") == epoch else None

        return dict(until(f"{name} acknowledges epoch {epoch}", found))

    def log(self, name: str) -> str:
        path = self.path / name / ".horae" / "output.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.say({"state": "closed"})
    for worker in made.workers.values():
        worker.wait(30)


def test_workers_stay_and_train_in_each_shape_the_gate_names(yard: Yard) -> None:
    for name in ("w-a", "w-b", "w-c"):
        yard.worker(name, counter())
    yard.open(1, "w-b", "w-a")
    until("progress", lambda: "step=8/" in yard.log("w-b"))
    assert "world=2 epoch=1" in yard.log("w-b"), "rank 0 is the first of the list"
    yard.say({"epoch": 1, "state": "stop", "members": []})
    acks = [yard.ack(name, 1) for name in ("w-a", "w-b")]
    assert [ack["state"] for ack in acks] == ["stopped", "stopped"]
    step = acks[1]["checkpoint"]["step"]
    assert step >= 8
    assert all(worker.poll() is None for worker in yard.workers.values())
    yard.open(2, "w-c", "w-a", "w-b")
    until("its start", lambda: f"start step={step} world=3 epoch=2" in yard.log("w-c"))


def test_term_from_the_node_manager_is_a_request_too(yard: Yard) -> None:
    yard.worker("w-a", counter(), gpus=2)
    yard.open(5, "w-a", gpus=2)
    until("progress", lambda: "step=8/" in yard.log("w-a"))
    yard.workers["w-a"].send_signal(signal.SIGTERM)
    ack = yard.ack("w-a", 5)
    assert (ack["state"], ack["exit_code"], ack["checkpoint"]["epoch"]) == ("stopped", 86, 5)
    assert yard.workers["w-a"].poll() is None


def test_completed_work_ends_the_worker(yard: Yard) -> None:
    yard.worker("w-a", counter(steps=5))
    yard.open(1, "w-a")
    assert yard.ack("w-a", 1)["state"] == "completed"
    assert yard.workers["w-a"].wait(30) == 0


def test_a_failed_part_is_told_and_waits_for_the_arbiter(yard: Yard) -> None:
    yard.worker("w-a", "raise SystemExit(5)")
    yard.open(1, "w-a")
    ack = yard.ack("w-a", 1)
    assert (ack["state"], ack["exit_code"]) == ("failed", 5)
    assert yard.workers["w-a"].poll() is None


def test_an_opening_for_others_is_waited_out(yard: Yard) -> None:
    yard.worker("w-a", counter(steps=5))
    yard.open(1, "w-z")
    until("it says so", lambda: "the gate of epoch 1 is not open to w-a" in yard.log("w-a"))
    yard.open(2, "w-a")
    assert yard.ack("w-a", 2)["state"] == "completed"


def test_a_newer_opening_supersedes_a_running_one(yard: Yard) -> None:
    yard.worker("w-a", counter())
    yard.open(1, "w-a")
    until("progress", lambda: "step=8/" in yard.log("w-a"))
    yard.open(2, "w-z")
    assert yard.ack("w-a", 1)["state"] in ("stopped", "failed")
    until("it waits again", lambda: "not open to w-a" in yard.log("w-a"))


TELLS = """
    import json, os, time
    cluster = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = cluster.get("task", {})
    print("told", len(cluster.get("cluster", {}).get("worker", ())), task.get("type"), task.get("index"), flush=True)
"""


def test_each_shape_has_its_own_tf_config_and_servers_serve_all_of_them(yard: Yard) -> None:
    """Workers come and go; the parameter server is told of every shape, and ends without a word of failure."""
    for name in ("w-a", "w-b", "w-c"):
        yard.worker(name, TELLS + counter(), HORAE_FRAMEWORK="tensorflow", TF_CONFIG="left by another")
    yard.worker("ps-0", TELLS + "    time.sleep(3600)\n", gpus=0, HORAE_FRAMEWORK="tensorflow")
    workers = [{"name": name, "gpus": 1, "host": "127.0.0.1"} for name in ("w-b", "w-a", "w-c")]
    server = {"name": "ps-0", "gpus": 0, "host": "127.0.0.1", "role": "ps"}
    documents.put(str(yard.gate / "epoch"), b"1")
    yard.say({"epoch": 1, "state": "open", "members": [server, *workers[:2]], "port": free_ports()})
    until("progress", lambda: "step=8/" in yard.log("w-b"))
    until("the server is up", lambda: "told 1 ps 0" in yard.log("ps-0"))
    until("the chief is told", lambda: "told 1 chief 0" in yard.log("w-b"))
    until("the worker is told", lambda: "told 1 worker 0" in yard.log("w-a"))
    yard.say({"epoch": 1, "state": "stop", "members": []})
    assert [yard.ack(name, 1)["state"] for name in ("w-a", "w-b", "ps-0")] == ["stopped"] * 3
    documents.put(str(yard.gate / "epoch"), b"2")
    yard.say({"epoch": 2, "state": "open", "members": [*workers, server], "port": free_ports()})
    until("the server is told", lambda: "told 2 ps 0" in yard.log("ps-0"))
    until("the new worker is told", lambda: "told 2 worker 1" in yard.log("w-c"))
    yard.say({"epoch": 2, "state": "closed"})
    assert [yard.workers[name].wait(30) for name in ("ps-0", "w-c")] == [0, 0]


def test_a_server_that_fails_is_told(yard: Yard) -> None:
    yard.worker("w-a", counter())
    yard.worker("ps-0", "raise SystemExit(3)", gpus=0)
    members = [
        {"name": "w-a", "gpus": 1, "host": "127.0.0.1"},
        {"name": "ps-0", "gpus": 0, "host": "127.0.0.1", "role": "ps"},
    ]
    yard.say({"epoch": 1, "state": "open", "members": members, "port": free_ports()})
    ack = yard.ack("ps-0", 1)
    assert (ack["state"], ack["exit_code"]) == ("failed", 3)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"epoch": 1},
        {"epoch": "x", "members": []},
        {"epoch": 1, "members": [{"name": "w"}]},
        {"members": 3},
        {"epoch": 1, "members": [{"name": "w", "gpus": 0}]},
        {"epoch": 1, "members": [{"name": "w", "gpus": 1, "role": "ps"}]},
        {"epoch": 1, "members": [{"name": "w", "gpus": 0, "role": "ps"}]},
    ],
)
def test_a_gate_that_is_not_well_formed_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="gate"):
        Opening(value, "w")


def test_ranks_follow_the_order_of_the_list() -> None:
    members = [{"name": "b", "gpus": 2, "host": "hb"}, {"name": "a", "gpus": 3, "host": "ha"}]
    opening = Opening({"epoch": 4, "members": members, "port": 1234}, "a")
    assert (opening.first_rank, opening.gpus, opening.world, opening.first_host) == (2, 3, 5, "hb")
    ranks = opening.members(["x"], {}, "/", "a")
    assert [member.env["RANK"] for member in ranks] == ["2", "3", "4"]
    assert {member.env["MASTER_ADDR"] for member in ranks} == {"hb"}
    assert json.loads(ranks[0].env["HORAE_NODES"]) == {"b": 2, "a": 3}
