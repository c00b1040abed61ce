"""What the YARN benchmarks share: a private Hadoop, the bridge on it, requests on the wire, the same calls by hand."""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

from horae.lab import LabRequest, default_folder
from horae.port import ObservedJob, attend
from horae.spec import JobSpec
from policy.model import GpuRange
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop
from yarn_bridge.options import parse_options

USER = "horae"
KINDS = (("v100", 8), ("v100", 8))
RELEASE = "3.4.2"
#: between two looks at what has been asked for, by hand and by the bridge alike
LOOK_S = 0.1
Moves = Generator[None, None, None]


def arguments(about: str | None) -> argparse.ArgumentParser:
    """A parser with what every one of these scripts takes."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", type=Path, help="folder of a private Hadoop that is up already, to be left as it is")
    return parser


@contextmanager
def hadoop(name: str, folder: Path | None = None) -> Iterator[PrivateHadoop]:
    """Two nodes of eight GPUs: the one in `folder`, or a new one that ends with the block."""
    if folder is not None:
        yield PrivateHadoop(folder, default_folder() / "hadoop")
        return
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as made:
        lab = PrivateHadoop(Path(made) / "lab", default_folder() / "hadoop")
        try:
            lab.up(LabRequest(name=name, nodes=len(KINDS), gpus=KINDS, release=RELEASE))
            yield lab
        finally:
            lab.down()


def bridge(lab: PrivateHadoop, **more: Any) -> YarnCluster:
    """The adapter, with its claim on the cluster."""
    port = YarnCluster(parse_options({**lab.facts(), "memory_mib": 256, **more}))
    port.claim("benchmark")
    attend(port)
    return port


def spec(lab: PrivateHadoop, name: str, command: Iterable[str], gpus: tuple[int, int], **more: Any) -> JobSpec:
    url = str(lab.facts()["webhdfs"]).replace("http:", "webhdfs:")
    return JobSpec(
        name=name,
        command=tuple(command),
        gpus=GpuRange(requested=gpus[0], min=gpus[0], max=gpus[1]),
        checkpoint=f"{url}/user/{USER}/checkpoints/{name}",
        memory_per_gpu=256 << 20,
        grace_s=30.0,
        **more,
    )


def seen(port: YarnCluster, job: str) -> ObservedJob:
    return next(each for each in attend(port).jobs if each.id == job)


def until(what: str, holds: Callable[[], object], limit_s: float = 180.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit_s:g} s: {what}")
        time.sleep(LOOK_S)


def together(moves: Iterable[Moves], limit_s: float = 300.0, each_look: Callable[[], object] = int) -> None:
    """Carry several sequences of steps out side by side; between two rounds of them `each_look` is called."""
    left, deadline = list(moves), time.monotonic() + limit_s
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit_s:g} s")
        each_look()
        left = [move for move in left if next(move, StopIteration) is not StopIteration]
        time.sleep(LOOK_S if left else 0)


class Wire:
    """Counts what goes over the wire from this process, by daemon: "rm", "namenode", "datanode"."""

    def __init__(self, lab: PrivateHadoop) -> None:
        self.sent: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()  #: by daemon and what was asked of it
        self._pid = int((lab.folder / "run" / "resourcemanager.pid").read_text())
        rm, namenode = (
            urlsplit(str(each)).netloc for each in (lab.facts()["resource_manager"][0], lab.facts()["webhdfs"])
        )
        known = {rm: "rm", namenode: "namenode"}
        plain = HTTPConnection.putrequest

        def putrequest(connection: HTTPConnection, method: str, url: str, *more: Any, **settings: Any) -> None:
            daemon = known.get(f"{connection.host}:{connection.port}", "datanode")
            self.sent[daemon] += 1
            self.asked[f"{daemon} {method} {_what(url)}"] += 1
            plain(connection, method, url, *more, **settings)

        HTTPConnection.putrequest = putrequest  # type: ignore[method-assign,assignment]

    def side_by_side(self, calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, Any]]:
        """Seconds, requests and the ResourceManager's CPU seconds of each call; all take turns, on the same machine."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        sent: dict[str, Counter[str]] = {name: Counter() for name in calls}
        cpu_s = dict.fromkeys(calls, 0.0)
        for number in range(rounds + 1):
            for name, call in calls.items():
                before, cpu_before_s, began = self.now(), self.cpu_s(), time.perf_counter()
                call()
                if number:  # the first opens connections
                    times[name].append(time.perf_counter() - began)
                    sent[name].update(self.since(before))
                    cpu_s[name] += self.cpu_s() - cpu_before_s
        return {
            name: {
                "median_s": statistics.median(times[name]),
                "best_s": min(times[name]),
                "requests": {daemon: count / rounds for daemon, count in sent[name].items() if count},
                "rm_cpu_s": cpu_s[name] / rounds,
            }
            for name in calls
        }

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def since(self, before: Mapping[str, int]) -> dict[str, int]:
        return {name: self.sent[name] - before.get(name, 0) for name in sorted(self.sent)}

    def now(self) -> Counter[str]:
        return Counter(self.sent)


def _what(url: str) -> str:
    """The operation and the last word of the path of a request to HDFS; of others the path, its ids left out."""
    parts = urlsplit(url)
    operation = parse_qs(parts.query).get("op")
    if operation:
        return f"{operation[0]} {parts.path.rpartition('/')[2].partition('.')[0][:12]}"
    return re.sub(r"(application|container|appattempt)_\w+|(?<=services/)[\w-]+", "ID", parts.path)


class ByHand:
    """Plain requests, as somebody would write them who knows what works and needs no more than that."""

    def __init__(self, lab: PrivateHadoop) -> None:
        self.rm, self.webhdfs = str(lab.facts()["resource_manager"][0]), str(lab.facts()["webhdfs"])
        self.session = requests.Session()
        self.session.trust_env = False  # nobody's proxies, and no look at ~/.netrc for each request

    def ask(self, method: str, path: str, **settings: Any) -> requests.Response:
        answer = self.session.request(method, f"{self.rm}{path}", params={"user.name": USER}, timeout=180, **settings)
        answer.raise_for_status()
        return answer

    def hdfs(self, method: str, path: str, operation: str, data: bytes | None = None, **options: str) -> Any:
        """Its JSON; None where there is no such path."""
        query = {"op": operation, "user.name": USER, **({"noredirect": "true"} if data is not None else {}), **options}
        answer = self.session.request(method, f"{self.webhdfs}/webhdfs/v1{path}", params=query, timeout=180)
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        if data is not None:
            answer = self.session.put(answer.json()["Location"], data=data, timeout=180)
            answer.raise_for_status()
        return answer.json() if answer.content.startswith(b"{") else {}

    def put(self, path: str, data: bytes) -> None:
        self.hdfs("PUT", path, "CREATE", data, overwrite="true")

    def names(self, path: str) -> set[str]:
        found = self.hdfs("GET", path, "LISTSTATUS")
        return set() if found is None else {each["pathSuffix"] for each in found["FileStatuses"]["FileStatus"]}

    # --- one service ---

    def create(
        self, name: str, counts: Mapping[str, int], command: str, files: Mapping[str, str], pin: bool = True
    ) -> None:
        """`counts`: component -> containers of one GPU, pinned to the node of its name unless not `pin`."""
        components = []
        for node, count in counts.items():
            component: dict[str, Any] = {
                "name": node,
                "number_of_containers": count,
                "restart_policy": "ON_FAILURE",
                "launch_command": command,
                "resource": {"cpus": 1, "memory": "256", "additional": {"yarn.io/gpu": {"value": 1, "unit": ""}}},
            }
            if pin:
                where = {"type": "AFFINITY", "scope": "NODE", "node_attributes": {"nm.yarn.io/host": [node]}}
                component["placement_policy"] = {"constraints": [where]}
            components.append(component)
        local = [{"type": "STATIC", "src_file": path, "dest_file": there} for there, path in files.items()]
        properties = {
            "yarn.service.container-failure.retry.max": "0",
            "yarn.service.readiness-check-interval.seconds": "1",
        }
        body = {"name": name, "version": "1.0", "queue": "horae", "components": components}
        self.ask("POST", "/app/v1/services", json={**body, "configuration": {"files": local, "properties": properties}})

    def containers(self, name: str) -> list[dict[str, Any]]:
        service = self.ask("GET", f"/app/v1/services/{name}").json()
        return [each for part in service.get("components") or () for each in part.get("containers") or ()]

    def flex(self, name: str, counts: Mapping[str, int]) -> None:
        components = [{"name": node, "number_of_containers": count} for node, count in counts.items()]
        self.ask("PUT", f"/app/v1/services/{name}", json={"state": "FLEX", "components": components})

    def signal(self, container: str) -> None:
        self.ask("POST", f"/ws/v1/cluster/containers/{container}/signal/GRACEFUL_SHUTDOWN")

    def used(self) -> int:
        """Containers that run, of whoever."""
        return int(self.ask("GET", "/ws/v1/cluster/metrics").json()["clusterMetrics"]["containersAllocated"])

    def destroy(self, name: str) -> None:
        self.ask("DELETE", f"/app/v1/services/{name}")
