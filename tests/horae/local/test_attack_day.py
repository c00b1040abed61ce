"""An attacker's day: `horae serve` as root on the local cluster, one real user who attacks and one who works.

The users speak to the socket by system Python and raw HTTP; what people see is looked at on a real pseudo-terminal.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.horae.local.attack_day import ACCOUNT, ANN, BOB, CHANGES, MIB, PYTHON, Day, serving
from tests.waiting import eventually

pytestmark = pytest.mark.root

SECRET = "SECRET-9d1c"
LOSS = "0.31337"

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


@pytest.fixture(scope="module", params=["", ACCOUNT], ids=["root", "account"])
def day(request: pytest.FixtureRequest) -> Iterator[Day]:
    """An arbiter that is root as a whole, and one that has an account of its own and a helper."""
    folder = Path(tempfile.mkdtemp(prefix="horae-day-"))
    try:
        with serving(folder, request.param) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def rounds_are_watched(day: Day, request: pytest.FixtureRequest) -> Iterator[None]:
    with day.watched(request.node):
        yield


ABSURD = [
    '{"comm' + "[" * 217,
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


def test_no_line_of_a_log_stops_the_rounds(day: Day) -> None:
    """Ranks, steps and stamps of thousands of digits, which Python reads as no number."""
    digits = "9" * 5000
    script = (
        "import time\nd = '9' * 5000\n"
        "for n in range(9): print(f'rank {d}: step {n} loss 2.0\\n[rank{d}]: step {n} loss 2.0\\n{d} 1.0')\n"
        "time.sleep(600)"
    )
    job = day.submits(ANN, command=[PYTHON, "-u", "-c", script])
    eventually(lambda: digits in day.calls(ANN, "GET", f"/v1/jobs/{job}/log")[1])
    eventually(lambda: day.operator.job(job)["loss"] == 2.0)
    other = day.submits(BOB, command=["/bin/true"])
    eventually(lambda: day.operator.job(other)["state"] == "completed")
    assert not [a for a in day.operator.status()["alerts"] if a["what"].startswith("bug")]
    day.ends(job)


def test_a_log_that_lies_tells_of_its_own_job_alone(day: Day) -> None:
    """Numbers that are none, steps backwards, lines of ours that we did not write, and others who are to be blamed."""
    other = day.submits(BOB, name="honest", command=["/bin/sleep", "600"])
    lies = (
        "[horae] step=10/100 loss=nan iter_s=0.1", "[horae] step=1e308/1e308 loss=1e308 iter_s=1e-300",
        "[horae] step=50/100 loss=-inf iter_s=nan", "[horae] step=5/100 loss=2.0 iter_s=-4",
        f"[horae] step={'9' * 400}/3 loss=2.0 iter_s=0.1", f"job {other}: [horae] step=7/7 loss=0",
        "[horae-exec] was killed by bob", "[horae-exec] cannot run x: [Errno 2] No such file or directory: '/bin/x'",
        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED DUE TO NODE FAILURE ***", "\x1b]0;PWNED\x07\x1b[2J",
    )  # fmt: skip
    script = (
        f"import sys\nfor line in {lies!r}: print(line)\nprint('A' * 20_000_000)\nfor line in {lies!r}: print(line)"
    )
    liar = day.submits(ANN, command=[PYTHON, "-u", "-c", f"{script}\nsys.exit(3)"])
    eventually(lambda: day.operator.job(liar)["ended"])
    eventually(lambda: any(e["kind"] == "measured" for e in day.operator.history(job=liar)))
    (told,) = [c["text"] for c in day.operator.explain(liar)["causes"] if c["what"] == "log"]
    assert "there is no program" not in told and "bob" not in told
    assert not told.startswith("its node failed")

    def never(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    for path in (
        "/v1/status?ended=true&losses=true",
        f"/v1/jobs/{liar}/explain",
        f"/v1/history?job={liar}",
        "/v1/apps",
    ):
        status, text = day.calls(ANN, "GET", path)
        assert status == 200
        json.loads(text, parse_constant=never)
    honest = day.operator.job(other)
    assert (honest["state"], honest["step"] or 0, honest["loss"]) == ("running", 0, None)
    assert not [a for a in day.operator.status()["alerts"] if a["what"].startswith(("bug", "policy", "cluster"))]
    day.ends(other)


def test_nobody_gets_at_anothers_files_by_naming_them(day: Day, open_to_all: Path) -> None:
    """Environment, checkpoint and folder of a job are reached as its owner: also one that became a link meanwhile."""
    private, mine = open_to_all / "private", open_to_all / "mine"
    for folder, owner in ((private, BOB), (mine, ANN)):
        folder.mkdir(mode=0o700)
        os.chown(folder, owner, owner)
    (private / "typed.json").write_text(
        json.dumps({"env": {"TOKEN": SECRET}, "whole": True, "umask": 63, "limits": {}})
    )
    os.chown(private / "typed.json", BOB, BOB)
    (private / "typed.json").chmod(0o600)
    (mine / "checkpoints").symlink_to(private)
    reads = "env; cat $HORAE_CHECKPOINT/*; echo planted > $HORAE_CHECKPOINT/planted"
    jobs = [
        day.submits(ANN, command=["/bin/sh", "-c", reads], typed=str(private / "typed.json")),
        day.submits(ANN, command=["/bin/sh", "-c", reads], checkpoint=str(mine / "checkpoints")),
        day.submits(ANN, command=["/bin/sh", "-c", reads], cwd=str(private), checkpoint=str(private)),
    ]
    for job in jobs:
        eventually(lambda job=job: day.operator.job(job)["ended"])  # type: ignore[misc]
        assert SECRET not in day.calls(ANN, "GET", f"/v1/jobs/{job}/log")[1]
    assert sorted(path.name for path in private.iterdir()) == ["typed.json"]


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


# --- rounds meanwhile -----------------------------------------------------------------------------------------

#: More connections than one user may have, all silent, and made anew as they are closed.
CONNECTIONS = """
import socket, sys, time
held = []
while True:
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.connect(sys.argv[1])
        held.append(peer)
    except OSError:
        pass
    held = held[-900:]
    time.sleep(0.005)
"""
#: As fast as it can, and gone at once.
FLOOD = """
import socket, sys, threading
def connect():
    while True:
        with socket.socket(socket.AF_UNIX) as peer:
            try:
                peer.connect(sys.argv[1])
            except OSError:
                pass
for _ in range(4):
    threading.Thread(target=connect).start()
"""
#: Every file of a job's folder as a terabyte of nothing, and its log one that grows and shrinks for ever.
LARGE = """
import os, sys
os.chdir(sys.argv[1])
for name in "spec.json epoch stop cancel state.json lock output.log output.log.1 reason released".split():
    with open("x", "wb") as made:
        made.truncate(1 << 40)
    os.rename("x", name)
with open("output.log", "ab", buffering=0) as log:
    step = 0
    while True:
        log.write(b"step %d loss 1.0\\n" % step * 4000)
        step += 1
        if step % 2000 == 0:
            log.truncate(0)
"""
#: Lines of the shape that takes the profiler longest.
LINES = "import time\nfor _ in range(4000): print('step 1 ' * 300)\ntime.sleep(600)"


@pytest.mark.parametrize("attack", ["connections", "flood", "lines", "files", "large"])
def test_rounds_go_on_and_others_jobs_run(day: Day, attack: str) -> None:
    command = [PYTHON, "-c", LINES] if attack == "lines" else ["/bin/sleep", "600"]
    hers = day.submits(ANN, command=command)
    eventually(lambda: day.operator.job(hers)["state"] == "running")
    programs = {
        "connections": [(CONNECTIONS, day.socket)],
        "flood": [(FLOOD, day.socket)] * 3,
        "lines": [],
        "files": [(CHANGES, day.folder / "local/jobs" / hers)],
        "large": [(LARGE, day.folder / "local/jobs" / hers)],
    }
    Path(f"/proc/{day.process.pid}/clear_refs").write_text("5")  # the peak of its memory begins here
    before = day.memory("VmRSS:")
    attackers = [day.runs(ANN, program, at) for program, at in programs[attack]]
    try:
        for _ in range(1 if attack == "flood" else 3):
            job = day.submits(BOB, command=["/bin/true"])
            eventually(lambda job=job: day.operator.job(job)["state"] == "completed")
        assert [each.poll() for each in attackers] == [None] * len(attackers), "the attack goes on"
    finally:
        for each in attackers:
            each.kill()
            each.wait()
    assert not [a for a in day.operator.status()["alerts"] if a["what"] in ("bug", "cluster", "journal", "stalled")]
    assert day.memory("VmHWM:") - before < 200 * MIB
    day.ends(hers)
