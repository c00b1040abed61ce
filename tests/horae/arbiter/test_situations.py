"""What a user meets, each made on a cluster in memory: the sentences that must be there, and what would change it.

A situation leads a site there and names the job; nothing is made by hand but the jobs and what people do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from horae.config import Mode
from horae.elastic.protocol import CHECKPOINTS_FAIL
from horae.fake import Delay
from horae.journal.events import TIME_LIMIT
from horae.port import JobState
from horae.spec import ENDS_STAY, STAYS
from horae.views.explain import Explanation
from horae.views.watch import explained, starts
from policy.decide import decide
from policy.model import Node
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, spec

LONG = 10**6
TWO_TYPES = (Node("v1", "v100", 4), Node("k1", "k80", 2))


def site_of(folder: Path, policy: str = "max-min", nodes: tuple[Node, ...] = TWO_TYPES, **changes: object) -> Site:
    pools = [{"name": "main", "policy": policy, **changes.pop("pool", {})}]  # type: ignore[dict-item]
    return Site(folder, nodes=nodes, policy=decide, pools=pools, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Situation:
    name: str
    make: Callable[[Path], tuple[Site, str]]
    says: tuple[str, ...]
    changes: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def starting(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    site.fake.faults.on("start", Delay(20.0))
    (job,) = site.commands.submit([spec("a", 4, steps=100)], ANN)
    site.run(5)
    return site, job


def at_its_most(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("a", (1, 6), steps=LONG)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(5)
    return site, job


def below_its_most(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    first, second = site.commands.submit([spec("first", (1, 6), steps=LONG), spec("other", (1, 6), steps=LONG)], ANN)
    for job in (first, second):
        site.until(job, JobState.RUNNING)
    site.run(10)
    return site, first


def small_beside_free_gpus(folder: Path) -> tuple[Site, str]:
    site, job = below_its_most(folder)
    site.job(job).allocation = {"k1": 1}  # as the cluster shows it before anybody has decided again
    return site, job


def shrunk_two_decisions_ago(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (first,) = site.commands.submit([spec("first", (1, 6), steps=LONG)], ANN)
    site.until(first, JobState.RUNNING)
    site.run(5)
    (second,) = site.commands.submit([spec("second", (1, 6), steps=LONG)], BEN)
    site.until(second, JobState.RUNNING)
    site.run(5)
    for number in (1, 2):
        (more,) = site.commands.submit([spec(f"more{number}", 6, steps=LONG, checkpoint=None)], BEN)
        site.run(10)
        site.commands.cancel(more, ROOT)
        site.run(5)
    return site, first


def larger_than_the_cluster(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("huge", 64)], ANN)
    site.run(5)
    return site, job


def of_an_absent_type(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("a", 1, gpu_types=("a100",))], ANN)
    site.run(5)
    return site, job


def waits_for_its_type(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (other,) = site.commands.submit([spec("other", 3, steps=LONG, checkpoint=None, gpu_types=("v100",))], BEN)
    site.until(other, JobState.RUNNING)
    (job,) = site.commands.submit([spec("a", 2, gpu_types=("v100",))], ANN)
    site.run(5)
    return site, job


def behind_one_that_cannot_stop(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    rigid = spec("rigid", 6, steps=LONG, checkpoint=None, time_limit_s=3600.0)
    (other,) = site.commands.submit([rigid], BEN)
    site.until(other, JobState.RUNNING)
    (job,) = site.commands.submit([spec("a", 2)], ANN)
    site.run(5)
    return site, job


def cannot_write_checkpoints(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("a", (1, 6), steps=LONG)], ANN)
    site.until(job, JobState.RUNNING)
    site.world.jobs[job].says = f"{CHECKPOINTS_FAIL}Permission denied: '/ck'"
    site.run(2)
    site.commands.submit([spec("b", (1, 6), steps=LONG)], BEN)
    site.run(20)
    return site, job


def over_its_limit_elastic(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("a", 2, steps=LONG, time_limit_s=20.0)], ANN)
    site.until(job, JobState.CANCELLED)
    return site, job


def behind_one_without_a_checkpoint(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (other,) = site.commands.submit([spec("a", (1, 4), steps=LONG, checkpoint=None)], ANN)
    site.until(other, JobState.RUNNING)
    (job,) = site.commands.submit([spec("b", (4, 6), steps=LONG)], BEN)
    site.run(5)
    return site, job


def no_checkpoint_and_small(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (other,) = site.commands.submit([spec("b", 4, steps=300)], BEN)
    site.until(other, JobState.RUNNING)
    (job,) = site.commands.submit([spec("a", (1, 6), steps=LONG, checkpoint=None)], ANN)
    site.until(other, JobState.COMPLETED, patience_s=600.0)
    site.run(5)
    return site, job


def not_to_be_started_again(folder: Path) -> tuple[Site, str]:
    """By its cluster's word, since it runs."""
    site = site_of(folder, world_options={"owns_submission": False})
    site.world.submit("b", spec("b", 4, steps=300, owner="ben"))
    site.run(5)
    site.until("b", JobState.RUNNING)
    site.world.submit("a", spec("a", (1, 6), steps=LONG, owner="ann"))
    site.run(5)
    site.until("a", JobState.RUNNING)
    once = {STAYS: "by Requeue=0", ENDS_STAY: "`requeue=1`"}
    site.world.jobs["a"].spec = replace(site.world.jobs["a"].spec, elastic=False, extra=once)
    site.until("b", JobState.COMPLETED, patience_s=600.0)
    site.run(5)
    return site, "a"


def held_back_by_the_time_between_resizes(folder: Path) -> tuple[Site, str]:
    site = site_of(folder, guards={"min_run_s": 100.0, "gain": 0.0})
    (job,) = site.commands.submit([spec("a", (1, 6), steps=LONG)], ANN)
    site.until(job, JobState.RUNNING)
    site.commands.submit([spec("b", (1, 6), steps=LONG)], BEN)
    site.run(36)
    return site, job


def held_back_by_restarts(folder: Path) -> tuple[Site, str]:
    site = site_of(folder, guards={"min_run_s": 0.0, "gain": 0.0, "restarts_per_hour": 1})
    (job,) = site.commands.submit([spec("a", (1, 6), steps=LONG)], ANN)
    site.until(job, JobState.RUNNING)
    (other,) = site.commands.submit([spec("b", (1, 6), steps=LONG)], BEN)
    site.until(other, JobState.RUNNING)
    site.run(5)
    site.commands.cancel(other, ROOT)
    site.run(5)
    return site, job


def held_by_an_operator(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("a", 4, steps=LONG)], ANN)
    site.until(job, JobState.RUNNING)
    site.commands.hold(job, ROOT, "cooling")
    site.until(job, JobState.STOPPED)
    site.run(5)
    return site, job


def over_its_limit(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("a", 2, steps=LONG, checkpoint=None, time_limit_s=20.0)], ANN)
    site.until(job, JobState.CANCELLED)
    return site, job


def watched(mode: Mode) -> Callable[[Path], tuple[Site, str]]:
    def make(folder: Path) -> tuple[Site, str]:
        site = site_of(folder, pool={"mode": mode.value})
        (job,) = site.commands.submit([spec("a", 2)], ANN)
        site.run(5)
        return site, job

    return make


def watched_beside_another(mode: Mode) -> Callable[[Path], tuple[Site, str]]:
    def make(folder: Path) -> tuple[Site, str]:
        site = site_of(folder)
        (big,) = site.commands.submit([spec("big", 6, steps=LONG, time_limit_s=7200.0)], ANN)
        site.until(big, JobState.RUNNING)
        site.commands.set_mode("main", mode, ROOT)
        (job,) = site.commands.submit([spec("a", 2)], BEN)
        site.run(70)
        return site, job

    return make


def advised(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    job, other = site.commands.submit([spec("a", 2, steps=LONG), spec("b", 2, steps=LONG)], ANN)
    for each in (job, other):
        site.until(each, JobState.RUNNING)
    (waits,) = site.commands.submit([spec("c", 4, steps=LONG, checkpoint=None)], BEN)
    site.run(5)
    site.commands.set_mode("main", Mode.ADVISE, ROOT)
    site.commands.cancel(job, ROOT) if site.job(job).cancel_why else None
    site.run(5)
    return site, waits


def its_gpus_are_anothers_by_the_policys_word(folder: Path) -> tuple[Site, str, str]:
    """The policy takes what one holds that cannot be stopped, and gives it to another."""
    site = site_of(folder)
    big, keeps = site.commands.submit(
        [spec("big", 4, steps=LONG, checkpoint=None), spec("keeps", (1, 2), steps=LONG, checkpoint=None)], ANN
    )
    for job in (big, keeps):
        site.until(job, JobState.RUNNING)
    (waits,) = site.commands.submit([spec("waits", (1, 2), steps=LONG)], ANN)
    site.commands.prioritise(waits, 5, ROOT)
    site.run(5)
    return site, keeps, waits


def keeps_what_is_anothers(folder: Path) -> tuple[Site, str]:
    site, keeps, _ = its_gpus_are_anothers_by_the_policys_word(folder)
    return site, keeps


def waits_for_what_another_keeps(folder: Path) -> tuple[Site, str]:
    site, _, waits = its_gpus_are_anothers_by_the_policys_word(folder)
    return site, waits


def cancelled_by_its_owner(folder: Path) -> tuple[Site, str]:
    site = site_of(folder)
    (job,) = site.commands.submit([spec("a", 2, steps=LONG)], ANN)
    site.until(job, JobState.RUNNING)
    site.commands.cancel(job, ANN)
    site.until(job, JobState.CANCELLED)
    return site, job


def fifo_behind_another(folder: Path) -> tuple[Site, str]:
    site = site_of(folder, "fifo")
    big, _, job = site.commands.submit([spec("big", 6, steps=LONG), spec("first", 6), spec("second", 6)], ANN)
    site.until(big, JobState.RUNNING)
    site.run(5)
    return site, job


def a_wrong_option(folder: Path) -> tuple[Site, str]:
    site = site_of(folder, pool={"options": {"ovr": 1}})
    (job,) = site.commands.submit([spec("a", 2)], ANN)
    site.run(5)
    return site, job


def at_its_tenants_cap(folder: Path) -> tuple[Site, str]:
    site = site_of(folder, tenants=[{"name": "ann", "cap": 0}, {"name": "ben"}])
    (other,) = site.commands.submit([spec("other", 2, steps=LONG)], BEN)
    site.until(other, JobState.RUNNING)
    (job,) = site.commands.submit([spec("a", 1)], ANN)
    site.run(10)
    return site, job


def beside_its_tenants_cap(min_gpus: int) -> Callable[[Path], tuple[Site, str]]:
    """A job that runs and holds all that its tenant may, or one that needs more than that."""

    def lead(folder: Path) -> tuple[Site, str]:
        site = site_of(folder, tenants=[{"name": "ann", "cap": 3}, {"name": "ben"}])
        (job,) = site.commands.submit([spec("a", (min_gpus, 6), steps=LONG)], ANN)
        (other,) = site.commands.submit([spec("other", (1, 6), steps=LONG)], BEN)
        site.until(other, JobState.RUNNING)
        site.run(10)
        return site, job

    return lead


SITUATIONS = (
    Situation("holds its tenant's cap", beside_its_tenants_cap(1), ("its cap) and holds 3", "3 by job 2 other (ben)"),
              ("a higher cap, by an operator",), never=("ending", "smaller minimum")),
    Situation("needs more than its tenant's cap", beside_its_tenants_cap(4), ("may hold 3 GPUs at once (its cap)",),
              ("a higher cap, by an operator, or a smaller minimum",), never=("ending", "end or shrink")),
    Situation("at its tenant's cap", at_its_tenants_cap, ("may hold 0 GPUs at once (its cap)", "4 are free"),
              ("a higher cap, by an operator",), never=("ending", "the policy's next decision")),
    Situation("starting", starting, ("it was given 4 GPUs; the cluster does not show its gang yet",)),
    Situation("at its most", at_its_most, ("its tenant ann holds 6 GPUs, about the 6 it is owed now",),
              never=("it could use",)),
    Situation("below its most", below_its_most,
              ("it could use 6 GPUs and holds", "by job 2 other (ann)"), ("job 2 ending, or shrinking",)),
    Situation("small beside free GPUs", small_beside_free_gpus,
              ("it could use 6 GPUs and holds 1: 3 are held: 3 by job 2 other (ann); 2 are free",),
              ("the policy's next decision",), never=("job 2 ending",)),
    Situation("shrunk two decisions ago", shrunk_two_decisions_ago,
              ("it shrank from ", "when job 2 second (ben) got more: policy max-min decided so",
               "its tenant ann holds ", "by job 2 second (ben)")),
    Situation("larger than the cluster", larger_than_the_cluster,
              ("no set of healthy nodes could hold 64 GPUs",), ("a smaller minimum",)),
    Situation("an absent type", of_an_absent_type,
              ("no set of healthy nodes could hold 1 GPU of a100",
               "no node of pool main has GPUs of the type a100; there are: k80, v100"), ("with a type that is there",),
              never=("it is owed", "a smaller minimum")),
    Situation("waits for its type", waits_for_its_type,
              ("needs 2 GPUs of v100; 1 is free", "3 are held: 3 by job 1 other (ben); 1 is free"),
              ("1 GPU of v100 more that come free", "job 1 ending: it cannot be resized")),
    Situation("behind one that cannot stop", behind_one_that_cannot_stop,
              ("6 by job 1 rigid (ben)",
               "enough GPUs come free in about 60 min, by the limits and the progress of jobs 1 rigid"),
              ("job 1 ending: it cannot be resized",)),
    Situation("behind one without checkpoint", behind_one_without_a_checkpoint,
              ("it needs 4 GPUs: 4 are held: 4 by job 1 a (ann); 2 are free",
               "its tenant ben holds 0 GPUs, 3 fewer than the 3 it is owed now"),
              ("job 1 ending: it cannot be resized",), never=("time: ",)),
    Situation("no checkpoint, could be larger", no_checkpoint_and_small,
              ("it keeps the 2 GPUs that it was started with, of 6 that it could use: it has no checkpoint folder",),
              ("--checkpoint FOLDER",)),
    Situation("as its cluster has it, not to be started again", not_to_be_started_again,
              ("it keeps the 2 GPUs that it was started with, of 6 that it could use: by Requeue=0",), ("`requeue=1`",),
              never=("--rigid",)),
    Situation("time between two resizes", held_back_by_the_time_between_resizes,
              ("the policy would give it 3 GPUs, but it has run 3",), ("time: 6",)),
    Situation("restarts an hour", held_back_by_restarts, ("it was stopped 1 times within the hour; 1 is the limit",),
              ("time: 60 min more",)),
    Situation("held", held_by_an_operator, ("held by root: cooling",), ("`horae unhold 1`",),
              never=("keeps its", "would give", "gets 4")),
    Situation("time limit, rigid", over_its_limit, ("its running time reached its limit of 20 s",),
              ("a longer --time-limit; or --checkpoint FOLDER",), never=("(time limit)",)),
    Situation("keeps what is another's", keeps_what_is_anothers,
              ("the policy would take its 2 GPUs, but it cannot be stopped and resumed: it has no checkpoint folder",
               "its word, which is not carried out: gives up its 2 GPUs"), ("--checkpoint FOLDER",),
              never=("that come free",)),
    Situation("waits for what another keeps", waits_for_what_another_keeps,
              ("the GPUs it was to get stay with job 2", "its word, which is not carried out: gets ", "0 are free"),
              ("those leaving, or becoming smaller", "jobs 1, 2 ending: they cannot be resized"), never=("time",)),
    Situation("cancelled by its owner", cancelled_by_its_owner, ("cancelled by ann",),
              never=("(ann)",)),
    Situation("time limit, elastic", over_its_limit_elastic,
              ("its running time reached its limit of 20 s; its checkpoint of step ", " is kept"),
              ("handing it in again with --checkpoint ckpt goes on from there",)),
    Situation("checkpoints cannot be written", cannot_write_checkpoints,
              ("its checkpoints cannot be written: Permission denied: '/ck'; it trains on, is not resized",),
              ("a folder that ann may write",)),
    Situation("observe, new", watched(Mode.OBSERVE),
              ("mode observe: nothing is started by us, and the cluster was not told of it",),
              ("`horae config mode main enforce`, by an operator",), never=("the next round", "does not know it yet")),
    Situation("advise, new", watched(Mode.ADVISE),
              ("mode advise: nothing is started by us", "the advice is to start it on 2 GPUs",
               "its word, which is not carried out: gets 2 GPUs"),
              never=("the next round", "does not know it yet", "the policy's next decision", "come free")),
    Situation("observe, others run", watched_beside_another(Mode.OBSERVE), ("mode observe", "6 by job 1 big (ann)"),
              never=("ending", "the policy's word", "enough GPUs come free", "must leave first")),
    Situation("advise, others run", watched_beside_another(Mode.ADVISE), ("mode advise", "6 by job 1 big (ann)"),
              never=("ending", "the policy's word", "enough GPUs come free", "must leave first")),
    Situation("advise, waits", advised, ("mode advise", "4 GPUs"), never=("shrinking",)),
    Situation("fifo behind another", fifo_behind_another, ("6 by job 1 big (ann)",)),
    Situation("a wrong option", a_wrong_option, ("the previous allocation stands", "ovr"), ("an operator",),
              never=("the policy's next answer", "the policy's next decision")),
)  # fmt: skip


def said(found: Explanation) -> tuple[str, str]:
    return "\n".join(c.text for c in found.causes), "\n".join(c.change for c in found.causes)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda s: s.name)
def test_a_situation_is_told(situation: Situation, tmp_path: Path) -> None:
    site, job = situation.make(tmp_path)
    found = explained(site.core, job)
    texts, changes = said(found)
    for word in situation.says:
        assert word in texts, texts
    for word in situation.changes:
        assert word in changes, changes
    for word in situation.never:
        assert word not in texts + changes, texts + changes


def test_when_a_job_starts_that_waits_for_a_limit_nobody_says(tmp_path: Path) -> None:
    site, job = at_its_tenants_cap(tmp_path)
    assert job not in starts(site.core, "main")


def test_a_held_job_is_to_have_nothing(tmp_path: Path) -> None:
    site, job = held_by_an_operator(tmp_path)
    assert explained(site.core, job).target is None


def test_a_job_that_cannot_write_checkpoints_is_not_resized(tmp_path: Path) -> None:
    site, job = cannot_write_checkpoints(tmp_path)
    assert sum(site.job(job).allocation.values()) == 6 and site.job(job).epoch == 1
    site.world.jobs[job].says = ""
    site.until("2", JobState.RUNNING)
    assert sum(site.job("2").allocation.values()) == 3, "mended, it gives up what it is not owed"


def test_a_job_that_waits_again_at_its_limit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    again = spec("a", 2, steps=300, time_limit_s=20.0, extra={"requeue_at_limit": "true"})
    (job,) = site.commands.submit([again], ANN)
    record = site.until(job, JobState.COMPLETED, patience_s=400.0)
    assert record.epoch_seen >= 3 and record.ran_s > 40.0
    assert record.measured["done"] == 300.0
    starts = [e for e in site.journal.history(job=job) if e.kind.value == "held"]
    assert {e.data["by"] for e in starts} == {"its time limit"}


@pytest.mark.parametrize("after_s", [18.0, 20.0])
def test_a_job_of_its_owners_hold_is_not_let_go_by_its_limit(tmp_path: Path, after_s: float) -> None:
    """Whether it was held before its time was over, or while its limit holds it until it has left."""
    site = site_of(tmp_path)
    again = spec("a", 2, steps=LONG, time_limit_s=20.0, extra={"requeue_at_limit": "true"})
    (job,) = site.commands.submit([again], ANN)
    site.until(job, JobState.RUNNING)
    site.run(after_s)
    assert (site.job(job).hold_by == TIME_LIMIT) == (after_s == 20.0)
    site.commands.hold(job, ANN, "lunch")
    site.until(job, JobState.STOPPED)
    site.run(30)
    assert site.job(job).hold_why == "held by ann: lunch"


def test_what_a_guard_keeps_back_is_told_by_the_newest_decision(tmp_path: Path) -> None:
    """Jobs that come one after another change what a third is to have; the guard, and the kind of reason, stay."""
    site = site_of(tmp_path, guards={"min_run_s": 60.0, "gain": 0.0, "restarts_per_hour": 1000})
    (first,) = site.commands.submit([spec("first", (1, 6), steps=LONG)], ANN)
    site.until(first, JobState.RUNNING)
    for name in ("second", "third"):
        site.commands.submit([spec(name, 1)], BEN)
        site.run(3)
    told, _ = said(explained(site.core, first))
    assert "would give it 4 GPUs" in told and "shrinks from 6 to 4 GPUs" in told
    assert "shrinks from 6 to 4 GPUs" in site.job(first).reason["text"], "history tells it of what was done"


def test_numbers_of_who_waits_are_refreshed_however_busy_the_pool_is(tmp_path: Path) -> None:
    site = site_of(tmp_path, "fifo")
    for steps in (100, LONG):
        site.commands.submit([spec(f"rigid{steps}", 3, steps=steps, checkpoint=None)], BEN)
    (job,) = site.commands.submit([spec("large", 6)], ANN)
    site.run(10)
    assert site.job(job).reason["numbers"]["free"] == 0
    for number in range(30):  # each is news, and a decision of its own
        site.commands.submit([spec(f"small{number}", 1)], BEN)
        site.run(5)
    assert site.job(job).reason["numbers"]["free"] == 3
    assert explained(site.core, job).decided_ago_s < 10.0


ONE_TYPE = (Node("v1", "v100", 4), Node("v2", "v100", 2))


@pytest.mark.parametrize("nodes", [TWO_TYPES, ONE_TYPE])
def test_fewer_gpus_that_train_as_much_are_told_as_its_part(tmp_path: Path, nodes: tuple[Node, ...]) -> None:
    """Counts alone would say that somebody is wronged, where the certificate, which knows the speeds, says no. Of one
    type there are no speeds: what it is owed stands alone, and is no fair share that it has all the same."""
    site = site_of(tmp_path, "fifo", nodes)
    site.commands.submit([spec("a", 4, steps=LONG)], ANN)
    job, _ = site.commands.submit([spec("b", 2, steps=LONG), spec("c", 4, steps=LONG)], BEN)
    site.until(job, JobState.RUNNING)
    site.run(5)
    (share,) = (c.text for c in explained(site.core, job).causes if c.what == "share")
    assert "its tenant ben holds 2 GPUs" in share
    certificate = site.core.ledger.pool("main").decided["certificate"]
    for worst, told in ((1.001, True), (0.67, False)):
        certificate["sharing_incentive"] = {"worst": worst, "tenant": "ben"}
        (share,) = (c.text for c in explained(site.core, job).causes if c.what == "share")
        assert ("below its part by weight of each type" in share) is (told and nodes is TWO_TYPES), share
        assert "fewer than the 3 it is owed now" in share and "fair share" not in share
