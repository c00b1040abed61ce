"""Installing, proving and leaving on a real site: 24.11 in containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.doctor import Verdict
from horae.port import FixConfiguration, JobState, PortError, TryLater, attend
from slurm_plugin import connect
from slurm_plugin.site.doctor import checks
from slurm_plugin.site.install import planned
from tests.real.slurm import Containers, Private, private_slurm, slurm_2411, wait_for  # noqa: F401 - fixtures
from tests.real.slurm_driving import ELASTIC, number
from tests.real.slurm_harness import SlurmHarness
from tests.waiting import eventually

pytestmark = pytest.mark.real


def test_the_doctor_finds_a_good_site_good(slurm_2411: Containers) -> None:  # noqa: F811
    findings = checks(slurm_2411.options("dl"))
    assert {finding.name for finding in findings} >= {
        "controller",
        "rights",
        "spool",
        "Lua at submission",
        "exit code 86",
    }
    assert [finding for finding in findings if finding.verdict is Verdict.FAIL] == []


def test_the_doctor_names_missing_rights_and_partitions(slurm_2411: Containers) -> None:  # noqa: F811
    options = {**slurm_2411.options("nope"), "ssh": f"alice@{slurm_2411.lab.address('ctl')}"}
    failed = {finding.name: finding for finding in checks(options) if finding.verdict is Verdict.FAIL}
    assert set(failed) == {"managed partitions", "rights", "spool"}
    assert all(finding.remedy for finding in failed.values())
    assert "adminlevel=Operator" in failed["rights"].remedy


def test_without_rights_a_start_says_what_to_fix(slurm_2411: Containers) -> None:  # noqa: F811
    """Another user's commands: bob may read, and not start alice's job."""
    number = slurm_2411.submit("#!/bin/bash\nexec sleep 60\n", "--partition=dl", "--gres=gpu:1")
    # the module holds only while an arbiter's heartbeat is fresh; held or not, bob may not touch it
    options = {**slurm_2411.options("dl"), "ssh": f"bob@{slurm_2411.lab.address('ctl')}", "hold": False}
    options["spool"] = "/home/bob/spool"
    port = connect(options)

    def refused() -> str:
        """Why; "" where the job began between the look and the request."""
        job = next(job for job in attend(port).jobs if job.id.split(".")[0] == number)
        with pytest.raises((FixConfiguration, TryLater)) as raised:
            if job.state is JobState.RUNNING:
                port.cancel(job.id)
            else:
                port.start(job.id, {"n1": 1}, 1)
        return str(raised.value) if raised.type is FixConfiguration else ""

    try:
        assert "Operator" in eventually(refused)
    finally:
        port.close()
        slurm_2411.run("scancel", number)


def test_a_job_that_is_handed_back_before_its_first_start_runs(slurm_2411: Containers, tmp_path: Path) -> None:  # noqa: F811
    """Its user may make no folder in the spool, which is another account's."""
    made = SlurmHarness(slurm_2411, tmp_path / "memory")
    try:
        script = f"#!/bin/bash\nexec {slurm_2411.tool()} -- true\n"
        job = made.submit_script(script, "--gres=gpu:1", ELASTIC)
        made.port.release(job)

        def state() -> str:
            return slurm_2411.run("squeue", "-h", "-t", "all", "-j", number(job), "-o", "%T")

        wait_for("it is over", lambda: state() not in {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"})
        assert state() == "COMPLETED"
    finally:
        made.end()


def test_an_unknown_host_key_is_refused(slurm_2411: Containers, tmp_path: object) -> None:  # noqa: F811
    options = {**slurm_2411.options("dl"), "ssh_known_hosts": "/dev/null"}
    port = connect(options)
    with pytest.raises(PortError) as raised:
        attend(port)
    assert "known_hosts" in str(raised.value)
    port.close()


def test_the_doctor_runs_beside_slurmctld(private_slurm: Private) -> None:  # noqa: F811
    findings = checks(private_slurm.options("dl"))
    assert [finding for finding in findings if finding.verdict is Verdict.FAIL] == []


def test_the_right_that_installing_names_is_given_by_its_command(slurm_2411: Containers, tmp_path: Path) -> None:  # noqa: F811
    """With slurmdbd: the printed sacctmgr line, for an account that has no right yet."""
    said = {"partitions": "dl", "etc": str(slurm_2411.lab.folder / "etc"), "user": "slurmrest"}
    (command,) = [line for line in planned(said)[1] if line.startswith("sacctmgr")]
    port = connect({**slurm_2411.options("dl"), "state": str(tmp_path)})
    try:
        assert port.admin_level("slurmrest") != "Operator"
        slurm_2411.run("sh", "-c", command)
        wait_for("slurmctld has heard of it", lambda: port.admin_level("slurmrest") == "Operator", 60)
    finally:
        port.close()
        slurm_2411.lab.exec("ctl", ["sacctmgr", "-i", "delete", "user", "slurmrest"])
