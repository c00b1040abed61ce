"""A living arbiter of root's on the local cluster, and users of it: real ones, by system Python and raw HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client, Unreachable
from horae.api.errors import ApiError
from horae.elastic.supervisor.processes import began, parents
from tests.horae.elastic.exec_job import ROOT
from tests.waiting import eventually

PYTHON = "/usr/bin/python3"
#: Accounts that every system has: jobs run as their owners.
ANN, BOB = 1, 65534
MIB = 1 << 20
#: Who an arbiter is that gave up being root; an account that every system has, and whose jobs nobody runs.
ACCOUNT = "bin"
#: Two signs of rounds further apart than twice this are a round that was late by more than a tick.
TICK_S = 2.0

#: method, path, body (or `@N`: N bytes of a body that is wrong everywhere), how many at once; prints [status, text]s.
CALLS = """
import json, socket, sys, threading
at, method, path, body, times = sys.argv[1:6]
body = ('{"jobs":[' + '1,' * ((int(body[1:]) - 12) // 2) + '1]}' if body.startswith('@') else body).encode()
found = []
def call():
    peer = socket.socket(socket.AF_UNIX); peer.connect(at); peer.settimeout(100)  # in line, where others fill it
    head = '%s %s HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n' % (method, path)
    head += 'Content-Length: %d\\r\\n\\r\\n' % len(body)
    answer = b''
    try:
        peer.sendall(head.encode() + body)
    except (BrokenPipeError, ConnectionResetError):
        pass  # answered before all of it was sent
    try:
        while part := peer.recv(65536):
            answer += part
    except ConnectionResetError:
        pass
    head, _, text = answer.partition(b'\\r\\n\\r\\n')
    if b'transfer-encoding: chunked' in head.lower():
        rest, text = text, b''
        while rest:
            size, _, rest = rest.partition(b'\\r\\n')
            text += rest[:int(size, 16)]
            rest = rest[int(size, 16) + 2:]
    found.append([int(head.split()[1]) if head else 0, text.decode()])
threads = [threading.Thread(target=call) for _ in range(int(times))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(found))
"""
#: In turn and for ever, every name that means something in a job's folder as everything that it could be.
CHANGES = """
import os, shutil, socket, sys, time
os.chdir(sys.argv[1])
names = "spec.json epoch stop cancel state.json lock output.log output.log.1 reason released".split()
targets = ("/etc/shadow", "../../books", "..", "state.json")
def folder(name):
    os.mkdir(name)
    os.symlink("/etc", name + "/inner")
def listens(name):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(name)
hows = [os.mkfifo, folder, listens, lambda name: open(name, "w").close()]
hows += [lambda name, to=to: os.symlink(to, name) for to in targets]
while True:
    for how in hows:
        for name in names:
            time.sleep(0.001)
            how("x")
            try:
                os.rename(name, "y")
            except FileNotFoundError:
                pass
            os.rename("x", name)
            if os.path.islink("y") or not os.path.isdir("y"):
                if os.path.lexists("y"):
                    os.unlink("y")
            else:
                shutil.rmtree("y")
"""


@dataclass
class Day:
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def socket(self) -> Path:
        return self.folder / "run" / "a.sock"

    @property
    def helper(self) -> int:
        """The pid of what is root beside an arbiter that is not."""
        below = [pid for pid, parent in parents().items() if parent == self.process.pid]
        (found,) = [pid for pid in below if b"horae.local.helper" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return found

    @property
    def operator(self) -> Client:
        return Client(self.socket, timeout_s=200)

    def looks(self) -> bool:
        """Whether it answers and has seen the cluster."""
        with suppress(Unreachable):
            return bool(self.operator.status()["nodes"])
        return False

    def begins(self, uid: int, method: str, path: str, body: str = "", times: int = 1) -> subprocess.Popen[str]:
        who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", PYTHON, "-I", "-c", CALLS]
        words = [str(self.socket), method, path, body, str(times)]
        return subprocess.Popen([*who, *words], stdout=subprocess.PIPE, text=True, cwd="/", env={})

    @staticmethod
    def runs(uid: int, source: str, *words: object) -> subprocess.Popen[bytes]:
        """A program of the user's."""
        who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", PYTHON, "-I", "-c", source]
        return subprocess.Popen([*who, *map(str, words)], cwd="/", env={})

    def calls(self, uid: int, method: str, path: str, body: Any = "") -> tuple[int, str]:
        asked = self.begins(uid, method, path, body if isinstance(body, str) else json.dumps(body))
        out, _ = asked.communicate(timeout=300)
        ((status, text),) = json.loads(out)
        return status, text

    def submits(self, uid: int, **job: Any) -> str:
        status, text = self.calls(uid, "POST", "/v1/jobs", {"gpus": 1, "cwd": "/tmp", **job})
        assert status == 200, text
        return str(json.loads(text)["jobs"][0])

    def ends(self, *jobs: str) -> None:
        for job in jobs:
            self.operator.cancel(job)
        eventually(lambda: all(self.operator.job(job)["ended"] for job in jobs))

    @contextmanager
    def watched(self, test: pytest.Item) -> Iterator[None]:
        """How late rounds were meanwhile goes into the test's report, for a table at the end (`conftest.py`)."""
        over, signs = threading.Event(), [time.time()]
        beat, client = self.folder / "local" / "heartbeat", Client(self.socket, timeout_s=2)

        def watch() -> None:
            # The heartbeat does not need the API, the API no room on the disk.
            while not over.wait(0.1):
                found = [signs[-1]]
                with suppress(FileNotFoundError):  # before the first round that may act
                    found.append(beat.stat().st_mtime)
                with suppress(Unreachable, ApiError):
                    ago_s = client.about()["looked_ago_s"]
                    found.append(time.time() - ago_s)
                if max(found) > signs[-1] + 0.05:
                    signs.append(max(found))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            gaps = [after - before for before, after in pairwise([*signs, time.time()])]
            late = sum(gap > 2 * TICK_S for gap in gaps)
            test.user_properties.append(("rounds", (len(signs) - 1, late, max(gaps))))

    def memory(self, key: str) -> int:
        (line,) = [x for x in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if x.startswith(key)]
        return int(line.split()[1]) << 10


def everybodys_python() -> tuple[str, dict[str, str]]:
    """An interpreter of our packages that any account may run, and its environment."""
    if all(folder.stat().st_mode & 0o001 for folder in Path(sys.base_prefix).resolve().parents):
        return sys.executable, {}
    told = subprocess.check_output([PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], text=True)
    if told.split() != [str(number) for number in sys.version_info[:2]]:
        pytest.skip(f"only root can run {sys.executable}, and {PYTHON} is another version")
    return PYTHON, {"PYTHONPATH": f"{sysconfig.get_path('purelib')}:{ROOT}"}


def end_all(folder: Path) -> None:
    """Whatever a test that failed left running there."""
    for note in (folder / "local" / "keepers").glob("*"):
        words = note.read_text().split()
        if words and Path(f"/proc/{words[0]}").exists() and began(int(words[0])) == int(words[1]):
            os.kill(int(words[0]), signal.SIGUSR2)


@contextmanager
def serving(folder: Path, account: str = "", ends: bool = True) -> Iterator[Day]:
    """An arbiter whose state, jobs and socket are in `folder`: root as a whole, or `account` with root's helper.

    `ends`: and so do its jobs.
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    options = f"state: {folder}/local, nodes: 'v100:1x4'"
    command, environment = [str(Path(sys.executable).with_name("horae"))], {}
    if account:
        options += f", account: {account}, least_uid: 1"
        python, environment = everybodys_python()
        command = [python, "-P", "-c", "import sys; from horae.cli import main; sys.exit(main(sys.argv[1:]))"]
    config = folder / "config.yaml"
    text = (
        f"state_dir: {folder}/state\napi: {{socket: {folder}/run/a.sock}}\nrounds: {{tick_s: {TICK_S}, busy_s: 0.2}}\n"
        f"cluster: {{adapter: local, options: {{{options}}}}}\n"
        "pools: [{name: main, policy: max-min, mode: enforce}]\n"
    )
    if not config.exists() or config.read_text() != text:
        config.write_text(text)
    command += ["serve", str(config)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd="/", env={**os.environ, **environment}, start_new_session=True
        )
        made = Day(folder, process)
        try:
            eventually(lambda: process.poll() is not None or made.looks())
            assert process.poll() is None, (log.seek(0), log.read())[1].decode()
            yield made
            if ends:
                made.ends(*(job["id"] for job in made.operator.status()["jobs"]))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
