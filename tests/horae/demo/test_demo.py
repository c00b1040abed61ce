"""The demo from end to end: real processes, a real arbiter, a real account, and nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from horae.demo.cluster import gpus
from horae.demo.scenario import Framework, command, fitted, scenario, torch_python
from tests.waiting import eventually

HORAE = [sys.executable, "-c", "import sys; from horae.cli import main; sys.exit(main())"]


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the demo may put its things, with a short path: whatever names it is the demo's."""
    path = tmp_path_factory.mktemp("d")
    yield path
    for process in ours(path):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def ours(home: Path) -> dict[psutil.Process, str]:
    """Living processes that have something to do with the demo below `home`, with their commands."""
    found = {}
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            words = [*command, *process.environ().values()]
            if process.pid != os.getpid() and any(str(home) in word for word in words):
                found[process] = " ".join(command)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return {p: c for p, c in found.items() if p.is_running() and living(p)}


def living(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def trains(home: Path) -> bool:
    return any("horae.demo.trainers.mlp" in command for command in ours(home).values())


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(home)}
    pipe = subprocess.PIPE
    return subprocess.Popen([*HORAE, "demo", *words], stdout=pipe, stderr=pipe, text=True, env=environment)


def nothing_left(home: Path) -> None:
    assert ours(home) == {}
    assert list(home.iterdir()) == []


@pytest.mark.timeout(1200)
def test_the_demo_plays_to_its_end(home: Path, tmp_path: Path) -> None:
    """Long enough for every job to come, to be resized and to finish, on a machine that is busy with other tests."""
    picture = tmp_path / "demo.png"
    with start(home, "--headless", "--json", "--seconds", "45", "--plot", str(picture)) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert (found["schema"], found["ok"], found["lost"], found["interrupted"]) == (1, True, [], False)
    assert Counter(j["app"] for j in found["jobs"] if j["app"].startswith("tune")) == {"tune-1": 4, "tune-0": 2}
    assert len(found["jobs"]) == 7 + 6
    assert {t["name"] for t in found["tenants"]} == {"vision", "speech", "nlp"}
    assert found["gpus"] == 12
    completed = [j for j in found["jobs"] if j["state"] == "completed"]
    assert completed, err
    for job in completed:
        assert job["steps"] == job["total"]
        losses = [loss for _, loss, _ in job["losses"]]
        assert losses[-1] < losses[0]
    assert any(len(set(job["sizes"])) > 1 for job in found["jobs"])
    assert found["resizes"]["count"] > 0
    assert all(j["skipped_steps"] == j["restarts_before_checkpoint"] == 0 for j in found["jobs"])
    assert sum(t["gpu_s"] for t in found["tenants"]) > 0
    assert [(a["name"], a["scheduler"], len(a["trials"])) for a in found["apps"]] == [
        ("speech/tune-1", "hyperband", 4),
        ("speech/tune-0", "hyperband", 2),
    ]
    for trial in (t for a in found["apps"] for t in a["trials"]):
        assert 0.001 <= trial["parameters"]["rate"] <= 0.3
        if trial["state"] == "cancelled":
            assert "keeps the best 1 of" in trial["why"] or trial["why"] == "the demo is over"
    assert picture.read_bytes().startswith(b"\x89PNG")
    nothing_left(home)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_leaves_nothing_behind(home: Path, how: signal.Signals) -> None:
    with start(home, "--headless", "--seconds", "180") as process:
        eventually(lambda: trains(home))
        process.send_signal(how)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "jobs completed" in out
    assert "Traceback" not in err
    nothing_left(home)


@pytest.mark.timeout(1200)
def test_a_closed_terminal_leaves_nothing_behind(home: Path) -> None:
    """The live picture in a real terminal, which then goes away."""
    ours_end, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TMPDIR": str(home), "TERM": "xterm-256color"}
    setup = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        "from horae.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", setup, "demo", "--seconds", "180"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while b"mlp-128" not in shown or not trains(home):
            shown = (shown + os.read(ours_end, 65536))[-200_000:]
        assert b"export HORAE_SOCKET=" in shown, "what a second terminal needs is on the screen"
        os.close(ours_end)
        process.wait(timeout=300)
    nothing_left(home)


@pytest.mark.timeout(1200)
def test_other_terminals_can_look_at_it(home: Path) -> None:
    with start(home, "--headless", "--seconds", "180") as process:
        assert process.stderr is not None
        socket = re.search(r"HORAE_SOCKET=(\S+)", process.stderr.readline())
        assert socket is not None
        environment = {**os.environ, "HORAE_SOCKET": socket[1]}

        def status() -> str:
            look = [*HORAE, "status", "--noheader"]
            return subprocess.run(look, capture_output=True, text=True, check=False, env=environment).stdout

        eventually(lambda: "mlp-128" in status())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    nothing_left(home)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--policy", "fiffo"), "fifo"),
        (("--framework", "abacus"), "numpy"),
        (("--nodes", "v100"), "TYPE:NODESxGPUS"),
        (("--seconds", "1"), "--seconds"),
    ],
)
def test_what_cannot_be_played_is_told_at_once(home: Path, words: tuple[str, ...], part: str) -> None:
    with start(home, "--headless", *words) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode in (2, 3)
    assert part in re.sub(r"\x1b\[[\d;]*m", "", err)
    nothing_left(home)


@pytest.mark.real
@pytest.mark.timeout(1200)
def test_pytorch_plays_too(home: Path) -> None:
    if torch_python() is None:
        pytest.skip("PyTorch is not installed (apt-get install python3-torch)")
    # Long enough for one to complete where its import alone takes ten seconds, a dozen times side by side.
    with start(home, "--headless", "--json", "--seconds", "120", "--framework", "torch") as process:
        out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert (found["framework"], found["lost"]) == ("torch", [])
    assert any(j["state"] == "completed" for j in found["jobs"]), err
    nothing_left(home)


# --- the scenario ------------------------------------------------------------------------------------------


def test_the_play_fits_any_cluster() -> None:
    play = scenario(90)
    assert gpus(play.nodes) == 12
    assert len(play.arrivals) >= 6
    assert {a.tenant for a in play.arrivals} == set(play.tenants)
    for arrival in fitted(play, 1).arrivals:
        wanted = arrival.gpus
        sizes = [wanted] if isinstance(wanted, int) else wanted.get("allowed") or [wanted["min"], wanted["max"]]
        assert set(sizes) == {1}


def test_a_shorter_play_has_less_work_and_earlier_arrivals() -> None:
    long, short = scenario(90).arrivals, scenario(45).arrivals
    assert all(s.at_s == pytest.approx(a.at_s / 2) for a, s in zip(long, short, strict=True))
    assert sum(s.steps for s in short) == pytest.approx(sum(a.steps for a in long) / 2, rel=0.1)
    assert "--steps" in command(short[0], Framework.NUMPY)
