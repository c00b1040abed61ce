"""Real frameworks, profiled while they run, against the times that the processes themselves recorded.

Each training is a job of the local cluster and prints in one of the styles its framework's users know. Its log is
read piece by piece as it is written, by the reader and by the arbiter's hook; what was read must be within 5 % of
what happened. The trainings pace themselves (a busy machine is not what is measured) and their first steps are slow,
so that a warm-up is there to be found.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from horae.arbiter.observe.log_profiles import LogProfiles
from horae.journal.measured import Measurement
from horae.local import connect
from horae.port import ClusterPort, JobState, attend
from horae.spec import JobSpec
from policy.model import GpuRange
from profiler.estimates.summary import summarise
from profiler.model import RunSummary
from profiler.rules.book import load
from profiler.runs.reader import LogReader
from tests.real import frameworks
from tests.real.frameworks import Framework

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("frameworks")]
TRAINERS = Path(__file__).parent / "trainers"
WITHIN = 0.05
PATIENCE_S = 720.0


@dataclass
class Watched:
    """What was known of a training at its end, and the positions seen on the way."""

    summary: RunSummary
    measured: Measurement
    recorded: dict[str, Any]
    seen: list[float]


def watch(framework: Framework, command: Sequence[str], gpus: int, folder: Path) -> Watched:
    """Run a training as a job of the local cluster and profile it live, as the arbiter does."""
    record = folder / "record.json"
    spec = JobSpec(
        name="train",
        command=(*command, "--record", str(record)),
        gpus=GpuRange(gpus, gpus, gpus),
        env={**framework.variables(), "TMPDIR": str(folder)},
        cwd=str(folder),
        elastic=False,
        model="test",
        retries=0,
    )
    port = connect({"state": folder / "state", "nodes": "v100:1x2"})
    profiles, reader, offset = LogProfiles(0, budget_s=60.0), LogReader(load()), 0
    measured, seen = Measurement(), list[float]()
    port.submit("train", spec)
    port.start("train", {"v100-1": gpus}, 1)
    deadline = time.monotonic() + PATIENCE_S
    try:
        ended = False
        while not ended:
            assert time.monotonic() < deadline, _said(port)
            observation = attend(port)
            (job,) = observation.jobs
            ended = job.state.ended
            measured = profiles.update(observation, port.read_log).get("train", measured)
            if (chunk := port.read_log("train", offset)).data:
                reader.feed(chunk.data)
                offset = chunk.next_offset
                seen += [r.last_iteration for r in reader.runs()[-1:] if r.last_iteration is not None]
            ended = ended and not chunk.data
            time.sleep(0.0 if ended else 0.2)
        assert job.state is JobState.COMPLETED, _said(port)
    finally:
        port.cancel("train")
        port.close()
    runs = reader.runs()
    assert len(runs) == 1, [(r.format, r.first_line, r.last_line) for r in runs]
    return Watched(summarise(runs[0]), measured, json.loads(record.read_text()), seen)


def _said(port: ClusterPort) -> str:
    return port.read_log("train", 0).data.decode(errors="replace")[-3000:]


def torch_run(style: str, tmp_path: Path, torchrun: bool = False) -> Watched:
    """Two ranks: one a GPU as the supervisor starts them, or by torchrun, which prefixes their lines."""
    torch = frameworks.or_skip(frameworks.with_torch)
    trainer = [str(TRAINERS / "torch_ddp.py"), "--style", style]
    if torchrun:
        # 1: standard output. (This torch's 0 and 3 do not work with Python 3.11.)
        launcher = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--redirects", "1", "--tee", "1"]
        port = ["--master_addr", "127.0.0.1", "--master_port", str(free_port())]
        return watch(torch, [torch.python, *launcher, *port, *trainer], 1, tmp_path)
    return watch(torch, [torch.python, *trainer], 2, tmp_path)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def keras_run(style: str, tmp_path: Path, terminal: bool = False) -> Watched:
    tensorflow = frameworks.or_skip(frameworks.with_tensorflow)
    trainer = [tensorflow.python, str(TRAINERS / "keras_fit.py"), "--style", style]
    if terminal:  # as in a shell: bars are redrawn
        trainer = [sys.executable, "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)", *trainer]
    return watch(tensorflow, trainer, 1, tmp_path)


def truths(recorded: dict[str, Any], counted: int) -> list[float]:
    """What the process measured of its seconds a step, in the ways in which a log may tell them.

    A log with a line a step tells of steps: their median, or that of the last `counted`, those before being warm-up.
    One of means tells of an epoch with its slow first step (a line an epoch) or without it (Keras' bar, redrawn): on a
    quiet machine all are the same number.
    """
    steps, epochs = recorded["seconds"], recorded.get("epochs")
    if not epochs:
        return [median(steps), median(steps[-counted:])]
    length = len(steps) // len(epochs)
    later = [steps[i : i + length] for i in range(length, len(steps), length)]
    return [median(steps), *(s / length for s, _ in epochs[1:]), *(fmean(each[1:]) for each in later)]


def agrees(found: Watched) -> None:
    """The time told lies among what was measured: a hiccup of the machine moves means, and not all of them alike."""
    assert found.summary.iteration_time is not None
    measured = truths(found.recorded, found.summary.iteration_time.n)
    least, most = min(measured), max(measured)
    assert least * (1 - WITHIN) <= found.summary.iteration_time.median <= most * (1 + WITHIN)
    ((rate,),) = [list(table.values()) for table in found.measured.rates.values()]
    if "epochs, not iterations" not in " ".join(found.measured.notes):
        assert least * (1 - 2 * WITHIN) <= 1 / rate <= most * (1 + 2 * WITHIN)


def grew(found: Watched) -> None:
    """It was read while it ran: the position moved more than once."""
    assert len(set(found.seen)) >= 3


def test_imagenet_meters(tmp_path: Path) -> None:
    found = torch_run("imagenet", tmp_path)
    agrees(found)
    grew(found)
    iterations, loss, losses = found.summary.iterations, found.summary.loss, found.recorded["losses"]
    assert iterations is not None and loss is not None
    assert (iterations.last, iterations.total, iterations.scope) == (35, 40, "epoch")
    assert loss.last[1] == pytest.approx(losses[-1][1], rel=1e-3)
    assert loss.n == len(losses)
    assert found.summary.warm_up is not None
    assert found.measured.done == 75


def test_a_log_with_timestamps_only(tmp_path: Path) -> None:
    found = torch_run("logged", tmp_path)
    agrees(found)
    grew(found)
    iterations, seconds = found.summary.iterations, found.summary.iteration_time
    assert iterations is not None and seconds is not None
    assert seconds.source == "timestamps"
    assert (iterations.last, iterations.total) == (75, 80)


def test_word_lm_by_two_ranks_with_prefixes(tmp_path: Path) -> None:
    found = torch_run("word-lm", tmp_path, torchrun=True)
    agrees(found)
    grew(found)
    assert found.summary.ranks == found.recorded["world"] == 2
    assert found.summary.loss is not None
    assert found.summary.loss.n == len(found.recorded["losses"])


def test_mnist_shows_positions_and_losses_but_no_time(tmp_path: Path) -> None:
    found = torch_run("mnist", tmp_path)
    grew(found)
    iterations, loss = found.summary.iterations, found.summary.loss
    assert found.summary.iteration_time is None
    assert iterations is not None and loss is not None
    assert (iterations.unit, iterations.last) == ("sample", 35 * 64)
    assert loss.last[1] == pytest.approx(found.recorded["losses"][-1][1], abs=1e-5)
    assert any("shows no speed" in note for note in found.measured.notes)


@pytest.mark.parametrize("terminal", [False, True], ids=["to a file", "to a terminal"])
def test_keras_bars(tmp_path: Path, terminal: bool) -> None:
    found = keras_run("bar", tmp_path, terminal)
    agrees(found)
    grew(found)
    epochs, loss, held_out = found.summary.epochs, found.summary.loss, found.summary.validation_loss
    assert epochs is not None and loss is not None and held_out is not None
    assert (epochs.last, epochs.total, epochs.iterations_per_epoch) == (3, 3, 30)
    assert loss.last[1] == pytest.approx(found.recorded["epochs"][-1][1], abs=1e-3)
    assert held_out.n == 3


def test_keras_lines(tmp_path: Path) -> None:
    found = keras_run("lines", tmp_path)
    agrees(found)
    assert found.summary.loss is not None
    assert found.summary.loss.n == 3
    assert found.summary.loss.last[1] == pytest.approx(found.recorded["epochs"][-1][1], abs=1e-3)


def test_tf_estimator(tmp_path: Path) -> None:
    found = keras_run("estimator", tmp_path)
    agrees(found)
    grew(found)
    assert found.summary.iterations is not None
    assert found.summary.iterations.last in (80, 90)  # the last line, or the final checkpoint's step


def test_the_line_of_tensorflow_1_tutorials(tmp_path: Path) -> None:
    found = keras_run("loop", tmp_path)
    agrees(found)
    grew(found)
    assert found.summary.iterations is not None
    assert found.summary.iterations.last == 80
