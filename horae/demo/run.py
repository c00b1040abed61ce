"""One demo from curtain to account."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from horae.demo.play import Play, wait
from horae.demo.record import Record
from horae.demo.scenario import Framework, Scenario, fitted, scenario, torch_python
from horae.demo.stage import gpus, stage
from policy import catalogue
from policy.model import BadInput, Seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    summary: dict[str, Any]
    record: Record


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
    catalogue.find(policy)
    kind = _framework(framework)
    play, nodes = _cluster(scenario(seconds), nodes)
    asked = threading.Event()
    with _set_by_signals(asked), stage(play, policy, nodes=nodes, keep=keep) as built:
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
def _set_by_signals(asked: threading.Event) -> Iterator[None]:
    """Ctrl-C, a closed terminal and a kill end the play in order: there are processes to clear away."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, lambda *_: asked.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(play: Play) -> None:
    from horae.cli.explain import page
    from horae.cli.live.app import LiveApp

    LiveApp(
        play.picture,
        lambda job: page(play.stage.client.explain(job)),
        interval_s=0.5,
        over=lambda _: play.over.is_set(),
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
    from horae.local.gpus import this_machine

    chosen = nodes or ("auto" if this_machine() else play.nodes)
    return fitted(play, gpus(chosen)), chosen
