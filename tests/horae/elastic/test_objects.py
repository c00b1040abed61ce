"""Checkpoints in an object store: whole or not there, whatever the driver does; and on a real S3 server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.elastic.stores import checkpoints, objects
from horae.elastic.stores.checkpoints import MANIFEST, Superseded
from horae.elastic.stores.store import open_store
from tests.contract.harness import starts_in, steps_in
from tests.waiting import eventually


class Driver:
    """fsspec's verbs over a dict. `fails`: what it raises, by verb and the end of a path; `did`: in their order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.did: list[str] = []
        self.fails: dict[tuple[str, str], Exception] = {}

    def _do(self, verb: str, path: str) -> None:
        self.did.append(f"{verb} {path}")
        for (failing, end), error in self.fails.items():
            if verb == failing and path.endswith(end):
                raise error

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        names = {key[len(path) + 1 :].partition("/")[0] for key in self.objects if key.startswith(path + "/")}
        if not names:
            raise FileNotFoundError(path)
        return [{"name": f"{path}/{name}", "type": "directory"} for name in sorted(names)]

    def find(self, path: str, detail: bool) -> dict[str, dict[str, Any]]:
        return {key: {"size": len(value)} for key, value in self.objects.items() if key.startswith(path)}

    def cat_file(self, path: str) -> bytes:
        self._do("get", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]

    def get_file(self, path: str, local: str) -> None:
        Path(local).write_bytes(self.cat_file(path))

    def put_file(self, local: str, path: str) -> None:
        self._do("put", path)
        self.objects[path] = Path(local).read_bytes()

    def rm_file(self, path: str) -> None:
        self._do("rm", path)
        del self.objects[path]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(objects, "_driver", lambda _scheme: made)
    return made


def fill(folder: str) -> None:
    (Path(folder) / "weights").mkdir()
    (Path(folder) / "weights/0").write_bytes(b"w" * 100)


def nothing() -> None:
    """The fence lets it through."""


def test_the_manifest_comes_last_and_goes_first(driver: Driver) -> None:
    store = open_store("s3a://bucket/ck")
    mark = checkpoints.write(store, 20, 3, {}, fill, nothing)
    assert [each for each in driver.did if each.startswith("put")] == [
        f"put bucket/ck/{mark.name}/weights/0",
        f"put bucket/ck/{mark.name}/{MANIFEST}",
    ]
    ((found, _, folder),) = checkpoints.complete(store, pytest.fail)
    assert found == mark
    assert (Path(folder) / "weights/0").read_bytes() == b"w" * 100
    store.done(folder)
    assert not Path(folder).exists()
    driver.did.clear()
    store.delete(mark.name)
    assert driver.did == [f"rm bucket/ck/{mark.name}/{MANIFEST}", f"rm bucket/ck/{mark.name}/weights/0"]
    assert driver.objects == {}


def test_whom_the_fence_stops_leaves_nothing(driver: Driver) -> None:
    def refused() -> None:
        raise Superseded("a newer start is under way")

    with pytest.raises(Superseded):
        checkpoints.write(open_store("s3://bucket/ck"), 20, 3, {}, fill, refused)
    assert driver.objects == {}


def test_half_of_one_is_none_and_is_swept(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store("s3://bucket/ck")
    old = checkpoints.write(store, 10, 3, {}, fill, nothing)
    driver.fails = {("put", MANIFEST): RuntimeError("503 Slow Down"), ("rm", "weights/0"): RuntimeError("503 again")}
    with pytest.raises(OSError, match="503 Slow Down"):
        checkpoints.write(store, 20, 3, {}, fill, nothing)
    assert "is left in s3://bucket/ck" in capsys.readouterr().out
    driver.fails = {}
    said: list[str] = []
    assert [mark for mark, _, _ in checkpoints.complete(store, said.append)] == [old]
    assert store.sweep() == [checkpoints.name_of(20, 3)]
    assert store.entries() == [old.name]


def test_a_python_without_the_driver_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ValueError, match="pip install s3fs"):
        open_store("s3://bucket/ck")
    with pytest.raises(ValueError, match="names no bucket"):
        open_store("gs://")


TRAINER = """
import time
from horae import elastic
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
for step in elastic.Training(steps=60, global_batch=8, save=save, load=load, log_every_s=0.0):
    time.sleep(0.05)
    done[0] += 1
    step.report(1.0 / done[0])
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In moto's server, a process of its own that speaks S3."""
    for package in ("moto", "flask", "s3fs"):
        pytest.importorskip(package, reason="pip install 'moto[s3,server]' s3fs")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    for name, value in (("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("FSSPEC_S3_ENDPOINT_URL", url)):
        monkeypatch.setenv(name, value)
    import fsspec  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import fsspec.config  # type: ignore[import-not-found, import-untyped, unused-ignore]

    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": url})  # it has read the environment already
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log)
    files = fsspec.filesystem("s3", endpoint_url=url, skip_instance_cache=True)

    def answers() -> bool:
        assert server.poll() is None, (tmp_path / "moto.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(answers)
        files.mkdir("checkpoints")
        yield "checkpoints"
    finally:
        server.kill()
        server.wait()


@pytest.mark.soak
def test_a_training_goes_on_from_a_real_s3_server(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    log = tmp_path / "log"

    def start() -> subprocess.Popen[bytes]:
        words = ["-m", "horae.elastic", "--gpus", "1", "--checkpoint", f"s3a://{bucket}/one", "--folder", ".horae"]
        with log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, *words, "--", sys.executable, "train.py"],
                cwd=tmp_path, stdout=out, stderr=out, env={**os.environ, "HORAE_SCRATCH": str(tmp_path)},
            )  # fmt: skip

    def ended(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
        return lambda: process.poll() is not None

    first = start()
    eventually(lambda: len(steps_in(log.read_bytes())) > 5)
    first.send_signal(signal.SIGTERM)
    eventually(ended(first))
    second = start()
    eventually(ended(second))
    assert second.returncode == 0, log.read_text()
    steps, starts = steps_in(log.read_bytes()), starts_in(log.read_bytes())
    assert steps == sorted(set(steps)), "no step was done twice"
    assert (steps[-1], len(starts)) == (60, 2)
    assert starts[1].step > 0
    assert [path for path in tmp_path.iterdir() if path.name.startswith("horae-")] == []
