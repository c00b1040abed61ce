"""The scheduler's answers to the agent, and the hook over a ledger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from horae.apps.scheduler import AppScheduler, Sweep
from horae.sweeps import hook
from horae.sweeps.sweep import VARIABLE, to_text
from policy.model import App, Phase
from policy.throughput import Throughput
from tests.policy.themis.worlds import job, nodes, world

APP = App("s", "successive-halving", None, None, (Phase(4, 8), Phase(2, 16), Phase(1, 36)))


def sweep(done: float = 0.0) -> Sweep:
    jobs = [job(f"j{t}", (1, 8), total=60, done=done, rate=1 / t, app="s", tenant="t") for t in (80, 100, 101, 120)]
    snapshot = world(nodes(2, 4), jobs, apps=[APP])
    return Sweep(APP, snapshot.jobs, Throughput(snapshot.cluster))


def test_the_questions_of_figure_7() -> None:
    asked = sweep(done=3.0)
    assert isinstance(asked, AppScheduler)
    assert asked.get_num_phases() == 3
    now = asked.get_jobs_in_phase(0, [2])
    assert [i.iterations_remaining for i in now] == [5.0] * 4
    assert [i.seconds_per_iteration for i in now] == pytest.approx([80, 100, 101, 120])
    assert now[0].locality_sensitivity == pytest.approx(1.3)
    later = asked.get_jobs_in_phase(1, [2])
    assert [(i.iterations_remaining, round(i.seconds_per_iteration)) for i in later] == [(16, 101), (16, 101)]
    assert [i.iterations_remaining for i in asked.get_jobs_remaining([2])] == [57.0] * 4
    assert sweep(done=8.0).get_jobs_in_phase(0, [2]) == []
    with pytest.raises(IndexError):
        asked.get_jobs_in_phase(3, [2])


def test_the_hook_reads_apps_from_the_journal() -> None:
    def record(name: str, app: str, text: str | None, at: float) -> Any:
        env = {} if text is None else {VARIABLE: text}
        return SimpleNamespace(id=name, app_key=app, submitted_s=at, spec=SimpleNamespace(env=env))

    records = [
        record("1", "s", to_text(APP, {"lr": 0.1}), 0.0),
        record("2", "s", to_text(APP, {"lr": 0.2}), 0.0),
        record("3", "plain", None, 1.0),
        record("4", "liar", '{"phases": 3}', 2.0),
    ]
    ledger: Any = SimpleNamespace(live=lambda pool: records if pool == "p" else [])
    assert hook.apps(ledger, "p") == (APP,)
    assert hook.apps(ledger, "q") == ()
