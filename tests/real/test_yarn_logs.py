"""`horae profile yarn:...` on a real Hadoop that aggregates logs: an application that Horae has no part in, while it
runs and after its end, against the same text in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from horae.cli import main
from tests.contract.waiting import patiently, wait_for
from tests.real import books
from tests.real.hadoop import cluster_of
from tests.yarn_bridge.record_logs import AGGREGATED, plain
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import Access, HttpClient
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.lab.private import PrivateHadoop

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("yarn")]

OWNER = "horae"
#: prints the first half, waits until it is told to go on, prints the second
TRAIN = """
import os, sys, time
def say(first, last):
    for step in range(first, last + 1):
        print(f"step {step}/40 loss {2.0 / step ** 0.3:.4f} 0.5 s/it", flush=True)
say(1, 20)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
say(21, 40)
"""
LOG = "".join(f"step {step}/40 loss {2.0 / step**0.3:.4f} 0.5 s/it\n" for step in range(1, 41))
HALF = "".join(LOG.splitlines(keepends=True)[:20])


class Site:
    def __init__(self, lab: PrivateHadoop, folder: Path) -> None:
        self.lab = lab
        facts = lab.facts()
        self.url = str(facts["resource_manager"][0])
        self.http = HttpClient(Access((self.url,), OWNER), "ResourceManager")
        self.manager = ResourceManager(self.http)
        self.hdfs = Hdfs(Access((str(facts["webhdfs"]),), OWNER))
        names = {f"n{at}": f"{lab.master.rpartition('.')[0]}.{10 + at}" for at in (1, 2, 3)}
        self.config = folder / "horae.yaml"
        options = {"resource_manager": self.url, "webhdfs": facts["webhdfs"], "hdfs_names": names}
        self.config.write_text(json.dumps({"cluster": {"adapter": "yarn", "options": options}}))
        self.train, self.go = folder / "train.py", folder / "go"
        self.train.write_text(TRAIN)
        self.command = ("python3", str(self.train), str(self.go))

    def service(self, name: str, *nodes: str) -> str:
        """A plain service of the owner's: one worker on each of these nodes, none of them started again."""
        workers = [{
            "name": f"worker-{node}", "number_of_containers": 1, "restart_policy": "NEVER",
            "launch_command": " ".join(self.command), "resource": {"cpus": 1, "memory": "128"},
            "placement_policy": {"constraints": [
                {"type": "AFFINITY", "scope": "NODE", "node_attributes": {"nm.yarn.io/host": [node]}}]},
        } for node in nodes]  # fmt: skip
        body = {"name": name, "version": "1.0", "queue": "horae", "lifetime": 3600, "components": workers}
        self.http.ask("POST", "/app/v1/services", json=body).check("creating a service")
        found: list[str] = []

        def known() -> bool:
            found[:] = [each.id for each in self.manager.apps(user=OWNER) if each.name == name]
            return bool(found)

        wait_for("the service has an application", known)
        return found[0]

    def ended(self, app: str) -> bool:
        return patiently(lambda: self.manager.app(app)).ended


def profile(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    """Exit code, what it answers, what it says beside."""
    capsys.readouterr()
    code = main(["profile", "--json", "--points", *words])
    told = capsys.readouterr()
    return code, json.loads(told.out) if told.out.strip() else None, told.err


def told_of(body: Any) -> list[dict[str, Any]]:
    """The reports without the names of their files, which differ, and without a warning that is true for half a minute:
    so long the ResourceManager does not know that all logs are in HDFS."""
    found = []
    for each in body if isinstance(body, list) else [body]:
        kept = {key: value for key, value in each.items() if key != "file"}
        warnings = [said for said in kept.pop("warnings", []) if "may still be putting logs" not in said]
        found.append({**kept, "warnings": warnings})
    return found


def of_a_file(capsys: pytest.CaptureFixture[str], path: Path, text: str) -> dict[str, Any]:
    path.write_text(text)
    code, body, _ = profile(capsys, str(path))
    assert code == 0
    (found,) = told_of(body)
    return found


@pytest.mark.soak
def test_a_plain_service_while_it_runs_and_after_its_end(
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its nodes aggregate in different formats: n1 as packed TFile, n3 as indexed file."""
    formats = {
        "formats.v100": "TFile,IFile",
        "formats.k80": "IFile,TFile",
        "yarn.log-aggregation.file-formats": "${formats.${env.GPU_KIND:-v100}}",  # of a NodeManager of this lab
        "yarn.nodemanager.log-aggregation.compression-type": "gz",
    }
    lab = cluster_of("3.4.2", pytestconfig, tmp_path_factory, {**AGGREGATED, **formats})
    site = Site(lab, tmp_path)
    monkeypatch.setenv("HADOOP_USER_NAME", OWNER)
    app = site.service("plain-training", "n1", "n3")
    name, config = f"yarn:{app}", ("--config", str(site.config))
    half, whole = (of_a_file(capsys, tmp_path / "train.log", text) for text in (HALF, LOG))

    seen: list[Any] = []

    def reads(wanted: dict[str, Any]) -> bool:
        code, body, err = profile(capsys, name, *config)
        seen[:] = [code, body, err]
        return code in {0, 1} and told_of(body) == [wanted, wanted]

    wait_for("half of both logs, read where it runs", lambda: reads(half), 180.0)
    assert not site.ended(app)
    files = [each["file"] for each in seen[1]]
    code, body, _ = profile(capsys, files[0], *config)
    assert (code, told_of(body)) == (0, [half])

    site.go.touch()
    wait_for("the service ends", lambda: site.ended(app), 180.0)
    wait_for("both logs whole, read from HDFS", lambda: reads(whole), 180.0)
    assert [each["file"] for each in seen[1]] == files
    _, body, _ = profile(capsys, files[1], *config)
    assert told_of(body) == [whole]

    formats_used = {each.name for each in patiently(lambda: site.hdfs.entries(f"/tmp/logs/{OWNER}"))}
    assert formats_used == {"bucket-logs-tfile", "bucket-logs-ifile"}

    monkeypatch.setenv("HADOOP_USER_NAME", "mallory")
    code, _, err = profile(capsys, name, *config)
    assert code == 6
    assert f"HADOOP_USER_NAME={OWNER}" in err
    books.check(site.manager)


INDEXED = {"yarn.log-aggregation.file-formats": "IFile", "yarn.nodemanager.log-aggregation.compression-type": "gz"}


@pytest.mark.parametrize(("release", "settings"), [("3.3.6", {}), ("3.4.2", INDEXED)])
def test_an_application_of_one_container(
    release: str,
    settings: dict[str, str],
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its only container is its application master, which says nothing to YARN: it fails, and its log is there."""
    lab = cluster_of(release, pytestconfig, tmp_path_factory, {**AGGREGATED, **settings})
    site = Site(lab, tmp_path)
    monkeypatch.setenv("HADOOP_USER_NAME", OWNER)
    app = plain(site.manager, OWNER, *site.command)
    half, whole = (of_a_file(capsys, tmp_path / "train.log", text) for text in (HALF, LOG))

    def reads(wanted: dict[str, Any]) -> bool:
        code, body, _ = profile(capsys, f"yarn:{app}", "--config", str(site.config))
        return code in {0, 1} and told_of(body) == [wanted]

    wait_for("half of the log", lambda: reads(half), 180.0)
    assert not site.ended(app), "it was read where it runs"
    site.go.touch()
    wait_for("the application ends", lambda: site.ended(app), 180.0)
    wait_for("the whole log", lambda: reads(whole), 180.0)
    assert site.hdfs.entries(f"/tmp/logs/{OWNER}"), "it was read from HDFS"
    books.check(site.manager, empty=True)
