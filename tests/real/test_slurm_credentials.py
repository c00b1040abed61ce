"""Credentials on a real 24.11: munge's and slurmrestd's tokens that end while they are used, and none at all."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from horae.port import FixConfiguration, JobState, attend
from slurm_plugin import connect
from slurm_plugin.clients import tokens
from slurm_plugin.clients.base import Operation
from tests.contract.driver import Driver
from tests.real.slurm import ROOT, Containers, slurm_2411, wait_for  # noqa: F401 - a fixture
from tests.real.slurm_clients import OwnRest, client, ended, opened, way
from tests.real.slurm_driving import submit
from tests.real.slurm_harness import SlurmHarness

pytestmark = [pytest.mark.real, pytest.mark.soak]


@pytest.fixture
def cluster(slurm_2411: Containers, tmp_path: Path) -> Iterator[Driver]:  # noqa: F811
    made = SlurmHarness(slurm_2411, tmp_path / "memory")
    yield Driver(made)
    made.end()


def test_a_munge_credential_that_ends_on_its_way_is_told_and_the_next_one_counts(
    cluster: Driver,
    slurm_2411: Containers,  # noqa: F811
    tmp_path: Path,
) -> None:
    """slurmctld stands still for longer than the credential of our request lives."""
    job = cluster.running("signed")
    short = slurm_2411.shared()[0] / "short"
    short.mkdir()
    (short / "slurm.conf").write_text((slurm_2411.lab.folder / "etc/slurm.conf").read_text() + "AuthInfo=ttl=2\n")
    options = slurm_2411.options(cluster.harness.partition)  # type: ignore[attr-defined]
    options |= {"env": {"SLURM_CONF": "/shared/short/slurm.conf"}, "state": str(tmp_path / "other")}
    port = connect(options)
    try:
        assert [seen.id for seen in attend(port).jobs] == [job]
        signal = "kill -{} $(cat /run/slurmctld/slurmctld.pid)"
        slurm_2411.lab.must("ctl", ["sh", "-c", signal.format("STOP")])
        waker = threading.Timer(5.0, slurm_2411.lab.must, ("ctl", ["sh", "-c", signal.format("CONT")]))
        waker.start()
        try:
            with pytest.raises(FixConfiguration) as raised:
                attend(port)
        finally:
            waker.join()
        assert "authentication" in str(raised.value)
        assert "clocks" in raised.value.remedy
        assert "Expired credential" in slurm_2411.run("tail", "-n", "50", "/var/log/slurm/slurmctld.log")
        assert [seen.state for seen in attend(port).jobs] == [JobState.RUNNING]
    finally:
        port.close()
    cluster.port.checkpoint_and_stop(job, 120.0)
    assert cluster.wait(job, JobState.STOPPED).exit_code == 86


def test_a_token_that_slurmctld_takes_no_more_is_replaced_within_the_request(
    slurm_2411: Containers,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where our clock stands behind: we think it good for an hour, and slurmctld says that it has ended."""
    monkeypatch.setattr(tokens, "LIFESPAN_S", 3)
    monkeypatch.setattr(tokens, "_EARLY_S", -3600.0)
    driver = opened(slurm_2411, tmp_path)
    try:
        job = submit(driver)
        given = client(driver, "slurmrestd")._tokens  # type: ignore[attr-defined]
        for shape, epoch in (({"n1": 1}, 1), ({"n2": 1}, 2)):
            old = dict(given.headers())

            def refused(headers: dict[str, str] = old) -> bool:
                url = f"{slurm_2411.rest_url()}/slurm/v0.0.42/jobs/"
                return "uthentication" in httpx.get(url, headers=headers, timeout=30).text

            wait_for("it has ended", refused, 60)
            wait_for("and is no fresh one", lambda: time.time() - given._made_s > 6, 60)
            driver.start(job, shape, epoch)
            assert driver.wait(job, JobState.RUNNING).epoch == epoch
            assert dict(given.headers()) != old
            assert driver.observe().notes == (), "there was nothing to tell"
            assert way(driver, Operation.JOBS) == "slurmrestd"
            driver.port.checkpoint_and_stop(job, 120.0)
            driver.wait(job, JobState.STOPPED)
    finally:
        ended(driver)


#: run beside slurmrestd, in its pid namespace: an arbiter with no token at all
WITHOUT_TOKEN = """
import json, sys
from slurm_plugin import connect
port = connect(json.loads(sys.argv[1]))
port.claim("local"); port.heartbeat()
seen = attend(port)
job = next(job for job in seen.jobs if job.id == sys.argv[2])
if job.state.value == "queued":
    port.start(job.id, {"n3": 1}, 1)
else:
    port.cancel(job.id)
ways = {choice.operation.value: choice.client for choice in port.client.choices()}
print(json.dumps([job.state.value, list(seen.notes), ways]))
port.close()
"""


@pytest.mark.root
def test_no_token_at_all_where_the_socket_tells_who_we_are(cluster: Driver, slurm_2411: Containers) -> None:  # noqa: F811
    """`rest_auth/local` over a unix socket; a caller from another pid namespace is nobody to it."""
    own = OwnRest(slurm_2411, "unix:/shared/local.socket", "local", "horae")
    own.start()
    socket = slurm_2411.shared()[0] / "local.socket"
    try:
        wait_for("it listens", socket.exists)
        job = cluster.submit("local")
        partition = cluster.harness.partition  # type: ignore[attr-defined]
        options = {**slurm_2411.options(partition), "client": "slurmrestd", "rest_url": f"unix:{socket}"}
        options["state"] = str(slurm_2411.lab.folder / "memory-local")
        where = f"--pid=/proc/{slurm_2411.lab.container('ctl').attrs['State']['Pid']}/ns/pid"

        def beside() -> tuple[str, list[str], dict[str, str]]:
            argv = ["nsenter", where, "--", sys.executable, "-c", WITHOUT_TOKEN, json.dumps(options), job]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
            assert done.returncode == 0, done.stderr[-2000:]
            state, notes, ways = json.loads(done.stdout)
            return state, notes, ways

        state, notes, ways = beside()
        assert (state, notes) == ("queued", [])
        assert {ways[name] for name in ("jobs", "nodes", "update", "release")} == {"slurmrestd"}
        wait_for("slurmctld starts it", lambda: "JobState=RUNNING" in slurm_2411.run(
            "scontrol", "show", "job", job.partition(".")[0]), 60)  # fmt: skip
        assert beside()[0] in {"starting", "running"}
        wait_for("slurmctld ends it", lambda: "JobState=CANCELLED" in slurm_2411.run(
            "scontrol", "show", "job", job.partition(".")[0]), 60)  # fmt: skip
    finally:
        own.stop()
        socket.unlink(missing_ok=True)
