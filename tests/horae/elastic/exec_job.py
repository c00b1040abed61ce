"""One job folder and its real supervisor, for tests that need to see processes live and die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from horae.elastic.supervisor.jobfolder import JobFolder
from horae.elastic.supervisor.processes import descendants

ROOT = Path(__file__).parents[3]
ELASTIC = ROOT / "horae" / "elastic"
PATIENCE_S = 120.0


def until(what: str, holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first true value of `holds`."""
    deadline = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {patience_s:g} s: {what}"
        time.sleep(0.01)
    return found


def gone(pid: int) -> bool:
    """Whether the process has ended (a zombie computes nothing)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class ExecJob:
    """A folder with a trainer given as Python source; `start` runs `horae-exec --job` on it."""

    def __init__(self, path: Path, source: str, **spec: Any) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / "trainer.py").write_text(textwrap.dedent(source))
        self.checkpoints = path / "checkpoints"
        self.spec = {
            "name": path.name,
            "command": [sys.executable, str(path / "trainer.py")],
            "env": {"PYTHONPATH": str(ROOT)},
            "cwd": str(path),
            "checkpoint": str(self.checkpoints),
            "retries": 0,
            "grace_s": 20.0,
            **spec,
        }
        (path / "spec.json").write_text(json.dumps(self.spec))
        self.folder = JobFolder(str(path))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, gpus: int = 1, *, through: tuple[str, ...] = (), env: Mapping[str, str] | None = None) -> None:
        """The next epoch, in the foreground (its keeper is `process`). `through`: words before the supervisor's."""
        epoch = self.folder.epoch() + 1
        self.folder.write_epoch(epoch)
        self.folder.withdraw_stop()
        state = {
            **{key: (self.folder.state() or {}).get(key) for key in ("checkpoint", "failures", "ran_s")},
            "epoch": epoch,
            "state": "starting",
            "allocation": {"n1": gpus},
            "slots": {"n1": list(range(gpus))},
        }
        self.folder.write_state(state)
        argv = [sys.executable, "-I", "-S", *through, str(ELASTIC), "--job", str(self.path)]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )

    def stop(self, grace_s: float = 20.0) -> None:
        self.folder.request_stop(self.folder.epoch(), grace_s)
        self.signal_supervisor(signal.SIGUSR1)

    @property
    def state(self) -> dict[str, Any]:
        return self.folder.state() or {}

    @property
    def log(self) -> str:
        path = self.path / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def supervisor(self) -> int:
        """Its process: known once it has written its own account over the one that `start` left for it."""
        return int(until(f"{self.path.name} has a supervisor", lambda: self.state.get("pid")))

    def signal_supervisor(self, number: int) -> None:
        os.kill(self.supervisor, number)

    def until_state(self, *words: str) -> dict[str, Any]:
        until(f"{self.path.name} {' or '.join(words)}", lambda: self.state.get("state") in words)
        return self.state

    def until_log(self, text: str, times: int = 1) -> None:
        until(f"{text!r} in the log of {self.path.name}", lambda: self.log.count(text) >= times)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """The supervisor's exit code, once it and its keeper have ended."""
        assert self.process is not None
        code = self.process.wait(patience_s)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def processes(self) -> set[int]:
        """Keeper, supervisor, ranks and whatever they made."""
        assert self.process is not None
        return {self.process.pid, *descendants(self.process.pid)}

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            (self.path / "cancel").touch()
            self.process.wait(PATIENCE_S)
        if self.process is not None and self.process.stderr is not None:
            self.process.stderr.close()


#: A trainer that counts, with the SDK; `body` runs within each step.
COUNTER = """
    import os, sys, time
    from horae import elastic

    count = [0]

    def save(folder):
        with open(os.path.join(folder, "count"), "w") as file:
            file.write(str(count[0]))

    def load(folder):
        with open(os.path.join(folder, "count")) as file:
            count[0] = int(file.read())

    training = elastic.Training(
        steps={steps}, global_batch=12, save=save, load=load,
        checkpoint_every_steps={every}, log_every_s=0.0, keep={keep},
    )
    {before}
    for step in training:
        time.sleep({step_s})
        count[0] += 1
        assert count[0] == step.number + 1
        step.report(1.0 / count[0])
        {body}
    sys.stdout.flush()
    os.write(1, b"done %d\\n" % count[0])  # in one piece: other ranks write there too
"""


def counter(
    *,
    steps: int = 1_000_000,
    every: int | None = 5,
    keep: int = 2,
    step_s: float = 0.01,
    before: str = "",
    body: str = "",
) -> str:
    return COUNTER.format(
        steps=steps, every=every, keep=keep, step_s=step_s, before=before or "pass", body=body or "pass"
    )


FORKS_AWAY = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in (0, 1, 2):
                os.close(fd)
            time.sleep(600)
        os._exit(0)
    os.wait()
    print("away", flush=True)
    {then}
"""
