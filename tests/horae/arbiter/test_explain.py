"""Every state a job can be in has a reason that a person understands, and says what would change it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.api.privacy import public
from horae.arbiter.observe.log_profiles import LogProfiles
from horae.config import Mode
from horae.fake import Delay
from horae.journal import Event, JobRecord, Kind, events
from horae.journal.form import numbered
from horae.journal.measured import Measurement
from horae.port import Blocked, BlockKind, JobState
from horae.views import rows, watch
from horae.views.cause import Cause
from horae.views.explain import Explanation, explain
from horae.views.sentences import sentence
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, equal_shares, spec


def why(site: Site, job: str) -> Explanation:
    record = site.job(job)
    return explain(site.core.ledger, site.config, record, site.core.now_s(), site.core.plans.get(record.pool, ()))


def causes(site: Site, job: str) -> dict[str, str]:
    return {cause.what: cause.text for cause in reversed(why(site, job).causes)}


def test_a_running_job_holds_by_its_policys_word(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", 2, steps=10**5)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(2)
    found = why(site, job)
    assert found.headline == f"job {job} is running and holds 2 GPUs: 1: by the test's policy"
    assert (found.policy, found.gpus, found.ahead) == ("max-min", 2, ())
    assert found.causes[0].numbers["code"] == "granted"


def test_a_waiting_job_knows_who_is_ahead(tmp_path: Path) -> None:
    site = Site(tmp_path)
    big, first, second = site.commands.submit([spec("big", 16, steps=10**5), spec("b", 4), spec("c", 4)], ANN)
    site.until(big, JobState.RUNNING)
    site.run(2)
    assert why(site, second).ahead == (first,)
    assert why(site, first).ahead == ()
    site.job(first).reason = {"code": "infeasible", "text": "no set of healthy nodes could hold it"}
    assert why(site, second).ahead == (), "it is in nobody's way"
    assert "holds no GPUs" in why(site, first).headline


def test_people_are_told_the_clusters_own_numbers(tmp_path: Path) -> None:
    """An id that is more than a number is nothing that squeue shows."""
    site = Site(tmp_path)
    site.world.submit("14.8f3a", spec("big", 16, steps=10**5, owner="ann"))
    site.run(2)
    (job,) = site.commands.submit([spec("b", 4)], BEN)
    site.run(2)
    told = {cause.what: cause.text for cause in watch.explained(site.core, job).causes}
    assert "by job 14 big (ann)" in told["size"]
    assert why(site, "14.8f3a").headline.startswith("job 14 is running")
    assert site.core.ledger.for_people("14.8f3a of 14.9, 114.8f3a, 1.5") == "14 of 14.9, 114.8f3a, 1.5"


def test_a_job_that_waits_has_a_reason_at_every_moment(tmp_path: Path) -> None:
    """Between the look that first shows it and the decision about it there was none."""
    site = Site(tmp_path)
    site.commands.submit([spec("big", 12, steps=10**5)], ANN)
    site.run(5)
    (job,) = site.commands.submit([spec("waits", 12)], BEN)
    told = [rows.why(site.job(job))]
    for _ in range(40):
        site.run(0.25)
        told.append(rows.why(site.job(job)))
    assert all(told), told
    shown = replace(site.job(job), reason=None)
    assert shown.shown and not shown.allocation
    assert rows.why(shown) == "nothing was decided about it yet"
    assert rows.why(shown, Mode.OBSERVE) == "", "nothing will be"
    assert public.job({"id": job, "why": rows.why(shown), "code": None})["why"] == rows.why(shown)


def test_a_hold_a_cancel_and_an_end_are_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", 1, steps=10**5)], ANN)
    assert causes(site, job)["cluster"] == "the cluster does not know it yet"
    site.until(job, JobState.RUNNING)
    site.commands.hold(job, ANN, "lunch")
    site.until(job, JobState.STOPPED)
    assert why(site, job).headline.endswith("held by ann: lunch")
    assert why(site, job).state == "held"
    assert why(site, job).causes[0].change == f"`horae unhold {job}`"
    site.commands.cancel(job, ROOT, "not needed")
    assert causes(site, job)["cancel"] == "not needed (root)"
    site.until(job, JobState.CANCELLED)
    assert why(site, job).state == "cancelled"
    assert causes(site, job)["cancel"] == "not needed (root)", "why it ended is said for good"


def test_a_job_that_waits_for_others_to_leave_names_them(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares)
    slow = spec("slow", (1, 16), steps=10**5, extra={"fake.stop_s": "8"}, grace_s=20.0)
    (first,) = site.commands.submit([slow], ANN)
    site.until(first, JobState.RUNNING)
    (second,) = site.commands.submit([spec("second", (1, 16), steps=100)], BEN)
    site.until(first, JobState.STOPPING)
    site.run(1)
    assert f"still held by job {first}, which" in causes(site, second)["plan"]
    assert "asked" in causes(site, first)["plan"] and "s left" in causes(site, first)["plan"]


def test_a_veto_says_what_the_policy_wanted(tmp_path: Path) -> None:
    site = Site(tmp_path, policy=equal_shares, guards={"min_run_s": 100.0, "gain": 0.0})
    (first,) = site.commands.submit([spec("first", (1, 16), steps=10**5)], ANN)
    site.until(first, JobState.RUNNING)
    site.commands.submit([spec("second", (1, 16), steps=100)], BEN)
    site.run(5)
    assert causes(site, first)["guard"].startswith("the policy would give it 8 GPUs, but it has run")
    guard = site.job(first).guard
    assert guard is not None
    for held, wanted, words in (
        ({"n1": 2}, {"n2": 1}, "give it 1 GPU, but"),
        ({"n1": 1}, {"n2": 1}, "move its 1 GPU, but"),
        ({"n1": 2}, {"n2": 2}, "move its 2 GPUs, but"),
        ({"n1": 2}, {}, "take its 2 GPUs, but"),
    ):
        record = replace(site.job(first), allocation=held, guard=replace(guard, wanted=wanted))
        told = explain(site.core.ledger, site.core.config, record, site.core.now_s()).causes
        assert any(cause.text.startswith(f"the policy would {words}") for cause in told if cause.what == "guard")


def test_a_block_a_limit_and_a_failing_policy_are_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.world.blocks["1"] = Blocked(BlockKind.LIMIT, "QOSGrpGRES", 2)
    (job,) = site.commands.submit([spec("a", 4, steps=100)], ANN)
    site.until(job, JobState.STARTING)
    assert "QOSGrpGRES" in causes(site, job)["blocked"]
    site.run(10)
    assert "tenant ann hold 2 GPUs" in causes(site, job)["limit"]

    def raises(*asked: Any) -> Any:
        raise RuntimeError("no idea")

    site.policy = raises
    site.run(70)
    assert "previous allocation stands: policy max-min raised RuntimeError: no idea" in causes(site, job)["policy"]


def test_a_start_that_is_not_shown_yet_is_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.fake.faults.on("start", Delay(20.0))
    (job,) = site.commands.submit([spec("a", 4, steps=100)], ANN)
    site.run(5)
    assert "does not show its gang yet" in causes(site, job)["plan"]


def test_a_job_lost_again_and_again_says_when_it_is_started(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", 1, steps=10**5, retries=99, extra={"fake.fail_at": "2"})], ANN)
    for _ in range(200):
        site.run(0.5)
        if "backoff" in causes(site, job):
            break
    assert "times in a row; it is started again in" in causes(site, job)["backoff"]
    assert "times in a row; it is to be started again" in rows.why(site.job(job)), "not that it keeps its GPUs"
    assert "to be started" not in rows.why(site.job(job), Mode.OBSERVE)


def test_how_its_last_start_ended_is_said_in_the_clusters_words(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", 1, steps=10**5)], ANN)
    site.until(job, JobState.RUNNING)
    record, said = site.job(job), "its last start ended, the cluster says: its worker on n1 was lost"
    record.native = "its worker on n1 was lost"
    assert all(cause.text != said for cause in why(site, job).causes), "it runs"
    record.state = JobState.LOST
    assert [cause.text for cause in why(site, job).causes if cause.what == "cluster"] == [said]
    record.native = "LOST"
    assert all(cause.what != "cluster" for cause in why(site, job).causes), "the same word twice"


@pytest.mark.parametrize(
    ("state", "native", "text"),
    [
        (JobState.LOST, "its worker on n1 was lost", "lost, start 2 (its worker on n1 was lost)"),
        (JobState.STOPPED, "STOPPED", "stopped, start 2"),
        (JobState.RUNNING, "open", "running, start 2"),
    ],
)
def test_a_sentence_about_a_start_that_ended_has_the_clusters_words(state: JobState, native: str, text: str) -> None:
    draft = events.JobSeen("1", state=state, epoch=2, allocation={}, holding={}, since_s=1.0, native=native)
    assert sentence(numbered(draft, 1, 2.0, 2.0)) == text


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (Kind.SEEN, {"state": "lost", "epoch": 3, "allocation": {"n1": 2}, "holding": {}, "since_s": 1.0,
                     "checkpoint": {"epoch": 2, "step": 40, "time_s": 1.0}, "native": "LOST"},
         "lost on 2 GPUs: n1:2, start 3, checkpoint at step 40"),
        (Kind.INTENT, {"verb": "checkpoint_and_stop", "text": "it shrinks"}, "it shrinks: checkpoints and leaves"),
        (Kind.OUTCOME, {"verb": "reshape", "error": "TryLater", "text": "busy"}, "could not resize: busy"),
        (Kind.PROBED, {"over": "measured"}, "its probe is over: measured"),
        (Kind.DECIDED, {"policy": "srtf", "took_s": 0.002, "targets": {"1": {"n1": 2}}, "cancel": ["2"]},
         "srtf decided in 2 ms: GPUs by job 1: 2; jobs 2 have lost in their app and end"),
        (Kind.MEASURED, {"done": 3.0, "total": 9.0, "loss": [[1.0, 0.25]]}, "step 3 of 9, loss 0.25"),
        (Kind.INTENT, {"verb": "of another version", "epoch": 2}, "verb of another version, epoch 2"),
        (Kind.ENDED, {"half": "a row"}, "half a row"),
        (Kind.ORDERED, {"jobs": ["2", "1"]}, "jobs ['2', '1']"),
    ],
)  # fmt: skip
def test_a_row_is_told_by_its_class_and_one_that_cannot_be_read_shows_what_it_holds(
    kind: Kind, data: dict[str, Any], text: str
) -> None:
    assert sentence(Event(1, 2.0, 2.0, kind, data, job="1", pool="p")) == text


def test_a_pool_that_is_only_watched_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (job,) = site.commands.submit([spec("a", 1, steps=10**5)], ANN)
    site.until(job, JobState.RUNNING)
    site.commands.set_mode("main", Mode.ADVISE, ROOT)
    assert "mode advise" in causes(site, job)["mode"]
    site.commands.maintenance("main", True, ROOT, "new floor")
    assert any("new floor" in cause.text for cause in why(site, job).causes)


def profile(site: Site, job: str) -> list[Cause]:
    return [cause for cause in why(site, job).causes if cause.what == "profile"]


def test_the_model_key_and_what_the_log_lacks_are_said(tmp_path: Path) -> None:
    """The key and where it comes from, and each thing that the log leaves open with how to print it."""
    site = Site(tmp_path, profiles=lambda: LogProfiles(every_s=1.0, budget_s=60.0))
    derived, given = site.commands.submit([spec("a", 2, steps=10**5), spec("b", 2, steps=10**5, model="resnet")], ANN)
    site.until(given, JobState.RUNNING)
    site.run(20)
    key, *_ = profile(site, derived)
    assert (key.numbers["from"], key.numbers["key"]) == ("derived", "ann/train")
    assert "derived from its command" in key.text
    assert profile(site, given)[0].numbers == {"key": "resnet", "from": "given"}


def test_a_job_whose_log_tells_nothing_is_told_how_to_print(tmp_path: Path) -> None:
    site = Site(tmp_path, profiles=Blank)
    (job,) = site.commands.submit([spec("a", 2, steps=10**5)], ANN)
    site.until(job, JobState.RUNNING)
    assert profile(site, job) == []
    site.run(70)
    (said,) = profile(site, job)
    assert said.text.startswith("nothing was measured of it yet")
    assert "[horae] step=120/4000" in said.text


def test_of_a_log_that_has_hardly_begun_nobody_says_what_it_lacks(tmp_path: Path) -> None:
    """A newcomer who asks a second after the start is not told to print what is about to be printed."""
    site = Site(tmp_path, profiles=Lacking)
    (job,) = site.commands.submit([spec("a", 2, steps=10**5)], ANN)
    site.until(job, JobState.RUNNING)
    site.run(5)
    assert [cause.text for cause in profile(site, job)] == []
    site.run(70)
    assert [cause.text for cause in profile(site, job)] == ["its log shows no progress"]


class Blank:
    """A profiler that can make nothing of any log."""

    def restore(self, known: object) -> None:
        """Nothing was ever measured."""

    def update(self, observation: object, read_log: object) -> dict[str, Measurement]:
        return {}

    def read_s(self) -> dict[str, float]:
        return {}


def test_the_clusters_own_words_stand_where_nobody_has_better_ones() -> None:
    """A suspended job is no running one; in mode observe a waiting one shows the cluster's reason, as squeue does."""
    record = JobRecord("7.abc", spec("train"), "gpu", "lab", "app", "ann", 0.0, adopted=True, shown=True)
    record.native = "PENDING (Resources)"
    assert (rows.state_word(record), rows.why(record)) == ("queued", "PENDING (Resources)")
    record.reason = {"code": "waits-turn", "text": "others are ahead"}
    assert rows.why(record) == "others are ahead"
    record.state, record.native, record.reason = JobState.RUNNING, "SUSPENDED", None
    assert (rows.state_word(record), rows.why(record)) == ("suspended", "")


class Lacking(Blank):
    """A profiler that has read each log, and found nothing in it."""

    def update(self, observation: Any, read_log: object) -> dict[str, Measurement]:
        return {job.id: Measurement(notes=("its log shows no progress",)) for job in observation.jobs}
