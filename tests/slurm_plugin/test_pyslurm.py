"""The child with pyslurm, over a module of that name that answers, refuses, hangs and dies as pyslurm does."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.port import TryLater
from slurm_plugin.clients.base import CannotSay, ClientAway, Operation
from slurm_plugin.clients.pyslurm import PyslurmClient
from slurm_plugin.errors import Gone
from slurm_plugin.files.transport import LocalTransport
from slurm_plugin.writes import Change, hold, release, requeue_hold, update

FAKE = '''
"""As pyslurm 25.11 looks from outside."""
import os, signal, sys, time
__version__ = "25.11.2"
said = os.environ["SAID"]
class RPCError(Exception):
    def __init__(self, number, msg):
        self.errno, self.msg = number, msg
class Job:
    def __init__(self, number):
        self.id = number
    def _do(self, what):
        with open(said, "a") as file:
            file.write(f"{what} {self.id}\\n")
        if self.id == 404:
            raise RPCError(2017, "Invalid job id specified")
        if self.id == 11:
            raise RPCError(11, "Resource temporarily unavailable")
        if self.id == 666:
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.id == 999:
            time.sleep(600)
    def hold(self): self._do("hold")
    def release(self): self._do("release")
    def requeue(self, hold=False): self._do(f"requeue hold={hold}")
    def cancel(self): self._do("cancel")
    def send_signal(self, name, steps): self._do(f"{name} {steps}")
def job(number, **more):
    made = Job(number)
    made.__dict__.update({"id": number, "array_id": None, "array_task_id": None, "array_tasks_waiting": None,
        "state": "PENDING", "state_reason": "JobHeldUser", "requeue_count": 0, "priority": 0, "allocated_nodes": None,
        "gres_per_node": {"gres/gpu": 2}, "num_nodes": 1, "cpus": 1, "partition": "dl", "user_id": 2001,
        "time_limit": 60, "exit_code": 0, "exit_code_signal": 0, "dependencies": {}, **more})
    return made
class Jobs:
    @staticmethod
    def load():
        rows = [
            job(1, state="RUNNING", state_reason="None", allocated_nodes="n[1-2]", start_time=5, end_time=9 * 10**9),
            job(2, array_id=2, array_tasks_waiting="1,3-4"),
            job(3, array_id=2, array_task_id=2, state="SPECIAL_EXIT", requeue_count=1, exit_code=86),
            job(4, partition="other"),
            job(5, dependencies={"afterok": [1, 2], "afterany": [], "satisfy": "all"}),
        ]
        return {row.id: row for row in rows}
class Node:
    name, configured_gres, allocated_gres = "n1", {"gpu:v100": 4}, {"gpu": 2, "gpu:v100": 2}
    state, total_cpus, idle_cpus, real_memory, allocated_memory = "MIXED+DRAIN", 16, 14, 1000, 500
    active_features, partitions = ["v100"], ["dl", "raw"]
class Nodes:
    @staticmethod
    def load():
        return {"n1": Node()}
'''


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PyslurmClient]:
    (tmp_path / "pyslurm.py").write_text(FAKE)
    env = {"PYTHONPATH": str(tmp_path), "SAID": str(tmp_path / "said")}
    made = PyslurmClient(LocalTransport(env=env), sys.executable, timeout_s=20.0)
    yield made
    made.close()


def said(tmp_path: Path) -> list[str]:
    return (tmp_path / "said").read_text().splitlines()


def test_jobs_and_nodes_are_rows(client: PyslurmClient) -> None:
    rows = {row.id: row for row in client.jobs(["dl"])}
    assert sorted(rows) == ["1", "2_1", "2_2", "2_3", "2_4", "5"]
    assert (rows["1"].nodes, rows["1"].gpus_per_node, rows["1"].reason) == (("n1", "n2"), 2, None)
    assert (rows["2_3"].slurm_id, rows["2_3"].limit_s, rows["2_3"].held) == (2, 3600.0, True)
    assert (rows["2_2"].exit_code, rows["2_2"].restarts, rows["2_2"].state) == (86, 1, "SPECIAL_EXIT")
    assert rows["5"].dependency == "afterok:1:2"
    (node,) = client.nodes(["dl"])
    assert (node.gpu_types, node.used, node.state, node.cpus_idle) == ({"v100": 4}, 2, "mixed+drain", 14)
    assert client.nodes(["elsewhere"]) == []
    again = {row.id: row for row in client.jobs(["dl"])}
    assert again["5"] is rows["5"], "what reads the same is the same"


@pytest.mark.parametrize(
    ("told", "registered"), [("", True), ("slurm_version = None", False), ("slurm_version = '25.11.2'", True)]
)
def test_who_has_not_registered_has_no_version(tmp_path: Path, told: str, registered: bool) -> None:
    """A pyslurm that does not tell it changes nothing."""
    (tmp_path / "pyslurm.py").write_text(FAKE.replace("class Nodes:", f"    {told}\nclass Nodes:"))
    env = {"PYTHONPATH": str(tmp_path), "SAID": str(tmp_path / "said")}
    client = PyslurmClient(LocalTransport(env=env), sys.executable, timeout_s=20.0)
    (node,) = client.nodes(["dl"])
    client.close()
    assert node.registered is registered


def test_no_module_of_the_folder_that_the_arbiter_is_in_is_run(
    client: PyslurmClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "json.py").write_text(f"open({str(tmp_path / 'planted')!r}, 'w')\nfrom marshal import dumps, loads\n")
    monkeypatch.chdir(here)
    assert client.jobs(["dl"])
    assert not (tmp_path / "planted").exists()


def test_nodes_are_left_to_others_where_slurm_does_not_count_gpus(tmp_path: Path) -> None:
    client = PyslurmClient(LocalTransport(), sys.executable, counted=lambda: False)
    assert client.lacks(Operation.NODES) == "", "not known yet"
    with pytest.raises(CannotSay, match="AccountingStorageTRES"):
        client.nodes(["dl"])
    assert "AccountingStorageTRES" in client.lacks(Operation.NODES)


def test_writes_are_calls_of_the_library(client: PyslurmClient, tmp_path: Path) -> None:
    client.write([hold("7"), release("7"), requeue_hold("8")], "x")
    assert client.signal(["7", "8"], "USR1", "x") == {}
    client.cancel(["7", "404"], "cancelling")
    assert said(tmp_path) == [
        "hold 7",
        "release 7",
        "requeue hold=True 8",
        "SIGUSR1 batch 7",
        "SIGUSR1 batch 8",
        "cancel 7",
        "cancel 404",
    ]
    assert not client.fits(release("4_2"))
    for call in (lambda: client.signal(["7", "4_2"], "USR1", "x"), lambda: client.cancel(["4_2"], "x")):
        with pytest.raises(CannotSay):
            call()
    assert client.lacks(Operation.UPDATE), update("7", Change(nodes=2))
    with pytest.raises(Gone):
        client.write([hold("404")], "holding")
    with pytest.raises(TryLater, match="temporarily"):
        client.write([hold("11")], "holding")


def test_a_child_that_dies_is_away_and_a_new_one_is_made(client: PyslurmClient, tmp_path: Path) -> None:
    with pytest.raises(ClientAway) as raised:
        client.write([hold("666")], "holding")
    assert raised.value.unknown, "nobody knows whether it was done"
    client.write([hold("7")], "holding")
    assert said(tmp_path) == ["hold 666", "hold 7"]


def test_a_child_that_hangs_is_away(tmp_path: Path) -> None:
    (tmp_path / "pyslurm.py").write_text(FAKE)
    env = {"PYTHONPATH": str(tmp_path), "SAID": str(tmp_path / "said")}
    client = PyslurmClient(LocalTransport(env=env), sys.executable, timeout_s=0.5)
    try:
        assert "25.11.2" in client.describe()
        with pytest.raises(ClientAway, match="no answer"):
            client.write([hold("999")], "holding")
    finally:
        client.close()


def test_a_python_without_pyslurm_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyslurm.py").write_text("raise RuntimeError('Slurm version mismatch: requires Slurm 25.11')")
    for python, word in ((sys.executable, "Slurm version mismatch"), (str(tmp_path / "none"), "cannot run")):
        client = PyslurmClient(LocalTransport(env={"PYTHONPATH": str(tmp_path)}), python)
        with pytest.raises(ClientAway, match=word):
            client.jobs([])
        client.close()


def test_what_a_program_says_before_it_ends_is_heard() -> None:
    talk = LocalTransport().open(
        [sys.executable, "-c", "import os; os.close(2); os.write(1, b'last words'); os._exit(3)"]
    )
    try:
        time.sleep(0.3)  # both pipes are closed when the first is read
        out = ""
        with pytest.raises(TryLater, match="has ended"):
            while True:
                out += talk.receive(10.0)[0]
        assert out == "last words"
    finally:
        talk.close()
