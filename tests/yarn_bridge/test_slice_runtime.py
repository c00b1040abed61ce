"""Jobs as slices: what is submitted, what is kept, and a job's whole way over a YARN and an HDFS of dictionaries."""

from __future__ import annotations

import base64
import itertools
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.port import FixConfiguration, JobState, Never, PortError, TryLater, attend
from policy.model import Pinning
from tests.yarn_bridge.memory_site import OPTIONS, SPEC
from tests.yarn_bridge.slice_site import ROOT, SliceSite, app, running
from yarn_bridge.clients.hdfs import Status
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import Record
from yarn_bridge.jobs.room import Held
from yarn_bridge.options import parse_options
from yarn_bridge.runtimes.slice_shapes import (
    Classes,
    Slice,
    change,
    check,
    class_path,
    script,
    slice_of,
    submission,
)


def held(*slices: tuple[str, int]) -> list[Slice]:
    return [Slice(app(at, ""), "h-job", node, gpus) for at, (node, gpus) in enumerate(slices)]


# --- what changes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "wanted", "ending", "submitting"),
    [
        ([], {"n1": 2, "n2": 1}, [], {"n1": 2, "n2": 1}),
        ([("n1", 2)], {"n1": 2}, [], {}),
        ([("n1", 2)], {"n1": 3}, [], {"n1": 1}),
        ([("n1", 2)], {"n2": 2}, [0], {"n2": 2}),
        ([("n1", 3)], {"n1": 2}, [0], {"n1": 2}),
        ([("n1", 3), ("n1", 2), ("n1", 2)], {"n1": 4}, [0], {}),
        ([("n1", 2), ("n1", 2)], {"n1": 2}, [1], {}),
        ([("n1", 1), ("n2", 1)], {}, [0, 1], {}),
        ([("*", 2)], {"*": 5}, [], {"*": 3}),
    ],
)
def test_whole_slices_stay_where_they_fit(
    now: list[tuple[str, int]], wanted: dict[str, int], ending: list[int], submitting: dict[str, int]
) -> None:
    slices = held(*now)
    assert change(slices, wanted) == ([slices[at] for at in ending], submitting)


_SHAPES = st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.integers(0, 8))


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.integers(1, 8)), max_size=6), _SHAPES)
def test_what_stays_and_what_is_submitted_is_what_is_wanted(now: list[tuple[str, int]], wanted: dict[str, int]) -> None:
    slices = held(*now)
    ending, submitting = change(slices, wanted)
    total = Counter(submitting)
    for each in slices:
        if each not in ending:
            total[each.node] += each.gpus
    assert +total == +Counter(wanted)
    again = [each for each in slices if each not in ending] + held(*submitting.items())
    assert change(again, wanted) == ([], {}), "a second look changes nothing"


# --- what is submitted ------------------------------------------------------------------------------------

RECORD = Record("job", "alice", "h-job-1a2b3c4d", 0.0, granted=3, allocation=(("n2", 3),))


def body(where: tuple[str, int], classes: Classes | None = None, **options: Any) -> dict[str, Any]:
    status = Status("worker.sh", False, 700, 12.345, "alice", "644")
    return submission(
        "application_7_0001", where, RECORD, SPEC, parse_options({**OPTIONS, **options}), ROOT,
        ("/hdfs/jobs/job/worker.sh", status), classes or Classes("/fw.tar.gz", status),
    )  # fmt: skip


def test_a_slice_asks_for_its_gpus_on_its_node() -> None:
    made = body(("n2", 3), slice_memory_mib=400, cpus=2, memory_mib=900)
    words = made["am-container-spec"]["commands"]["command"].split()
    said = dict(itertools.pairwise(words))
    assert base64.b64decode(said["--placement_spec"]) == b"w(3),nm.yarn.io/host=n2"
    assert (said["--num_containers"], said["--container_resources"]) == ("3", "memory-mb=900,vcores=2,yarn.io/gpu=1")
    assert "-Xmx250m" in words
    assert (made["resource"], made["max-app-attempts"]) == ({"memory": 400, "vCores": 1}, 1)
    assert made["application-tags"] == {"tag": [ROOT, "h-job-1a2b3c4d", "epoch-3"]}
    found = slice_of(app(1, made["application-name"]))
    assert found is not None
    assert (found.service, found.node, found.gpus) == ("h-job-1a2b3c4d", "n2", 3)
    env = {each["key"]: each["value"] for each in made["am-container-spec"]["environment"]["entry"]}
    assert env["DISTRIBUTEDSHELLSCRIPTLOCATION"] + ".sh" == "hdfs:///hdfs/jobs/job/worker.sh"
    assert (env["DISTRIBUTEDSHELLSCRIPTTIMESTAMP"], env["DISTRIBUTEDSHELLSCRIPTLEN"]) == ("12345", "700")
    (archive,) = made["am-container-spec"]["local-resources"]["entry"]
    assert archive["value"]["resource"] == "hdfs:///fw.tar.gz"


def test_a_slice_anywhere_names_no_node() -> None:
    made = body(("*", 2))
    assert "--placement_spec" not in made["am-container-spec"]["commands"]["command"]
    found = slice_of(app(1, made["application-name"]))
    assert found is not None
    assert (found.node, found.gpus) == (shapes.ANYWHERE, 2)


def test_without_an_archive_the_nodes_own_hadoop_is_taken() -> None:
    made = body(("n2", 1), Classes(path="/opt/conf, /opt/hadoop/*"))
    env = {each["key"]: each["value"] for each in made["am-container-spec"]["environment"]["entry"]}
    assert env["CLASSPATH"] == "{{HADOOP_CONF_DIR}}:/opt/conf:/opt/hadoop/*"
    assert made["am-container-spec"]["local-resources"]["entry"] == []
    assert "$HADOOP_YARN_HOME/share/hadoop/yarn/*" in class_path("")


@pytest.mark.parametrize("name", ["h-job", "h-job/n1", "h-job/n1/two", "someone's shell", "x/n1/2"])
def test_what_is_no_slice_is_left_alone(name: str) -> None:
    assert slice_of(app(1, name)) is None
    assert slice_of(app(1, "h-job/n1/2", kind="YARN")) is None


def test_what_only_a_service_can_give_is_refused() -> None:
    check(SPEC)
    with pytest.raises(Never, match=r"asks for artifact: only YARN services"):
        check(replace(SPEC, extra={"yarn.worker": '{"artifact": {"id": "tf", "type": "DOCKER"}}'}))


def test_the_script_is_a_shell_script_and_an_archive(tmp_path: Path) -> None:
    """As YARN starts it: by the name ExecScript.sh, in a folder of the container's own."""
    launch = f'#!/bin/bash\nhere="$PWD"\nexec {sys.executable} -I "$here/{shapes.SDK}" --help\n'
    name, data = script(launch.encode())
    assert re.fullmatch(r"worker-[0-9a-f]{12}\.sh", name)
    assert script(launch.encode()) == (name, data)
    (tmp_path / "ExecScript.sh").write_bytes(data)
    done = subprocess.run(["bash", "ExecScript.sh"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "--gate" in done.stdout) == (0, True), done.stderr


# --- a job's whole way ------------------------------------------------------------------------------------


@pytest.fixture
def site() -> SliceSite:
    return SliceSite()


def test_a_job_through_start_grow_shrink_suspend_resume_and_end(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    assert (site.look().state, site.manager.listed) == (JobState.QUEUED, {})
    first = running(site, {"n1": 1})
    assert site.manager.shape == ["n1/1"]

    site.port.reshape("job", {"n1": 2, "n2": 1}, 2)
    site.look()
    assert site.manager.shape == ["n1/1"], "nothing moves before the checkpoint is complete"
    site.acknowledge(first, 1, "stopped", 86, step=40.0)
    site.look()
    assert site.manager.shape == ["n1/1", "n1/1", "n2/1"]
    second = site.register()
    assert (site.look().state, site.look().allocation) == (JobState.RUNNING, {"n1": 2, "n2": 1})
    assert site.gate()["members"][0]["name"] == first[0], "the survivor keeps its container, and is rank 0"

    site.port.reshape("job", {"n2": 1}, 3)
    site.acknowledge(second, 2, "stopped", 86, step=60.0)
    site.look()
    assert site.manager.shape == ["n2/1"]
    third = site.register()
    assert (site.look().epoch, site.look().allocation) == (3, {"n2": 1})

    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(third, 3, "stopped", 86, step=90.0)
    seen = site.look()
    assert (seen.state, seen.exit_code, seen.allocation, seen.checkpoint.step) == (JobState.STOPPED, 86, {}, 90.0)
    assert site.manager.shape == [], "suspended costs nothing"

    last = running(site, {"n1": 2}, 4)
    site.acknowledge(last, 4, "completed", 0, step=100.0)
    seen = site.look()
    assert (seen.state, seen.exit_code, site.manager.shape) == (JobState.COMPLETED, 0, [])


def test_a_round_is_three_reads_also_with_slices(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    running(site, {"n1": 2, "n2": 1})
    site.calls.clear()
    attend(site.port)
    assert site.calls == {"nodes": 1, "apps": 1, "entries": 1}


def test_a_submission_whose_answer_is_lost_is_not_made_again(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    site.manager.answers_lost = True
    site.port.start("job", {"n1": 2}, 1)
    site.manager.answers_lost = False
    site.look()
    site.register()
    assert (site.look().state, site.manager.shape) == (JobState.RUNNING, ["n1/2"])


@pytest.mark.parametrize("writes", range(8))
def test_an_arbiter_killed_at_any_write_of_a_resize_ends_in_its_shape(site: SliceSite, writes: int) -> None:
    """The first arbiter may write so often, and dies at the next; another one takes over."""
    site.port.submit("job", replace(SPEC, grace_s=600.0))
    names = running(site, {"n1": 2})

    def reshape() -> None:
        with suppress(PortError):
            site.port.reshape("job", {"n1": 1, "n2": 1}, 2)

    def workers_leave_when_asked() -> None:
        if site.gate()["state"] == "stop":
            site.acknowledge(names, 1, "stopped", 86, step=7.0)

    site.hdfs.writes_left = writes
    reshape()
    left, site.hdfs.writes_left = site.hdfs.writes_left, None
    workers_leave_when_asked()
    site.hdfs.writes_left = left
    with suppress(PortError):
        site.look()
    site.hdfs.writes_left = None
    site.port = site.connect()
    site.look()
    reshape()  # as the arbiter's own plan does, when it sees no effect
    workers_leave_when_asked()
    site.look()
    site.register()
    seen = site.look()
    assert (seen.state, seen.epoch, seen.checkpoint.step) == (JobState.RUNNING, 2, 7.0)
    assert site.manager.shape == ["n1/1", "n2/1"]


def test_where_nodes_have_no_names_yarn_chooses_and_what_came_is_shown(site: SliceSite) -> None:
    site.manager.named = False
    site.port.submit("job", SPEC)
    running(site, {"n1": 2})
    assert (site.manager.shape, site.look().allocation) == (["*/2"], {"n2": 2})
    names = site.manager.living
    site.port.reshape("job", {"n1": 3}, 2)
    site.acknowledge(names, 1, "stopped", 86, step=7.0)
    site.look()
    site.register()
    assert (site.look().allocation, site.manager.shape) == ({"n2": 3}, ["*/1", "*/2"])
    capabilities = site.port.capabilities()
    assert capabilities.limits.pinning is Pinning.NONE
    assert any("slices: the Services API is off" in note for note in capabilities.notes)


@pytest.mark.parametrize("writes", range(6))
def test_an_arbiter_killed_at_any_write_leaves_one_set_of_slices(site: SliceSite, writes: int) -> None:
    site.port.submit("job", SPEC)
    site.hdfs.writes_left = writes
    with suppress(PortError):
        site.port.start("job", {"n1": 1, "n2": 1}, 1)
        site.look()
    site.hdfs.writes_left = None
    site.port = site.connect()
    site.look()
    site.port.start("job", {"n1": 1, "n2": 1}, 1)
    site.look()
    site.register()
    assert (site.look().state, site.manager.shape) == (JobState.RUNNING, ["n1/1", "n2/1"])


def test_slices_of_no_job_are_ended_and_those_of_another_bridge_are_not(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    running(site, {"n1": 1})
    site.port.submit("gone", replace(SPEC, name="gone"))
    site.hdfs.delete("/hdfs/jobs/gone")
    service, gone = site.port.files.service_name("job"), site.port.files.service_name("gone")
    strange = {
        "application_7_0101": app(101, f"{gone}/n2/2", id="application_7_0101"),
        "application_7_0104": app(104, f"{gone}/n2/2", id="application_7_0104", user="mallory"),
        "application_7_0105": app(105, "h-never-1a2b3c4d/n2/2", id="application_7_0105", user="mallory"),
        "application_7_0102": app(102, f"{service}/n2/2", id="application_7_0102", tags=("horae-of-another",)),
        "application_7_0103": app(103, f"{service}/n2/2", id="application_7_0103", tags=(ROOT, service)),
    }
    site.manager.listed |= strange
    site.manager.given |= {key: [] for key in strange}
    site.manager.given["application_7_0103"] = site.manager.containers("application_7_0103", "appattempt_7_0103_000001")
    seen = site.port.observe()
    assert [(due.job, due.stray) for due in seen.due if due.stray] == [("application_7_0101", True)]
    assert site.manager.listed["application_7_0101"].state == "RUNNING", "looking ends nothing"
    attend(site.port)
    states = {key: site.manager.listed[key].state for key in strange}
    assert (states["application_7_0101"], states["application_7_0102"]) == ("KILLED", "RUNNING")
    assert {states["application_7_0104"], states["application_7_0105"]} == {"RUNNING"}, "whoever takes our names"


def test_what_an_idle_job_holds_is_taken_back(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    service = site.port.files.service_name("job")
    site.manager.listed["application_7_0009"] = app(
        9, f"{service}/n2/2", id="application_7_0009", tags=(ROOT, service), state="ACCEPTED"
    )
    site.manager.given["application_7_0009"] = []
    running(site, {"n1": 1})
    site.look()
    assert site.manager.shape == ["n1/1"]
    names = site.manager.living
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 1, "stopped", 86)
    assert site.look().state is JobState.STOPPED
    site.manager.listed["application_7_0010"] = app(
        10, f"{service}/n1/2", id="application_7_0010", tags=(ROOT, service), state="ACCEPTED"
    )
    site.manager.given["application_7_0010"] = []
    site.look()
    assert site.manager.shape == [], "also one that has no GPU yet"


def test_a_manager_that_has_just_started_loses_no_job(site: SliceSite) -> None:
    """Its applications are there at once, their containers only when the nodes have come back."""
    site.port.submit("job", SPEC)
    names = running(site, {"n1": 2})
    given = dict(site.manager.given)
    (known,) = site.manager.listed.values()
    site.manager.forgetful, site.manager.given = True, {key: [] for key in given}
    site.manager.listed[known.id] = replace(known, state="ACCEPTED")  # its application master comes back late
    for _ in range(8):
        assert site.look().state is JobState.RUNNING
    site.manager.listed[known.id] = known
    site.now_s += 3.0
    assert attend(site.port).jobs[0].state is JobState.RUNNING
    site.manager.forgetful, site.manager.given = False, given
    assert site.look().state is JobState.RUNNING
    (key,) = given
    site.manager.given[key] = given[key][1:]  # one of the two is really gone
    for _ in range(8):
        seen = site.look()
    assert (seen.state, site.manager.shape) == (JobState.LOST, [])
    assert len(names) == 2


def test_a_manager_that_is_started_twice_loses_no_job_either(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    running(site, {"n1": 2})
    given = dict(site.manager.given)
    for _ in range(3):
        site.manager.forgetful, site.manager.given = True, {key: [] for key in given}
        site.now_s += 3.0
        assert attend(site.port).jobs[0].state is JobState.RUNNING, "its nodes come back in a moment"
        site.manager.forgetful, site.manager.given = False, given
        for _ in range(5):
            assert site.look().state is JobState.RUNNING


def test_a_slice_that_ended_by_itself_loses_the_job_and_gives_back_the_rest(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    running(site, {"n1": 1, "n2": 1})
    key = next(iter(site.manager.listed))
    site.manager.listed[key] = replace(site.manager.listed[key], state="FAILED")
    site.manager.given[key] = []
    for _ in range(8):
        seen = site.look()
    assert (seen.state, seen.allocation, site.manager.shape) == (JobState.LOST, {}, [])
    site.port.start("job", {"n2": 1}, 2)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING


def test_slices_that_fail_are_not_submitted_for_ever(site: SliceSite) -> None:
    site.port.submit("job", SPEC)
    site.manager.fails = True
    site.port.start("job", {"n1": 1}, 1)
    for _ in range(6):
        site.look()
    assert site.calls["submit"] == 3
    seen = site.look()
    assert (seen.state, seen.allocation) == (JobState.LOST, {})
    assert "3 of its slices failed" in seen.native
    assert "framework" in seen.native
    site.manager.fails = False
    site.port.start("job", {"n1": 1}, 2)
    site.look()
    site.register()
    assert site.look().state is JobState.RUNNING


def test_an_archive_that_is_not_there_is_told_at_the_start(site: SliceSite) -> None:
    port: Any = site.port
    port._executor.by_slices._options = parse_options({**OPTIONS, "framework": "/apps/none.tar.gz"})
    site.port.submit("job", SPEC)
    with pytest.raises(FixConfiguration, match=r"no /apps/none.tar.gz"):
        site.port.start("job", {"n1": 1}, 1)
    assert (site.look().state, site.manager.listed) == (JobState.QUEUED, {})


def test_a_job_comes_over_from_a_service_once_that_has_ended(site: SliceSite) -> None:
    """The Services API was switched off: what is left of the job's service ends first."""
    port: Any = site.port
    site.port.submit("job", SPEC)
    running(site, {"n1": 1})
    names = site.manager.living
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 1, "stopped", 86, step=3.0)
    assert site.look().state is JobState.STOPPED
    record = port._observer.jobs["job"].record
    port._steps.put(port._observer.jobs["job"], replace(record, runtime="services"))
    ended: list[str] = []
    answers = iter([False, True])

    def end(record: Record) -> bool:
        ended.append(record.service)
        return next(answers)

    port._executor.by_service.end = end
    with pytest.raises(TryLater, match="as services is still ending"):
        site.port.start("job", {"n2": 1}, 2)
    running(site, {"n2": 1}, 2)
    assert ended == [record.service, record.service]
    assert site.manager.shape == ["n2/1"]


def test_slices_whose_place_an_application_master_of_theirs_took_are_given_back_at_once() -> None:
    """They can never stand, and kept their GPUs for all the time that a gang has."""
    site = SliceSite(memory_mib=2048, cpus=1)
    site.port._observer.limits.master = Held(0, 1, 512)
    site.manager.am_node, site.manager.room = "n1:8042", {"n1": 3}
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 4, "n2": 2}, 1)
    seen = site.look()
    assert (seen.state, site.manager.shape) == (JobState.QUEUED, [])
    assert seen.blocked is not None
    assert seen.blocked.text == (
        "the application master of a slice came to n1, and beside it 3 of its 4 workers there have room; what came was "
        "given back; not offered again: 1 on n1 for 60 s"
    )
    site.manager.am_node, site.manager.room = "n2:8042", {}
    running(site, {"n1": 3, "n2": 3}, 2)


def test_slices_beside_an_application_master_that_leaves_them_room_wait_for_others_who_may_go() -> None:
    site = SliceSite(memory_mib=2048, cpus=1)
    site.port._observer.limits.master = Held(0, 1, 512)
    site.manager.am_node, site.manager.room = "n1:8042", {"n1": 2}
    site.port.submit("job", SPEC)
    site.port.start("job", {"n1": 3}, 1)
    assert site.look().state is JobState.STARTING
