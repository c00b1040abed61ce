"""Workers that stay and wait at the gate, as on YARN: real supervisors, a folder for the gate."""

from __future__ import annotations

import json
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.elastic.sdk.environment import Environment
from horae.elastic.sdk.saving import fence
from horae.elastic.stores import documents
from tests.horae.elastic.exec_job import PATIENCE_S, counter, until
from tests.yarn_bridge.on_node.yard import Yard
from yarn_bridge.on_node.gate import Gate, Opening


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.say({"state": "closed"})
    for worker in made.workers.values():
        worker.wait(PATIENCE_S)


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


def test_a_stop_before_all_ranks_have_come_costs_the_job_nothing(yard: Yard) -> None:
    """One worker had heard of the stop before it began, the other waited for it in vain, left without a checkpoint and
    was said to have failed: a job was over whose shape changed right after its first start."""
    yard.worker("w-a", counter())
    yard.open(1, "w-a", "w-b")
    until("its trainer waits", lambda: "runs " in yard.log("w-a"))
    yard.say({"epoch": 1, "state": "stop", "members": []})
    ack = yard.ack("w-a", 1)
    assert (ack["state"], ack["exit_code"], ack["checkpoint"]) == ("stopped", 86, None)
    assert ack["text"] == "asked to stop before it began"
    yard.open(2, "w-a")
    until("it begins", lambda: "world=1 epoch=2" in yard.log("w-a"))
    yard.say({"epoch": 2, "state": "stop", "members": []})
    assert yard.ack("w-a", 2)["state"] == "stopped"


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
    assert yard.workers["w-a"].wait(PATIENCE_S) == 0


def test_a_failed_part_is_told_and_waits_for_the_arbiter(yard: Yard) -> None:
    yard.worker("w-a", "raise SystemExit(5)")
    yard.open(1, "w-a")
    ack = yard.ack("w-a", 1)
    assert (ack["state"], ack["exit_code"]) == ("failed", 5)
    assert yard.workers["w-a"].poll() is None


def test_checkpoints_that_fail_are_told_while_the_gang_trains_and_when_they_do_no_more(yard: Yard) -> None:
    place = yard.path / "ckpt"
    place.symlink_to(yard.path / "not" / "there")
    yard.worker("w-a", counter(every=5))
    yard.open(1, "w-a")
    told = yard.ack("w-a", 1)
    assert (told["state"], "File exists" in told["text"] or "No such file" in told["text"]) == ("running", True), told
    place.unlink()
    until("the trouble is over", lambda: not yard.ack("w-a", 1)["text"])
    yard.say({"epoch": 1, "state": "stop", "members": []})
    until("it has left", lambda: yard.ack("w-a", 1)["state"] == "stopped")


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
    import json, os, signal, sys, time
    cluster = json.loads(os.environ.get("TF_CONFIG", "{}"))
    task = cluster.get("task", {})
    sizes = {role: len(listed) for role, listed in cluster.get("cluster", {}).items()}
    print("told", json.dumps(sizes, sort_keys=True), task.get("type"), task.get("index"), flush=True)
"""


def serving(yard: Yard, count: int, source: str) -> dict[str, str]:
    """The environment of a job with parameter servers that run `source`."""
    path = yard.path / "server.py"
    path.write_text(textwrap.dedent(source))
    servers = [{"role": "ps", "count": count, "command": [sys.executable, str(path)], "env": {"MINE": "yes"}}]
    return {"HORAE_FRAMEWORK": "tensorflow", "HORAE_SERVERS": json.dumps(servers), "TF_CONFIG": "left by another"}


def test_each_shape_has_its_own_tf_config(yard: Yard) -> None:
    for name in ("w-a", "w-b", "w-c"):
        yard.worker(name, TELLS + counter(), HORAE_FRAMEWORK="tensorflow", TF_CONFIG="left by another")
    yard.open(1, "w-b", "w-a")
    until("the chief is told", lambda: 'told {"chief": 1, "worker": 1} chief 0' in yard.log("w-b"))
    until("the worker is told", lambda: 'told {"chief": 1, "worker": 1} worker 0' in yard.log("w-a"))
    until("progress", lambda: "step=8/" in yard.log("w-b"))
    yard.say({"epoch": 1, "state": "stop", "members": []})
    assert [yard.ack(name, 1)["state"] for name in ("w-a", "w-b")] == ["stopped"] * 2
    yard.open(2, "w-c", "w-b", "w-a")
    until("another chief is told", lambda: 'told {"chief": 1, "worker": 2} chief 0' in yard.log("w-c"))
    until("others are told", lambda: 'told {"chief": 1, "worker": 2} worker 1' in yard.log("w-a"))


def test_servers_stand_beside_the_workers_until_all_of_them_have_finished(yard: Yard) -> None:
    serve = TELLS + '    print("mine", os.environ["MINE"], os.environ["CUDA_VISIBLE_DEVICES"], flush=True)\n'
    env = serving(yard, 3, serve + "    time.sleep(3600)\n")
    yard.worker("w-a", TELLS, **env)
    yard.worker("w-b", TELLS + f"    while not os.path.exists({str(yard.path / 'go')!r}): time.sleep(0.05)\n", **env)
    yard.open(1, "w-a", "w-b")
    sizes = '{"chief": 1, "ps": 3, "worker": 1}'
    for name, line in (("w-a", "ps-2: told %s ps 2"), ("w-a", "ps-0: told %s ps 0"), ("w-b", "ps-1: told %s ps 1")):
        until(line, lambda line=line, name=name: line % sizes in yard.log(name))  # type: ignore[misc]
    until("its variables", lambda: "ps-1: mine yes \n" in yard.log("w-b"))
    until("w-a has finished", (yard.gate / "done" / "w-a").exists)
    assert not (yard.gate / "acks" / "w-a").exists(), "its servers are needed yet"
    (yard.path / "go").touch()
    assert [yard.ack(name, 1)["state"] for name in ("w-a", "w-b")] == ["completed"] * 2
    assert [yard.workers[name].wait(PATIENCE_S) for name in ("w-a", "w-b")] == [0, 0]


def test_servers_go_when_their_workers_stop(yard: Yard) -> None:
    env = serving(yard, 1, "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(3600)")
    yard.worker("w-a", counter(), **env)
    yard.open(1, "w-a")
    until("progress", lambda: "step=8/" in yard.log("w-a"))
    yard.say({"epoch": 1, "state": "stop", "members": []})
    ack = yard.ack("w-a", 1)
    assert (ack["state"], ack["exit_code"]) == ("stopped", 86)


def test_a_server_that_fails_fails_the_gang(yard: Yard) -> None:
    yard.worker("w-a", counter(), **serving(yard, 1, "raise SystemExit(3)"))
    yard.open(1, "w-a")
    ack = yard.ack("w-a", 1)
    assert (ack["state"], ack["exit_code"]) == ("failed", 3)


def test_a_finished_worker_goes_when_the_others_never_finish(yard: Yard) -> None:
    env = serving(yard, 1, "import time\ntime.sleep(3600)")
    yard.worker("w-a", "pass", **env)
    yard.worker("w-b", "import time\nprint('here', flush=True)\ntime.sleep(3600)", **env)
    yard.open(1, "w-a", "w-b")
    until("w-b runs", lambda: "here" in yard.log("w-b"))
    until("w-a has finished", (yard.gate / "done" / "w-a").exists)
    account = yard.path / "w-b" / ".horae" / "state.json"
    until("w-b has begun", lambda: account.exists() and '"running"' in account.read_text())
    yard.say({"epoch": 1, "state": "stop", "grace_s": 0.5})
    assert yard.ack("w-a", 1)["exit_code"] == 0
    assert yard.ack("w-b", 1)["state"] == "stopped", "killed after its grace"


def test_who_was_too_late_to_begin_does_not_keep_the_others_waiting(yard: Yard) -> None:
    yard.worker("w-a", "raise SystemExit('never run')")
    yard.say({"epoch": 1, "state": "stop", "members": [{"name": "w-b"}]})
    yard.say({"epoch": 2, "state": "stop", "members": [{"name": "w-a"}]})
    told = yard.ack("w-a", 2)
    assert (told["state"], told["exit_code"], told["checkpoint"]) == ("stopped", 86, None)
    yard.open(2, "w-a")  # over for it
    yard.open(3, "w-a")
    assert yard.ack("w-a", 3)["state"] == "failed"


def test_a_gate_out_of_reach_is_waited_for_without_holding_anybody_up(tmp_path: Path) -> None:
    """Who is done cannot be told or seen: the answer is no, at once, and the trouble is said once."""
    said: list[str] = []
    (tmp_path / "gate").write_text("a file where a folder should be")
    gate = Gate(str(tmp_path / "gate"), "w-a", 1, said.append)
    members = [{"name": name, "gpus": 1, "host": "h"} for name in ("w-a", "w-b")]
    ask = gate.all_done(Opening({"epoch": 2, "members": members}, "w-a"))
    assert [ask(), ask()] == [False, False]
    assert len(said) == 1 and said[0].startswith("cannot write done/w-a")
    (tmp_path / "gate").unlink()
    assert not ask()
    documents.put(str(tmp_path / "gate" / "done" / "w-b"), b'{"epoch": 1}')
    assert not ask(), "an older epoch's"
    documents.put(str(tmp_path / "gate" / "done" / "w-b"), b'{"epoch": 2}')
    assert ask()


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"epoch": 1},
        {"epoch": "x", "members": []},
        {"epoch": 1, "members": [{"name": "w"}]},
        {"members": 3},
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


def test_ranks_of_all_members_are_given_one_secret_that_nobody_else_can_read(tmp_path: Path) -> None:
    gates = {name: Gate(str(tmp_path), name, 1, print) for name in ("w-a", "w-b")}
    for gate in gates.values():
        gate.register()
    members = [{"name": name, "gpus": 1, "host": "h"} for name in gates]
    value = {"epoch": 1, "state": "open", "members": members, "port": 1234}
    documents.put(str(tmp_path / "gate"), json.dumps(value).encode())
    told = set()
    for name, gate in gates.items():
        opening = gate.wait(after=0)
        assert opening is not None
        told |= {rank.env["HORAE_SECRET"] for rank in opening.members(["x"], {}, "/", name)}
    assert len(told) == 1 and all(told)
    for kept in (tmp_path / "secrets").iterdir():
        assert kept.stat().st_mode & 0o077 == 0
    for kept in (tmp_path / "members").iterdir():
        assert told.isdisjoint(json.loads(kept.read_text()).values())


@pytest.mark.parametrize(
    ("text", "epoch"),
    [(b'{"epoch": 7, "state": "stop"}', 7), (b"7\n", 7), (b'{"epoch": 7, "st', 0), (b"[7]", 0), (b"", 0), (None, 0)],
)
def test_the_epoch_of_the_gate_is_the_fence(tmp_path: Path, text: bytes | None, epoch: int) -> None:
    """What cannot be read fences nobody off."""
    gate = Gate(str(tmp_path), "w-a", 1, print)
    if text is not None:
        Path(gate.fence).write_bytes(text)
    assert fence(Environment({"HORAE_FENCE_FILE": gate.fence})) == epoch
