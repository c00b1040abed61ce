"""Programs are limited by iterations and nodes, the same everywhere; the clock is behind them, and says so.

What is done where a program has no answer is each policy's stated rule, and leaves nothing idle either.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings

from policy.decide import CLOCK, decide
from policy.model import Decision, Health, Snapshot, Termination
from policy.parts import solver
from policy.parts.solver import Backend, Program, Result
from policy.text.answer import to_json
from policy.text.instance import parse
from tests.policy.crowds import crowd
from tests.policy.mixtures import mixtures

PROGRAMS = (
    "oef-cooperative", "oef-noncooperative", "gavel-max-min", "gavel-finish-time", "gavel-makespan", "gavel-fifo",
    "themis",
)  # fmt: skip
CONTENDED = (
    "cluster: {nodes: [{name: n0, gpu_type: a, gpus: 4}, {name: n1, gpu_type: b, gpus: 4}]}\njobs:\n"
    + "\n".join(
        f"- {{name: j{i}, gpus: 2, submitted: {i}, work: {{total: 1000, done: 0}}, "
        f"throughput: {{a: {{1: 1.0, 2: 1.9, 4: 3.{i}}}, b: {{1: {1 + i / 3:.3f}, 2: {1.8 + i / 2:.3f}}}}}}}"
        for i in range(6)
    )
    + "\n"
)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ends every program, with nothing."""
    ended = Result(Termination.TIME_LIMIT, False, None, None, None, 0.0, Backend.HIGHS, clock=True)
    monkeypatch.setattr(Program, "_run", lambda self, *_: ended)


def conserves(decision: Decision) -> bool:
    stated = [n for n in decision.certificate.notes if n.startswith("left idle (")]
    return decision.certificate.work_conserving or bool(stated)


@pytest.mark.parametrize("policy", PROGRAMS)
@pytest.mark.usefixtures("late")
def test_a_program_that_the_clock_ends_is_flagged_and_nothing_is_idle(policy: str) -> None:
    held = parse(CONTENDED)
    held = replace(held, jobs=(replace(held.jobs[0], allocation={"n0": 2}), *held.jobs[1:]))
    decision = decide(held, policy, {"fairness_knob": 0.0} if policy == "themis" else {})
    assert CLOCK in decision.certificate.notes
    assert decision.certificate.feasible
    assert decision.certificate.work_conserving
    assert sum(sum(place.values()) for place in decision.allocation.values()) == 8


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(snapshot=mixtures())
@pytest.mark.usefixtures("late")
def test_what_is_done_without_an_answer_can_be_leaves_nothing_idle_and_stands(snapshot: Snapshot) -> None:
    draining = {n.name for n in snapshot.cluster.nodes if n.health is Health.DRAIN}
    for policy in PROGRAMS:
        decision = decide(snapshot, policy)
        assert decision.certificate.feasible, policy
        assert conserves(decision), (policy, decision.certificate.notes)
        now = {job: dict(place) for job, place in decision.allocation.items()}
        if any(draining & set(j.allocation) and now[j.name] != dict(j.allocation) for j in snapshot.jobs):
            continue
        then = tuple(
            replace(j, allocation=now[j.name], lease_until=decision.leases.get(j.name, {})) for j in snapshot.jobs
        )
        again = decide(replace(snapshot, jobs=then, state=decision.state, now_s=snapshot.now_s + 1), policy)
        assert {job: dict(place) for job, place in again.allocation.items()} == now, policy


@pytest.mark.parametrize("policy", PROGRAMS)
def test_limits_of_its_own_end_a_program_alike_however_fast_the_machine(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program ends after one iteration or at its first node, unless it needs neither."""
    monkeypatch.setattr(solver, "ITERATIONS", 1)
    monkeypatch.setattr(solver, "NODE_WORK", 0)
    monkeypatch.setattr(solver, "NODES", 0)
    asked, options = parse(CONTENDED), {"fairness_knob": 0.0} if policy == "themis" else {}
    first, second = (decide(asked, policy, options) for _ in range(2))
    assert first.solver is not None
    assert not first.solver.clock
    assert CLOCK not in first.certificate.notes
    assert first.certificate.feasible
    assert first.certificate.work_conserving
    assert first.allocation == second.allocation
    if policy == "gavel-max-min":
        assert first.solver.termination is not Termination.OPTIMAL


@pytest.mark.parametrize("policy", PROGRAMS)
def test_an_answer_is_the_same_by_a_clock_a_thousand_times_slower(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clocks that the policies read are made to run; what they end is nothing, as long as the limits are far."""
    said = []
    for step_s in (1e-9, 1e-3):
        ticks = count()
        monkeypatch.setattr(time, "perf_counter", lambda ticks=ticks, step_s=step_s: next(ticks) * step_s)
        for seed in (3, 8, 21):
            decision = decide(crowd(seed, 12), policy, seed=1)
            assert CLOCK not in decision.certificate.notes
            said.append((step_s, seed, re.sub(r'"seconds": ?[0-9.e-]+', "", to_json(decision))))
    fast, slow = ([text for at, _, text in said if at == step_s] for step_s in (1e-9, 1e-3))
    assert fast == slow


def test_an_integer_program_ends_at_its_nodes_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "NODE_WORK", 0)
    monkeypatch.setattr(solver, "NODES", 1)
    ends = []
    for _ in range(2):
        program = Program()
        x = [program.binary() for _ in range(40)]
        for row in range(25):
            program.at_most({v: float((7 * i * (row + 1) + i * i) % 23 + 1) for i, v in enumerate(x)}, 97.0 + row)
        program.maximise({v: float((11 * i) % 17 + 5) for i, v in enumerate(x)})
        result = program.solve(heuristics=False)
        assert not result.clock
        ends.append((result.termination, result.values))
    assert ends[0] == ends[1]
    assert ends[0][0] is not Termination.OPTIMAL
