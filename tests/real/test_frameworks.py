"""Real frameworks, profiled while they run, against the times that the processes themselves recorded.

Each training prints in one of the styles its framework's users know. The log is read piece by piece as it is
written; what was read must be within 5 % of what happened. The trainings pace themselves (a busy machine is not
what is measured) and their first steps are slow, so that a warm-up is there to be found.
"""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from profiler.points import RunSummary
from profiler.reader import LogReader
from profiler.rules import load
from profiler.summary import summarise
from tests.real import frameworks

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]
TRAINERS = Path(__file__).parent / "trainers"
WITHIN = 0.05


Started = tuple[list[str], dict[str, str]]


def watch(gang: list[Started], log: Path, terminal: bool = False) -> tuple[RunSummary, list[float]]:
    """Run a training, read its log live; the summary at the end, and the positions seen on the way."""
    reader, seen = LogReader(load()), list[float]()
    copier: threading.Thread | None = None
    with log.open("wb") as out:
        if terminal:
            processes, copier = _under_a_terminal(*gang[0], log)
        else:
            processes = [subprocess.Popen(c, stdout=out, stderr=subprocess.STDOUT, env=env) for c, env in gang]
    try:
        with log.open("rb") as f:
            ended = False
            while not ended:
                ended = all(p.poll() is not None for p in processes)
                if ended and copier is not None:
                    copier.join(10)
                reader.feed(f.read())
                runs = reader.runs()
                if runs and runs[-1].last_iteration is not None:
                    seen.append(runs[-1].last_iteration)
                time.sleep(0.0 if ended else 0.2)
    finally:
        for p in processes:
            p.kill()
            p.wait()
    assert [p.returncode for p in processes] == [0] * len(processes), log.read_text(errors="replace")[-3000:]
    runs = reader.runs()
    assert len(runs) == 1, [(r.format, r.first_line, r.last_line) for r in runs]
    return summarise(runs[0]), seen


def _under_a_terminal(
    command: list[str], env: dict[str, str], log: Path
) -> tuple[list[subprocess.Popen[bytes]], threading.Thread]:
    """The process writes to a pseudo-terminal, as in a shell; what it wrote goes to the log."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=env)
    os.close(theirs)

    def copy() -> None:
        with log.open("ab", buffering=0) as out:
            while True:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # what Linux says when the other end is closed
                    break
                if not piece:
                    break
                out.write(piece)
        os.close(ours)

    copier = threading.Thread(target=copy, daemon=True)
    copier.start()
    return [process], copier


def torch_run(style: str, tmp_path: Path, torchrun: bool = False) -> tuple[RunSummary, list[float], dict[str, Any]]:
    """Two ranks: started by torchrun, which prefixes their lines, or as a supervisor starts them."""
    torch = frameworks.or_skip(frameworks.with_torch)
    record, log = tmp_path / "record.json", tmp_path / "train.log"
    trainer = [str(TRAINERS / "torch_ddp.py"), "--style", style, "--record", str(record)]
    port = str(free_port())
    if torchrun:
        # 1: standard output. (This torch's 0 and 3 do not work with Python 3.11.)
        launcher = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--redirects", "1", "--tee", "1"]
        command = [torch.python, *launcher, "--master_port", port, *trainer]
        gang = [(command, torch.environment(TMPDIR=str(tmp_path)))]
    else:
        shape = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TMPDIR": str(tmp_path)}
        gang = [([torch.python, *trainer], torch.environment(RANK=str(r), **shape)) for r in range(2)]
    summary, seen = watch(gang, log)
    return summary, seen, json.loads(record.read_text())


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def keras_run(style: str, tmp_path: Path, terminal: bool = False) -> tuple[RunSummary, list[float], dict[str, Any]]:
    tensorflow = frameworks.or_skip(frameworks.with_tensorflow)
    record, log = tmp_path / "record.json", tmp_path / "train.log"
    command = [tensorflow.python, str(TRAINERS / "keras_fit.py"), "--style", style, "--record", str(record)]
    env = tensorflow.environment(TMPDIR=str(tmp_path), TERM="xterm", COLUMNS="120")
    summary, seen = watch([(command, env)], log, terminal)
    return summary, seen, json.loads(record.read_text())


def agrees(summary: RunSummary, recorded: dict[str, Any]) -> None:
    """Steps against the median step; where the log has means over epochs only, against those."""
    assert summary.iteration_time is not None
    if recorded.get("epochs"):
        steps = len(recorded["seconds"]) / len(recorded["epochs"])
        truth = median([seconds / steps for seconds, _ in recorded["epochs"][1:]])
    else:
        truth = median(recorded["seconds"])
    assert summary.iteration_time.median == pytest.approx(truth, rel=WITHIN)


def grew(seen: list[float]) -> None:
    """It was read while it ran: the position moved more than once."""
    assert len(set(seen)) >= 3


def test_imagenet_meters(tmp_path: Path) -> None:
    summary, seen, recorded = torch_run("imagenet", tmp_path)
    agrees(summary, recorded)
    grew(seen)
    assert summary.iterations is not None and summary.loss is not None
    assert (summary.iterations.last, summary.iterations.total, summary.iterations.scope) == (35, 40, "epoch")
    assert summary.loss.last[1] == pytest.approx(recorded["losses"][-1][1], rel=1e-3)
    assert summary.loss.n == len(recorded["losses"])
    assert summary.warm_up is not None


def test_a_log_with_timestamps_only(tmp_path: Path) -> None:
    summary, seen, recorded = torch_run("logged", tmp_path)
    agrees(summary, recorded)
    grew(seen)
    assert summary.iteration_time is not None and summary.iterations is not None
    assert summary.iteration_time.source == "timestamps"
    assert (summary.iterations.last, summary.iterations.total) == (75, 80)


def test_word_lm_by_two_ranks_with_prefixes(tmp_path: Path) -> None:
    summary, seen, recorded = torch_run("word-lm", tmp_path, torchrun=True)
    agrees(summary, recorded)
    grew(seen)
    assert summary.ranks == recorded["world"] == 2
    assert summary.loss is not None
    assert summary.loss.n == len(recorded["losses"])


def test_mnist_shows_positions_and_losses_but_no_time(tmp_path: Path) -> None:
    summary, seen, recorded = torch_run("mnist", tmp_path)
    grew(seen)
    assert summary.iteration_time is None
    assert summary.iterations is not None and summary.loss is not None
    assert (summary.iterations.unit, summary.iterations.last) == ("sample", 35 * 64)
    assert summary.loss.last[1] == pytest.approx(recorded["losses"][-1][1], abs=1e-5)


@pytest.mark.parametrize("terminal", [False, True], ids=["to a file", "to a terminal"])
def test_keras_bars(tmp_path: Path, terminal: bool) -> None:
    summary, seen, recorded = keras_run("bar", tmp_path, terminal)
    agrees(summary, recorded)
    grew(seen)
    assert summary.epochs is not None and summary.loss is not None
    assert (summary.epochs.last, summary.epochs.total, summary.epochs.iterations_per_epoch) == (3, 3, 30)
    assert summary.loss.last[1] == pytest.approx(recorded["epochs"][-1][1], abs=1e-3)
    assert summary.validation_loss is not None
    assert summary.validation_loss.n == 3


def test_keras_lines(tmp_path: Path) -> None:
    summary, _, recorded = keras_run("lines", tmp_path)
    agrees(summary, recorded)
    assert summary.loss is not None
    assert summary.loss.n == 3
    assert summary.loss.last[1] == pytest.approx(recorded["epochs"][-1][1], abs=1e-3)


def test_tf_estimator(tmp_path: Path) -> None:
    summary, seen, recorded = keras_run("estimator", tmp_path)
    agrees(summary, recorded)
    grew(seen)
    assert summary.iterations is not None
    assert summary.iterations.last in (80, 90)  # the last line, or the final checkpoint's step


def test_the_line_of_tensorflow_1_tutorials(tmp_path: Path) -> None:
    summary, seen, recorded = keras_run("loop", tmp_path)
    agrees(summary, recorded)
    grew(seen)
    assert summary.iterations is not None
    assert summary.iterations.last == 80


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v"]))
