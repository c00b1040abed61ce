"""What a job needs next, phase by phase, without any cluster."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from horae.port import JobState
from yarn_bridge.clients.records import App, Component, Instance, Service
from yarn_bridge.jobs.record import Phase, Record, Worker, decode_kept, encode_kept, gate_document
from yarn_bridge.jobs.state_machine import (
    MARGIN_S,
    OUTLIVED,
    RENEWED,
    Ack,
    Action,
    Facts,
    Step,
    Verb,
    next_step,
    suspicious,
)
from yarn_bridge.options import SLICES

COMPONENTS = (("n1", "w0"), ("n2", "w1"))
GRACE_S, GANG_S = 20.0, 60.0


def record(phase: Phase, **changes: object) -> Record:
    made = Record(
        "job", "alice", "h-job", 0.0, phase=phase, granted=1, allocation=(("n1", 1), ("n2", 1)), components=COMPONENTS
    )
    if phase in (Phase.OPEN, Phase.LEAVING):
        workers = (Worker("c1", "n1", "host1", 21000), Worker("c2", "n2", "host2", 22000))
        made = replace(made, epoch=1, workers=workers)
    return replace(made, **changes)  # type: ignore[arg-type]


def app(gpus: int = 2) -> App:
    return App(
        "application_1_1", "alice", "h-job", "root.horae", "RUNNING", "UNDEFINED", "yarn-service", (), 0, "", 0.0, 0.0,
        0.0, gpus, gpus + 1, "", "", "",
    )  # fmt: skip


def service(counts: tuple[int, int] = (1, 1), containers: str = "c1@n1 c2@n2", state: str = "STARTED") -> Service:
    parts = {name: [] for _, name in COMPONENTS}  # type: ignore[var-annotated]
    for word in containers.split():
        container, _, node = word.partition("@")
        name = dict(COMPONENTS)[node]
        parts[name].append(Instance(f"{name}-{len(parts[name])}", container, node, "READY", "", 0.0))
    components = {
        name: Component(name, "STABLE", count, tuple(parts[name]))
        for (_, name), count in zip(COMPONENTS, counts, strict=True)
    }
    return Service("h-job", "application_1_1", state, "horae", "1.0", None, components)


def members(*names: str) -> dict[str, Worker]:
    return {name: Worker(name, "", f"host of {name}", 21000) for name in names}


def ack(state: str, code: int, epoch: int = 1, step: float | None = None, time_s: float = 1.0, text: str = "") -> Ack:
    mark = None if step is None else (epoch, step, 5.0)
    return Ack(epoch, state, code, mark, text, time_s)


def step(record: Record, facts: Facts, retries: int = 0, resumable: bool = True) -> Step:
    return next_step(record, facts, retries, resumable, GRACE_S, GANG_S)


def verbs(found: Step) -> list[Verb]:
    return [action.verb for action in found.actions]


# --- jobs without GPUs, and with several a worker ---

PLAIN = {"each": 0, "count": 2, "allocation": (), "components": (("*", "worker"),), "granted": 0}


def test_a_job_without_gpus_begins_by_itself_and_again_ever_later() -> None:
    first = step(record(Phase.IDLE, **PLAIN), Facts(1.0, None)).record
    assert (first.phase, first.granted, first.size) == (Phase.FORMING, 1, 2)
    assert verbs(step(first, Facts(1.0 + 10 * GANG_S, None, None, True))) == [Verb.MAKE], "it waits as long as it takes"
    lost = replace(first, phase=Phase.IDLE, outcome=JobState.LOST, granted=3, since_s=100.0)
    waits = step(lost, Facts(119.0, None))
    assert (waits.record, waits.actions) == (lost, ())
    assert step(lost, Facts(121.0, None)).record.granted == 4
    done = replace(lost, outcome=JobState.COMPLETED)
    assert step(done, Facts(9999.0, None)).record is done


def test_containers_count_where_there_are_no_gpus() -> None:
    open_ = record(Phase.OPEN, **{**PLAIN, "granted": 1})
    assert not suspicious(open_, replace(app(0), containers=3), {}), "the application master is the third"
    assert suspicious(open_, replace(app(0), containers=2), {})
    assert open_.placed == {}


def test_a_worker_of_two_gpus_is_one_container() -> None:
    wide = record(Phase.FORMING, each=2, allocation=(("n1", 2), ("n2", 2)))
    found = step(wide, Facts(1.0, app(4), service(), True, members("c2", "c1")))
    assert (found.record.phase, found.record.placed) == (Phase.OPEN, {"n1": 2, "n2": 2})
    assert not suspicious(found.record, app(4), {})
    assert gate_document(found.record)["members"][0]["gpus"] == 1, "one rank, however many GPUs it has"


# --- forming ---


def test_the_gate_opens_when_every_granted_worker_waits_at_it() -> None:
    facts = Facts(1.0, app(), service(), True, members("c2", "c1"))
    found = step(record(Phase.FORMING), facts)
    assert (found.record.phase, found.record.epoch) == (Phase.OPEN, 1)
    assert [(each.name, each.node, each.host) for each in found.record.workers] == [
        ("c1", "n1", "host of c1"),
        ("c2", "n2", "host of c2"),
    ]
    assert (found.actions, gate_document(found.record)["state"]) == ((), "open")


def test_members_whose_containers_are_gone_are_forgotten_when_it_opens() -> None:
    facts = Facts(1.0, app(), service(), True, members("c2", "c0", "c1"))
    assert step(record(Phase.FORMING), facts).actions == (Action(Verb.FORGET, names=("c0",)),)


@pytest.mark.parametrize(
    ("what", "facts"),
    [
        ("one is not registered", Facts(1.0, app(), service(), True, members("c1"))),
        ("one is not there", Facts(1.0, app(1), service(containers="c1@n1"), True, members("c1", "c2"))),
        ("a third has not gone yet", Facts(1.0, app(3), service(containers="c1@n1 c2@n2 c3@n2"), True,
                                           members("c1", "c2", "c3"))),
        ("both are on one node", Facts(1.0, app(), service(containers="c1@n1 c2@n1"), True, members("c1", "c2"))),
        ("its application master does not answer", Facts(1.0, app(), replace(service(), components={}), True,
                                                         members("c1", "c2"))),
    ],
)  # fmt: skip
def test_half_a_gang_waits(what: str, facts: Facts) -> None:
    found = step(record(Phase.FORMING), facts)
    assert found == Step(record(Phase.FORMING)), what


def test_a_stored_size_that_is_not_the_wanted_one_is_put_right() -> None:
    facts = Facts(1.0, app(), service(counts=(4, 0)), True, members("c1", "c2"))
    found = step(record(Phase.FORMING), facts)
    assert found.actions == (Action(Verb.FLEX, {"w0": 1, "w1": 1}),)
    assert found.record.phase is Phase.FORMING


def test_a_service_that_is_gone_or_has_other_components_is_made() -> None:
    other = replace(service(), components={"worker": Component("worker", "", 2, ())})
    for there in (None, service(state="STOPPED"), other):
        found = step(record(Phase.FORMING), Facts(1.0, None, there, True))
        assert verbs(found) == [Verb.MAKE]


def test_a_gang_that_cannot_form_is_given_back_and_says_so() -> None:
    facts = Facts(GANG_S + 1.0, app(1), service(containers="c1@n1"), True, members("c1"))
    found = step(record(Phase.FORMING, outcome=JobState.STOPPED), facts)
    assert (found.record.phase, found.record.outcome) == (Phase.CLEARING, JobState.STOPPED)
    assert found.record.block is not None
    assert found.record.block.text.startswith("1 of its 2 workers")
    assert found.record.anew and found.actions == (Action(Verb.DESTROY),), "YARN would go on asking for the others"
    # Until it is gone it is destroyed, not flexed; then nothing is left of it.
    again = step(found.record, Facts(GANG_S + 2.0, app(1), service(containers="c1@n1"), True))
    assert verbs(again) == [Verb.DESTROY]
    cleared = step(again.record, Facts(GANG_S + 9.0, None, None, True))
    assert (cleared.record.phase, cleared.record.anew) == (Phase.IDLE, False)
    assert verbs(cleared) == [Verb.SWEEP, Verb.DESTROY], "and its definition is forgotten"


def test_a_gang_that_has_all_its_containers_may_start_slowly() -> None:
    """Another try would fetch the same files from the beginning, and so for ever."""
    forming, half = record(Phase.FORMING), members("c1")
    assert step(forming, Facts(GANG_S + 1, app(), service(), True, half)) == Step(forming)
    stands = step(forming, Facts(GANG_S + 5, app(), service(), True, members("c1", "c2")))
    assert stands.record.phase is Phase.OPEN
    found = step(forming, Facts(2 * GANG_S + 1, app(), service(), True, half))
    assert found.record.phase is Phase.CLEARING
    assert found.record.blocked is not None
    assert "YARN had given all of their containers" in found.record.blocked[1]


def test_a_gang_is_given_its_time_from_when_its_application_master_begins() -> None:
    """It took 50 of the 60 seconds to begin, YARN gave its worker a container 5 s later, and the node was blamed."""
    forming, nobody = record(Phase.FORMING), service(containers="")
    began = Facts(GANG_S + 1, app(0), nobody, True, began_s=GANG_S - 10)
    assert step(forming, began) == Step(forming)
    assert step(forming, replace(began, began_s=0.5)).record.phase is Phase.CLEARING, "a second sooner it had its time"
    assert step(forming, replace(began, now_s=2 * GANG_S - 9)).record.phase is Phase.CLEARING
    late = replace(began, began_s=2 * GANG_S - 1, now_s=2 * GANG_S + 1)
    assert step(forming, late).record.phase is Phase.CLEARING, "twice its time is all there is"


def test_containers_that_the_manager_counts_are_given_before_their_master_tells_of_them() -> None:
    forming = record(Phase.FORMING)
    assert step(forming, Facts(GANG_S + 1, app(2), service(containers="c1@n1"), True)) == Step(forming)
    assert step(forming, Facts(GANG_S + 1, app(1), service(containers="c1@n1"), True)).record.phase is Phase.CLEARING


def test_a_job_that_lost_a_worker_gets_a_new_service_and_one_on_slices_does_not() -> None:
    """Its application master asks for another one on the node, and never withdraws that."""
    gone = Facts(9.0, app(1), service(containers="c1@n1"), True, lost_nodes=frozenset({"n2"}))
    found = step(record(Phase.OPEN), gone)
    assert (found.record.outcome, found.record.anew, verbs(found)) == (JobState.LOST, True, [Verb.DESTROY])
    found = step(record(Phase.OPEN, runtime=SLICES), gone)
    assert (found.record.anew, verbs(found)) == (False, [Verb.FLEX])


def test_a_stop_while_forming_ends_in_stopped_and_uses_the_epoch_up() -> None:
    found = step(record(Phase.FORMING, stop_s=0.5, asked=True), Facts(1.0, app(), service(), True))
    assert (found.record.phase, found.record.outcome, found.record.epoch) == (Phase.CLEARING, JobState.STOPPED, 1)


# --- open ---


def test_a_gang_that_trains_is_left_alone() -> None:
    assert step(record(Phase.OPEN), Facts(1.0, app())) == Step(record(Phase.OPEN))


def test_all_complete_is_complete() -> None:
    acks = {name: ack("completed", 0, step=9.0) for name in ("c1", "c2")}
    found = step(record(Phase.OPEN), Facts(1.0, app(), acks=acks))
    assert (found.record.outcome, found.record.exit_code) == (JobState.COMPLETED, 0)
    assert (verbs(found), gate_document(found.record)["state"]) == ([Verb.DESTROY], "closed")


def test_one_part_that_ends_early_brings_the_others_back() -> None:
    found = step(record(Phase.OPEN), Facts(3.0, app(), acks={"c1": ack("failed", 7)}))
    assert (found.record.phase, found.record.asked, found.record.grace_s) == (Phase.LEAVING, False, GRACE_S)
    assert (verbs(found), gate_document(found.record)["state"]) == ([], "stop")


def test_workers_that_finish_may_do_so_one_after_the_other() -> None:
    acks = {"c1": ack("completed", 0, time_s=1.0)}
    assert step(record(Phase.OPEN), Facts(2.0, app(1), acks=acks)).record.phase is Phase.OPEN
    late = step(record(Phase.OPEN), Facts(2.0 + GRACE_S, app(1), acks=acks))
    assert late.record.phase is Phase.LEAVING


def test_an_older_epoch_says_nothing() -> None:
    acks = {name: ack("stopped", 86, epoch=1) for name in ("c1", "c2")}
    now = record(Phase.OPEN, epoch=2, granted=2)
    assert step(now, Facts(1.0, app(), acks=acks)) == Step(now)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (Facts(1.0, app(), lost_nodes=frozenset({"n2"})), "node n2 was lost"),
        (Facts(1.0, None, None, True), "its YARN application was ended: YARN does not say why"),
        (Facts(1.0, None, None, True, last_words="killed by user root at 10.0.0.1"),
         "its YARN application was ended: killed by user root at 10.0.0.1"),
        (Facts(1.0, app(1), service(containers="c1@n1"), True), "its worker on n2 was lost"),
        (Facts(1.0, app(2), service(containers="c1@n1 c3@n2"), True, members("c1", "c2", "c3")),
         "its worker on n2 was lost"),
    ],
)  # fmt: skip
def test_a_lost_worker_loses_the_start(facts: Facts, why: str) -> None:
    found = step(record(Phase.OPEN), facts)
    assert (found.record.phase, found.record.outcome, found.record.native) == (Phase.CLEARING, JobState.LOST, why)


@pytest.mark.parametrize(
    "words",
    [
        "Application application_1_1 was killed by user alice at 10.0.0.1",
        "Stopped by user alice (auth:SIMPLE)",
        "Stopped by user alice@EXAMPLE.ORG (auth:PROXY) via rm/host@EXAMPLE.ORG (auth:KERBEROS)",
    ],
)
def test_what_its_owner_ends_by_yarns_own_means_is_cancelled(words: str) -> None:
    facts = Facts(1.0, None, None, True, last_words=words)
    for phase in (Phase.OPEN, Phase.LEAVING, Phase.FORMING, Phase.IDLE):
        found = step(record(phase), facts)
        assert (found.record.outcome, found.record.phase) == (JobState.CANCELLED, Phase.CLEARING)
        assert found.record.native.endswith(words)
        assert found.actions[-1].verb is Verb.DESTROY


def test_what_an_administrator_ends_before_its_gang_stands_is_not_made_again_at_once() -> None:
    facts = Facts(1.0, None, None, True, last_words="Application application_1_1 was killed by user root")
    found = step(record(Phase.FORMING), facts).record
    assert (found.phase, found.outcome) == (Phase.CLEARING, JobState.LOST)
    assert found.native == "its YARN application was ended: Application application_1_1 was killed by user root"
    waits = step(record(Phase.IDLE), facts)
    assert waits.record == record(Phase.IDLE), "it waits on, and gets another application when it is granted"


def test_workers_that_somebody_adds_by_yarns_own_means_go_again() -> None:
    more = service((1, 2), "c1@n1 c2@n2 c3@n2")
    found = step(record(Phase.OPEN), Facts(1.0, app(3), more, True, members("c1", "c2", "c3")))
    assert found.actions == (Action(Verb.FLEX, {"w0": 1, "w1": 1}),)
    assert found.note == "somebody asked YARN for more of its workers than were granted"
    gone = step(record(Phase.OPEN), Facts(1.0, app(), service(), True, members("c1", "c2", "c3")))
    assert gone == Step(record(Phase.OPEN), (Action(Verb.FORGET, names=("c3",)),)), "or its service is read for ever"
    starting = step(record(Phase.OPEN), Facts(1.0, app(3), replace(more, state="ACCEPTED"), True))
    assert verbs(starting) == [], "a flex would be refused, and stored"
    assert suspicious(record(Phase.OPEN), replace(app(2), reserves=True), {}), "a node is kept for one that waits"


def test_the_failure_of_a_lost_workers_peer_is_not_the_jobs() -> None:
    acks = {"c1": ack("failed", 1, text="failed with exit code 1")}
    found = step(record(Phase.OPEN), Facts(2.0, app(1), service(containers="c1@n1"), True, members("c1"), acks))
    assert (found.record.outcome, found.record.failures) == (JobState.LOST, 0)


@pytest.mark.parametrize(
    "facts",
    [
        # an application master that was just replaced: the ResourceManager still counts the workers
        Facts(1.0, app(2), service(containers=""), True, members("c1", "c2")),
        Facts(1.0, app(2), replace(service(), components={}), True, members("c1", "c2")),
    ],
)
def test_a_new_application_master_loses_nobody(facts: Facts) -> None:
    assert step(record(Phase.OPEN), facts) == Step(record(Phase.OPEN))


def test_only_what_does_not_add_up_is_looked_at() -> None:
    now = record(Phase.OPEN)
    assert not suspicious(now, app(2), members("c1", "c2"))
    assert suspicious(now, app(1), members("c1", "c2"))
    assert suspicious(now, None, members("c1", "c2"))
    assert suspicious(now, app(2), members("c1", "c2", "c3"))


# --- leaving ---


def test_a_stop_ends_with_the_newest_complete_checkpoint() -> None:
    acks = {"c1": ack("stopped", 86, step=40.0), "c2": ack("stopped", 86, step=35.0)}
    found = step(record(Phase.LEAVING, asked=True, stop_s=0.0), Facts(1.0, app(), acks=acks))
    assert (found.record.outcome, found.record.exit_code) == (JobState.STOPPED, 86)
    assert found.record.checkpoint == (1, 40.0, 5.0)
    assert found.actions[-1].verb is Verb.FLEX


def test_a_shrink_counts_only_once_all_have_left() -> None:
    now = record(Phase.LEAVING, asked=True, stop_s=0.0, grace_s=GRACE_S)
    assert step(now, Facts(GRACE_S, app(), acks={"c1": ack("stopped", 86, step=4.0)})) == Step(now)


def test_who_does_not_leave_is_killed_with_its_container() -> None:
    now = record(Phase.LEAVING, asked=True, stop_s=0.0, grace_s=GRACE_S)
    found = step(now, Facts(GRACE_S + MARGIN_S + 1.0, app()))
    assert (found.record.outcome, found.record.exit_code) == (JobState.STOPPED, 137)


def test_a_failure_counts_against_the_retries() -> None:
    acks = {"c1": ack("failed", 7, text="failed with exit code 7", time_s=2.0), "c2": ack("failed", 1, time_s=3.0)}
    now = record(Phase.LEAVING, stop_s=0.0)
    again = step(now, Facts(4.0, app(), acks=acks), retries=1)
    assert (again.record.outcome, again.record.failures, again.record.exit_code) == (JobState.LOST, 1, 7)
    final = step(replace(now, failures=1), Facts(4.0, app(), acks=acks), retries=1)
    assert final.record.outcome is JobState.FAILED
    assert step(now, Facts(4.0, app(), acks=acks), retries=5, resumable=False).record.outcome is JobState.FAILED


def test_a_reshape_goes_on_in_the_new_shape_after_a_clean_stop() -> None:
    acks = {name: ack("stopped", 86, step=40.0) for name in ("c1", "c2")}
    now = record(Phase.LEAVING, asked=True, stop_s=0.0, next=(2, (("n1", 3),)))
    found = step(now, Facts(9.0, app(), acks=acks))
    assert (found.record.phase, found.record.granted, found.record.epoch) == (Phase.FORMING, 2, 1)
    assert found.record.allocation == (("n1", 3),)
    assert found.actions == (Action(Verb.FLEX, {"w0": 3, "w1": 0}),)


def leaves_for(**shape: int) -> Record:
    return record(Phase.LEAVING, asked=True, stop_s=0.0, grace_s=GRACE_S, next=(2, tuple(shape.items())))


@pytest.mark.parametrize(
    ("shape", "told", "ahead"),
    [
        ({"n1": 3, "n2": 1}, (), {"w0": 3, "w1": 1}),
        ({"n1": 1}, (), None),
        ({"n1": 1}, ("c1",), None),
        ({"n1": 1}, ("c2",), {"w0": 1, "w1": 0}),
        ({"n1": 3}, (), {"w0": 3, "w1": 1}),
        ({"n1": 3}, ("c2",), {"w0": 3, "w1": 0}),
        ({"n1": 1, "n2": 1}, (), None),
        ({"n1": 1, "n3": 1}, (), None),  # a new service will be made for it
    ],
)  # fmt: skip
def test_what_has_left_goes_and_what_is_new_comes_before_all_have_told(
    shape: dict[str, int], told: tuple[str, ...], ahead: dict[str, int] | None
) -> None:
    acks = {name: ack("stopped", 86, step=40.0) for name in told}
    found = step(leaves_for(**shape), Facts(9.0, app(), acks=acks))
    assert found.actions == (() if ahead is None else (Action(Verb.FLEX, ahead),))
    assert decode_kept(encode_kept(found.record)) == found.record
    assert step(found.record, Facts(9.1, app(), acks=acks)) == Step(found.record), "it is asked for once"


def test_what_failed_keeps_its_container_until_all_have_told() -> None:
    now = leaves_for(n1=1)
    assert step(now, Facts(9.0, app(), acks={"c2": ack("failed", 1)})) == Step(now)


def test_slices_move_when_all_have_left() -> None:
    now = replace(leaves_for(n1=3), runtime="slices")
    assert step(now, Facts(9.0, app())) == Step(now)


def test_what_went_ahead_is_not_asked_for_again() -> None:
    acks = {name: ack("stopped", 86, step=40.0) for name in ("c1", "c2")}
    ahead = step(leaves_for(n1=3), Facts(9.0, app(), acks={"c2": acks["c2"]})).record
    found = step(ahead, Facts(9.5, app(), acks=acks))
    assert (found.record.phase, found.record.ahead, found.actions) == (Phase.FORMING, (), ())
    grown = step(leaves_for(n1=3), Facts(9.0, app())).record
    assert step(grown, Facts(9.5, app(), acks=acks)).actions == (Action(Verb.FLEX, {"w0": 3, "w1": 0}),)


def test_new_workers_at_the_gate_hide_no_lost_one() -> None:
    new, acks = members("c1", "c2", "c3", "c4"), {"c1": ack("stopped", 86)}
    now = step(leaves_for(n1=3, n2=1), Facts(9.0, app())).record
    whole = Facts(9.5, app(4), service(containers="c1@n1 c3@n1 c4@n1 c2@n2"), True, new)
    assert step(now, whole) == Step(now)
    lost = Facts(9.5, app(3), service(containers="c1@n1 c3@n1 c4@n1"), True, new, acks)
    assert step(now, lost).record.native == "its worker on n2 was lost"
    # An application master that was just replaced has found only a new worker again.
    found_one = Facts(9.5, app(4), service(containers="c3@n1"), True, new)
    assert step(now, found_one) == Step(now)


def test_what_a_job_moves_to_is_its_own_already() -> None:
    assert leaves_for(n1=3).claims == {"n1": 3, "n2": 1}
    assert replace(leaves_for(n1=3), next=None).claims == {"n1": 1, "n2": 1}


def test_a_reshape_that_lost_its_checkpoint_does_not_go_on() -> None:
    acks = {"c1": ack("failed", 74, text="could not write its checkpoint"), "c2": ack("stopped", 86)}
    now = record(Phase.LEAVING, asked=True, stop_s=0.0, next=(2, (("n1", 3),)))
    found = step(now, Facts(9.0, app(), acks=acks), retries=3)
    assert (found.record.phase, found.record.outcome, found.record.next) == (Phase.CLEARING, JobState.STOPPED, None)


# --- clearing and idle ---


def test_a_suspended_job_rests_once_the_manager_counts_no_gpu() -> None:
    now = record(Phase.CLEARING, outcome=JobState.STOPPED)
    refused = step(now, Facts(1.0, app(2), service(), True))
    assert refused.actions == (Action(Verb.FLEX, {"w0": 0, "w1": 0}),)
    going = Facts(1.0, app(1), service((0, 0), "c1@n1"), True)
    assert step(now, going) == Step(now)
    found = step(now, Facts(1.0, app(0), service((0, 0), ""), True))
    assert (found.record.phase, found.record.allocation) == (Phase.IDLE, ())
    assert verbs(found) == [Verb.SWEEP]


def test_an_ended_job_rests_once_its_application_has_ended() -> None:
    now = record(Phase.CLEARING, outcome=JobState.CANCELLED)
    assert verbs(step(now, Facts(1.0, app(), service(), True))) == [Verb.DESTROY]
    found = step(now, Facts(1.0, None, service(state="STOPPED"), True))
    assert verbs(found) == [Verb.SWEEP, Verb.DESTROY]
    assert step(now, Facts(1.0, None, None, True)).record.phase is Phase.IDLE


def test_what_a_late_flex_gave_is_taken_back() -> None:
    now = record(Phase.IDLE, outcome=JobState.STOPPED, allocation=())
    found = step(now, Facts(1.0, app(2), service(), True))
    assert found.actions == (Action(Verb.FLEX, {"w0": 0, "w1": 0}),)
    ended = replace(now, outcome=JobState.COMPLETED)
    assert verbs(step(ended, Facts(1.0, app(2), service(), True))) == [Verb.DESTROY]


# --- the token of a service ends ---

LIFE_S = 1000.0


def aged(share: float, gpus: int = 2, **more: Any) -> Facts:
    """A job's facts at this share of its service's token's life; its application was submitted at 1."""
    made = replace(app(gpus), submitted_s=1.0)
    return Facts(1.0 + share * LIFE_S, made, token_life_s=LIFE_S, **more)


def test_a_job_is_stopped_at_a_checkpoint_well_before_its_token_ends() -> None:
    now = record(Phase.OPEN)
    assert step(now, aged(0.69)) == Step(now)
    found = step(now, aged(0.71))
    assert (found.record.phase, found.record.asked, verbs(found)) == (Phase.LEAVING, False, [])
    acks = {name: ack("stopped", 86, step=40.0) for name in ("c1", "c2")}
    left = step(found.record, aged(0.72, acks=acks))
    assert (left.record.phase, left.record.outcome, left.record.native) == (
        Phase.CLEARING,
        JobState.STOPPED,
        RENEWED,
    )
    assert left.record.checkpoint == (1, 40.0, 5.0)
    idle = step(left.record, aged(0.73, gpus=0, service=service((0, 0), ""), service_read=True)).record
    assert (idle.phase, idle.allocation) == (Phase.IDLE, ())
    assert verbs(step(idle, aged(0.73, gpus=0, service=service((0, 0), ""), service_read=True))) == [Verb.DESTROY]


def test_a_job_that_could_not_go_on_is_not_stopped_for_its_token() -> None:
    now = record(Phase.OPEN)
    assert step(now, aged(0.9), resumable=False) == Step(now)


def test_a_job_leaves_an_application_whose_lifetime_is_limited_before_its_end() -> None:
    def left(seconds: float) -> Step:
        return step(record(Phase.OPEN), Facts(700.0, replace(app(), left_s=seconds)))

    assert left(inf) == left(301.0) == Step(record(Phase.OPEN))
    leaves = left(299.0).record
    assert (leaves.phase, leaves.native) == (Phase.LEAVING, OUTLIVED)
    lost = step(record(Phase.OPEN), Facts(700.0, replace(app(), left_s=1.0)), resumable=False)
    assert lost.record.phase is Phase.OPEN, "it keeps no checkpoint to go on from"


def test_without_an_end_no_service_is_worn() -> None:
    now = record(Phase.OPEN)
    assert step(now, replace(aged(5.0), token_life_s=0.0)) == Step(now)


def test_a_resize_in_the_second_part_of_a_tokens_life_makes_the_service_anew() -> None:
    acks = {name: ack("stopped", 86, step=40.0) for name in ("c1", "c2")}
    now = record(Phase.LEAVING, asked=True, stop_s=0.0, next=(2, (("n1", 2),)))
    young = step(now, aged(0.3, acks=acks))
    assert verbs(young) == [Verb.FLEX]
    old = step(now, aged(0.5, acks=acks))
    assert (old.record.phase, old.record.granted, old.actions) == (Phase.FORMING, 2, ())
    made = step(old.record, aged(0.501, service=service(), service_read=True))
    assert verbs(made) == [Verb.MAKE]
    new = replace(app(), submitted_s=old.record.since_s + 1.0)
    facts = Facts(old.record.since_s + 2.0, new, service((2, 0), "c3@n1"), True, token_life_s=LIFE_S)
    assert step(old.record, facts) == Step(old.record), "the new one is left to form"


def test_a_service_that_cannot_be_made_anew_is_not_tried_for_ever() -> None:
    now = record(Phase.FORMING, since_s=500.0, outcome=JobState.STOPPED)
    made = replace(app(), submitted_s=1.0)
    late = Facts(500.0 + GANG_S + 1.0, made, service(), True, token_life_s=LIFE_S)
    assert step(now, late).record.phase is Phase.CLEARING


# --- nobody answers for a service ---

AWAY = "reading the service: its application master does not answer"


def test_a_gang_whose_service_cannot_be_read_is_given_back_in_time() -> None:
    now = record(Phase.FORMING, outcome=JobState.STOPPED)
    assert step(now, Facts(GANG_S - 1.0, app(), unreadable=AWAY)) == Step(now)
    found = step(now, Facts(GANG_S + 1.0, app(), unreadable=AWAY))
    assert (found.record.phase, found.record.outcome) == (Phase.CLEARING, JobState.LOST)
    assert (found.record.block, found.record.native.startswith(AWAY)) == (None, True)


def test_what_cannot_be_asked_to_leave_is_ended() -> None:
    now = record(Phase.CLEARING, outcome=JobState.STOPPED)
    assert step(now, Facts(MARGIN_S - 1.0, app(), unreadable=AWAY)) == Step(now)
    assert verbs(step(now, Facts(MARGIN_S + 1.0, app(), unreadable=AWAY))) == [Verb.DESTROY]
    assert step(now, Facts(MARGIN_S + 2.0, None, None, True)).record.phase is Phase.IDLE


# --- the record ---


@pytest.mark.parametrize("phase", list(Phase))
def test_a_record_reads_as_it_was_written(phase: Phase) -> None:
    made = record(
        phase, next=(3, (("n2", 2),)), checkpoint=(1, 5.0, 9.0), blocked=("gang", "text"), outcome=JobState.LOST
    )
    assert decode_kept(encode_kept(made)) == made


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"phase": "none"}', b"\xff"])
def test_what_is_not_a_record_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode_kept(text)
