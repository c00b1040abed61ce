"""An attacker's day: `horae serve` as root on the local cluster, one real user who attacks and one who works.

The users speak to the socket by system Python and raw HTTP; what people see is looked at on a real pseudo-terminal.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client
from tests.horae.api.test_arbiter import eventually

pytestmark = pytest.mark.root

PYTHON = "/usr/bin/python3"
#: Accounts that every system has: jobs run as their owners.
ANN, BOB = 1, 65534
SECRET = "SECRET-9d1c"
LOSS = "0.31337"
MIB = 1 << 20

#: method, path, body (or `@N`: N bytes of a body that is wrong everywhere), how many at once; prints [status, text]s.
CALLS = """
import json, socket, sys, threading
at, method, path, body, times = sys.argv[1:6]
body = ('{"jobs":[' + '1,' * ((int(body[1:]) - 12) // 2) + '1]}' if body.startswith('@') else body).encode()
found = []
def call():
    peer = socket.socket(socket.AF_UNIX); peer.settimeout(100); peer.connect(at)
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
    found.append([int(head.split()[1]) if head else 0, text.decode()])
threads = [threading.Thread(target=call) for _ in range(int(times))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(found))
"""
#: As root, so that all is imported (the interpreter may live in root's home), and then the same as the user.
SCREEN = """
import os, sys
from horae.cli import main
uid, commands = int(sys.argv[1]), [words.split() for words in sys.argv[2:]]
for words in commands:
    main(words)
os.setgroups([]); os.setgid(uid); os.setuid(uid)
print("AS-THE-USER", flush=True)
for words in commands:
    main(words)
"""


@dataclass
class Day:
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def socket(self) -> Path:
        return self.folder / "a.sock"

    @property
    def operator(self) -> Client:
        return Client(self.socket, timeout_s=60)

    def begins(self, uid: int, method: str, path: str, body: str = "", times: int = 1) -> subprocess.Popen[str]:
        who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", PYTHON, "-I", "-c", CALLS]
        words = [str(self.socket), method, path, body, str(times)]
        return subprocess.Popen([*who, *words], stdout=subprocess.PIPE, text=True, cwd="/", env={})

    def calls(self, uid: int, method: str, path: str, body: Any = "") -> tuple[int, str]:
        asked = self.begins(uid, method, path, body if isinstance(body, str) else json.dumps(body))
        out, _ = asked.communicate(timeout=120)
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

    def memory(self, key: str) -> int:
        (line,) = [x for x in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if x.startswith(key)]
        return int(line.split()[1]) << 10


@pytest.fixture(scope="module")
def day() -> Iterator[Day]:
    folder = Path(tempfile.mkdtemp(prefix="horae-day-"))
    try:
        with serving(folder) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@contextmanager
def serving(folder: Path) -> Iterator[Day]:
    """An arbiter whose state, jobs and socket are in `folder`."""
    folder.chmod(0o755)
    (folder / "config.yaml").write_text(
        f"state_dir: {folder}/state\napi: {{socket: {folder}/a.sock}}\nrounds: {{tick_s: 0.5, busy_s: 0.2}}\n"
        f"cluster: {{adapter: local, options: {{state: {folder}/local, nodes: 'v100:1x4'}}}}\n"
        "pools: [{name: main, policy: max-min, mode: enforce}]\n"
    )
    command = [str(Path(sys.executable).with_name("horae")), "serve", str(folder / "config.yaml")]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
    made = Day(folder, process)
    try:
        eventually(made.socket.exists)
        eventually(lambda: made.operator.status()["nodes"])
        yield made
        made.ends(*(job["id"] for job in made.operator.status()["jobs"]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


ABSURD = [
    '{"command":["x"],"gpus":1' + "0" * 400 + "}",
    '{"command":["x"],"gpus":1,"throughput":{"v100":{"1' + "0" * 400 + '":1.0,"1":1.0}}}',
    '{"command":["x"],"gpus":1,"memory_per_gpu":1' + "0" * 400 + "}",
    '{"command":["x"],"gpus":1,"iterations":5e-324,"throughput":{"v100":{"1":1e308}}}',
    '{"command":["x"],"gpus":1,"iterations":1e308,"throughput":{"v100":{"1":5e-324}}}',
]


def test_absurd_numbers_are_refused_and_others_jobs_start(day: Day) -> None:
    for body in ABSURD:
        status, text = day.calls(ANN, "POST", "/v1/jobs", body)
        assert status == 422, f"{body[:120]}: {status} {text[:300]}"
    job = day.submits(BOB, command=["/bin/sleep", "600"])
    eventually(lambda: day.operator.job(job)["state"] == "running")
    assert not [a for a in day.operator.status()["alerts"] if a["what"].startswith(("policy", "bug"))]
    day.ends(job)


def test_refused_bodies_cost_what_their_size_says_and_others_are_answered(day: Day) -> None:
    assert day.calls(ANN, "POST", "/v1/jobs", "@4000")[0] == 422  # what a first refusal loads is not of these
    before = day.memory("VmRSS:")
    Path(f"/proc/{day.process.pid}/clear_refs").write_text("5")  # the peak begins here
    attack = day.begins(ANN, "POST", "/v1/jobs", f"@{4 * MIB - 1000}", times=8)
    asked = 0
    while attack.poll() is None:
        assert day.calls(BOB, "GET", "/v1/about")[0] == 200
        asked += 1
    assert asked
    assert attack.stdout is not None
    codes = [status for status, _ in json.loads(attack.stdout.read())]
    assert len(codes) == 8
    assert set(codes) <= {422, 503}, codes
    assert 422 in codes
    assert day.memory("VmHWM:") - before < 200 * MIB


def test_what_is_planted_in_a_job_never_shows_to_others(day: Day) -> None:
    lines = "".join(
        f"[horae] step={n}/4000 loss={LOSS}{n} iter_s=0.01 world=1 epoch=1 t={n}.5\\n" for n in range(1, 40)
    )
    says = f"printf '{lines}'; echo Traceback {SECRET}-line; sleep 600"
    job = day.submits(
        BOB, name="planted", command=["/bin/sh", "-c", says, f"--key={SECRET}-command"], env={"TOKEN": f"{SECRET}-env"},
        model=f"{SECRET}-model", extra={"note": f"{SECRET}-extra"}, checkpoint=f"/tmp/{SECRET}-checkpoint",
    )  # fmt: skip
    day.calls(BOB, "POST", f"/v1/jobs/{job}/hold", {"why": f"{SECRET}-why"})
    day.calls(BOB, "POST", f"/v1/jobs/{job}/unhold", {})
    eventually(lambda: LOSS in json.dumps(day.operator.job(job)["loss"]))
    eventually(lambda: any(e["kind"] == "measured" for e in day.operator.history(job=job)))
    paths = ["/v1/status?losses=true&ended=true", f"/v1/jobs/{job}", f"/v1/jobs/{job}/explain", "/v1/history",
             f"/v1/history?job={job}", "/v1/apps", "/metrics", "/v1/about"]  # fmt: skip
    for path in paths:
        status, text = day.calls(ANN, "GET", path)
        assert status == 200
        assert SECRET not in text, path
        assert LOSS not in text, path
    seen = [day.calls(BOB, "GET", path)[1] for path in paths[:4]]
    assert all(SECRET in text for text in seen), "what its owner does not see either proves nothing"
    assert LOSS in seen[0]
    assert day.calls(ANN, "GET", f"/v1/jobs/{job}/log")[0] == 403
    day.ends(job)


EVIL = "\x1b]0;PWNED\x07\x1b[2J\u009b2J\u202e"
RAW = [b"\x1b]", b"\x1b[2J", b"\x07", "\u009b".encode(), "\u202e".encode()]


def test_no_text_of_a_user_drives_anothers_terminal(day: Day) -> None:
    told = {
        "name": EVIL, "app": EVIL, "model": EVIL, "tenant": EVIL, "env": {"X": EVIL}, "extra": {"x": EVIL},
        "cwd": f"/{EVIL}", "checkpoint": f"/{EVIL}",
    }  # fmt: skip
    taken = []
    evil_command = {
        "gpus": 1,
        "cwd": "/tmp",
        "command": ["/bin/sh", "-c", f"printf '%s\n' 'Traceback {EVIL}'; sleep 600", EVIL],
    }
    for change in ({}, *({key: value} for key, value in told.items())):
        status, text = day.calls(ANN, "POST", "/v1/jobs", {**evil_command, **change})
        assert status in (200, 403, 422), text
        taken += json.loads(text)["jobs"] if status == 200 else []
    assert taken, "some of it is data, and taken"
    for job in taken:
        eventually(lambda job=job: day.operator.job(job)["state"] == "running")
        status, text = day.calls(ANN, "POST", f"/v1/jobs/{job}/hold", {"why": EVIL})
        assert status == 422, text
    commands = ["status", "status --long --all", "history", f"explain {taken[0]}", "status --tenants", "apps"]
    shown = on_a_terminal(day, BOB, commands)
    open("/tmp/shown","wb").write(shown)
    assert b"PWNED" in shown.partition(b"AS-THE-USER")[0], "root sees it, written out"
    assert taken[0].encode() in shown.partition(b"AS-THE-USER")[2]
    for raw in RAW:
        at = shown.find(raw)
        assert at < 0, shown[max(at - 200, 0) : at + 100]
    day.ends(*taken)


def on_a_terminal(day: Day, uid: int, commands: Sequence[str]) -> bytes:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "HORAE_SOCKET": str(day.socket), "TERM": "xterm-256color", "HOME": "/"}
    environment["COLUMNS"] = "400"  # nothing is left out for want of room
    command = [sys.executable, "-c", SCREEN, str(uid), *commands]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd="/", env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the terminal's end, on Linux
            os.close(ours)
        assert process.wait(60) == 0, shown[-2000:]
    return shown


# --- a disk that a job fills ----------------------------------------------------------------------------------

FLOOD = "import sys\nwhile True: sys.stdout.write('x' * 4000 + chr(10))"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """12 MB, as the documented layout has it: state and jobs on one disk."""
    folder = Path(tempfile.mkdtemp(prefix="horae-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "horae-test", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def test_a_jobs_output_never_makes_the_journal_unwritable(small_disk: Path) -> None:
    """It asks for no limit and writes for ever: what would fill the disk is dropped, and requests are still taken."""
    with serving(small_disk) as day:
        loud = day.submits(ANN, name="loud", command=[PYTHON, "-c", FLOOD], extra={"log_limit_bytes": "0"})

        eventually(lambda: day.operator.job(loud)["state"] == "running")
        eventually(lambda: shutil.disk_usage(small_disk).free < MIB)
        quiet = day.submits(BOB, command=["/bin/true"])
        eventually(lambda: day.operator.job(quiet)["state"] == "completed")
        before = day.operator.about()["rounds"]
        eventually(lambda: day.operator.about()["rounds"] > before + 2)
        assert not [a for a in day.operator.status()["alerts"] if a["what"] in ("journal", "stalled")]
        free = shutil.disk_usage(small_disk).free
        assert free > MIB // 4, f"{free} bytes are left for the journal"
        day.operator.cancel(loud)
        eventually(lambda: day.operator.job(loud)["state"] == "cancelled")
