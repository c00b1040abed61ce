"""The adapter over a YARN and an HDFS of dictionaries: what a round reads, and a job's way through all of it."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from horae.port import FixConfiguration, JobState, Never, PortError, TryLater, attend
from tests.yarn_bridge.memory_site import SPEC, Site, instances
from yarn_bridge.clients.records import Instance
from yarn_bridge.jobs.state_machine import RENEWED


def test_a_round_is_three_reads_whatever_the_number_of_jobs(site: Site) -> None:
    for number in range(30):
        site.port.submit(f"job-{number}", SPEC)
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.register()
    running = site.look()
    assert running.state is JobState.RUNNING
    assert running.native.startswith("open, http")
    assert running.native.endswith("/cluster/app/application_1"), "the ResourceManager's page of it"
    site.calls.clear()
    assert len(attend(site.port).jobs) == 31
    assert site.calls == {"nodes": 1, "apps": 1, "entries": 1}


@pytest.mark.parametrize(
    ("by", "state"), [("horae", JobState.CANCELLED), ("root", JobState.LOST)], ids=["its owner", "an administrator"]
)
def test_an_application_that_is_ended_while_its_gang_forms_is_not_made_again(
    site: Site, by: str, state: JobState
) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    assert site.look().state is JobState.STARTING
    site.yarn.services.clear()
    site.yarn.failed = f"Application application_1 was killed by user {by} at 10.0.0.1"
    site.look()
    assert (site.look().state, site.yarn.services) == (state, {})


def test_who_ends_the_application_of_his_job_that_waits_ends_the_job(site: Site) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    first = site.register()
    site.look()
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(first, 1, "stopped", 86, step=40.0)
    site.look()
    assert (site.look().state, len(site.yarn.services)) == (JobState.STOPPED, 1), "its application master stays"
    site.yarn.services.clear()
    site.yarn.failed = "Stopped by user horae (auth:SIMPLE)"
    site.look()
    ended = site.look()
    assert (ended.state, ended.native) == (JobState.CANCELLED, f"its YARN application was ended: {site.yarn.failed}")


def test_a_job_through_start_reshape_stop_and_end(site: Site) -> None:
    site.port.submit("job", SPEC)
    assert (site.look().state, site.yarn.services) == (JobState.QUEUED, {})
    site.port.start("job", {"n1": 2}, 1)
    assert (site.look().state, site.look().allocation) == (JobState.STARTING, {"n1": 2})
    first = site.register()
    assert site.look().state is JobState.RUNNING
    gate = site.gate()
    assert (gate["state"], gate["epoch"], gate["port"]) == ("open", 1, 21000)
    assert [each["name"] for each in gate["members"]] == first

    flexes = site.calls["flex"]
    site.port.reshape("job", {"n1": 1, "n2": 1}, 2)
    assert (site.look().state, site.gate()["state"]) == (JobState.STOPPING, "stop")
    there = [each.container for service in site.yarn.services.values() for each in instances(service)]
    assert (site.calls["flex"], set(first) < set(there)) == (flexes + 1, True), "none goes before its checkpoint"
    assert attend(site.port).nodes[1].foreign == 0, "the new one's GPU is ours"
    site.acknowledge(first, 1, "stopped", 86, step=40.0)
    assert (site.look().state, site.calls["flex"]) == (JobState.STARTING, flexes + 2)
    second = site.register()
    seen = site.look()
    members = [name for name in site.hdfs.files if "/members/" in name]
    assert sorted(posixpath.basename(name) for name in members) == sorted(second), "those that went are forgotten"
    assert (seen.state, seen.epoch, seen.allocation) == (JobState.RUNNING, 2, {"n1": 1, "n2": 1})
    assert (seen.checkpoint.step, second[0]) == (40.0, first[0]), "the survivor keeps its container"

    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(second, 2, "stopped", 86, step=90.0)
    seen = site.look()
    assert (seen.state, seen.exit_code, seen.allocation, seen.checkpoint.step) == (JobState.STOPPED, 86, {}, 90.0)
    assert all(part.count == 0 for service in site.yarn.services.values() for part in service.components.values())

    site.port.start("job", {"n2": 1}, 3)
    site.look()
    third = site.register()
    site.look()
    site.acknowledge(third, 3, "completed", 0, step=100.0)
    assert (site.look().state, site.yarn.services) == (JobState.COMPLETED, {})
    assert site.gate()["state"] == "closed"
    with pytest.raises(Never):
        site.port.start("job", {"n1": 1}, 4)


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        # The record twice or thrice, and the gate twice; who has left and who waits listed after each word.
        (
            {"n1": 1},
            {"n1": 1, "n2": 1},
            {"write": 5, "read": 2, "entries": 3, "flex": 1, "service": 2, "apps": 1, "nodes": 1},
        ),
        (
            {"n1": 1, "n2": 1},
            {"n1": 1},
            {"write": 4, "read": 2, "entries": 2, "flex": 1, "service": 1, "delete": 2, "apps": 2, "nodes": 2},
        ),
    ],
    ids=["grows", "shrinks"],
)
def test_a_resize_asks_for_nothing_twice(
    site: Site, before: dict[str, int], after: dict[str, int], asked: dict[str, int]
) -> None:
    """Beside what each look costs: its listing of jobs. Applications and nodes are listed when it begins and, of a gang
    that stands, with each look."""
    site.port.submit("job", SPEC)
    site.port.start("job", before, 1)
    site.look()
    first = site.register()
    site.look()
    site.calls.clear()

    looks = 0

    def until(state: JobState) -> None:
        nonlocal looks
        for _ in range(9):
            site.now_s += 0.1
            seen = site.port.observe()
            looks += 1
            if seen.due:
                site.port.follow_up([due.job for due in seen.due])
            elif seen.jobs[0].state is state:
                return
        raise AssertionError(f"it is not {state}")

    site.port.reshape("job", after, 2)
    until(JobState.STOPPING)
    site.acknowledge(first, 1, "stopped", 86, step=40.0)
    until(JobState.STARTING if len(after) > 1 else JobState.RUNNING)
    new = {each.container for each in living(site)} - set(first)
    for name in new:
        site.tell(f"members/{name}", {"host": "h", "port": 21000})
    until(JobState.RUNNING)
    each_look = Counter(entries=looks, write=len(first) + len(new))
    assert site.calls - each_look == Counter(asked)


def test_the_end_of_an_application_that_changes_its_shape_is_seen_half_a_second_later(site: Site) -> None:
    """As seldom as the arbiter looks at the least while its requests are under way, and often enough for that."""
    site.running({"n1": 1})
    site.port.reshape("job", {"n1": 2}, 2)
    site.now_s += 0.1
    attend(site.port)
    site.calls.clear()
    (name,) = site.yarn.services
    site.yarn.forget(name, "horae")
    for waits_s, seen in ((0.1, "leaving"), (0.3, "leaving"), (0.11, "clearing")):
        site.now_s += waits_s
        assert attend(site.port).jobs[0].native.partition(",")[0] == seen
    assert site.calls["apps"] == 2, "and once more when that was done"


@pytest.mark.parametrize(("more", "read"), [(1, False), (-1, True)], ids=["one that still ends", "one that is missing"])
def test_the_service_of_a_gang_is_read_where_a_worker_is_missing(site: Site, more: int, read: bool) -> None:
    site.running({"n1": 2})
    (name,) = site.yarn.services
    site.yarn.flex(name, "horae", {"w0": 2 + more})
    site.calls.clear()
    site.now_s += 3.0
    site.port.observe()
    assert (site.calls["service"] == 1) is read


def test_half_a_definition_is_taken_away(site: Site) -> None:
    """A creation that broke off leaves a file that YARN cannot read, nor replace, nor remove."""
    site.port.submit("job", SPEC)
    name = site.port.files.record("job").service  # type: ignore[union-attr]
    site.yarn.broken_definition = f"/user/horae/.yarn/services/{name}/{name}.json"
    site.hdfs.write(site.yarn.broken_definition, b"")
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING


def test_a_node_that_came_later_is_reached_by_a_new_service(site: Site) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    names = site.register()
    site.look()
    site.yarn.hosts.append("n3")
    site.look()
    site.port.reshape("job", {"n3": 1}, 2)
    site.acknowledge(names, 1, "stopped", 86, step=7.0)
    site.look()
    assert [len(service.components) for service in site.yarn.services.values()] == [3]
    site.register()
    assert (site.look().state, site.look().allocation) == (JobState.RUNNING, {"n3": 1})


def test_a_service_is_made_anew_before_its_token_ends() -> None:
    site = Site(token_life_s=1000.0)
    names = site.running({"n1": 2})
    site.now_s += 690.0
    assert (site.look().state, site.gate()["state"]) == (JobState.STOPPING, "stop")
    site.acknowledge(names, 1, "stopped", 86, step=40.0)
    seen = site.look()
    assert (seen.state, seen.native, seen.checkpoint.step) == (JobState.STOPPED, RENEWED, 40.0)
    assert site.yarn.services == {}, "an idle service that nobody can start workers in soon is not kept"
    site.port.start("job", {"n1": 2}, 2)
    site.look()
    site.register()
    assert (site.look().state, site.calls["create"]) == (JobState.RUNNING, 2)
    # A resize later on: the young one is flexed, the older one made anew.
    for epoch, later_s, made in ((3, 10.0, 2), (4, 500.0, 3)):
        workers = [each.container for service in site.yarn.services.values() for each in instances(service)]
        site.now_s += later_s
        site.port.reshape("job", {"n1": 1, "n2": epoch - 2}, epoch)
        site.acknowledge(workers, epoch - 1, "stopped", 86, step=40.0 + epoch)
        site.look()
        site.register()
        assert (site.look().state, site.calls["create"]) == (JobState.RUNNING, made)


def test_under_kerberos_a_job_whose_owner_has_no_keytab_waits_and_says_so() -> None:
    """YARN would take it, run its workers, and never answer for them."""
    site = Site(auth="kerberos", principal="horae@LAB", token_life_s=1e6)
    site.port.submit("job", SPEC)
    for data, mode, words in ((None, "600", "there is no keytab"), (b"key", "644", "others can read the keytab")):
        if data is not None:
            site.hdfs.files["/user/horae/horae.keytab"] = data
        site.hdfs.mode = mode
        with pytest.raises(FixConfiguration, match=f"{words}.*mode 600"):
            site.port.start("job", {"n1": 1}, 1)
        seen = site.look()
        assert (seen.state, site.yarn.services) == (JobState.QUEUED, {})
        assert (seen.blocked, words in seen.native) == (None, True), "its GPUs are not in its way"
    site.hdfs.mode = "600"
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("verb", ["start", "stop"])
@pytest.mark.parametrize("writes", range(5))
def test_an_arbiter_that_fails_at_any_write_goes_on(site: Site, verb: str, writes: int, dies: bool) -> None:
    """After so many writes to HDFS the next ones fail: the arbiter dies with it and another takes over, or it lives."""

    def failing(action: Callable[[], None]) -> None:
        site.hdfs.writes_left = writes
        with suppress(PortError):
            action()
            site.look()
        site.hdfs.writes_left = None
        if dies:
            site.port = site.connect()
        site.look()
        action()  # as the arbiter's own plan does, which sees no effect or asks again

    def start() -> None:
        site.port.start("job", {"n1": 1}, 1)

    def stop() -> None:
        site.port.checkpoint_and_stop("job", 600.0)

    site.port.submit("job", SPEC)
    if verb == "start":
        failing(start)
    else:
        start()
    site.look()
    names = site.register()
    assert site.look().state is JobState.RUNNING
    if verb == "stop":
        failing(stop)
    else:
        stop()
    assert site.look().state is JobState.STOPPING
    assert site.gate()["state"] == "stop", "its workers are told"
    site.acknowledge(names, 1, "stopped", 86, step=7.0)
    seen = site.look()
    assert (seen.state, seen.epoch, seen.checkpoint.step) == (JobState.STOPPED, 1, 7.0)
    assert len(site.yarn.services) == 1


@pytest.mark.parametrize("writes", range(3))
def test_an_arbiter_killed_at_any_write_of_a_resize_goes_on(site: Site, writes: int) -> None:
    """Once all have left: YARN is told first, then the record is written."""
    first = site.running({"n1": 1})
    site.port.reshape("job", {"n1": 1, "n2": 1}, 2)
    site.acknowledge(first, 1, "stopped", 86, step=7.0)
    site.hdfs.writes_left = writes
    attend(site.port)
    site.hdfs.writes_left = None
    site.port = site.connect()
    assert (site.look().state, len(instances(next(iter(site.yarn.services.values()))))) == (JobState.STARTING, 2)
    second = site.register()
    seen = site.look()
    assert (seen.state, seen.epoch, seen.checkpoint.step) == (JobState.RUNNING, 2, 7.0)
    assert second[0] == first[0], "the survivor keeps its container"


def test_a_gate_that_cannot_be_written_opens_once_it_can(site: Site) -> None:
    """HDFS refuses it for a while."""
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.register()
    site.hdfs.writes_left = 0
    for _ in range(3):
        site.now_s += 3.0
        assert "job: HDFS is in safe mode" in attend(site.port).notes
    site.hdfs.writes_left = None
    assert site.look().state is JobState.RUNNING
    assert site.gate()["state"] == "open"


def test_without_the_claim_nothing_is_done(site: Site) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    site.look()
    site.register()
    site.hdfs.write("/hdfs/jobs/.claim", b"another\n")
    seen = attend(site.port)
    assert (seen.claim, seen.jobs[0].state) == ("another", JobState.STARTING)
    assert site.gate()["state"] == "stop"


def test_a_grant_on_a_node_that_is_full_or_down_waits(site: Site) -> None:
    for name in ("job", "other"):
        site.port.submit(name, SPEC)
    site.port.start("job", {"n1": 3}, 1)
    with pytest.raises(TryLater, match="has 1 GPUs free"):
        site.port.start("other", {"n1": 2}, 1)
    with pytest.raises(Never, match="has 4 GPUs"):
        site.port.start("other", {"n1": 5}, 1)
    site.yarn.down = "n2"
    site.look("other")
    with pytest.raises(TryLater, match="n2 is down"):
        site.port.start("other", {"n2": 1}, 1)


def job_of(service: str) -> str:
    return next(job for job in ("one", "two") if f"-{job}-" in service)


def test_looking_changes_nothing_and_shows_what_is_due(site: Site) -> None:
    """Two gangs stand: their gates are opened for who is asked for, and by nobody who only looks."""
    for job in ("one", "two"):
        site.port.submit(job, SPEC)
        site.port.start(job, {"n1": 1}, 1)
    for name, service in site.yarn.services.items():
        for each in instances(service):
            site.tell(f"members/{each.container}", {"host": "h", "port": 21000}, job_of(name))
    kept = dict(site.hdfs.files)
    looks = [site.port.observe() for _ in range(3)]
    assert site.hdfs.files == kept
    for seen in looks:
        assert {due.job for due in seen.due} == {"one", "two"}
        assert {job.state for job in seen.jobs} == {JobState.STARTING}
    assert site.port.follow_up(["two"]) == {}
    assert site.hdfs.files != kept
    states = {job.id: job.state for job in site.port.observe().jobs}
    assert states == {"one": JobState.STARTING, "two": JobState.RUNNING}


def test_nothing_is_due_once_another_request_came_first(site: Site) -> None:
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 1}, 1)
    for service in site.yarn.services.values():
        for each in instances(service):
            site.tell(f"members/{each.container}", {"host": "h", "port": 21000})
    assert [due.job for due in site.port.observe().due] == ["job"]
    site.port.cancel("job")
    assert site.port.follow_up(["job"]) == {}
    (seen,) = attend(site.port).jobs
    assert seen.state is JobState.CANCELLED


def test_a_listing_that_lacks_our_claim_is_not_believed(site: Site) -> None:
    """So an empty one, of another or an emptied NameNode, takes no job away."""
    site.port.submit("job", SPEC)
    site.look()
    kept = dict(site.hdfs.files)
    site.hdfs.files = {}
    with pytest.raises(TryLater, match="lacks the arbiter's claim"):
        attend(site.port)
    site.hdfs.files = kept
    assert site.look().state is JobState.QUEUED


def living(site: Site) -> list[Instance]:
    return [each for service in site.yarn.services.values() for each in instances(service)]
