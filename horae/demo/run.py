"""One demo from curtain to account."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from horae.demo.cluster import RunningDemo, gpus, stage
from horae.demo.playing import Play, wait
from horae.demo.record import ShareRecord
from horae.demo.scenario import Framework, Scenario, fitted, scenario, torch_python
from policy import catalogue
from policy.model import BadInput, Seconds

#: A screen without a terminal has this long to end by itself.
HANG_UP_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    summary: dict[str, Any]
    record: ShareRecord


def run(
    *,
    policy: str,
    seconds: Seconds,
    live: bool,
    framework: str,
    nodes: str | None,
    keep: bool,
    tell: Callable[[str], None],
) -> Outcome:
    """Play it, with the live picture if `live`. Raises BadInput for what cannot be played."""
    policy = catalogue.named(policy).name
    kind = _framework(framework)
    play, nodes = _cluster(scenario(seconds), nodes)
    asked = threading.Event()
    with stage(play, policy, nodes=nodes, keep=keep) as built, _ended_by_signals(asked, built):
        tell(f"the demo's arbiter listens: export HORAE_SOCKET={built.service.socket}")
        running = Play(built, play, kind, seconds, policy, asked)
        running.start()
        if live:
            _watch(running)
        else:
            wait(running, tell)
        summary = running.end()
    if keep:
        tell(f"kept: {built.folder}")
    return Outcome(summary, running.record)


@contextlib.contextmanager
def _ended_by_signals(asked: threading.Event, built: RunningDemo) -> Iterator[None]:
    """Ctrl-C, a kill and a closed terminal end the play in order: there are processes to clear away."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    terminals = [stream for stream in (0, 1, 2) if os.isatty(stream)]

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        # Whoever still writes to the terminal would fail, or wait for ever: give it another place to write to.
        sink = os.open(os.devnull, os.O_RDWR)
        for stream in terminals:
            os.dup2(sink, stream)
        asked.set()
        if not terminals:
            return
        threading.Thread(target=_leave_anyway, args=(built,), daemon=True).start()

    handlers = {signal.SIGINT: ask, signal.SIGTERM: ask, signal.SIGHUP: hang_up}
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
        built.close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_anyway(built: RunningDemo) -> None:
    """The terminal is gone, and with it perhaps the screen's thread: end without it if it does not end by itself."""
    time.sleep(HANG_UP_S)
    built.close()
    os._exit(128 + signal.SIGHUP)


def _watch(play: Play) -> None:
    from horae.tui.app import LiveApp
    from horae.tui.explained import page

    LiveApp(
        play.picture,
        lambda job: page(play.stage.client.explain(job)),
        interval_s=0.5,
        over=lambda _: play.over.is_set(),
        hint=f"export HORAE_SOCKET={play.stage.service.socket}",
    ).run()


def _framework(name: str) -> Framework:
    names = ", ".join(f.value for f in Framework)
    try:
        framework = Framework(name)
    except ValueError:
        raise BadInput("no such framework", field="--framework", value=name, remedy=f"one of {names}") from None
    if framework is Framework.TORCH and torch_python() is None:
        raise BadInput(
            "PyTorch is not installed", field="--framework", value=name, remedy="apt-get install python3-torch"
        )
    return framework


def _cluster(play: Scenario, nodes: str | None) -> tuple[Scenario, str]:
    """The play, cut to the cluster it is given on: real GPUs where there are some and nothing else was said."""
    from horae.machine_gpus import this_machine

    chosen = nodes or ("auto" if this_machine() else play.nodes)
    return fitted(play, gpus(chosen)), chosen
