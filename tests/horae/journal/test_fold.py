"""The ledger follows from the events alone: rebuilt, reopened or compacted at any point, it is the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from horae.journal import Clock, Draft, Journal, Ledger, events
from horae.journal.codec import plain, restore, text
from horae.journal.events import Verb
from horae.journal.ledger import HeldBack, LeftOut, Obstacle, Probing, Shrink, UnusedGpus
from horae.journal.store import rebuilt
from horae.port import BlockKind, CheckpointMark, JobState
from horae.views.rows import job_table, pool_row
from tests.horae.arbiter.site import Time, spec

JOBS = ("1", "2", "x-3")
NODES = ("n1", "n2")
allocations = st.dictionaries(st.sampled_from(NODES), st.integers(1, 4), max_size=2)
holdings = st.dictionaries(st.sampled_from(("k80", "v100")), st.integers(1, 8), max_size=2)
jobs = st.sampled_from(JOBS)
seconds = st.floats(0, 100)


def at(draw: st.DrawFn, time: Time) -> float:
    return time.now - draw(st.floats(0, 50))


@st.composite
def drafts(draw: st.DrawFn, time: Time) -> Draft:
    job = draw(jobs)
    pool = draw(st.sampled_from(("p", "q")))
    made: list[Any] = [
        lambda: events.Submitted(
            job, spec(job, owner="ann"), pool=pool, tenant=draw(st.sampled_from(("ann", "ben"))), app="a", owner="ann",
            submitted_s=at(draw, time),
        ),
        lambda: events.Adopted(
            job, spec(job), pool=pool, tenant="ben", app="b", owner="ben", submitted_s=1.0, guessed=draw(st.booleans())
        ),
        lambda: events.Respecified(job, spec(f"{job} anew", 2), tenant="cem", app="c", owner="cem"),
        lambda: events.JobSeen(
            job, state=draw(st.sampled_from(JobState)), epoch=draw(st.integers(0, 4)), allocation=draw(allocations),
            holding=draw(holdings), since_s=at(draw, time), exit_code=draw(st.none() | st.integers(0, 137)),
            checkpoint=draw(st.none() | st.builds(CheckpointMark, st.integers(1, 4), st.floats(0, 1e6), seconds)),
            blocked=draw(st.none() | st.just(Obstacle(BlockKind.LIMIT, "x", 1.0))),
        ),
        lambda: events.Missing(job),
        lambda: events.CancelAsked(job, "ann", "enough"),
        lambda: events.JobHeld(job, "ann", "later"),
        lambda: events.JobUnheld(job, "ann"),
        lambda: events.Measured(job, {"done": draw(seconds), "rates": {"k80": {"2": 1.5}}}),
        lambda: events.KeptBack(job, draw(st.none() | st.just("minimum-run-time")), "soon", wanted=draw(allocations)),
        lambda: events.Intent(
            job, draw(st.sampled_from([Verb.START, Verb.RESHAPE])), epoch=draw(st.integers(1, 5)),
            allocation=draw(allocations), holding=draw(holdings), text="its turn",
        ),
        lambda: events.Intent(job, draw(st.sampled_from([Verb.STOP, Verb.CANCEL, Verb.RELEASE, Verb.SUBMIT]))),
        lambda: events.Answered(
            job, draw(st.sampled_from(Verb)), error=draw(st.sampled_from([None, "TryLater", "Never", "NotTried"]))
        ),
        lambda: events.Ended(job, draw(st.sampled_from([JobState.COMPLETED, JobState.FAILED])), at(draw, time), "over"),
        lambda: events.Forgotten([job]),
        lambda: events.ModeSet(pool, draw(st.sampled_from(["observe", "enforce"])), "root", draw(st.booleans())),
        lambda: events.Maintenance(pool, draw(st.booleans()), "root", "disks"),
        lambda: events.Capped(pool, "ann", draw(st.integers(0, 9)), time.now + draw(seconds), "limit"),
        lambda: events.Avoided(pool, "n1", draw(st.integers(1, 4)), time.now + draw(seconds), "foreign"),
        lambda: events.Decided(
            pool,
            {"policy": "fifo", "options": {}, "seed": 0},
            {job: draw(allocations)},
            {job: {"code": "granted", "text": "its turn"}},
            {job: {"n1": [draw(seconds)]}},
            {"passes": {job: draw(seconds)}},
        ),
        lambda: events.Ordered(pool, draw(st.lists(jobs, unique=True))),
        lambda: events.Advised(pool, [{"verb": "start", "job": job, "ready": True}]),
        lambda: events.Alerted("cluster", "away"),
        lambda: events.Cleared("cluster"),
        lambda: events.Claimed(draw(st.text("abc", min_size=1, max_size=3))),
        lambda: events.StoodDown("another"),
        lambda: events.Recovered("lost", next_id=draw(st.none() | st.integers(1, 50))),
        lambda: events.ClockStepped(draw(seconds)),
        lambda: events.Opened(version="1", host="h", pid=1, how="new"),
    ]  # fmt: skip
    draft: Draft = draw(st.sampled_from(made))()
    return draft


def shown(ledger: Ledger, now_s: float) -> Any:
    return (
        job_table(ledger, now_s),
        [pool_row(ledger, p, now_s) for p in sorted(ledger.pools)],
    )


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_however_it_is_read_the_ledger_is_the_same(data: st.DataObject, batches: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        time = Time()
        made = Journal(Path(folder), Clock(time.wall, time.monotonic))
        for size in batches:
            made.append(
                data.draw(st.lists(drafts(time), min_size=size, max_size=size)), durable=data.draw(st.booleans())
            )
            time.now += data.draw(seconds)
            assert rebuilt(made.path) == made.ledger
            if data.draw(st.integers(0, 3), label="compact") == 0:
                keep_s = data.draw(st.sampled_from([1e-3, 10.0, 1e9]))
                before = plain(made.ledger)
                made.compact(history_s=keep_s, forget_after_s=1e9)
                assert plain(made.ledger) == {**before, "at_s": made.ledger.at_s}
            if data.draw(st.integers(0, 3), label="reopen") == 0:
                ledger, views = made.ledger, shown(made.ledger, time.now)
                made.close()
                made = Journal(Path(folder), Clock(time.wall, time.monotonic))
                assert made.ledger == ledger
                assert shown(made.ledger, time.now) == views
        for record in made.ledger.jobs.values():
            assert all(v >= 0 for v in record.attained.values()), "an account went backwards"
            assert record.ran_s >= 0
        for pool in made.ledger.pools.values():
            live = [r for r in made.ledger.jobs.values() if r.live]
            assert sum(pool.apps.values()) == sum(1 for r in live if made.ledger.pools[r.pool] is pool)
        made.close()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_plain_data_is_its_own_trip_through_text(value: Any) -> None:
    import json

    assert plain(plain(value)) == plain(value) == json.loads(text(plain(value)))


def test_a_specification_survives_the_journal() -> None:
    whole = spec(
        "job", (1, 8), owner="ann", tenant="vision", app="sweep", env={"A": "1"}, throughput={"k80": {1: 1.5, 2: 2.5}},
        gpu_types=("k80",), cpus_per_gpu=2.0, memory_per_gpu=1 << 30, model="resnet", time_limit_s=5.0, retries=1,
        extra={"pool": "main"}, elastic=False, cwd="/tmp",
    )  # fmt: skip
    assert restore(type(whole), plain(whole)) == whole


def test_accounts_are_charged_for_what_was_held_and_when() -> None:
    with tempfile.TemporaryDirectory() as folder:
        time = Time()
        made = Journal(Path(folder), Clock(time.wall, time.monotonic))
        made.append([events.Submitted("1", spec(), pool="p", tenant="a", app="a", owner="a", submitted_s=time.now)])
        start = time.now

        def seen(state: JobState, gpus: int, ago_s: float = 0.0) -> None:
            alloc, held = ({"n1": gpus}, {"k80": gpus}) if gpus else ({}, {})
            made.append(
                [events.JobSeen("1", state=state, epoch=1, allocation=alloc, holding=held, since_s=time.now - ago_s)]
            )

        time.now += 10  # it waits: nothing is charged
        seen(JobState.STARTING, 2)
        time.now += 5
        seen(JobState.RUNNING, 2, ago_s=1.0)
        time.now += 100
        assert made.ledger.jobs["1"].attained_at(time.now) == {"k80": 2 * 105.0}
        seen(JobState.STOPPED, 0, ago_s=20.0)  # it left 20 s ago, nobody looked
        assert made.ledger.jobs["1"].attained == {"k80": 2 * 85.0}
        assert made.ledger.jobs["1"].ran_s == 81.0
        time.now += 1000
        assert made.ledger.jobs["1"].attained_at(time.now) == {"k80": 2 * 85.0}
        assert made.ledger.pools["p"].active_apps == [(start, 1)]
        made.close()


def test_people_name_a_job_by_the_clusters_own_number() -> None:
    """Slurm gives a number again after it lost its state: then the newest is meant, and the old one by its whole id."""
    time = Time()
    with tempfile.TemporaryDirectory() as folder:
        made = Journal(Path(folder), Clock(time.wall, time.monotonic))
        try:
            for at_s, job in enumerate(("14.old", "14.new", "14_3.new", "7")):
                made.append(
                    [
                        events.Adopted(
                            job, spec(job), pool="p", tenant="t", app="a", owner="ann", submitted_s=at_s, guessed=False
                        )
                    ]
                )
            named = {word: made.ledger.named(word) for word in ("14", "14.old", "14_3", "7", "1", "14.", "")}
        finally:
            made.close()
    wanted = {"14": "14.new", "14.old": "14.old", "14_3": "14_3.new", "7": "7"}
    assert named == {**wanted, "1": None, "14.": None, "": None}


def test_what_the_version_before_kept_of_a_job_is_read() -> None:
    """Checkpoints of the ledger hold these as objects of their own, which that version wrote."""
    job = {
        "id": "1",
        "spec": plain(spec("a")),
        "pool": "p",
        "tenant": "t",
        "app": "a",
        "owner": "ann",
        "submitted_s": 1.0,
    }
    kept = {
        "blocked": {"kind": "limit", "text": "QOSMaxGRES", "since_s": 2.0, "cap": 4},
        "unused": {"gpus": 2, "which": ["n1:0", "n1:1"], "since_s": 3.0, "by": "use"},
        "shrunk": {"from": 8, "to": 4, "gained": ["2"], "policy": "max-min", "at_s": 4.0, "wall_s": 5.0},
        "guard": {"guard": "minimum-run-time", "text": "soon", "wanted": {"n1": 2}, "since_s": 6.0},
        "aside": {"text": "raised", "until_s": 9.0, "policy": "mine", "since_s": 7.0},
        "probe": {
            "gpu_type": "k80",
            "gpus": 1,
            "allocation": {"n1": 1},
            "until_s": 9.0,
            "text": "worth",
            "since_s": 8.0,
        },
    }
    ledger = restore(Ledger, {"jobs": {"1": {**job, **kept}}})
    record = ledger.jobs["1"]
    assert record.blocked == Obstacle(BlockKind.LIMIT, "QOSMaxGRES", 2.0, cap=4)
    assert record.unused == UnusedGpus(2, ("n1:0", "n1:1"), 3.0, "use")
    assert record.shrunk == Shrink(8, 4, ("2",), "max-min", 4.0, 5.0)
    assert record.guard == HeldBack("minimum-run-time", "soon", 6.0, {"n1": 2})
    assert record.aside == LeftOut("raised", 9.0, 7.0, "mine")
    assert record.probe == Probing("k80", 1, {"n1": 1}, 9.0, "worth", 8.0)
    assert restore(Ledger, plain(ledger)) == ledger, "and by this one, what it writes itself"
