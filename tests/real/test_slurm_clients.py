"""The clients on real daemons: the same cluster by each of them, and a way round each that is away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import JobState, attend
from slurm_plugin.adapter import connect
from slurm_plugin.clients.base import Operation
from slurm_plugin.records import JobRow
from slurm_plugin.site.doctor import checks
from slurm_plugin.writes import Change, update
from tests.contract.driver import Driver
from tests.real.slurm import (
    Containers,
    slurm_2205,  # noqa: F401 - fixtures
    slurm_2411,  # noqa: F401
    slurm_2605,  # noqa: F401
    wait_for,
)
from tests.real.slurm_clients import OwnRest, client, ended, opened, port_of, way
from tests.real.slurm_driving import PLAIN, harness, number, submit

pytestmark = pytest.mark.real


def assert_goes_by(driver: Driver, operation: Operation, name: str) -> None:
    """Waits until it does. A client that was away rests for a while, and is tried by the next look after it."""
    driver.until(f"{operation} goes by {name}", lambda: bool(driver.observe()) and way(driver, operation) == name)


def alike(rows: list[JobRow]) -> dict[str, JobRow]:
    return {
        row.id: replace(row, left_s=None, stdout=None, alloc_memory=row.alloc_memory if row.nodes else None)
        for row in rows
    }


@pytest.fixture(params=["slurm_2205", "slurm_2411", "slurm_2605"])
def by_rest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    driver = opened(request.getfixturevalue(request.param), tmp_path)
    yield driver
    ended(driver)


def test_slurmrestd_sees_what_the_commands_see_and_both_steer(by_rest: Driver) -> None:
    job = submit(by_rest)
    array = submit(by_rest, "--array=1-3")
    by_rest.start(job, {"n1": 2, "n2": 2})
    by_rest.start(array, {"n3": 1})
    for each in (job, array):
        by_rest.wait(each, JobState.RUNNING)
    port = port_of(by_rest)
    partitions = [by_rest.harness.partition]  # type: ignore[attr-defined]
    harness(by_rest).cluster.run("scontrol", "update", f"jobid={number(job)}", "requeue=0")
    wait_for("one same moment", lambda: _same(by_rest, partitions), 60)
    assert not next(row for row in client(by_rest, "slurmrestd").jobs(partitions) if row.id == number(job)).requeue
    harness(by_rest).cluster.run("scontrol", "update", f"jobid={number(job)}", "requeue=1")
    by_rest.observe()
    by_rest.stop(job, 60.0)
    by_rest.wait(job, JobState.STOPPED)
    by_rest.start(job, {"n4": 3}, 2)
    assert by_rest.wait(job, JobState.RUNNING).allocation == {"n4": 3}
    by_rest.stop(array, 60.0)
    by_rest.wait(array, JobState.STOPPED)
    release = port.facts().release
    assert_goes_by(by_rest, Operation.JOBS, "slurmrestd")
    assert_goes_by(by_rest, Operation.UPDATE, "command" if release < (23, 2) else "slurmrestd")
    assert_goes_by(by_rest, Operation.REQUEUE_HOLD, "slurmrestd" if release >= (26, 5) else "command")
    assert_goes_by(by_rest, Operation.FACTS, "command")


def test_a_list_of_partitions_goes_by_slurmrestd_too(by_rest: Driver) -> None:
    made = harness(by_rest)
    listed = f"--partition={made.partition},raw"

    def partition(job: str) -> str:
        return made.cluster.run("squeue", "-h", "-t", "all", "-j", number(job), "-o", "%P %T")

    made.cluster.run("scontrol", "update", "PartitionName=raw", "State=DOWN")
    try:
        here, there = (made.submit_script(PLAIN, "--gres=gpu:1", "--comment=", listed) for _ in range(2))
        assert partition(here) == partition(there) == "raw PENDING"
        by_rest.start(here, by_rest.one())
        by_rest.wait(here, JobState.RUNNING)
        assert partition(here) == f"{made.partition} RUNNING"
        assert by_rest.job(there).state is JobState.QUEUED
    finally:
        made.cluster.run("scontrol", "update", "PartitionName=raw", "State=UP")
    wait_for("Slurm starts the other", lambda: partition(there) == "raw RUNNING")
    by_rest.until("it is Slurm's", lambda: there not in {job.id for job in by_rest.observe().jobs})
    by_rest.until("its GPU is taken", lambda: sum(node.foreign for node in by_rest.observe().nodes) == 1)
    made.cluster.run("scancel", number(there))
    assert_goes_by(by_rest, Operation.JOBS, "slurmrestd")


def test_an_update_that_slurm_makes_and_comments_on_is_made_by_slurmrestd(by_rest: Driver) -> None:
    """26.05, of a job whose partition is to start nothing now."""
    made, rest = harness(by_rest), client(by_rest, "slurmrestd")
    if port_of(by_rest).facts().release < (23, 2):
        return  # its slurmrestd updates nothing
    job = number(submit(by_rest))
    made.cluster.run("scontrol", "update", f"PartitionName={made.partition}", "State=INACTIVE")
    try:
        rest.write([update(job, Change(node_list=("n2",)))], "pinning it")
    finally:
        made.cluster.run("scontrol", "update", f"PartitionName={made.partition}", "State=UP")
    assert "ReqNodeList=n2 " in made.cluster.run("scontrol", "show", "job", job)


def _same(driver: Driver, partitions: list[str]) -> bool:
    rest, command = client(driver, "slurmrestd"), client(driver, "command")
    jobs = alike(rest.jobs(partitions)) == alike(command.jobs(partitions))
    nodes = [replace(node, state="") for node in rest.nodes(partitions)]
    return jobs and nodes == [replace(node, state="") for node in command.nodes(partitions)]


def test_slurmrestd_down_is_told_and_the_commands_take_over(slurm_2411: Containers, tmp_path: Path) -> None:  # noqa: F811
    own = OwnRest(slurm_2411, "0.0.0.0:6821", "jwt", "slurmrest")
    own.start()
    url = f"http://{slurm_2411.lab.address('ctl')}:6821"
    driver = opened(slurm_2411, tmp_path, rest_url=url)
    try:
        wait_for("it answers", lambda: driver.observe().notes == (), 90)
        job = submit(driver)
        assert_goes_by(driver, Operation.JOBS, "slurmrestd")
        own.stop()
        wait_for("that is told", lambda: any("slurmrestd is away" in note for note in driver.observe().notes))
        driver.start(job, {"n1": 1})
        assert driver.wait(job, JobState.RUNNING).epoch == 1
        assert_goes_by(driver, Operation.RELEASE, "command")
        own.start()
        wait_for("it is asked again", lambda: driver.observe().notes == ())
        assert_goes_by(driver, Operation.JOBS, "slurmrestd")
    finally:
        own.stop()
        ended(driver)


def test_a_token_that_ended_is_told_and_a_new_one_is_taken(slurm_2411: Containers, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "token"

    def write(lifespan_s: int) -> None:
        token = slurm_2411.run("scontrol", "token", "username=horae", f"lifespan={lifespan_s}")
        new = tmp_path / "new"
        new.write_text(token)
        os.replace(new, path)  # noqa: PTH105 - as a site's renewer does it

    write(600)
    driver = opened(slurm_2411, tmp_path, rest_token_file=str(path))
    try:
        wait_for("it is taken", lambda: driver.observe().notes == ())
        write(1)
        wait_for("it ends", lambda: any("expired" in note for note in driver.observe().notes))
        assert_goes_by(driver, Operation.JOBS, "command")
        path.write_text("eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJob3JhZSJ9.c2lnbmVkIGJ5IG5vYm9keQ")
        wait_for("it is refused", lambda: any("refuses our token" in note for note in driver.observe().notes), 90)
        write(600)
        wait_for("the new one is taken", lambda: driver.observe().notes == ())
        assert_goes_by(driver, Operation.JOBS, "slurmrestd")
    finally:
        ended(driver)


def test_a_unix_socket(slurm_2411: Containers, tmp_path: Path) -> None:  # noqa: F811
    """With a token here: slurmrestd tells who connects only to callers of its own pid namespace."""
    here, there = slurm_2411.shared()
    own = OwnRest(slurm_2411, f"unix:{there}/horae/spool/rest.socket", "jwt", "slurmrest")
    slurm_2411.lab.exec("ctl", ["chmod", "1777", f"{there}/horae/spool"])
    own.start()
    socket = here / "horae/spool/rest.socket"
    wait_for("it listens", socket.exists)
    token = tmp_path / "token"
    token.write_text(slurm_2411.run("scontrol", "token", "username=horae", "lifespan=600"))
    driver = opened(slurm_2411, tmp_path, rest_url=f"unix:{socket}", rest_token_file=str(token))
    try:
        job = submit(driver)
        driver.start(job, {"n2": 1})
        assert dict(driver.wait(job, JobState.RUNNING).allocation) == {"n2": 1}
        driver.cancel(job)
        assert driver.wait(job, JobState.CANCELLED).allocation == {}
        wait_for("nothing is told", lambda: driver.observe().notes == ())
        assert_goes_by(driver, Operation.CANCEL, "slurmrestd")
    finally:
        ended(driver)
        own.stop()
        socket.unlink(missing_ok=True)


def test_the_doctor_shows_the_clients_and_the_ways(slurm_2411: Containers) -> None:  # noqa: F811
    found = {check.name: check for check in checks({**slurm_2411.options("dl"), "rest_url": slurm_2411.rest_url()})}
    assert "v0.0.42 of Slurm 24.11" in found["client slurmrestd"].text
    assert "24.11" in found["client command"].text
    assert "signal, cancel by slurmrestd" in found["routes"].text
    assert "jobs, nodes" in found["routes"].text
    away = {**slurm_2411.options("dl"), "rest_url": "http://127.0.0.1:9"}
    found = {check.name: check for check in checks(away)}
    assert found["client slurmrestd"].verdict.value == "warn"
    assert found["client slurmrestd"].remedy


def test_requests_are_bounded_also_where_slurmctld_bounds_them_itself(
    slurm_2411: Containers,  # noqa: F811
    tmp_path: Path,
) -> None:
    """rl_enable answers an Operator who asks too fast by silent sleeps: ours are asked no faster than it allows."""
    conf = slurm_2411.lab.folder / "etc/slurm.conf"
    before, log, limited = conf.read_text(), "/var/log/slurm/slurmctld.log", "limit exceeded by uid 2003"
    try:
        conf.write_text(before + "SlurmctldParameters=rl_enable,rl_bucket_size=20,rl_refill_rate=10\n")
        slurm_2411.run("scontrol", "reconfigure")
        port = connect({**slurm_2411.options("dl"), "state": str(tmp_path / "m")})
        try:
            wait_for("it is read", lambda: port.client.facts().requests == (10.0, 20.0))
            port.facts()
            assert (port.client.pace.per_s, port.client.pace.burst) == (10.0, 20.0)
            made = port.client.calls
            for _ in range(10):
                attend(port)
            assert port.client.calls - made >= 40
            assert limited not in slurm_2411.run("cat", log)
        finally:
            port.close()
        unbounded = "for i in $(seq 40); do squeue >/dev/null & done; wait"

        def exceeded() -> bool:
            """On a busy host even these may be slow enough."""
            slurm_2411.lab.must("ctl", ["sh", "-c", unbounded], user="horae")
            return limited in slurm_2411.run("cat", log)

        wait_for("the limit is on", exceeded)
    finally:
        conf.write_text(before)
        slurm_2411.run("scontrol", "reconfigure")
