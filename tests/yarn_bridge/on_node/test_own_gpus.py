"""Which GPUs a container's worker takes, by what its NodeManager says."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import eventually
from yarn_bridge.on_node import own_gpus
from yarn_bridge.on_node.own_gpus import devices

OURS, OTHERS = "container_1_0001_01_000002", "container_1_0002_01_000002"
GPUS = [{"minorNumber": minor, "uuid": f"GPU-{minor}"} for minor in range(4)]


class NodeManager:
    def __init__(self) -> None:
        self.answer: Any = {}
        self.status = 200
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(json.dumps(outer.answer).encode())

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def env(self) -> dict[str, str]:
        return {"NM_HOST": "127.0.0.1", "NM_HTTP_PORT": str(self.server.server_port), "HADOOP_USER_NAME": "alice"}


@pytest.fixture
def node() -> Iterator[NodeManager]:
    made = NodeManager()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(own_gpus, "LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(own_gpus, "_LEAVING_S", 0.0)
    held: list[int] = []
    monkeypatch.setattr(own_gpus, "_held", held)
    yield tmp_path / "locks"
    for each in held:
        os.close(each)


def assigned(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"index": minor, "minorNumber": minor, "containerId": holder} for minor, holder in pairs]


def cuda(node: NodeManager, container: str = OURS, gpus: int = 1) -> str | None:
    return devices(node.env, container, gpus, pytest.fail).get("CUDA_VISIBLE_DEVICES")


def test_a_container_takes_what_its_node_manager_assigned(node: NodeManager) -> None:
    node.answer = {"gpuDeviceInformation": {"gpus": GPUS}, "assignedGpuDevices": assigned((0, OTHERS), (2, OURS))}
    assert (cuda(node, OURS), cuda(node, OTHERS)) == ("GPU-2", "GPU-0")
    assert node.asked == ["/ws/v1/node/resources/yarn.io%2Fgpu?user.name=alice"] * 2


def test_where_nothing_is_assigned_workers_share_them_out(node: NodeManager, locks: Path) -> None:
    """As YARN's default executor answers."""
    node.answer = {"gpuDeviceInformation": {"gpus": GPUS}, "totalGpuDevices": [], "assignedGpuDevices": []}
    assert [cuda(node), cuda(node, gpus=2), cuda(node)] == ["GPU-0", "GPU-1,GPU-2", "GPU-3"]
    assert locks.stat().st_mode & 0o7777 == 0o1777
    said: list[str] = []
    assert devices(node.env, OURS, 1, said.append) == {}
    assert "held by other workers" in said[0]
    os.close(own_gpus._held.pop(1))  # its worker has ended
    assert cuda(node) == "GPU-1"


def test_a_planted_link_is_not_followed(node: NodeManager, locks: Path, tmp_path: Path) -> None:
    node.answer = {"gpuDeviceInformation": {"gpus": GPUS[:2]}}
    locks.mkdir()
    (locks / f"127_0_0_1_{node.server.server_port}-GPU-0").symlink_to(tmp_path / "elsewhere")
    assert cuda(node) == "GPU-1"
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_said_already_stands_and_elsewhere_nobody_is_asked(node: NodeManager) -> None:
    assert devices({**node.env, "CUDA_VISIBLE_DEVICES": "3"}, OURS, 1, pytest.fail) == {}
    assert devices({}, OURS, 1, pytest.fail) == {}
    assert node.asked == []


@pytest.mark.parametrize(("status", "answer"), [(401, {}), (200, []), (200, {"assignedGpuDevices": ["x", 3]})])
def test_a_node_manager_that_does_not_tell_is_named(
    node: NodeManager, status: int, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.status, node.answer = status, answer
    monkeypatch.setattr(own_gpus, "_visible", list)
    said: list[str] = []
    assert devices(node.env, OURS, 1, said.append) == {}
    assert len(said) == 1
    assert "may share one" in said[0]


def test_then_nvidia_smi_tells_and_one_gpu_is_an_isolated_containers_own(
    node: NodeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.status = 401
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    for uuids, seen in ((["GPU-a", "GPU-b"], "GPU-a"), (["GPU-c"], None)):
        lines = "".join(f"echo 'GPU 0: A100 (UUID: {uuid})'\n" for uuid in uuids)
        tool.write_text(f"#!/bin/sh\n{lines}")
        tool.chmod(0o755)
        assert cuda(node) == seen


def test_rights_of_what_somebody_put_in_the_place_of_the_locks_are_left_alone(
    locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to a folder of the worker's user, put there at the last moment: it would be open to all."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    plain = os.mkdir

    def raced(path: str, mode: int = 0o777) -> None:
        locks.symlink_to(private)
        plain(path, mode)

    monkeypatch.setattr(os, "mkdir", raced)
    os.close(own_gpus._lock("one"))
    assert private.stat().st_mode & 0o777 == 0o700


def test_a_planted_pipe_is_not_waited_for(node: NodeManager, locks: Path) -> None:
    """Whoever may log in at a node may put one there; workers of everybody waited at it for ever."""
    node.answer = {"gpuDeviceInformation": {"gpus": GPUS}}
    locks.mkdir()
    where = f"127_0_0_1_{node.server.server_port}"
    for gpu in GPUS:
        os.mkfifo(locks / f"{where}-{gpu['uuid']}")
    taken: list[Any] = []
    worker = threading.Thread(target=lambda: taken.append(devices(node.env, OURS, 2, taken.append)), daemon=True)
    worker.start()
    eventually(lambda: taken)
