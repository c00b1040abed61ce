"""Record the files of aggregated logs that the tests of their readers read: what real NodeManagers wrote.

    python -m tests.yarn_bridge.record_logs --release 3.4.2 --out tests/yarn_bridge/fixtures/aggregated

For each format and packing a private Hadoop of one node is started with these settings, one plain application
(neither Services nor Horae: its only container prints a training log and leaves) is submitted to it, and its
aggregated file is copied out of HDFS as it is: `RELEASE-FORMAT-PACKING`. The file `long` holds a log that takes several
chunks of a TFile, of one line again and again so that it packs well. `RELEASE-living` is what the NodeManager's web
answered with while such an application ran.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from horae.lab import LabRequest, default_folder
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import Access, HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.lab.private import PrivateHadoop

TRAIN = """
import sys, time
steps, pause = int(sys.argv[1]), float(sys.argv[2])
for step in range(1, steps + 1):
    print(f"step {step}/{steps} loss {2.0 / step ** 0.3:.4f} 0.5 s/it", flush=pause > 0)
    time.sleep(pause)
print("a warning of the trainer's", file=sys.stderr)
if len(sys.argv) > 3:
    print(f"step {steps}/{steps} loss 0.1 0.5 s/it\\n" * int(sys.argv[3]), end="")
"""
_CLASS = "org.apache.hadoop.yarn.logaggregation.filecontroller"
AGGREGATED: Mapping[str, str] = {
    "yarn.log-aggregation-enable": "true",
    "yarn.log-aggregation.file-controller.TFile.class": f"{_CLASS}.tfile.LogAggregationTFileController",
    "yarn.log-aggregation.file-controller.IFile.class": f"{_CLASS}.ifile.LogAggregationIndexedFileController",
}
KINDS = (("tfile", "none"), ("tfile", "gz"), ("ifile", "none"), ("ifile", "gz"))
_LEAST = 100  #: bytes of what is no log file yet
CONTROLLERS = {"tfile": "TFile", "ifile": "IFile"}


def plain(manager: ResourceManager, owner: str, *command: str) -> str:
    """Submit an application whose application master is nothing but this command; its id."""
    app = manager.new_application(owner)
    line = " ".join([*command, "1><LOG_DIR>/stdout", "2><LOG_DIR>/stderr"])
    manager.submit({
        "application-id": app,
        "application-name": "plain",
        "am-container-spec": {"commands": {"command": line}},
        "unmanaged-AM": False,
        "max-app-attempts": 1,
        "resource": {"memory": 128, "vCores": 1},
        "application-type": "PLAIN",
        "queue": "default",
    }, owner)  # fmt: skip
    return app


def record(release: str, kinds: list[str], out: Path, folder: Path) -> None:
    train = folder / "train.py"
    train.write_text(TRAIN)
    out.mkdir(parents=True, exist_ok=True)
    for format_, packing in (kind for kind in KINDS if "-".join(kind) in kinds):
        lab = PrivateHadoop(folder / f"{format_}-{packing}", default_folder() / "hadoop")
        settings = {
            **AGGREGATED,
            "yarn.log-aggregation.file-formats": CONTROLLERS[format_],
            "yarn.nodemanager.log-aggregation.compression-type": packing,
        }
        try:
            lab.up(LabRequest(name="logs", nodes=1, gpus=(("v100", 1),), release=release, options=settings))
            name = f"{release}-{format_}-{packing}"
            (out / name).write_bytes(_one(lab, train, "20", "0.3"))
            if (format_, packing) == ("tfile", "none"):
                (out / f"{release}-living").write_bytes(_living(lab, train))
            if (format_, packing) == ("tfile", "gz"):
                (out / f"{name}-long").write_bytes(_one(lab, train, "3", "0", "50000"))
            print(name)
        finally:
            lab.down()


def _asked(lab: PrivateHadoop) -> tuple[ResourceManager, Hdfs]:
    facts = lab.facts()
    manager = ResourceManager(HttpClient(Access(tuple(facts["resource_manager"]), "alice"), "ResourceManager"))
    return manager, Hdfs(Access((str(facts["webhdfs"]),), "alice"))


def _one(lab: PrivateHadoop, train: Path, *words: str) -> bytes:
    """The aggregated file of an application that runs the trainer with these words."""
    manager, hdfs = _asked(lab)
    app = plain(manager, "alice", "python3", str(train), *words)
    _until(lambda: manager.app(app).ended)
    found: list[bytes] = []

    def whole() -> bool:
        """The indexed format is written under its final name: it is there before it is whole."""
        found[:] = [hdfs.read(path) or b"" for path in _files(hdfs, app)]
        return len(found) == 1 and len(found[0]) > _LEAST and found[0][-16:] in found[0][:32]

    _until(whole)
    return found[0]


def _living(lab: PrivateHadoop, train: Path) -> bytes:
    """What the NodeManager answers while the trainer runs: the list of files, then the log."""
    manager, _ = _asked(lab)
    node = f"{lab.master[:-1]}11"
    app = plain(manager, "alice", "python3", str(train), "20", "0.3")
    found: list[Any] = []

    def shown() -> bool:
        attempts = manager.attempts(app)
        containers = manager.containers(app, attempts[0].id) if attempts else []
        if not containers:
            return False
        path = f"/ws/v1/node/containers/{containers[0].id}/logs"
        listing = requests.get(f"http://{node}:8042{path}", params={"user.name": "alice"}, timeout=30)
        log = requests.get(f"http://{node}:8042{path}/stdout", params={"user.name": "alice"}, timeout=30)
        found[:] = [listing.content, b"\n", log.content]
        return log.ok and b"step 3/" in log.content

    _until(shown)
    return b"".join(found)


def _files(hdfs: Hdfs, app: str) -> list[str]:
    """Of the application, once they are whole."""
    found = []
    for kind in hdfs.entries("/tmp/logs/alice"):
        folder = f"/tmp/logs/alice/{kind.name}/{app[-4:]}/{app}"
        found += [f"{folder}/{each.name}" for each in hdfs.entries(folder) if not each.name.endswith(".tmp")]
    return found


def _until(holds: Any, limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {limit_s:g} s")
        time.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="3.4.2")
    every = ["-".join(kind) for kind in KINDS]
    parser.add_argument("--kinds", nargs="+", choices=every, default=every)
    parser.add_argument("--out", type=Path, required=True)
    said = parser.parse_args()
    # What is recorded holds the daemons' search path: a plain one says nothing of this machine.
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    with tempfile.TemporaryDirectory(prefix="horae-logs-") as folder:
        Path(folder).chmod(0o755)
        record(said.release, said.kinds, said.out, Path(folder))


if __name__ == "__main__":
    main()
