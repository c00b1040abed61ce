"""The mini Hadoop of containers, by docker-py: what `roles.py` lists, on a network of its own.

Jars, configuration and Horae's packages are mounted from the host. The gateway runs the arbiter for everybody; from
the host the cluster is reached by its containers' addresses.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import horae
from horae.lab import LabRequest, LabState, containers, engine
from horae.lab.docked import DockedLab
from horae.machine_gpus import this_machine
from policy.model import BadInput
from yarn_bridge.lab import fetch, roles, settings
from yarn_bridge.lab.jars import jars

_READY_S = 300.0  #: on a machine that does other things
_NODES = f"http://rm:{settings.RM_PORT}/ws/v1/cluster/nodes?user.name=horae"


class ContainerHadoop(DockedLab):
    kind = "hadoop"

    def __init__(self, name: str, folder: Path, say: Callable[[str], None], cache: Path) -> None:
        super().__init__(name, folder, say)
        self._cache = cache.absolute()

    def up(self, request: LabRequest) -> LabState:
        running = self.status()
        if running.up:
            return running
        release = request.release or settings.RELEASES[0]
        sources = self._sources(release, request.options)
        engine.clean(self.client, self.mark)
        engine.ensure_base(self.client, "bookworm", self._say)
        image = engine.build(self.client, containers("hadoop"), "Dockerfile", roles.IMAGE, {}, self._say)
        self._say("starting its containers")
        try:
            self._start(request, image, sources)
        except BaseException:
            engine.clean(self.client, self.mark)
            raise
        return self.status()

    def status(self) -> LabState:
        manager = self._state_of("rm")
        if manager != "running":
            return LabState(self.name, False, f"its ResourceManager is {manager}" if manager else "not up")
        nodes = self._nodes()
        text = "\n".join(f"{node['nodeHostName']} {node['state']}" for node in nodes)
        return LabState(self.name, bool(nodes), text or "its ResourceManager does not answer", self.facts())

    def facts(self) -> dict[str, Any]:
        """Options for `connect` from the host."""
        datanodes = [f"dn{index + 1}" for index in range(roles.DATANODES)]
        return {
            **self._options(self.address("rm"), self.address("nn")),
            "hdfs_names": {name: self.address(name) for name in datanodes},
        }

    def demo(self) -> int:
        """On the gateway, where every name resolves."""
        words = ["python3", "-m", "yarn_bridge.lab.demo", json.dumps(self._options("rm", "nn"))]
        environment = {"PYTHONPATH": f"{roles.PACKAGES}:{roles.SOURCE}", "PYTHONUNBUFFERED": "1"}
        api = self.client.api
        made = api.exec_create(self.container("gateway").id, words, user="horae", environment=environment)
        for part in api.exec_start(made["Id"], stream=True):
            print(part.decode(errors="replace"), end="", flush=True)
        return int(api.exec_inspect(made["Id"])["ExitCode"])

    # --- how ---

    def _start(self, request: LabRequest, image: str, sources: Mapping[str, Path]) -> None:
        from docker.types import DeviceRequest, Mount

        network = self._network()
        real = roles.real_gpus(request.node_kinds(), this_machine()) if self._gives_gpus() else {}
        for role in roles.roles(request):
            mounts = [Mount(each, str(sources[each]), type="bind", read_only=True) for each in role.sees]
            more: dict[str, Any] = {}
            env = dict(role.env)
            if role.name in real:
                del env["FAKE_GPUS"]
                ids = [str(index) for index in real[role.name]]
                wanted = DeviceRequest(device_ids=ids, capabilities=[["gpu", "compute", "utility"]])
                more["device_requests"] = [wanted]
            self._run(network, role.name, image, role.command, env, mounts, **more)
        self._wait("HDFS is prepared", self._prepared, "nn", "dn1", "init")
        self._wait("the nodes register", lambda: self._running() == request.nodes, "rm", "n1")
        self._wait("the gateway's arbiter listens", self._listens, "gateway")

    def _gives_gpus(self) -> bool:
        """Whether this engine can hand the host's GPUs to a container (NVIDIA's container toolkit)."""
        return "nvidia" in (self.client.info().get("Runtimes") or {})

    def _options(self, manager: str, namenode: str) -> dict[str, Any]:
        return {
            "resource_manager": [f"http://{manager}:{settings.RM_PORT}"],
            "webhdfs": f"http://{namenode}:{settings.NN_PORT}",
            "queue": "horae",
            "user": "horae",
            "python": "python3",
        }

    def _sources(self, release: str, options: Mapping[str, str]) -> dict[str, Path]:
        """Where on the host is what containers see."""
        shutil.rmtree(self.folder, ignore_errors=True)
        conf = self.folder / "conf"
        settings.write_conf(conf, settings.DOCKED_SITE, settings.DOCKED_DAEMON, options)
        return {
            roles.CONF: conf,
            roles.JARS: jars(self._cache, release, self._say),
            roles.FRAMEWORK: fetch.framework(self._cache, release, self._say),
            roles.PACKAGES: fetch.packages(self._cache, self._say),
            roles.SOURCE: Path(horae.__file__).resolve().parent.parent,
            roles.CONFIG: containers("hadoop") / "horae.yaml",
        }

    def _nodes(self) -> list[dict[str, Any]]:
        code, text = self.exec("rm", ["curl", "-sf", "-m", "5", _NODES])
        return (json.loads(text)["nodes"] or {}).get("node") or [] if code == 0 else []

    def _running(self) -> int:
        return sum(node["state"] == "RUNNING" for node in self._nodes())

    def _prepared(self) -> bool:
        state = self.container("init").attrs["State"]
        return bool(state["Status"] == "exited" and state["ExitCode"] == 0)

    def _listens(self) -> bool:
        return self.exec("gateway", ["test", "-S", "/run/horae/api.sock"])[0] == 0

    def _wait(self, what: str, holds: Callable[[], bool], *needs: str) -> None:
        """Raises BadInput with what a container that failed said, or all of them when the time is over."""
        deadline = time.monotonic() + _READY_S
        while not holds():
            dead = [role for role in needs if self._failed(role)]
            if dead or time.monotonic() > deadline:
                told = "\n".join(f"--- {role}\n{self._tail(role)}" for role in dead or needs)
                why = f"{dead[0]} ended" if dead else f"not within {_READY_S:g} s"
                raise BadInput(f"{what}: {why}\n{told}", where=self.name, remedy="take it down, and try again")
            time.sleep(0.3)

    def _failed(self, role: str) -> bool:
        state = self.container(role).attrs["State"]
        return state["Status"] == "exited" and (role != "init" or state["ExitCode"] != 0)

    def _tail(self, role: str) -> str:
        return str(self.container(role).logs(tail=15).decode(errors="replace").strip())
