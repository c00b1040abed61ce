"""The loop's companion, in this process: positions, resuming, finishing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.elastic import Environment, Stopped, Training
from horae.elastic.sdk.stopping import held
from horae.elastic.stores import checkpoints
from tests.horae.elastic.exec_job import ROOT, until


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The SDK takes over two signals; the test runner gets them back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


class Model:
    def __init__(self) -> None:
        self.value = 0

    def save(self, folder: str) -> None:
        (Path(folder) / "value").write_text(str(self.value))

    def load(self, folder: str) -> None:
        self.value = int((Path(folder) / "value").read_text())


def training(model: Model, folder: Path | None, epoch: int = 1, **options: Any) -> Training:
    environment = Environment({"HORAE_EPOCH": str(epoch)})
    place = None if folder is None else str(folder)
    return Training(save=model.save, load=model.load, checkpoint=place, environment=environment, **options)


def test_steps_and_positions_go_on_over_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model()
    with pytest.raises(Stopped) as left:
        for step in training(model, tmp_path, steps=10, global_batch=4, samples=10, seed=3):
            model.value += sum(step.batch)
            if step.number == 3:
                os.kill(os.getpid(), signal.SIGUSR1)
    assert left.value.code == 86
    straight = Model()
    numbers = []
    for step in training(straight, None, steps=10, global_batch=4, samples=10, seed=3):
        straight.value += sum(step.batch)
    again = Model()
    for step in training(again, tmp_path, epoch=2, steps=10, global_batch=4, samples=10, seed=3):
        numbers.append(step.number)
        again.value += sum(step.batch)
    assert numbers[-1] == 9
    assert numbers[0] >= 4
    assert again.value == straight.value
    said = capsys.readouterr().out
    assert "[horae] start step=0 world=1 epoch=1\n" in said
    assert f"[horae] start step={numbers[0]} world=1 epoch=2 checkpoint=step-" in said


def test_a_finished_run_is_finished_when_it_is_started_again(tmp_path: Path) -> None:
    model = Model()
    for _ in training(model, tmp_path, steps=3):
        model.value += 1
    again = Model()
    assert list(training(again, tmp_path, epoch=2, steps=3)) == []
    assert again.value == 3


def test_an_ended_loop_ignores_late_requests(tmp_path: Path) -> None:
    for _ in training(Model(), tmp_path, steps=2):
        pass
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


def test_a_request_during_the_last_step_lets_it_finish(tmp_path: Path) -> None:
    done = []
    for step in training(Model(), tmp_path, steps=2):
        if step.number == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        done.append(step.number)
    assert done == [0, 1]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN  # the loop came to its own end


def test_a_request_while_the_gang_forms_interrupts_no_system_call(tmp_path: Path) -> None:
    """`poll` of the C library fails at once when a handler runs; PyTorch's rendezvous then gives up."""
    poll = ctypes.CDLL(None, use_errno=True).poll
    loop = training(Model(), tmp_path, steps=2)
    main = threading.get_ident()
    for hold, interrupted, wait_ms in ((contextlib.nullcontext(), True, 90_000), (held(), False, 300)):
        over = threading.Event()

        def ask(over: threading.Event = over) -> None:
            while not over.wait(0.01):  # again and again, so that one of them comes while it polls
                signal.pthread_kill(main, signal.SIGUSR1)

        asker = threading.Thread(target=ask)
        with hold:
            asker.start()
            code = poll(None, 0, wait_ms)
            over.set()
            asker.join()
        assert (code == -1 and ctypes.get_errno() == errno.EINTR) is interrupted
    with pytest.raises(Stopped):
        next(iter(loop))


def test_a_loop_left_by_the_trainer_itself_writes_nothing(tmp_path: Path) -> None:
    for step in training(Model(), tmp_path, steps=10):
        if step.number == 2:
            break
    assert list(tmp_path.iterdir()) == []


def leave_at(model: Model, folder: Path, epoch: int, number: int, **options: Any) -> None:
    with pytest.raises(Stopped):
        for step in training(model, folder, epoch=epoch, **options):
            model.value += 1
            if step.number == number:
                os.kill(os.getpid(), signal.SIGUSR1)


def test_the_next_start_removes_what_the_last_one_had_no_time_for(tmp_path: Path) -> None:
    model = Model()
    for epoch in (1, 2, 3):
        leave_at(model, tmp_path, epoch, epoch - 1, keep=1)
        assert len(list(tmp_path.iterdir())) <= 2, "beside the newest at most the one that it was read from"
    loop = training(model, tmp_path, epoch=4, steps=3, keep=1)
    assert list(loop) == []
    assert loop.step == 3
    until("removed beside the training", lambda: len(list(tmp_path.iterdir())) == 1)


@pytest.mark.parametrize("readable", [True, False])
def test_a_checkpoint_that_proves_damaged_while_it_is_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], readable: bool
) -> None:
    """As of a disk that loses bits: nobody changed the file."""
    model = Model()
    leave_at(model, tmp_path, 1, 0)
    leave_at(model, tmp_path, 2, 1)
    newest = max(tmp_path.iterdir(), key=lambda path: path.name)
    (newest / "value").write_text("9" if readable else "x")
    monkeypatch.setattr(checkpoints, "untouched", lambda *_: True)
    again = Model()
    loop = training(again, tmp_path, epoch=3, steps=1)
    loop.resume()
    assert (again.value, loop.step) == (1, 1)
    assert "does not match its checksum" in capsys.readouterr().out


def test_what_load_raises_of_a_whole_checkpoint_is_raised(tmp_path: Path) -> None:
    leave_at(Model(), tmp_path, 1, 0)
    again = Model()
    again.load = lambda _folder: 1 / 0  # type: ignore[assignment,method-assign]
    with pytest.raises(ZeroDivisionError):
        training(again, tmp_path, epoch=2).resume()


def test_periodic_checkpoints_are_pruned(tmp_path: Path) -> None:
    for _ in training(Model(), tmp_path, steps=9, checkpoint_every_steps=2, keep=3):
        pass
    assert sorted(path.name[5:17] for path in tmp_path.iterdir()) == [
        "000000000006",
        "000000000008",
        "000000000009",
    ]


def test_another_global_batch_is_said_and_the_position_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in training(Model(), tmp_path, steps=2, global_batch=8, samples=100):
        pass
    again = training(Model(), tmp_path, epoch=2, steps=3, global_batch=4, samples=100)
    for step in again:
        assert len(step.batch) == 4
    assert again.position == 20
    assert "the global batch was 8 and is now 4" in capsys.readouterr().out


def test_seeds_belong_to_steps_and_samples() -> None:
    seeds = [(step.seed, step.sample_seed(5)) for step in training(Model(), None, steps=3, seed=1)]
    assert len({each for pair in seeds for each in pair}) == 6
    assert seeds == [(step.seed, step.sample_seed(5)) for step in training(Model(), None, steps=3, seed=1)]


def test_save_without_load_is_refused() -> None:
    with pytest.raises(ValueError, match="both save and load"):
        Training(save=lambda folder: None, environment=Environment({}))


def test_outside_the_main_thread_the_stop_file_has_to_do(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    codes: list[object] = []

    def run() -> None:
        environment = Environment({"HORAE_STOP_FILE": str(stop)})
        model = Model()
        try:
            for step in Training(
                steps=10_000_000,
                save=model.save,
                load=model.load,
                checkpoint=str(tmp_path / "c"),
                environment=environment,
            ):
                if step.number == 3:
                    stop.touch()
        except Stopped as left:
            codes.append(left.code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(120.0)
    assert codes == [86]


class Promise:
    """A loss that a GPU is still computing."""

    has_graph = True

    def detach(self) -> Promise:
        self.has_graph = False
        return self

    def __float__(self) -> float:
        assert not self.has_graph, "PyTorch would warn"
        time.sleep(0.2)
        return 0.5


def test_a_loss_that_is_still_being_computed_belongs_to_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    for step in training(Model(), None, steps=1):
        step.report(Promise())
    found = re.search(r"step=1/1 loss=0\.5000 iter_s=(\S+)", capsys.readouterr().out)
    assert found is not None and float(found[1]) >= 0.2


def test_the_progress_line_is_the_documented_one(tmp_path: Path) -> None:
    import re

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from horae import elastic\n"
            "for step in elastic.Training(steps=3, global_batch=64, log_every_s=0.0): step.report(2.31)",
        ],
        env={"PYTHONPATH": str(ROOT), "HORAE_EPOCH": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    pattern = r"\[horae\] step=3/3 loss=2\.3100 iter_s=\d+\.\d{4} samples_s=\d+ world=1 epoch=2 t=\d+\.\d"
    assert re.fullmatch(pattern, lines[-1])
