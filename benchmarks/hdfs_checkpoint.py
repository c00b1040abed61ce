"""How fast do checkpoints go to HDFS and back, beside a bare WebHDFS client?

A real NameNode and DataNode, side by side in one run: one file by `requests` (the same CREATE, data to the DataNode,
RENAME; OPEN to a file and no more), by HdfsCLI where `pip install hdfs` was said, and by the SDK's store: the file as
it is, and as a whole checkpoint with its sums made when it is written and compared when it is read.

    python benchmarks/hdfs_checkpoint.py [--mib 64] [--rounds 7] [--lab FOLDER]
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from _record import record
from _yarn import USER, arguments, hadoop

from horae.elastic.stores import checkpoints
from horae.elastic.stores.store import Store, open_store

_PIECE = 1 << 20


class Bare:
    """`requests` alone."""

    def __init__(self, url: str, folder: str) -> None:
        self.base, self.folder = f"{url}/webhdfs/v1", folder
        self.session = requests.Session()
        self.session.trust_env = False

    def ask(self, method: str, path: str, operation: str, **options: str) -> requests.Response:
        query = {"op": operation, "user.name": USER, "noredirect": "true", **options}
        answer = self.session.request(method, f"{self.base}{path}", params=query, timeout=60)
        answer.raise_for_status()
        return answer

    def write(self, source: Path) -> None:
        there = self.ask("PUT", f"{self.folder}/.part", "CREATE", overwrite="true").json()["Location"]
        with source.open("rb") as file:
            self.session.put(there, data=file, timeout=60).raise_for_status()
        self.ask("PUT", f"{self.folder}/.part", "RENAME", destination=f"{self.folder}/bare", renameoptions="OVERWRITE")

    def read(self, target: Path) -> None:
        there = self.ask("GET", f"{self.folder}/bare", "OPEN").json()["Location"]
        with self.session.get(there, stream=True, timeout=60) as answer, target.open("wb") as file:
            answer.raise_for_status()
            for piece in answer.iter_content(_PIECE):
                file.write(piece)


class OfStore:
    """The SDK's store: `checked` is what a training does, without it the transfer alone."""

    def __init__(self, store: Store, checked: bool) -> None:
        self.store, self.checked, self.step = store, checked, 0

    def write(self, source: Path) -> None:
        self.step += 1

        def fill(folder: str) -> None:
            os.link(source, f"{folder}/model")

        if self.checked:
            checkpoints.write(self.store, self.step, 1, {}, fill, lambda: None)
        else:
            folder = self.store.begin(self.name)
            fill(folder)
            self.store.publish(folder, self.name, lambda: None)

    def read(self, target: Path) -> None:
        if self.checked:
            _mark, _account, folder = next(checkpoints.complete(self.store, print))
        else:
            folder = self.store.fetch(self.name)
        Path(folder, "model").replace(target)
        self.store.done(folder)

    def clean(self) -> None:
        for entry in self.store.entries():
            self.store.delete(entry)

    @property
    def name(self) -> str:
        return f"plain-{self.step}"


def by_cli(url: str, path: str) -> dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]]:
    """HdfsCLI's row, where it is installed: nothing of Horae needs it."""
    try:
        import hdfs
    except ModuleNotFoundError:
        return {}
    client = hdfs.InsecureClient(url, user=USER)

    def write(source: Path) -> None:
        client.upload(path, source, overwrite=True, n_threads=1)

    def read(target: Path) -> None:
        client.download(path, target, overwrite=True, n_threads=1)

    return {"HdfsCLI": (write, read)}


def timed(call: Callable[[Path], None], path: Path) -> float:
    began = time.perf_counter()
    call(path)
    return time.perf_counter() - began


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with hadoop("bench-hdfs", options.lab) as lab, tempfile.TemporaryDirectory() as made:
        os.environ["HADOOP_USER_NAME"] = USER  # not before: HDFS belongs to who starts it
        tempfile.tempdir = made  # where the store prepares what it writes: on one file system with the source
        source, target = Path(made, "model"), Path(made, "read")
        source.write_bytes(os.urandom(options.mib << 20))
        url, folder = str(lab.facts()["webhdfs"]), f"/user/{USER}/bench-{int(time.time())}"
        stores = {
            name: OfStore(open_store(f"{url.replace('http:', 'webhdfs:')}{folder}/{name}"), name == "checkpoint")
            for name in ("store", "checkpoint")
        }
        bare = Bare(url, folder)
        ways: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
            "requests": (bare.write, bare.read),
            **by_cli(url, f"{folder}/cli"),
            **{name: (each.write, each.read) for name, each in stores.items()},
        }
        times: dict[str, dict[str, list[float]]] = {name: {"write": [], "read": []} for name in ways}
        for number in range(options.rounds + 1):
            for name, (write, read) in ways.items():
                found = timed(write, source), timed(read, target)
                if target.stat().st_size != source.stat().st_size:
                    raise RuntimeError(f"{name}: {target.stat().st_size} bytes came back")
                if number:  # the first opens connections and warms the DataNode
                    times[name]["write"].append(found[0])
                    times[name]["read"].append(found[1])
            for each in stores.values():
                each.clean()
        bare.ask("DELETE", folder, "DELETE", recursive="true")
        shutil.rmtree(made, ignore_errors=True)
    result: dict[str, Any] = {"mib": options.mib, "rounds": options.rounds}
    for doing in ("write", "read"):
        rates = {name: options.mib / statistics.median(found[doing]) for name, found in times.items()}
        result[f"{doing}_mib_s"] = rates
        result[f"{doing} ratio to requests"] = {name: rates["requests"] / rate for name, rate in rates.items()}
    record(Path(__file__), {**result, "all_s": times}, ("requests", *(["hdfs"] if "HdfsCLI" in ways else [])))
    for doing in ("write", "read"):
        print(doing, {name: round(rate, 1) for name, rate in result[f"{doing}_mib_s"].items()}, "MiB/s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
