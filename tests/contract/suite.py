"""The contract of `horae.port.ClusterPort`, as tests. An adapter is an adapter when these pass over it.

Imported with `*` by one module an adapter. Each test makes the jobs it needs; none assumes an order.
"""

from __future__ import annotations

import pytest

from horae.port import BlockKind, JobState, Never, ObservedJob, PortError, TryLater
from policy.model import Health, Pinning
from tests.contract.driver import Driver
from tests.contract.harness import FAILURE_CODE, Behaviour, held_by_node, start_many, stop_many

__all__: list[str] = []


def contract(test: object) -> object:
    """Marks a function as part of the contract: it is what `import *` brings into an adapter's module."""
    __all__.append(test.__name__)  # type: ignore[attr-defined]
    return test


# --- looking ----------------------------------------------------------------------------------------------


@contract
def test_an_empty_cluster_shows_its_nodes_and_no_jobs(cluster: Driver) -> None:
    seen = cluster.observe()
    assert seen.jobs == ()
    assert sum(node.gpus for node in seen.nodes) >= 4
    assert all(node.gpu_type for node in seen.nodes)
    assert cluster.port.capabilities().cluster


@contract
def test_a_submitted_job_is_queued_and_holds_nothing(cluster: Driver) -> None:
    job = cluster.submit("quiet")
    seen = cluster.job(job)
    assert (seen.state, seen.epoch, dict(seen.allocation), seen.exit_code) == (JobState.QUEUED, 0, {}, None)
    assert seen.checkpoint is None
    if seen.spec is not None and cluster.port.capabilities().owns_submission:
        assert seen.spec == cluster.harness.spec("quiet", Behaviour.TRAINS)


@contract
def test_submitting_twice_is_submitting_once(cluster: Driver) -> None:
    if not cluster.port.capabilities().owns_submission:
        pytest.skip("the cluster's own users submit")
    spec = cluster.harness.spec("twice", Behaviour.TRAINS)
    cluster.port.submit("twice", spec)
    cluster.port.submit("twice", spec)
    assert [job.id for job in cluster.observe().jobs] == ["twice"]


@contract
def test_another_specification_under_a_known_name_is_refused(cluster: Driver) -> None:
    if not cluster.port.capabilities().owns_submission:
        pytest.skip("the cluster's own users submit")
    cluster.port.submit("taken", cluster.harness.spec("taken", Behaviour.TRAINS))
    with pytest.raises(Never):
        cluster.port.submit("taken", cluster.harness.spec("taken", Behaviour.FAILS))


@contract
def test_every_one_of_many_jobs_is_observed_once(cluster: Driver) -> None:
    jobs = {cluster.harness.submit(f"many-{i}", Behaviour.TRAINS) for i in range(20)}
    cluster.until("all are seen", lambda: {job.id for job in cluster.observe().jobs} == jobs)
    assert all(job.state is JobState.QUEUED for job in cluster.observe().jobs)


# --- starting ---------------------------------------------------------------------------------------------


@contract
def test_a_start_runs_the_gang_where_it_was_granted(cluster: Driver) -> None:
    job, where = cluster.submit("gang"), cluster.one(2)
    cluster.start(job, where)
    seen = cluster.wait(job, JobState.RUNNING)
    assert seen.epoch == 1
    assert sum(seen.allocation.values()) == 2
    if cluster.port.capabilities().limits.pinning is Pinning.EXACT:
        assert seen.allocation == where
    cluster.wait_progress(job)
    assert [start.world for start in cluster.starts(job)] == [2]


@contract
def test_a_gang_spans_nodes(cluster: Driver) -> None:
    job, where = cluster.submit("span"), cluster.spread(1)
    cluster.start(job, where)
    seen = cluster.wait(job, JobState.RUNNING)
    if cluster.port.capabilities().limits.pinning is Pinning.EXACT:
        assert seen.allocation == where
    cluster.wait_progress(job)
    assert [start.world for start in cluster.starts(job)] == [2]


@contract
def test_starting_twice_with_one_epoch_is_starting_once(cluster: Driver) -> None:
    job, where = cluster.submit("again"), cluster.one()
    cluster.start(job, where)
    cluster.start(job, where)
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job)
    cluster.start(job, where)
    cluster.wait_progress(job)
    assert len(cluster.starts(job)) == 1
    assert cluster.job(job).epoch == 1


@contract
def test_an_epoch_that_is_not_newer_starts_nothing(cluster: Driver) -> None:
    job = cluster.stopped("old-epoch")
    for epoch in (1, 0):
        try:
            cluster.port.start(job, cluster.one(), epoch)
        except PortError as refused:
            assert refused.text
    for _ in range(5):
        cluster.harness.pause()
    seen = cluster.job(job)
    assert (seen.state, seen.epoch) == (JobState.STOPPED, 1)
    assert len(cluster.starts(job)) == 1


@contract
def test_a_running_job_is_not_started_over(cluster: Driver) -> None:
    job = cluster.running("busy")
    with pytest.raises(PortError):
        cluster.port.start(job, cluster.other(), 2)
    cluster.wait_progress(job)
    seen = cluster.job(job)
    assert (seen.state, seen.epoch) == (JobState.RUNNING, 1)
    assert len(cluster.starts(job)) == 1


def _refused_or_blocked(cluster: Driver, job: str) -> ObservedJob | None:
    """Waits until the cluster shows why it does not run `job`; fails if it runs it."""
    seen: list[ObservedJob] = []

    def blocked() -> bool:
        seen.append(cluster.job(job))
        assert seen[-1].state is not JobState.RUNNING
        return seen[-1].blocked is not None

    cluster.until(f"{job} is blocked", blocked)
    return seen[-1]


@contract
def test_more_gpus_than_a_node_has_are_never_granted(cluster: Driver) -> None:
    job, node = cluster.submit("big", gpus=(1, 4096)), cluster.nodes()[0]
    try:
        cluster.port.start(job, {node.name: node.gpus + 1}, 1)
    except Never:
        assert cluster.job(job).state is JobState.QUEUED
        return
    assert _refused_or_blocked(cluster, job) is not None


@contract
def test_gpus_in_use_are_not_given_twice(cluster: Driver) -> None:
    node = cluster.nodes()[0]
    full = {node.name: node.gpus - node.foreign}
    if cluster.port.capabilities().limits.pinning is not Pinning.EXACT:  # any node will do: fill them all
        full = {each.name: each.gpus - each.foreign for each in cluster.observe().nodes}
    first = cluster.running("first", allocation=full, gpus=(1, 4096))
    second = cluster.submit("second")
    try:
        cluster.port.start(second, {node.name: 1}, 1)
    except TryLater:
        assert cluster.job(second).state is JobState.QUEUED
    else:
        assert _refused_or_blocked(cluster, second) is not None
    assert cluster.job(first).state is JobState.RUNNING


@contract
def test_an_unknown_node_is_refused(cluster: Driver) -> None:
    job = cluster.submit("lost-way")
    try:
        cluster.port.start(job, {"no-such-node": 1}, 1)
    except Never:
        assert cluster.job(job).state is JobState.QUEUED
        return
    seen = _refused_or_blocked(cluster, job)
    assert seen is not None
    assert seen.blocked is not None
    assert seen.blocked.kind is BlockKind.NODE


@contract
def test_an_empty_allocation_is_refused(cluster: Driver) -> None:
    job = cluster.submit("nothing")
    with pytest.raises(Never):
        cluster.port.start(job, {}, 1)
    assert cluster.job(job).state is JobState.QUEUED


# --- stopping and resuming --------------------------------------------------------------------------------


@contract
def test_a_stop_ends_in_stopped_with_a_complete_checkpoint(cluster: Driver) -> None:
    job = cluster.running("stops", allocation=cluster.one(2))
    cluster.stop(job, 60.0)
    seen = cluster.wait(job, JobState.STOPPED)
    assert (dict(seen.allocation), seen.epoch, seen.exit_code) == ({}, 1, 86)
    assert seen.checkpoint is not None
    assert seen.checkpoint.epoch == 1
    assert seen.checkpoint.step >= 1


@contract
def test_stopping_twice_is_stopping_once(cluster: Driver) -> None:
    job = cluster.running("stops-twice")
    cluster.stop(job, 60.0)
    cluster.stop(job, 60.0)
    before = cluster.wait(job, JobState.STOPPED)
    cluster.stop(job, 60.0)
    cluster.harness.pause()
    after = cluster.job(job)
    assert (after.state, after.epoch, after.checkpoint) == (before.state, before.epoch, before.checkpoint)
    cluster.start(job, cluster.one(), 2)  # the late request must not stop the next start
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 5)
    assert cluster.job(job).state is JobState.RUNNING


@contract
def test_stopping_what_does_not_run_changes_nothing(cluster: Driver) -> None:
    job = cluster.submit("idle")
    cluster.stop(job, 5.0)
    cluster.harness.pause()
    assert cluster.job(job).state is JobState.QUEUED
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.RUNNING)
    cluster.wait_progress(job, 5)
    assert cluster.job(job).state is JobState.RUNNING


@contract
def test_training_goes_on_at_another_size_where_it_stopped(cluster: Driver) -> None:
    job = cluster.submit("elastic")
    shapes = [cluster.one(1), cluster.one(2), cluster.spread(1), cluster.other(1)]
    expected = 0.0
    for epoch, shape in enumerate(shapes, start=1):
        cluster.start(job, shape, epoch)
        cluster.wait(job, JobState.RUNNING)
        cluster.wait_progress(job, 3)
        cluster.stop(job, 60.0)
        seen = cluster.wait(job, JobState.STOPPED)
        start = cluster.starts(job)[-1]
        assert (start.epoch, start.world, start.step) == (epoch, sum(shape.values()), expected)
        assert seen.checkpoint is not None
        assert seen.checkpoint.epoch == epoch
        assert seen.checkpoint.step > expected
        expected = seen.checkpoint.step
    assert len(cluster.starts(job)) == len(shapes)
    steps = cluster.steps(job)
    assert steps == sorted(set(steps)), "a step was done twice although every stop was clean"


@contract
def test_a_stopping_job_holds_its_gpus(cluster: Driver) -> None:
    where = cluster.one()
    job = cluster.running("lingers", Behaviour.IGNORES, where)
    cluster.stop(job, 1.0)
    seen = cluster.wait(job, JobState.STOPPING, JobState.STOPPED)
    if seen.state is JobState.STOPPING:
        assert sum(seen.allocation.values()) == 1
    assert dict(cluster.wait(job, JobState.STOPPED).allocation) == {}


@contract
def test_a_job_that_ignores_the_request_is_killed_and_can_start_again(cluster: Driver) -> None:
    job = cluster.running("stubborn", Behaviour.IGNORES)
    cluster.stop(job, 1.0)
    seen = cluster.wait(job, JobState.STOPPED)
    assert seen.exit_code not in (0, 86)
    mark = seen.checkpoint
    cluster.start(job, cluster.other(), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("its second start", lambda: len(cluster.starts(job)) == 2)
    assert cluster.starts(job)[1].step == (0 if mark is None else mark.step)


@contract
def test_a_stop_right_after_the_start_is_not_lost(cluster: Driver) -> None:
    job = cluster.submit("hasty")
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.STARTING, JobState.RUNNING)
    cluster.stop(job, 60.0)
    cluster.wait(job, JobState.STOPPED)


# --- ending -----------------------------------------------------------------------------------------------


@contract
def test_a_job_that_finishes_is_completed(cluster: Driver) -> None:
    job = cluster.submit("finishes", Behaviour.FINISHES)
    cluster.start(job, cluster.one(2))
    seen = cluster.wait(job, JobState.COMPLETED)
    assert (dict(seen.allocation), seen.exit_code) == ({}, 0)


@contract
def test_a_job_that_fails_is_failed_with_its_own_exit_code(cluster: Driver) -> None:
    job = cluster.submit("fails", Behaviour.FAILS)
    cluster.start(job, cluster.one(2))
    seen = cluster.wait(job, JobState.FAILED)
    assert (dict(seen.allocation), seen.exit_code) == ({}, FAILURE_CODE)


@contract
def test_a_failure_with_a_retry_left_is_not_the_end(cluster: Driver) -> None:
    """Who retries is the cluster's affair: in place (still running) or by showing a state that can be started."""
    job = cluster.submit("fails-once", Behaviour.FAILS_ONCE)
    cluster.start(job, cluster.one())
    seen = cluster.wait(job, JobState.COMPLETED, JobState.LOST, JobState.STOPPED)
    if seen.state.startable:
        cluster.start(job, cluster.one(), 2)
        seen = cluster.wait(job, JobState.COMPLETED)
    assert seen.exit_code == 0
    assert len(cluster.starts(job)) == 2


@contract
def test_gpus_come_free_when_their_job_ends(cluster: Driver) -> None:
    node = cluster.nodes()[0]
    everything = {node.name: node.gpus - node.foreign}
    first = cluster.submit("short", Behaviour.FINISHES, gpus=(1, 4096))
    cluster.start(first, everything)
    cluster.wait(first, JobState.COMPLETED)
    second = cluster.submit("next", gpus=(1, 4096))
    cluster.start(second, everything)
    assert sum(cluster.wait(second, JobState.RUNNING).allocation.values()) == sum(everything.values())


@contract
@pytest.mark.parametrize("behaviour", [Behaviour.FINISHES, Behaviour.FAILS])
def test_an_ended_job_never_starts_again(cluster: Driver, behaviour: Behaviour) -> None:
    job = cluster.submit("over", behaviour)
    cluster.start(job, cluster.one())
    ended = cluster.wait(job, JobState.COMPLETED, JobState.FAILED)
    with pytest.raises(Never):
        cluster.port.start(job, cluster.one(), 2)
    cluster.harness.pause()
    assert cluster.job(job).state is ended.state
    assert len(cluster.starts(job)) == 1


# --- cancelling -------------------------------------------------------------------------------------------


@contract
@pytest.mark.parametrize(
    "state", [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.STOPPED]
)
def test_cancel_ends_a_job_in_any_state(cluster: Driver, state: JobState) -> None:
    if state is JobState.QUEUED:
        job = cluster.submit("cancelled")
    elif state is JobState.STARTING:
        job = cluster.submit("cancelled")
        cluster.start(job, cluster.one())
    elif state is JobState.RUNNING:
        job = cluster.running("cancelled")
    elif state is JobState.STOPPING:
        job = cluster.running("cancelled", Behaviour.IGNORES)
        cluster.stop(job, 60.0)
        cluster.wait(job, JobState.STOPPING)
    else:
        job = cluster.stopped("cancelled")
    cluster.cancel(job)
    cluster.cancel(job)
    seen = cluster.wait(job, JobState.CANCELLED)
    assert dict(seen.allocation) == {}
    cluster.cancel(job)
    with pytest.raises(Never):
        cluster.port.start(job, cluster.one(), seen.epoch + 1)
    cluster.harness.pause()
    assert cluster.job(job).state is JobState.CANCELLED


@contract
@pytest.mark.parametrize("behaviour", [Behaviour.FINISHES, Behaviour.FAILS])
def test_cancel_does_not_change_how_a_job_ended(cluster: Driver, behaviour: Behaviour) -> None:
    job = cluster.submit("ended", behaviour)
    cluster.start(job, cluster.one())
    ended = cluster.wait(job, JobState.COMPLETED, JobState.FAILED)
    cluster.cancel(job)
    cluster.harness.pause()
    seen = cluster.job(job)
    assert (seen.state, seen.exit_code) == (ended.state, ended.exit_code)


@contract
def test_a_stop_request_does_not_bring_a_cancelled_job_back(cluster: Driver) -> None:
    job = cluster.running("gone")
    cluster.cancel(job)
    cluster.stop(job, 5.0)
    cluster.wait(job, JobState.CANCELLED)
    cluster.stop(job, 5.0)
    cluster.harness.pause()
    assert cluster.job(job).state is JobState.CANCELLED


# --- jobs that are not there ------------------------------------------------------------------------------


@contract
def test_an_unknown_job_is_never(cluster: Driver) -> None:
    port = cluster.port
    where = cluster.one()
    with pytest.raises(Never):
        cluster.patient(lambda: port.start("no-such-job", where, 1))
    with pytest.raises(Never):
        cluster.stop("no-such-job", 1.0)
    with pytest.raises(Never):
        cluster.cancel("no-such-job")
    with pytest.raises(Never):
        cluster.patient(lambda: port.read_log("no-such-job", 0))


@contract
def test_releasing_an_unknown_job_is_nothing(cluster: Driver) -> None:
    cluster.patient(lambda: cluster.port.release("no-such-job"))
    assert cluster.observe().jobs == ()


# --- logs -------------------------------------------------------------------------------------------------


@contract
def test_a_log_reads_the_same_in_any_pieces(cluster: Driver) -> None:
    job = cluster.submit("talks", Behaviour.FINISHES)
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.COMPLETED)
    whole = cluster.log(job)
    assert whole.count(b"[horae] step=") >= 3
    pieces, offset = b"", 0
    while True:
        chunk = cluster.port.read_log(job, offset, limit=37)
        assert len(chunk.data) <= 37
        assert chunk.next_offset == offset + len(chunk.data)
        pieces, offset = pieces + chunk.data, chunk.next_offset
        if chunk.eof:
            break
    assert pieces == whole
    end = cluster.port.read_log(job, len(whole))
    assert (end.data, end.next_offset, end.eof) == (b"", len(whole), True)


@contract
def test_a_job_that_never_ran_has_an_empty_log(cluster: Driver) -> None:
    job = cluster.submit("silent")
    chunk = cluster.port.read_log(job, 0)
    assert (chunk.data, chunk.next_offset, chunk.eof) == (b"", 0, True)


@contract
def test_an_offset_beyond_the_end_means_another_file(cluster: Driver) -> None:
    """A log that shrank was replaced: reading starts over in it, and `identity` says so."""
    job = cluster.submit("shrunk", Behaviour.FINISHES)
    cluster.start(job, cluster.one())
    cluster.wait(job, JobState.COMPLETED)
    whole = cluster.log(job)
    before = cluster.port.read_log(job, 0).identity
    beyond = cluster.port.read_log(job, len(whole) + 1000)
    assert beyond.identity != before
    assert beyond.data == whole
    assert beyond.next_offset == len(whole)


@contract
def test_the_log_of_all_starts_is_one_log(cluster: Driver) -> None:
    job = cluster.stopped("two-lives")
    first = cluster.log(job)
    cluster.start(job, cluster.one(), 2)
    cluster.wait(job, JobState.RUNNING)
    cluster.until("its second start", lambda: len(cluster.starts(job)) == 2)
    assert cluster.log(job).startswith(first)


# --- arbiters ---------------------------------------------------------------------------------------------


@contract
def test_the_last_claim_shows_in_every_observation(cluster: Driver) -> None:
    cluster.port.claim("one")
    cluster.until("the claim shows", lambda: cluster.observe().claim == "one")
    cluster.port.claim("one")
    assert cluster.observe().claim == "one"
    other = cluster.harness.other_arbiter()
    other.claim("two")
    cluster.until("the newer claim shows", lambda: cluster.observe().claim == "two")
    assert other.observe().claim == "two"


@contract
def test_heartbeats_change_nothing_that_is_observed(cluster: Driver) -> None:
    job = cluster.submit("steady")
    cluster.port.heartbeat()
    cluster.port.heartbeat()
    assert cluster.job(job).state is JobState.QUEUED


@contract
def test_a_restarted_arbiter_finds_its_jobs_running(cluster: Driver) -> None:
    job = cluster.running("adopted", allocation=cluster.one(2))
    before = cluster.job(job)
    cluster.harness.restart_arbiter()
    after = cluster.job(job)
    assert (after.state, after.epoch, after.allocation) == (JobState.RUNNING, 1, before.allocation)
    cluster.wait_progress(job)
    cluster.stop(job, 60.0)
    assert cluster.wait(job, JobState.STOPPED).exit_code == 86
    assert len(cluster.starts(job)) == 1


@contract
@pytest.mark.parametrize(
    ("behaviour", "state", "code"),
    [(Behaviour.FINISHES, JobState.COMPLETED, 0), (Behaviour.FAILS, JobState.FAILED, FAILURE_CODE)],
)
def test_a_job_that_ends_while_nobody_looks_keeps_its_exit_code(
    cluster: Driver, behaviour: Behaviour, state: JobState, code: int
) -> None:
    job = cluster.submit("unseen", behaviour)
    cluster.start(job, cluster.one())
    cluster.harness.restart_arbiter()
    assert cluster.wait(job, JobState.COMPLETED, JobState.FAILED).state is state
    cluster.harness.restart_arbiter()
    assert cluster.job(job).exit_code == code


# --- nodes ------------------------------------------------------------------------------------------------


@contract
def test_a_lost_node_loses_its_jobs_and_only_them(cluster: Driver) -> None:
    if not cluster.harness.can_lose_nodes:
        pytest.skip("this harness cannot lose a node")
    here, there = cluster.nodes()[:2]
    hit = cluster.running("hit", allocation={here.name: 1})
    spared = cluster.running("spared", allocation={there.name: 1})
    cluster.wait_progress(hit, 15)  # far enough for a periodic checkpoint
    cluster.harness.lose_node(here.name)
    cluster.until("the node is down", lambda: cluster.node(here.name).health is Health.DOWN)
    lost = cluster.wait(hit, JobState.LOST)
    assert dict(lost.allocation) == {}
    assert cluster.job(spared).state is JobState.RUNNING
    cluster.start(hit, {there.name: 1}, 2)
    cluster.wait(hit, JobState.RUNNING)
    cluster.until("its second start", lambda: len(cluster.starts(hit)) == 2)
    again = cluster.starts(hit)[1]
    assert again.epoch == 2
    assert again.step == (0 if lost.checkpoint is None else lost.checkpoint.step)
    cluster.harness.restore_node(here.name)
    cluster.until("the node is up", lambda: cluster.node(here.name).health is Health.UP)


@contract
def test_nothing_starts_on_a_lost_node(cluster: Driver) -> None:
    if not cluster.harness.can_lose_nodes:
        pytest.skip("this harness cannot lose a node")
    job, where = cluster.submit("homeless"), cluster.one()
    (name,) = where
    cluster.harness.lose_node(name)
    try:
        cluster.until("the node is down", lambda: cluster.node(name).health is Health.DOWN)
        try:
            cluster.port.start(job, where, 1)
        except TryLater:
            assert cluster.job(job).state is JobState.QUEUED
        else:
            assert _refused_or_blocked(cluster, job) is not None
    finally:
        cluster.harness.restore_node(name)


# --- handing back -----------------------------------------------------------------------------------------


@contract
def test_a_released_job_is_no_longer_ours_and_runs_on(cluster: Driver) -> None:
    job = cluster.running("freed")
    (node,) = [cluster.node(name) for name in cluster.job(job).allocation]  # where the cluster put it
    cluster.patient(lambda: cluster.port.release(job))
    cluster.patient(lambda: cluster.port.release(job))
    cluster.until("it is gone", lambda: job not in {each.id for each in cluster.observe().jobs})
    cluster.until("its GPU is foreign", lambda: cluster.node(node.name).foreign == node.foreign + 1)
    assert held_by_node(cluster.observe().jobs) == {}


# --- levers -----------------------------------------------------------------------------------------------


@contract
def test_order_and_reasons_are_idempotent_or_refused(cluster: Driver) -> None:
    first, second = cluster.submit("order-1"), cluster.submit("order-2")
    for _ in range(2):
        if cluster.port.capabilities().order_lever is None:
            with pytest.raises(Never):
                cluster.port.set_order([second, first])
        else:
            cluster.port.set_order([second, first])
        cluster.port.set_reason(first, "waits for 2 GPUs")
    assert cluster.job(first).state is JobState.QUEUED
    assert cluster.job(second).state is JobState.QUEUED


@contract
def test_reshape_is_in_place_or_refused(cluster: Driver) -> None:
    job = cluster.running("reshaped")
    if not cluster.port.capabilities().reshape_in_place:
        with pytest.raises(Never):
            cluster.port.reshape(job, cluster.one(2), 2)
        assert cluster.job(job).epoch == 1
        return
    cluster.port.reshape(job, cluster.one(2), 2)
    cluster.until("two GPUs in epoch 2", lambda: (s := cluster.job(job)).epoch == 2 and sum(s.allocation.values()) == 2)
    cluster.wait(job, JobState.RUNNING)


# --- many at once ------------------------------------------------------------------------------------------


@contract
def test_many_are_started_and_stopped_and_each_has_its_own_answer(cluster: Driver) -> None:
    """By one call where the port is `Batching`, else one after the other."""
    port, jobs = cluster.port, [cluster.submit(f"many-{number}") for number in range(2)]

    def start(epoch: int) -> None:
        left = set(jobs)

        def asked() -> bool:
            where = cluster.one()
            failed = start_many(port, [*((job, where, epoch) for job in sorted(left)), ("77.none", {}, 1)])
            assert isinstance(failed["77.none"], Never | TryLater)
            assert all(isinstance(failed[job], TryLater) for job in left & failed.keys())
            for job in left - failed.keys():
                cluster.asked(job, where, epoch)
            left.intersection_update(failed)
            return not left and isinstance(failed["77.none"], Never)

        cluster.until("all are asked for", asked)
        for job in jobs:
            cluster.wait(job, JobState.RUNNING)
            cluster.wait_progress(job)

    start(1)
    where = cluster.one()
    assert start_many(port, [(job, where, 1) for job in jobs]) == {}
    assert [len(cluster.starts(job)) for job in jobs] == [1, 1]
    assert set(stop_many(port, [*((job, 60.0) for job in jobs), ("77.none", 60.0)])) == {"77.none"}
    for job in jobs:
        assert cluster.wait(job, JobState.STOPPED).checkpoint is not None
    start(2)
    assert [len(cluster.starts(job)) for job in jobs] == [2, 2]
