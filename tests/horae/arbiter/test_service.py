"""The arbiter as a running thing: threads, requests from outside, start and stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.decide.policy_runner import Inline
from horae.arbiter.observe.recovery import NUMBERS_SKIPPED
from horae.arbiter.requests.authority import NotAllowed
from horae.arbiter.requests.commands import NoSuchJob
from horae.arbiter.service import Arbiter, Bug
from horae.fake import FakePort, Program, World
from horae.journal import AlreadyRunning
from horae.port import Observation, TryLater
from horae.views import watch
from policy.model import BadInput
from tests.horae.arbiter.site import ANN, BEN, NODES, ROOT, config, first_come, serve, spec
from tests.waiting import eventually


@pytest.fixture
def arbiter(tmp_path: Path) -> Iterator[Arbiter]:
    running = serve(tmp_path)
    running.start()
    yield running
    running.stop()


def test_a_job_runs_to_its_end(arbiter: Arbiter) -> None:
    job = arbiter.submit(spec("train", 2, steps=20), ANN)
    eventually(lambda: watch.job(arbiter, job).state == "completed")
    row = watch.job(arbiter, job)
    assert (row.exit_code, row.done, row.owner, row.epoch) == (0, 20, "ann", 1)
    assert watch.explain(arbiter, job).causes[0].what == "end"
    assert [e.data.get("verb") for e in arbiter.history(job) if e.kind == "intent"] == ["submit", "start"]
    assert watch.status(arbiter).pools[0].decided["policy"] == "max-min"


def test_only_owners_and_operators_act_on_a_job(arbiter: Arbiter) -> None:
    job = arbiter.submit(spec("mine", steps=100_000), ANN)
    for forbidden in (
        lambda: arbiter.command(lambda commands: commands.cancel(job, BEN)),
        lambda: arbiter.command(lambda commands: commands.hold(job, BEN)),
        lambda: arbiter.command(lambda commands: commands.unhold(job, BEN)),
        lambda: arbiter.command(lambda commands: commands.release_all(ANN)),
        lambda: arbiter.read_log(job, 0, BEN),
        lambda: arbiter.submit(spec("yours", owner="ann"), BEN),
        lambda: arbiter.submit(spec("theirs", tenant="nobody"), BEN),
    ):
        with pytest.raises(NotAllowed):
            forbidden()
    assert watch.job(arbiter, job).state not in ("cancelled", "held")
    with pytest.raises(NoSuchJob):
        arbiter.command(lambda commands: commands.cancel("4711", ROOT))
    arbiter.command(lambda commands: commands.cancel(job, ROOT))
    eventually(lambda: watch.job(arbiter, job).state == "cancelled")


def test_a_bad_specification_is_refused_in_words(arbiter: Arbiter) -> None:
    with pytest.raises(BadInput, match="pool"):
        arbiter.submit(spec("lost", extra={"pool": "nowhere"}), ANN)
    with pytest.raises(BadInput, match="GPUs"):
        arbiter.submit(spec("none", (4, 2)), ANN)
    assert watch.jobs(arbiter) == ()


def test_the_log_can_be_read_by_its_owner(arbiter: Arbiter) -> None:
    job = arbiter.submit(spec("talks", steps=20), ANN)
    eventually(lambda: watch.job(arbiter, job).state == "completed")
    assert b"[horae] step=20/20" in arbiter.read_log(job, 0, ANN).data


def test_a_second_arbiter_on_the_same_folder_is_stopped_in_words(arbiter: Arbiter, tmp_path: Path) -> None:
    with pytest.raises(AlreadyRunning, match=r"another arbiter works on .* \(pid \d+"):
        serve(tmp_path)


def test_after_a_restart_everything_is_where_it_was(tmp_path: Path) -> None:
    world = World(NODES, program=Program(iteration_s=0.01, start_s=0.05, stop_s=0.02))
    first = serve(tmp_path, world)
    first.start()
    job = first.submit(spec("long", 2, steps=100_000), ANN)
    eventually(lambda: watch.job(first, job).state == "running")
    first.stop()
    with pytest.raises(TryLater):
        watch.jobs(
            first,
        )
    second = serve(tmp_path, world)
    second.start()
    try:
        assert watch.job(second, job).state == "running"
        eventually(
            lambda: (
                watch.status(
                    second,
                ).rounds
                > 3
            )
        )
        assert watch.job(second, job).epoch == 1
        assert len(world.jobs) == 1
    finally:
        second.stop()


class Telling(FakePort):
    """A cluster that tells of events, and counts how often it was looked at."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.events, self.looks, self.deaf = 0, 0, False
        self.error: Exception = OSError("the folder is away")
        self.asked = {False: 0, True: 0}  #: how often, by whether it was deaf

    def noticed(self) -> object:
        self.asked[self.deaf] += 1
        if self.deaf:
            raise self.error
        return self.events

    def observe(self) -> Observation:
        self.looks += 1
        return super().observe()


@pytest.mark.parametrize("error", [OSError("the folder is away"), ValueError("a bug of the adapter's")], ids=repr)
def test_a_cluster_that_tells_of_events_is_looked_at_when_it_does(tmp_path: Path, error: Exception) -> None:
    port = Telling(World(NODES))
    port.error = error
    slow = {"rounds": {"tick_s": 3600.0, "busy_s": 3600.0, "debounce_s": 0.01}}
    arbiter = Arbiter(config(tmp_path, **slow), port, runner=Inline(first_come))
    arbiter.start()
    try:
        eventually(arbiter.ready.is_set)
        eventually(lambda: port.asked[False] > 1)
        port.deaf = True  # costs nothing but the wake-ups
        eventually(lambda: port.asked[True] > 0)
        port.deaf = False
        before = port.looks
        port.events += 1
        eventually(lambda: port.looks > before)
        assert port.looks > before, "looked at although the tick is an hour away"
    finally:
        arbiter.stop()


def test_a_core_that_is_held_up_costs_a_sign_of_life_and_not_the_arbiter(
    arbiter: Arbiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk may hold it up for longer than one question waits; the watchdog's patience is the site's to say."""

    def late(*_: Any, **__: Any) -> Any:
        raise TryLater("the arbiter did not answer within 5 s")

    assert arbiter._alive() is True
    monkeypatch.setattr(arbiter._mail, "ask", late)
    assert arbiter._alive() is False


def test_it_waits_for_signals_without_a_lock_that_their_handler_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs in the very thread that waits: an event's lock, held at that moment, would never be free."""
    running, real = serve(tmp_path), threading.Condition.wait
    locked: list[str] = []

    def wait(self: threading.Condition, timeout: float | None = None) -> bool:
        if sys._getframe(2).f_code is Arbiter.run.__code__:
            locked.append("run")
        return real(self, timeout)

    def ask() -> None:
        eventually(running.ready.is_set)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(threading.Condition, "wait", wait)
    asking = threading.Thread(target=ask)
    asking.start()
    assert running.run() == 0
    asking.join()
    assert locked == []


def test_a_question_that_comes_too_late_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passed the door before the arbiter began to stop, and reached the mailbox when nobody reads it any more."""
    running = serve(tmp_path)
    running.start()
    running.stop()
    monkeypatch.setattr(running._mail._closing, "is_set", lambda: False)
    with pytest.raises(TryLater, match="is stopping"):
        watch.jobs(running)


def test_a_round_that_was_given_up_is_no_longer_complained_of_when_one_goes_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.arbiter.service.BUG_PAUSE_S", 0.1)
    running = serve(tmp_path)
    broken = unseen(monkeypatch, OverflowError("cannot convert float infinity to integer"))
    running.start()
    try:
        eventually(lambda: "bug" in alerts(running))
        broken.clear()
        eventually(lambda: "bug" not in alerts(running))
    finally:
        running.stop()


def test_no_number_is_given_before_the_cluster_told_which_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal was lost, and the cluster away when the next arbiter began: whoever handed a job in meanwhile got the
    number of somebody else's, who could not tell his from it."""
    world = World(NODES, program=Program(iteration_s=0.01, start_s=0.05, stop_s=0.02))
    first = serve(tmp_path / "lost", world)
    first.start()
    theirs = first.submit(spec("theirs", 2, steps=100_000), BEN)
    eventually(lambda: watch.job(first, theirs).state == "running")
    first.stop()
    away = unseen(monkeypatch, TryLater("the cluster is away"))
    monkeypatch.setattr("horae.arbiter.service._UNSEEN_S", 0.05)
    second = serve(tmp_path / "new", world)
    second.start()
    try:
        eventually(lambda: "cluster" in alerts(second))
        with pytest.raises(TryLater, match="no job is taken before"):
            second.submit(spec("mine", 1, steps=100_000), ANN)
        away.clear()
        eventually(second.ready.is_set)
        mine = second.submit(spec("mine", 1, steps=100_000), ANN)
        assert int(mine) > int(theirs) + NUMBERS_SKIPPED
        assert watch.job(second, theirs).owner == "ben"
    finally:
        second.stop()


def unseen(monkeypatch: pytest.MonkeyPatch, error: Exception) -> threading.Event:
    """As long as this is set, every look ends with `error`."""
    real, away = FakePort.observe, threading.Event()
    away.set()

    def observe(self: FakePort) -> Observation:
        if away.is_set():
            raise error
        return real(self)

    monkeypatch.setattr(FakePort, "observe", observe)
    return away


def alerts(arbiter: Arbiter) -> set[str]:
    return arbiter.view(lambda core: set(core.ledger.alerts))


def test_what_no_record_can_be_kept_of_costs_a_round_and_not_the_arbiter(
    arbiter: Arbiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what failed nor that it did: without its core's thread it would only seem to live."""
    failed = threading.Event()
    first = arbiter.submit(spec("first", steps=20), ANN)
    eventually(lambda: watch.job(arbiter, first).state == "completed")

    def fails(*_: object, **__: object) -> None:
        failed.set()
        raise OSError("Read-only file system")

    monkeypatch.setattr(arbiter._journal, "append", fails)
    with pytest.raises(Bug):
        arbiter.submit(spec("lost"), ANN)
    assert failed.wait(60)
    assert arbiter.view(lambda core: core.stage) is not None
    monkeypatch.undo()
    job = arbiter.submit(spec("train", 2, steps=20), ANN)
    eventually(lambda: watch.job(arbiter, job).state == "completed")
