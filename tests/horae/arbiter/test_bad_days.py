"""What a cluster, a site, a policy and a clock do to an arbiter on bad days."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.core import Stage
from horae.arbiter.execute.executor import Do, Done
from horae.arbiter.execute.outcomes import LONGEST_RETRY_S, REFUSALS, Retries, outcomes
from horae.elastic.protocol import CHECKPOINTS_FAIL
from horae.fake import Delay, Drop, FakePort, LoseReply, Raise, World
from horae.fake.world import FakeJob
from horae.journal import Kind, events
from horae.journal.events import HORAE, Verb
from horae.port import Blocked, BlockKind, FixConfiguration, JobState, Never, Observation, TryLater
from horae.views.explain import explain
from policy.decide import decide
from policy.model import Allocation, BadInput, Decision, Health, Node, Snapshot
from tests.horae.arbiter.site import ANN, BEN, NODES, Site, Time, answer, equal_shares, spec

# --- the cluster ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["submit", "start", "checkpoint_and_stop", "cancel", "claim", "observe"])
@pytest.mark.parametrize(
    "fault",
    [Raise(TryLater("busy")), LoseReply(), Drop(), Delay(3.0), Raise(FixConfiguration("no rights", "grant them"))],
    ids=["busy", "lost reply", "lost message", "slow", "no rights"],
)
def test_a_failed_call_is_made_good(tmp_path: Path, verb: str, fault: Any) -> None:
    """Whatever happens to the first two calls of a verb, every job comes to its end and none is doubled."""
    if verb == "observe" and not isinstance(fault, Raise):
        fault = Raise(TryLater("the answer was lost"))  # a look has no effect that could be late
    site = Site(tmp_path, policy=equal_shares)
    site.fake.faults.on(verb, fault, times=2)
    (first,) = site.commands.submit([spec("first", (1, 16), steps=300)], ANN)
    (gone,) = site.commands.submit([spec("gone", (1, 4), steps=100_000)], ANN)
    site.run(20)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=200)], BEN)
    site.run(30)
    site.commands.cancel(gone, ANN)
    for job in (first, second):
        site.until(job, JobState.COMPLETED, patience_s=1500)
    site.until(gone, JobState.CANCELLED, patience_s=600)
    assert {first, second} <= set(site.world.jobs) <= {first, second, gone}
    assert site.world.refusals == []
    site.run(700)
    assert site.core.ledger.alerts == {}


def test_a_cluster_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("runs", 2, steps=100_000)], ANN)
    site.until(job, JobState.RUNNING)
    site.fake.faults.on("observe", Raise(TryLater("the controller is away")), times=1000)
    site.run(120)
    assert site.core.ledger.alerts["cluster"].text == "the controller is away"
    assert site.fake.faults.calls["observe"] < 60, "it is asked again and again, though later each time"
    site.fake.faults.clear()
    site.run(70)
    assert site.core.ledger.alerts == {}
    assert site.job(job).state is JobState.RUNNING
    assert site.job(job).epoch == 1


def test_a_stale_observation_is_not_believed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("runs", 2, steps=100_000)], ANN)
    site.run(1.0)
    site.fake.stale = site.world.observe()  # it still waits
    site.fake.stale = None
    old = site.world.observe()
    site.until(job, JobState.RUNNING)
    site.fake.stale = old
    site.run(10)
    assert site.job(job).state is JobState.RUNNING
    site.fake.stale = None
    site.run(10)
    assert site.job(job).epoch == 1
    assert site.world.jobs[job].epoch == 1


def test_a_lost_node_restarts_its_job_elsewhere_from_its_checkpoint(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("hit", 4, steps=400)], ANN)
    (node,) = site.until(job, JobState.RUNNING).allocation
    site.run(10)
    site.world.set_health(node, Health.DOWN)
    record = site.until(job, JobState.LOST)
    assert record.checkpoint is not None
    record = site.until(job, JobState.RUNNING)
    assert node not in record.allocation
    assert record.epoch == 2
    site.world.set_health(node, Health.UP)
    site.until(job, JobState.COMPLETED, patience_s=300)
    assert site.world.refusals == []


def test_a_job_that_is_lost_again_and_again_waits_longer_each_time(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("doomed", 1, steps=100_000, retries=1000, extra={"fake.fail_at": "3"})], ANN)
    site.run(600)
    lost = [e.at_s for e in site.journal.history(job=job) if e.kind is Kind.SEEN and e.data["state"] == "lost"]
    gaps = [b - a for a, b in pairwise(lost)]
    assert len(gaps) >= 4
    assert all(later > earlier * 1.3 for earlier, later in pairwise(gaps[1:]))


def test_a_node_that_says_more_than_it_has_is_left_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=[Node("liar", "k80", 2), Node("true", "k80", 4)])
    site.world.shown_gpus["liar"] = 8
    (job,) = site.commands.submit([spec("wide", 4, steps=100)], ANN)
    record = site.until(job, JobState.RUNNING, patience_s=60)
    assert record.allocation == {"true": 4}
    assert site.core.ledger.pools["main"].avoid["liar"].gpus >= 2
    site.until(job, JobState.COMPLETED, patience_s=300)


def test_a_foreign_job_that_was_first_is_planned_around(tmp_path: Path) -> None:
    site = Site(tmp_path, world_options={"queues_when_full": True})
    (job,) = site.commands.submit([spec("second", 4, steps=50)], ANN)
    site.fake.faults.on("start", Delay(1.0))
    site.run(1.5)
    site.world.set_foreign("n1", 3)  # between the decision and its effect
    record = site.until(job, JobState.RUNNING, patience_s=60)
    assert record.allocation.get("n1", 0) <= 1
    assert any(
        e.data["text"].startswith("withdrawn:") for e in site.journal.history(kinds=[Kind.INTENT]) if "text" in e.data
    )


def test_a_policy_that_places_anew_what_it_just_moved_moves_nothing_to_and_fro(tmp_path: Path) -> None:
    """The test's policy puts a waiting job on n1 and n2, and one that holds both on n2 alone."""
    site = Site(tmp_path)
    site.world.set_foreign("n1", 3)
    (job,) = site.commands.submit([spec("to-and-fro", 4, steps=4000)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(120)
    assert site.job(job).allocation == {"n2": 4}
    assert site.job(job).epoch == 2


def test_a_sites_limit_becomes_the_tenants_cap(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=obeying_caps)
    site.world.tenant_limits["ann"] = 3
    (job,) = site.commands.submit([spec("greedy", (1, 8), steps=100)], ANN)
    record = site.until(job, JobState.RUNNING, patience_s=60)
    assert sum(record.allocation.values()) == 3
    assert site.core.ledger.pools["main"].caps["ann"].cap == 3
    assert "MaxTRESPerUser" in site.core.ledger.pools["main"].caps["ann"].text
    site.run(400)  # longer than the limit is believed
    assert site.core.ledger.pools["main"].caps == {} or site.job(job).ended


def test_a_limit_whose_number_is_not_told_is_found_by_trying_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Slurm: 4 GPUs are refused, then 2 are, and 1 runs."""
    monkeypatch.setattr("horae.fake.world.Blocked", lambda kind, text, _cap=None: Blocked(kind, text))
    site = Site(tmp_path, policy=obeying_caps)
    site.world.tenant_limits["ann"] = 1
    (job,) = site.commands.submit([spec("greedy", (1, 8), steps=100)], ANN)
    record = site.until(job, JobState.RUNNING, patience_s=120)
    assert sum(record.allocation.values()) == 1
    assert site.core.ledger.pools["main"].caps["ann"].cap == 1


def obeying_caps(snapshot: Snapshot, *asked: Any) -> Decision:
    caps = {t.name: t.cap for t in snapshot.tenants if t.cap is not None}
    (job,) = snapshot.jobs or (None,)
    if job is None:
        return answer(snapshot, {})
    return answer(snapshot, {job.name: {"n1": min(caps.get(job.tenant, 4), 4)}})


def test_a_start_that_is_refused_for_good_is_held_and_says_why(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.fake.faults.on("start", Raise(Never("your script needs a licence")), times=100)
    (job,) = site.commands.submit([spec("refused")], ANN)
    site.run(400)
    assert site.fake.faults.calls["start"] == 3
    assert "your script needs a licence" in (site.job(job).hold_why or "")
    site.fake.faults.clear()
    site.commands.unhold(job, ANN)
    site.until(job, JobState.RUNNING)


def test_a_submission_that_the_cluster_refuses_fails_in_words(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.fake.faults.on("submit", Raise(Never("no such queue")))
    (job,) = site.commands.submit([spec("refused")], ANN)
    assert site.until(job, JobState.FAILED).end_text == "the cluster refuses it: no such queue"


def test_a_gang_that_cannot_form_is_withdrawn(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.world.blocks["1"] = Blocked(BlockKind.GANG, "2 of 4 workers came up")
    (job,) = site.commands.submit([spec("gang", 4, steps=50)], ANN)
    record = site.until(job, JobState.STARTING)
    assert record.blocked is not None
    site.run(12)
    del site.world.blocks["1"]
    site.until(job, JobState.COMPLETED, patience_s=300)
    assert site.world.refusals == []


class TakesBack(FakePort):
    """A cluster that takes a blocked start back by itself, as soon as it has told of it (Slurm's adapter does)."""

    def observe(self) -> Observation:
        seen = super().observe()
        for job in self.world.jobs.values():
            why = job.blocked
            if job.waiting is not None:
                self.world.stop(job, 0.0)
                job.blocked = why  # until its next start
        return seen


class Blocks(World):
    """More than one node is more than a limit lets a job have; `n3` looks free, and nobody gets it."""

    def obstacle(self, job: FakeJob, allocation: Allocation) -> Blocked | None:
        if len(allocation) > 1:
            return Blocked(BlockKind.LIMIT, "QOSMaxNodePerJobLimit", alone=True)
        return Blocked(BlockKind.FOREIGN, "Resources") if "n3" in allocation else None


@pytest.mark.parametrize(("gpus", "starts"), [((1, 8), 3), (4, 2)], ids=["a limit", "a node"])
def test_what_the_cluster_takes_back_by_itself_teaches_at_once(
    tmp_path: Path, gpus: int | tuple[int, int], starts: int
) -> None:
    """Where rounds are many it is asked for again long before the time after which a start is given up that waits."""
    time = Time()
    world = Blocks(NODES, clock=time.monotonic)
    pools = [{"name": "main", "policy": "max-min"}]
    often = {"quiet_s": 0.5, "tick_s": 0.25, "busy_s": 0.25}
    site = Site(tmp_path, policy=decide, time=time, world=world, port=TakesBack(world), pools=pools, rounds=often)
    (job,) = site.commands.submit([spec("blocked", gpus, steps=100_000)], ANN)
    record = site.until(job, JobState.RUNNING)
    assert record.epoch == starts
    assert record.allocation == {"n4": 4}


def test_a_job_that_ignores_the_request_is_killed_after_its_grace(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares)
    stubborn = spec("stubborn", (1, 16), steps=2000, grace_s=5.0, extra={"fake.ignores": "1"})
    (first,) = site.commands.submit([stubborn], ANN)
    site.until(first, JobState.RUNNING)
    site.run(10)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=50)], BEN)
    site.until(second, JobState.RUNNING, patience_s=30)
    assert site.until(first, JobState.RUNNING).epoch == 2
    assert site.world.refusals == []


def test_a_job_the_cluster_forgot_is_submitted_again_where_we_own_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("forgotten", 2, steps=200)], ANN)
    site.until(job, JobState.RUNNING)
    fake = site.world.jobs.pop(job)
    site.world.held.subtract(fake.allocation)
    record = site.until(job, JobState.COMPLETED, patience_s=400)
    assert record.epoch == 2
    assert [e.kind for e in site.journal.history(job=job)].count(Kind.MISSING) == 1


def test_the_mandatory_gap_is_kept(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares, world_options={"restart_gap_s": 4.0})
    (first,) = site.commands.submit([spec("first", (1, 16), steps=1000)], ANN)
    site.until(first, JobState.RUNNING)
    site.run(5)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=100)], BEN)
    site.until(second, JobState.COMPLETED, patience_s=400)
    site.until(first, JobState.COMPLETED, patience_s=900)
    assert site.job(first).epoch >= 2
    assert site.world.violations == []


# --- arbiters ---------------------------------------------------------------------------------------------


def test_the_older_of_two_arbiters_stops_acting(tmp_path: Path) -> None:
    first = Site(tmp_path / "one")
    (job,) = first.commands.submit([spec("shared", 2, steps=100_000)], ANN)
    first.until(job, JobState.RUNNING)
    second = Site(tmp_path / "two", world=first.world, time=first.time)
    second.run(5)
    assert second.job(job).state is JobState.RUNNING  # adopted
    calls = first.fake.faults.calls.copy()
    first.commands.cancel(job, ANN)
    first.run(20)
    assert first.core.stage is Stage.OVER
    assert first.core.ledger.stood_down == second.core.token
    changed = {v for v in first.fake.faults.calls if first.fake.faults.calls[v] != calls[v]}
    assert changed <= {"observe"}, f"it went on to {changed}"
    assert first.world.jobs[job].state is JobState.RUNNING


# --- the journal ------------------------------------------------------------------------------------------


def test_a_lost_journal_is_rebuilt_from_the_cluster(tmp_path: Path) -> None:
    site = Site(tmp_path)
    running, waiting = site.commands.submit([spec("runs", 16, steps=2000), spec("waits", 16, steps=50)], ANN)
    site.until(running, JobState.RUNNING)
    site.world.set_health("n1", Health.DOWN)
    site.until(running, JobState.LOST)
    site.world.set_health("n1", Health.UP)
    site.until(running, JobState.RUNNING)
    assert site.job(running).epoch >= 2
    epoch = site.job(running).epoch
    site.close()
    shutil.rmtree(tmp_path)
    site.open()
    site.run(3)
    assert site.journal.history(kinds=[Kind.RECOVERED])
    record = site.job(running)
    assert (record.state, record.epoch, record.owner) == (JobState.RUNNING, epoch, "ann")
    assert site.job(waiting).spec == site.world.jobs[waiting].spec
    (new,) = site.commands.submit([spec("new", 1, steps=10)], ANN)
    assert int(new) > int(waiting) + 100, "its number might have been somebody's"
    site.until(running, JobState.COMPLETED, patience_s=900)
    site.until(waiting, JobState.COMPLETED, patience_s=900)
    assert site.world.jobs[running].epoch == epoch
    assert site.world.refusals == []


def test_yesterdays_journal_is_recognised_and_nothing_runs_twice(tmp_path: Path) -> None:
    site = Site(tmp_path / "state", policy=equal_shares)
    finished, running = site.commands.submit([spec("finished", 2, steps=60), spec("running", (1, 8), steps=3000)], ANN)
    site.until(finished, JobState.RUNNING)
    site.until(running, JobState.RUNNING)
    site.close()
    shutil.copytree(tmp_path / "state", tmp_path / "yesterday")
    site.open()
    site.until(finished, JobState.COMPLETED)
    site.world.set_health("n2", Health.DOWN)  # another start or two that yesterday knows nothing of
    site.run(10)
    site.world.set_health("n2", Health.UP)
    site.run(20)
    epoch = site.job(running).epoch
    assert epoch >= 2
    site.close()
    del site.world.jobs[finished]  # the cluster forgot it long ago
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "yesterday", tmp_path / "state")
    site.open()
    site.run(60)
    assert site.journal.history(kinds=[Kind.RECOVERED])
    assert "may have run already" in (site.job(finished).hold_why or "")
    assert finished not in site.world.jobs, "a finished job was started again"
    assert site.job(running).epoch >= epoch
    site.commands.cancel(finished, ANN)
    site.until(running, JobState.COMPLETED, patience_s=2000)
    assert site.until(finished, JobState.CANCELLED).ended is JobState.CANCELLED
    assert site.world.refusals == []


def test_an_unreadable_journal_is_kept_aside_and_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("runs", 2, steps=300)], ANN)
    site.until(job, JobState.RUNNING)
    site.close()
    file = tmp_path / "journal.db"
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    for extra in ("-wal", "-shm"):
        (tmp_path / f"journal.db{extra}").unlink(missing_ok=True)
    site.open()
    kept = list(tmp_path.glob("journal.db.unreadable-*"))
    assert len(kept) == 1 and kept[0].read_bytes() == data
    site.run(2)
    (said,) = site.journal.history(kinds=[Kind.RECOVERED])
    assert str(kept[0]) in said.data["why"]
    assert site.job(job).state is JobState.RUNNING
    site.until(job, JobState.COMPLETED, patience_s=400)
    assert site.world.jobs[job].epoch == 1


# --- time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [-86400.0, 86400.0, 10 * 365 * 86400.0])
def test_a_stepped_clock_moves_no_account_and_no_lease(tmp_path: Path, step_s: float) -> None:
    site = Site(tmp_path, guards={"min_run_s": 30.0, "gain": 0.0}, policy=equal_shares)
    (first,) = site.commands.submit([spec("first", (1, 16), steps=100_000)], ANN)
    site.until(first, JobState.RUNNING)
    site.run(5)
    site.time.wall_offset = step_s
    (second,) = site.commands.submit([spec("second", (1, 16), steps=100_000)], BEN)
    site.run(10)
    record = site.job(first)
    assert record.epoch == 1, "a step made its minimum run time pass"
    assert site.core.ledger.jobs[second].submitted_s > record.submitted_s
    assert record.attained_at(site.core.now_s())["k80"] < 8 * 60
    (said,) = site.journal.history(kinds=[Kind.CLOCK_STEPPED])
    assert said.data["by_s"] == pytest.approx(step_s, abs=1)
    site.until(second, JobState.RUNNING, patience_s=60)
    site.reopen()
    site.run(10)
    assert {site.job(j).state for j in (first, second)} == {JobState.RUNNING}
    (third,) = site.commands.submit([spec("third", (1, 16), steps=100)], BEN)
    assert site.job(third).submitted_s > site.job(second).submitted_s


# --- people -----------------------------------------------------------------------------------------------


def test_ten_thousand_submissions_at_once_cost_no_call_a_job(tmp_path: Path) -> None:
    site = Site(tmp_path)
    jobs = site.commands.submit([spec(f"s{i}", 1, steps=10) for i in range(10_000)], ANN)
    assert len(set(jobs)) == 10_000
    site.run(3)
    calls = site.fake.faults.calls
    assert calls["submit"] == 10_000
    assert calls["observe"] <= 12
    assert calls["start"] == 16
    assert calls["read_log"] <= 16 * 2
    order = [j.id for j in sorted(site.core.ledger.jobs.values(), key=lambda r: (r.submitted_s, r.id))]
    assert order == list(jobs)
    running = {r.id for r in site.core.ledger.live() if r.state.holds}
    assert running == set(jobs[:16])


@pytest.mark.parametrize("step_s", [86400.0, -86400.0])
def test_a_clock_that_steps_while_no_arbiter_runs_is_no_time_that_anybody_had(tmp_path: Path, step_s: float) -> None:
    """A day ahead it used up every limit, and was waited for and held."""
    site = Site(tmp_path)
    runs, waits = site.commands.submit(
        [spec("runs", 8, steps=100_000, checkpoint=None, time_limit_s=3600.0), spec("waits", 8, steps=100_000)], ANN
    )
    site.until(runs, JobState.RUNNING)
    site.run(10)
    before = site.core.ledger.jobs[runs].ran_at(site.core.now_s())
    site.close()
    site.time.wall_offset += step_s
    site.open()
    site.run(10)
    ledger, now_s = site.core.ledger, site.core.now_s()
    assert ledger.jobs[runs].state is JobState.RUNNING
    assert ledger.jobs[runs].ran_at(now_s) == pytest.approx(before + 10.0, abs=1.0)
    assert now_s - ledger.jobs[waits].submitted_s < 120.0
    assert sum(sum(days.values()) for days in ledger.spent.values()) < 8 * 120.0


def test_a_time_limit_ends_a_job_over_all_its_starts(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("long", 1, steps=100_000, time_limit_s=30.0)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(15)
    site.commands.hold(job, ANN)
    site.until(job, JobState.STOPPED)
    site.run(60)
    site.commands.unhold(job, ANN)
    record = site.until(job, JobState.CANCELLED)
    assert "limit of 30 s" in record.end_text or "limit of 30 s" in (record.cancel_why or "")
    assert 30.0 <= record.ran_s <= 36.0


def test_two_connections_share_one_world(tmp_path: Path) -> None:
    site = Site(tmp_path)
    other = FakePort(site.world)
    site.commands.submit([spec("seen", 1)], ANN)
    site.run(3)
    assert [j.state for j in other.observe().jobs] == [JobState.RUNNING]


def test_what_a_start_that_the_site_refuses_was_to_get_is_for_others(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.fake.faults.on("start", Raise(FixConfiguration("its queue is closed", "open it")), job="1", times=100)
    refused, other = site.commands.submit([spec("a", 16, steps=10**5), spec("b", 16, steps=10**5)], ANN)
    site.until(other, JobState.RUNNING, patience_s=30.0)
    causes = {cause.what: cause.text for cause in explain(
        site.core.ledger, site.config, site.job(refused), site.core.now_s(), ()).causes}  # fmt: skip
    assert causes["aside"] == "it is left out of decisions: its queue is closed (open it)"
    site.fake.faults.clear()
    site.commands.cancel(other, ANN)
    site.until(refused, JobState.RUNNING, patience_s=400.0)


# --- who holds a job ----------------------------------------------------------------------------------------


def test_an_owners_hold_is_theirs_where_the_cluster_refuses_the_job_too(tmp_path: Path) -> None:
    """Whichever of the two came first, an operator's word about the refusal does not make the job run."""
    site = Site(tmp_path)
    site.fake.faults.on("start", Raise(Never("no such account")), times=9)
    refused, held = site.commands.submit([spec("refused", 1), spec("held", 1)], ANN)
    site.run(60)
    assert site.job(refused).hold_by == HORAE
    site.commands.hold(refused, ANN, "lunch")
    assert site.job(refused).hold_why == "held by ann: lunch"
    site.commands.unhold(held, ANN)
    retries = Retries(refused={held: REFUSALS - 1})
    site.core.write([events.JobHeld(held, "ann", "lunch")])
    start = Done(Do(Verb.START, held, {"n1": 1}, 9), Never("no such account"))
    found = outcomes(site.core.ledger, [start], retries, site.config.rounds, site.core.now_s())
    (hold,) = [draft for draft in found if isinstance(draft, events.JobHeld)]
    assert (hold.by, "no such account" in hold.text) == ("ann", True)


def test_who_is_overtaken_before_the_claim_comes_through_trusts_the_journal_no_more(tmp_path: Path) -> None:
    """Another arbiter, of a copy of it, has had the cluster in between: what the cluster does not show may be over."""
    site = Site(tmp_path)
    site.fake.faults.on("submit", Raise(TryLater("away")), times=99)
    site.fake.faults.on("claim", Raise(TryLater("away")), times=2)
    ours, theirs = site.commands.submit([spec("ours", 1), spec("held", 1)], ANN)
    site.commands.hold(theirs, ANN, "lunch")
    site.run(3)
    assert (site.core.token is None, site.journal.history(kinds=[Kind.RECOVERED])) == (False, ())
    FakePort(site.world).claim("another")
    site.run(30)
    (recovered,) = site.journal.history(kinds=[Kind.RECOVERED])
    assert "another arbiter" in recovered.data["why"]
    assert site.world.claim == site.core.token
    assert (site.job(ours).hold_by, site.job(theirs).hold_by) == (HORAE, "ann")


def test_an_alert_about_a_call_goes_when_the_call_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.run(5.0)

    def refuses() -> None:
        raise FixConfiguration("the disk is read-only", "mend it")

    monkeypatch.setattr(site.fake, "heartbeat", refuses)
    site.run(60.0)
    assert site.core.ledger.alerts["beat"].text == "the disk is read-only (mend it)"
    monkeypatch.undo()
    site.run(60.0)
    assert site.core.ledger.alerts == {}


def test_an_alert_of_the_arbiter_before_about_a_call_that_is_not_made_again_goes_in_time(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.run(5.0)
    site.journal.append([events.Alerted("checkpoint_and_stop", "the disk is read-only"), events.Alerted("x", "stays")])
    site.reopen()
    site.run(60.0)
    assert set(site.core.ledger.alerts) == {"checkpoint_and_stop", "x"}
    site.run(3 * LONGEST_RETRY_S, step_s=2.0)
    assert set(site.core.ledger.alerts) == {"x"}


def test_who_holds_a_job_that_cannot_write_checkpoints_is_told_why_it_runs_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", (1, 2), steps=100_000)], ANN)
    site.until(job, JobState.RUNNING)
    site.world.jobs[job].says = f"{CHECKPOINTS_FAIL}Read-only file system: '/ck'"
    site.run(20.0)
    assert site.job(job).state is JobState.RUNNING
    with pytest.raises(BadInput, match="its checkpoints cannot be written: Read-only file system: '/ck'"):
        site.commands.hold(job, ANN)
