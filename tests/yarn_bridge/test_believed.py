"""What a user may write, and what follows from it: a fact about that one job at most, and no GPU kept by silence.

By where it stands: names and tags of applications, the job's folder in HDFS, the definition of its service in its
owner's home, words that YARN repeats in what it says. (What stands in a document of a worker's: `test_trust.py`.)
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from horae.port import FixConfiguration, JobState, PortError, TryLater, attend
from horae.untrusted import Unbelievable
from tests.yarn_bridge.memory_site import SPEC, Site, instances
from tests.yarn_bridge.slice_site import SliceSite, app, running
from yarn_bridge.clients.errors import Gone, Powerless, refusal
from yarn_bridge.clients.http import Unanswered
from yarn_bridge.clients.services import definition_path
from yarn_bridge.jobs import shapes

ALICE = replace(SPEC, owner="alice")
FOLDER = "/hdfs/jobs/job"


@pytest.fixture
def trains(site: Site) -> Site:
    """`job`, alice's, trains on n1, and `other` waits."""
    site.port.submit("job", ALICE)
    site.port.submit("other", replace(SPEC, name="other"))
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    return site


def held(site: Site) -> list[str]:
    return [name for name, gpus in site.port._observer._held().items() for _ in range(gpus)]


# --- names of applications ---


@pytest.mark.parametrize(
    "name", ["h-job-0/n1/" + "9" * 5000, "h-job-0/n1/٣", "h-job-0/n1/-1", "h-job-0/n1/1e9", "h-job-0//1", "\x00/n1/1"]
)
def test_no_name_of_a_strangers_application_stops_a_look(name: str) -> None:
    site = SliceSite()
    site.port.submit("job", SPEC)
    running(site, {"n1": 1})
    site.manager.listed["application_9_1"] = app(91, name, id="application_9_1", user="mallory")
    site.manager.given["application_9_1"] = []
    assert site.look().state is JobState.RUNNING
    assert not site.manager.listed["application_9_1"].ended


def test_two_bridges_of_one_yarn_name_their_services_apart(site: Site) -> None:
    """Every journal numbers its jobs from 1: by the same name, each would end the other's."""
    other = Site(folder="/hdfs2")
    for each in (site, other):
        each.port.submit("1", SPEC)
        each.port.start("1", {"n1": 1}, 1)
        attend(each.port)
    assert not site.yarn.services.keys() & other.yarn.services.keys()
    assert shapes.service_name("1") not in site.yarn.services, "the version before named it so, whatever its bridge"


def test_a_service_that_its_owner_made_under_the_name_of_a_job_is_left_alone(site: Site) -> None:
    site.port.submit("job", ALICE)
    name = site.port.files.service_name("job")
    site.yarn.create({"name": name, "components": [{"name": "w0", "number_of_containers": 2}]}, "alice")
    before = dict(site.yarn.services)
    assert site.look().state is JobState.QUEUED
    with pytest.raises(FixConfiguration, match="which Horae did not make"):
        site.port.start("job", {"n2": 1}, 1)
    assert site.yarn.services == before
    site.yarn.services.clear()
    site.yarn.failed = "Application application_1 was killed by user alice at 10.0.0.1"
    assert site.look().state is JobState.QUEUED, "he ended that, and not the job"
    site.yarn.services |= before
    site.port.cancel("job")
    assert site.look().state is JobState.CANCELLED
    assert site.yarn.services == before
    assert site.calls["kill"] == 0


def test_why_a_service_cannot_be_made_is_said_of_a_file_that_is_gone_too(site: Site) -> None:
    """Its owner took the script away that its workers run."""
    site.yarn.refuse = Gone("creating the service h-job-0: File does not exist: /hdfs/jobs/job/launch.sh (HTTP 400)")
    site.port.submit("job", ALICE)
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.now_s += 130.0
    seen = site.look()
    assert (seen.state, seen.blocked) == (JobState.LOST, None), "no node is left alone for it, again and again"
    assert "its service does not run: creating the service" in seen.native


# --- the job's folder ---


def closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.hdfs.closed = FOLDER


def full(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more entries than anybody reads."""
    plain = site.hdfs.some

    def some(path: str, most: int) -> Any:
        if path.startswith(f"{FOLDER}/"):
            raise Unbelievable(path, f"holds more than {most} entries")
        return plain(path, most)

    monkeypatch.setattr(site.hdfs, "some", some)


@pytest.mark.parametrize("deed", [closed, full])
def test_an_owner_who_shuts_his_folder_keeps_no_gpu_by_it(
    trains: Site, monkeypatch: pytest.MonkeyPatch, deed: Any
) -> None:
    deed(trains, monkeypatch)
    trains.hdfs._touch(f"{FOLDER}/x")
    seen = trains.look()
    assert seen.state is JobState.RUNNING, "what it does is not known, and is not judged"
    trains.port.checkpoint_and_stop("job", 5.0)
    trains.now_s += 10.0
    assert attend(trains.port).jobs[0].state is JobState.STOPPING, "its time is not over"
    trains.now_s += 20.0
    stopped = trains.look()
    assert (stopped.state, stopped.exit_code) == (JobState.STOPPED, 137)
    trains.port.start("other", {"n1": 4}, 1)


def shut_to(site: Site, monkeypatch: pytest.MonkeyPatch, refused: PortError) -> None:
    """Nobody writes in his name until that is undone."""
    plain = site.hdfs._call

    def call(name: str) -> None:
        plain(name)
        if site.hdfs.user == "alice" and name == "write":
            raise refused

    monkeypatch.setattr(site.hdfs, "_call", call)


@pytest.mark.parametrize("cancels", [False, True])
def test_an_owner_who_lets_nobody_write_at_his_gate_keeps_no_gpu_by_it(
    trains: Site, monkeypatch: pytest.MonkeyPatch, cancels: bool
) -> None:
    """`hdfs dfs -chmod 500` of a folder of his own. What he had was his for ever."""
    shut_to(trains, monkeypatch, FixConfiguration(f"writing {FOLDER}/gate: Permission denied: user=alice"))
    if cancels:
        trains.port.cancel("job")
        assert trains.look().state is JobState.CANCELLED
    else:
        trains.port.checkpoint_and_stop("job", 5.0)
        assert attend(trains.port).jobs[0].state is JobState.STOPPING
        words = f"job: its workers cannot be told to go: writing {FOLDER}/gate: Permission denied: user=alice"
        assert any(note.startswith(words) for note in attend(trains.port).notes)
        trains.now_s += 25.0
        assert trains.look().state is JobState.STOPPED
    assert not held(trains)
    trains.port.start("other", {"n1": 4}, 1)


@pytest.mark.parametrize("asked", ["stop", "reshape", "start"])
def test_nothing_is_begun_for_an_owner_whom_the_bridge_may_not_act_for(
    trains: Site, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """The right was taken away in the middle. He was killed at once when it came back, and never told to go."""
    trains.port.submit("hers", replace(ALICE, name="hers"))
    ask: dict[str, Any] = {
        "stop": lambda: trains.port.checkpoint_and_stop("job", 5.0),
        "reshape": lambda: trains.port.reshape("job", {"n1": 3}, 2),
        "start": lambda: trains.port.start("hers", {"n1": 1}, 1),
    }
    with monkeypatch.context() as patch:
        shut_to(trains, patch, Powerless("writing: User: horae is not allowed to impersonate alice", "let it"))
        with pytest.raises(Powerless):
            ask[asked]()
        for _ in range(3):
            assert trains.look().state is JobState.RUNNING, "it trains on"
            trains.now_s += 60.0
        assert held(trains) == ["n1", "n1"], "no more is kept from others for it"
        trains.port.start("other", {"n2": 4}, 1)
        assert trains.look("other").state is JobState.STARTING
    assert trains.look().state is JobState.RUNNING
    assert trains.look("hers").state is JobState.QUEUED
    assert trains.gate()["state"] == "open"
    ask[asked]()
    states = {each.id: each.state for each in attend(trains.port).jobs}
    moved = (states["hers"], JobState.STARTING) if asked == "start" else (states["job"], JobState.STOPPING)
    assert moved[0] is moved[1], "once it may, it is asked again"


NO_POWER = Powerless("acting for alice: User: horae is not allowed to impersonate alice", "let it")


@pytest.mark.parametrize("asked", ["stop", "reshape"])
def test_nobody_is_stopped_who_could_not_be_started_again(trains: Site, asked: str) -> None:
    """The ResourceManager alone let us not act for her, and HDFS did: her workers left, and waited with their GPUs."""
    ask: dict[str, Any] = {
        "stop": lambda: trains.port.checkpoint_and_stop("job", 5.0),
        "reshape": lambda: trains.port.reshape("job", {"n1": 1, "n2": 1}, 2),
    }
    trains.yarn.powerless = NO_POWER
    with pytest.raises(Powerless):
        ask[asked]()
    seen = trains.look()
    assert (seen.state, seen.epoch, trains.gate()["state"]) == (JobState.RUNNING, 1, "open"), "it trains on"
    assert held(trains) == ["n1", "n1"]
    trains.yarn.powerless = None
    ask[asked]()
    assert attend(trains.port).jobs[0].state is JobState.STOPPING


def test_no_slices_are_stopped_whose_like_could_not_be_submitted() -> None:
    site = SliceSite()
    site.port.submit("job", ALICE)
    running(site, {"n1": 2})
    site.manager.powerless = NO_POWER
    for ask in (lambda: site.port.reshape("job", {"n2": 2}, 2), lambda: site.port.checkpoint_and_stop("job", 5.0)):
        with pytest.raises(Powerless):
            ask()
    assert (site.look().state, site.gate()["state"]) == (JobState.RUNNING, "open")


def test_nobody_stops_by_himself_who_could_not_be_started_again() -> None:
    """His HDFS token is old, and there is none to be had: he trains under it for as long as it lives."""
    site = Site(token_life_s=1000.0)
    site.running({"n1": 1})
    site.yarn.powerless = NO_POWER
    site.now_s += 750.0
    assert (site.look().state, site.gate()["state"]) == (JobState.RUNNING, "open")
    site.yarn.powerless = None
    assert site.look().state is JobState.STOPPING


@pytest.mark.parametrize("restarts", [False, True])
def test_the_time_that_workers_have_to_go_begins_when_they_are_told(
    trains: Site, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """The arbiter ended between the record and the gate, or HDFS did not take it: they were killed without a word."""
    with monkeypatch.context() as patch:
        shut_to(trains, patch, TryLater(f"writing {FOLDER}/gate: it may be done all the same"))
        with pytest.raises(TryLater):
            trains.port.checkpoint_and_stop("job", 5.0)
        trains.now_s += 3600.0
        if not restarts:
            trains.look()
    trains.port = trains.connect() if restarts else trains.port
    attend(trains.port)
    assert trains.gate()["state"] == "stop"
    trains.now_s += 15.0
    assert attend(trains.port).jobs[0].state is JobState.STOPPING, "their time is not over"
    assert sum(len(instances(each)) for each in trains.yarn.services.values()) == 2
    trains.now_s += 10.0
    assert trains.look().exit_code == 137


@pytest.mark.parametrize("deed", [closed, full])
def test_a_gang_that_nobody_sees_at_its_gate_is_given_back(
    site: Site, monkeypatch: pytest.MonkeyPatch, deed: Any
) -> None:
    site.port.submit("job", ALICE)
    site.port.start("job", {"n1": 2}, 1)
    attend(site.port)
    deed(site, monkeypatch)
    site.register()
    notes = attend(site.port).notes
    assert any("Permission denied" in note or "more than" in note for note in notes), notes
    for _ in range(25):
        seen = site.look()
    assert not seen.state.holds
    assert seen.blocked is not None


def test_a_closed_folder_does_not_keep_a_new_arbiter_from_looking(trains: Site) -> None:
    trains.hdfs.closed = FOLDER
    trains.port = trains.connect()
    assert {each.id: each.state for each in attend(trains.port).jobs} == {
        "job": JobState.RUNNING,
        "other": JobState.QUEUED,
    }
    trains.port.start("other", {"n2": 1}, 1)


# --- its checkpoints ---


def nobody_may_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.hdfs.closed = "/ck"


def is_written_for_ever(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDFS cannot say how long a file is whose writer has it open."""
    site.hdfs.hidden = "/ck/"


@pytest.mark.parametrize("deed", [nobody_may_read, is_written_for_ever])
@pytest.mark.parametrize("end", ["lost", "killed"])
def test_a_checkpoint_that_cannot_be_read_keeps_no_gpu(
    site: Site, monkeypatch: pytest.MonkeyPatch, deed: Any, end: str
) -> None:
    site.port.submit("job", replace(ALICE, checkpoint="webhdfs://nn:9870/ck"))
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING
    deed(site, monkeypatch)

    def some(path: str, most: int) -> Any:
        if path.startswith("/ck"):
            site.hdfs.read("/ck/manifest")
        return site.hdfs.entries(path)

    monkeypatch.setattr(site.hdfs, "some", some)
    if end == "lost":
        site.yarn.down = "n1"
    else:
        site.port.checkpoint_and_stop("job", 5.0)
        site.now_s += 30.0
    for _ in range(4):
        seen = site.look()
    assert seen.state is (JobState.LOST if end == "lost" else JobState.STOPPED)
    assert held(site) == []


# --- the definition of its service ---


@pytest.mark.parametrize("end", ["stop", "cancel", "lost"])
def test_what_runs_of_a_service_whose_definition_is_gone_is_ended_with_its_job(trains: Site, end: str) -> None:
    """`hdfs dfs -rm -r .yarn`, by somebody who tidies up. It cannot be flexed any more."""
    trains.yarn.undefined = True
    assert trains.look().state is JobState.RUNNING
    names = [each for part in trains.yarn.services.values() for each in part.components["w0"].instances]
    if end == "stop":
        trains.port.checkpoint_and_stop("job", 5.0)
        trains.acknowledge([each.container for each in names], 1, "stopped", 86, 7.0)
    elif end == "cancel":
        trains.port.cancel("job")
    else:
        trains.yarn.down = "n1"
    expected = {"stop": JobState.STOPPED, "cancel": JobState.CANCELLED, "lost": JobState.LOST}
    assert trains.look().state is expected[end]
    assert not trains.yarn.services, "its application was ended"
    assert held(trains) == []


def test_a_definition_that_nobody_can_read_holds_no_gpu(trains: Site) -> None:
    trains.yarn.garbage = "Unrecognized token 'garbage'"
    path = definition_path(trains.port.files.service_name("job"), "alice")
    trains.hdfs.files[path] = b"garbage"
    trains.port.cancel("job")
    for _ in range(3):
        seen = trains.look()
    assert seen.state is JobState.CANCELLED
    assert held(trains) == []
    assert path not in trains.hdfs.files
    assert not trains.yarn.services


@pytest.mark.parametrize("written", [b"garbage", b" " * (5 << 20), b'{"name": "h-other-1"}', b""])
@pytest.mark.parametrize("when", ["in a resize", "at a start"])
def test_a_job_whose_definition_nobody_can_read_gets_its_shape_in_a_new_service(
    trains: Site, written: bytes, when: str
) -> None:
    names = [each.container for part in trains.yarn.services.values() for each in part.components["w0"].instances]
    if when == "at a start":
        trains.port.checkpoint_and_stop("job", 5.0)
        trains.acknowledge(names, 1, "stopped", 86, 7.0)
        assert trains.look().state is JobState.STOPPED
    trains.yarn.broken_definition = definition_path(trains.port.files.service_name("job"), "alice")
    trains.hdfs.files[trains.yarn.broken_definition] = written
    if when == "at a start":
        trains.port.start("job", {"n2": 2}, 2)
    else:
        trains.port.reshape("job", {"n2": 2}, 2)
        trains.acknowledge(names, 1, "stopped", 86, 7.0)
    for _ in range(4):
        trains.now_s += 3.0
        trains.look()
    trains.register()
    assert (trains.look().state, trains.calls["create"], trains.calls["kill"]) == (JobState.RUNNING, 2, 1)
    assert dict(trains.look().allocation) == {"n2": 2}


def test_no_node_is_blamed_where_yarn_takes_no_flex_of_a_job(trains: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner's definition of its service cannot be read: its workers were never asked for."""

    def refused(name: str, owner: str, counts: dict[str, int]) -> None:
        raise TryLater("flexing h-job-0: Unrecognized token 'garbage' (HTTP 500)")

    names = [each.container for part in trains.yarn.services.values() for each in part.components["w0"].instances]
    monkeypatch.setattr(trains.yarn, "flex", refused)
    trains.port.reshape("job", {"n1": 2, "n2": 2}, 2)
    trains.acknowledge(names, 1, "stopped", 86, 7.0)
    trains.look()
    trains.now_s += 130.0
    trains.look()
    seen = trains.look()
    assert (seen.state, seen.blocked) == (JobState.LOST, None), "nor by the arbiter, which leaves alone what blocks"
    assert "2 of its 4 workers came within 120 s: flexing h-job-0: Unrecognized token" in seen.native
    assert "not offered" not in seen.native
    assert [each.foreign for each in attend(trains.port).nodes] == [0, 0]


def test_no_name_of_a_job_takes_the_definition_of_a_service_away(site: Site) -> None:
    """Half a definition is told in YARN's words, and the name of the service stands beside them."""
    site.port.submit("end-of-input", ALICE)
    site.port.start("end-of-input", {"n1": 1}, 1)
    site.look("end-of-input")
    name = site.port.files.service_name("end-of-input")
    path = definition_path(name, "alice")
    site.hdfs.files[path] = b'{"name": "%s"}' % name.encode()
    site.yarn.garbage = "its application master does not answer"
    for _ in range(3):
        site.now_s += 3.0
        site.look("end-of-input")
    assert path in site.hdfs.files


# --- its application master, which runs as its owner ---


def test_an_application_master_that_its_owner_stopped_slows_no_rounds(
    trains: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that is none of its workers, so that the bridge asks for its service: each time a whole time-out."""
    asked_s = []

    def stopped(name: str, owner: str) -> None:
        trains.now_s += 35.0
        asked_s.append(35.0)
        raise Unanswered("ResourceManager at rm:8088 did not answer within 35 s")

    monkeypatch.setattr(trains.yarn, "get", stopped)
    trains.tell("members/somebody", {"host": "h", "port": 1})
    began_s = trains.now_s
    for _ in range(200):
        trains.now_s += 5.0
        seen = attend(trains.port)
        assert {each.id: each.state for each in seen.jobs}["job"] is JobState.RUNNING
        assert any("did not answer" in note for note in seen.notes)
    assert len(asked_s) > 2
    assert sum(asked_s) < 0.2 * (trains.now_s - began_s)
    monkeypatch.undo()
    trains.yarn.away = True
    trains.port.cancel("job")
    assert trains.look().state is JobState.CANCELLED
    assert held(trains) == []


# --- words that YARN repeats ---


def said(status: int, exception: str, message: str) -> PortError:
    body = {"RemoteException": {"exception": exception, "message": message}}
    return refusal(status, json.dumps(body).encode()).error("reading")


@pytest.mark.parametrize(
    "word",
    ["safemode", "SafeModeException", "standbyexception", "RetriableException", "QuotaExceededException",
     "InvalidToken"],
)  # fmt: skip
def test_the_name_of_a_job_does_not_change_what_hdfs_says_of_its_files(word: str) -> None:
    assert type(said(404, "FileNotFoundException", f"File does not exist: /j/{word}")) is Gone


@pytest.mark.parametrize("word", ["FileNotFoundException", "NotFoundException", "x.NotFoundException"])
def test_no_name_of_a_job_makes_hdfs_say_that_it_is_gone(word: str) -> None:
    told = f'Permission denied: user=horae, access=EXECUTE, inode="/j/{word}":alice:users:drwx------'
    assert isinstance(said(403, "AccessControlException", told), FixConfiguration)
