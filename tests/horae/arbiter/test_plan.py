"""The plan, on random states under every interleaving that hypothesis finds: no node is ever over-allocated, GPUs
are released before they are given, and what is true comes to what is wanted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from horae.arbiter.execute.plan import PlanPhase, PlanStep, Position, plan
from horae.journal.events import Verb
from tests.horae.arbiter.allocations import NODES, allocations


@dataclass
class Job:
    """A job as a cluster would move it: it starts and leaves in its own time."""

    name: str
    phase: PlanPhase
    held: dict[str, int] = field(default_factory=dict)
    epoch: int = 1
    wants: dict[str, int] | None = None  #: of a reshape in place

    def position(self) -> Position:
        return Position(self.name, self.phase, dict(self.held), epoch=self.epoch)


def used(jobs: dict[str, Job]) -> Counter[str]:
    out: Counter[str] = Counter()
    for job in jobs.values():
        out.update(job.held)
    return out


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Job]:
    names = [f"j{i}" for i in range(draw(st.integers(1, 6)))]
    jobs = {}
    for name, held in allocations(draw, names).items():
        phases = [PlanPhase.GRANTED, PlanPhase.RUNS, PlanPhase.LEAVES] if held else [PlanPhase.IDLE]
        jobs[name] = Job(name, draw(st.sampled_from(phases)), held)
    return jobs


def obey(job: Job, step: PlanStep) -> None:
    """The cluster takes a step at its word."""
    assert step.ready
    if step.verb is Verb.STOP:
        assert job.phase is PlanPhase.RUNS
        job.phase = PlanPhase.LEAVES
    elif step.verb is Verb.START and step.epoch is None:
        assert job.phase is PlanPhase.IDLE
        job.phase, job.held = PlanPhase.GRANTED, dict(step.allocation)
        job.epoch += 1
    elif step.verb is Verb.RESHAPE:
        assert job.phase is PlanPhase.RUNS
        job.held = {
            n: max(job.held.get(n, 0), step.allocation.get(n, 0)) for n in job.held.keys() | step.allocation.keys()
        }
        job.phase = PlanPhase.GRANTED
        job.wants = dict(step.allocation)


def move(job: Job) -> bool:
    """The cluster does the next thing it owes; True if it moved."""
    if job.phase is PlanPhase.LEAVES:
        job.phase, job.held = PlanPhase.IDLE, {}
        return True
    if job.phase is PlanPhase.GRANTED:
        job.phase = PlanPhase.RUNS
        job.held, job.wants = job.held if job.wants is None else job.wants, None
        return True
    return False


@settings(max_examples=400, deadline=None)
@given(st.data(), clusters(), st.booleans())
def test_the_plan_never_over_allocates_and_reaches_its_target(
    data: st.DataObject, jobs: dict[str, Job], in_place: bool
) -> None:
    targets = data.draw(st.composite(allocations)(sorted(jobs)), label="targets")
    changes = data.draw(st.integers(0, 2), label="times the target changes")
    for _ in range(400):
        steps = plan([j.position() for j in jobs.values()], targets, NODES, reshape_in_place=in_place)
        ready = [s for s in steps if s.ready]
        kinds = [s.verb in (Verb.START, Verb.RESHAPE) for s in ready]
        assert kinds == sorted(kinds), "GPUs are given before they are released"
        # Any part of the ready steps may be carried out, and in any order: the rest was lost.
        done = data.draw(st.permutations(ready), label="order") if ready else []
        done = done[: data.draw(st.integers(0, len(done)), label="carried out")] if done else []
        for step in done:
            obey(jobs[step.job], step)
            assert all(gpus <= NODES[n] for n, gpus in used(jobs).items())
        movers = [j for j in jobs.values() if j.phase in (PlanPhase.LEAVES, PlanPhase.GRANTED)]
        if movers and data.draw(st.booleans(), label="the cluster moves"):
            move(data.draw(st.sampled_from(movers), label="who"))
        if changes and data.draw(st.integers(0, 9), label="a new decision") == 0:
            changes -= 1
            targets = data.draw(st.composite(allocations)(sorted(jobs)), label="new targets")
        if not changes and not movers and not steps:
            break
    settle(jobs, targets, in_place)
    assert {j.name: j.held for j in jobs.values()} == targets


def settle(jobs: dict[str, Job], targets: dict[str, dict[str, int]], in_place: bool) -> None:
    """From here on everything asked is done: it must come to an end."""
    for _ in range(100):
        steps = plan([j.position() for j in jobs.values()], targets, NODES, reshape_in_place=in_place)
        for step in steps:
            if step.ready:
                obey(jobs[step.job], step)
                assert all(gpus <= NODES[n] for n, gpus in used(jobs).items())
        moved = [move(job) for job in jobs.values()]
        if not steps and not any(moved):
            return
    raise AssertionError("it goes round and round")


def test_a_start_waits_for_those_who_must_leave() -> None:
    steps = plan(
        [Position("old", PlanPhase.RUNS, {"a": 4}), Position("new", PlanPhase.IDLE)],
        {"old": {"b": 4}, "new": {"a": 4}},
        NODES,
    )
    assert [(s.verb, s.job, s.ready, s.waits_for) for s in steps] == [
        (Verb.STOP, "old", True, ()),
        (Verb.START, "old", False, ("old",)),
        (Verb.START, "new", False, ("old",)),
    ]


def test_a_superseded_start_is_withdrawn_before_its_gang_stands() -> None:
    steps = plan([Position("j", PlanPhase.RUNS, {"a": 4})], {"j": {}}, NODES)
    assert [(s.verb, s.ready) for s in steps] == [(Verb.STOP, True)]


def test_what_was_asked_to_leave_is_not_asked_again_until_it_is_time() -> None:
    leaving = Position("j", PlanPhase.LEAVES, {"a": 4})
    assert plan([leaving], {"j": {}}, NODES) == ()
    again = Position("j", PlanPhase.LEAVES, {"a": 4}, repeat=True)
    assert [s.verb for s in plan([again], {"j": {}}, NODES)] == [Verb.STOP]


def test_a_blocked_start_lets_go_even_where_its_target_stands() -> None:
    stuck = Position("j", PlanPhase.RUNS, {"a": 4}, withdraw=True)
    steps = plan([stuck], {"j": {"a": 4}}, NODES)
    assert [(s.verb, s.ready) for s in steps] == [(Verb.STOP, True), (Verb.START, False)]


def test_the_mandatory_pause_holds_only_for_nodes_just_left() -> None:
    left = Position("j", PlanPhase.IDLE, left_nodes=frozenset({"a"}), may_start_s=10.0)
    (back,) = plan([left], {"j": {"a": 1}}, NODES, now_s=9.5)
    assert (back.ready, back.waits_until_s) == (False, 10.0)
    (elsewhere,) = plan([left], {"j": {"b": 1}}, NODES, now_s=9.5)
    assert elsewhere.ready
    (later,) = plan([left], {"j": {"a": 1}}, NODES, now_s=10.0)
    assert later.ready


def test_nothing_new_starts_on_a_closed_node() -> None:
    (step,) = plan([Position("j", PlanPhase.IDLE)], {"j": {"a": 1}}, NODES, closed=frozenset({"a"}))
    assert not step.ready


def test_a_cancelled_job_is_ended_whatever_its_target() -> None:
    steps = plan([Position("j", PlanPhase.RUNS, {"a": 4}, cancel=True)], {"j": {"b": 4}}, NODES)
    assert [(s.verb, s.ready) for s in steps] == [(Verb.CANCEL, True)]


def test_reshapes_that_wait_for_each_other_are_untied_by_a_restart() -> None:
    ring = [Position("x", PlanPhase.RUNS, {"a": 4}), Position("y", PlanPhase.RUNS, {"b": 4})]
    steps = plan(ring, {"x": {"b": 4}, "y": {"a": 4}}, NODES, reshape_in_place=True)
    assert [s.verb for s in steps if s.ready] == [Verb.STOP]


def test_a_gang_that_forms_is_not_asked_for_another_shape_before_it_stands() -> None:
    forming = Position("a", PlanPhase.RUNS, {"n1": 2}, forming=True)
    for steps in (
        plan([forming], {"a": {"n1": 4}}, {"n1": 4}, reshape_in_place=True),
        plan([forming], {"a": {"n1": 1, "n2": 1}}, {"n1": 4, "n2": 4}, reshape_in_place=True),
    ):
        assert [(step.verb, step.ready, step.waits_for) for step in steps] == [(Verb.RESHAPE, False, ("a",))]
    (standing,) = plan([replace(forming, forming=False)], {"a": {"n1": 4}}, {"n1": 4}, reshape_in_place=True)
    assert (standing.verb, standing.ready) == (Verb.RESHAPE, True)
    (leaves,) = plan([forming], {"a": {}}, {"n1": 4}, reshape_in_place=True)
    assert (leaves.verb, leaves.ready) == (Verb.STOP, True)


def test_a_start_is_asked_for_again_only_while_its_place_is_free() -> None:
    """Another's, thought to be refused, may have come late."""
    mine = Position("j", PlanPhase.GRANTED, {"a": 1}, repeat=True, epoch=3)
    late = Position("k", PlanPhase.RUNS, {"a": NODES["a"]})
    targets = {"j": {"a": 1}, "k": {"a": NODES["a"]}}
    assert plan([mine], targets, NODES) == (PlanStep(Verb.START, "j", {"a": 1}, epoch=3),)
    assert plan([late, mine], targets, NODES) == (PlanStep(Verb.START, "j", {"a": 1}, epoch=3, ready=False),)
