"""What the doctor says of the ways to Slurm, without a daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from horae.doctor import Verdict
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.command_reading import nodes_alone
from slurm_plugin.clients.pace import Pace
from slurm_plugin.clients.routes import Routes
from slurm_plugin.files.transport import LocalTransport
from slurm_plugin.site import doctor, mended, of_version
from slurm_plugin.site.install import written
from tests.slurm_plugin.answers import Scripted, rest, serving
from tests.slurm_plugin.rows import FACTS


def said(warnings: list[Any], status: int = 200) -> dict[str, tuple[Verdict, str]]:
    body = {"nodes": [], "errors": [], "warnings": warnings}
    client = rest(serving("v0.0.45", then=lambda _: httpx.Response(status, json=body)))
    cluster = SimpleNamespace(client=Routes([client, Scripted("command")], Pace()), facts=lambda: FACTS)
    return {check.name: (check.verdict, check.text) for check in doctor._clients(cast(SlurmCluster, cluster))}


def test_what_slurmrestd_warns_of_is_a_warning() -> None:
    found = said([{"description": "unknown flag BLA"}])
    assert found["slurmrestd warns"] == (Verdict.WARN, "unknown flag BLA")
    assert found["client slurmrestd"][0] is Verdict.OK
    assert "slurmrestd warns" not in said([])


def test_a_partition_that_gives_whole_nodes_is_no_place_for_granted_gpus() -> None:
    """What a job leaves on a node of its own comes free for nobody, and a grant of it would wait for ever."""
    shown = """
PartitionName=whole
   DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE

PartitionName=mine
   DisableRootJobs=NO ExclusiveUser=YES ExclusiveTopo=NO GraceTime=0 Hidden=NO
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO

PartitionName=plain
   DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 Hidden=NO
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=FORCE:4
"""
    facts = replace(FACTS, alone=nodes_alone(shown))
    found = list(doctor._alone(facts, ("plain", "mine", "whole")))
    assert [(check.verdict, check.text.split(":")[0]) for check in found] == [
        (Verdict.WARN, "mine is ExclusiveUser=YES"),
        (Verdict.FAIL, "whole is OverSubscribe=EXCLUSIVE"),
    ]
    assert all(check.remedy for check in found)


def test_a_slurmrestd_that_answers_no_reads_is_a_client_that_fails() -> None:
    found = said([], status=502)
    assert found["client slurmrestd"][0] is Verdict.WARN
    assert "slurmrestd warns" not in found


@pytest.mark.parametrize(
    ("version", "package", "verdict"),
    [
        ("munge-0.5.18 (2026-02-10)", "", Verdict.OK),
        ("munge-0.5.15 (2022-06-22)", "0.5.15-2+deb12u1", Verdict.OK),
        ("munge-0.5.15 (2022-06-22)", "0.5.15-2", Verdict.WARN),
        ("munge-0.5.15 (2022-06-22)", "0.5.15-4ubuntu0.1", Verdict.OK),
        ("munge-0.5.15 (2022-06-22)", "0.5.15-4ubuntu1", Verdict.WARN),
        ("munge-0.5.15 (2022-06-22)", "", Verdict.WARN),
        ("", "", Verdict.WARN),
    ],
)
def test_a_munge_with_a_known_hole_is_warned_of(version: str, package: str, verdict: Verdict) -> None:
    found = mended.check_munge(mended.numbers(version), package)
    assert found.verdict is verdict
    assert bool(found.remedy) is (verdict is Verdict.WARN)


@pytest.mark.parametrize(
    ("version", "package", "verdict"),
    [
        ("25.05.9", "", Verdict.OK), ("25.05.8", "", Verdict.WARN), ("25.11.8", "", Verdict.OK),
        ("25.11.7", "", Verdict.WARN), ("26.05.4", "", Verdict.OK), ("26.05.3", "", Verdict.WARN),
        ("26.11.0", "", Verdict.OK), ("24.11.5", "24.11.5-4", Verdict.WARN), ("22.05.8", "", Verdict.WARN),
        ("22.05.8", "22.05.8-4+deb12u3", Verdict.OK), ("24.11.5", "22.05.8-4+deb12u3", Verdict.WARN),
    ],
)  # fmt: skip
def test_a_slurm_with_known_holes_is_warned_of_and_backports_count(
    version: str, package: str, verdict: Verdict
) -> None:
    assert mended.check_slurm(version, package).verdict is verdict


def test_a_slurmrestd_of_a_mighty_account_is_warned_of() -> None:
    assert [check.verdict for check in mended.check_rest("root\n", "slurm")] == [Verdict.WARN]
    assert [check.verdict for check in mended.check_rest("slurm\nrest\n", "slurm")] == [Verdict.WARN]
    assert [check.verdict for check in mended.check_rest("rest\n", "slurm")] == [Verdict.OK]
    assert mended.check_rest("", "slurm") == []


def test_the_sites_files_of_a_version_before_are_warned_of(tmp_path: Path) -> None:
    """An upgrade of the program leaves them, and nothing else tells."""
    settings, spool = {"EpilogSlurmctld[0]": f"{tmp_path}/epilog.sh"}, "/shared/spool"

    def found() -> list[tuple[Verdict, bool, bool]]:
        shown = of_version.checks(LocalTransport(), settings, spool)
        return [(check.verdict, "horae.lua" in check.text, bool(check.remedy)) for check in shown]

    assert found() == [], "none of them lies there"
    for name, text in written(spool).items():
        (tmp_path / name).write_text(text)
    assert found() == [(Verdict.OK, True, False)]
    (tmp_path / "horae.lua").write_text("-- of the version before\n")
    assert found() == [(Verdict.WARN, True, True)]


@pytest.mark.parametrize(
    ("enforced", "by", "warned"),
    [
        ("none", "account", True),
        ("", "qos", True),
        ("none", "user", False),
        ("safe", "account", False),
        ("safe", "qos", True),
    ],
)
def test_where_anybody_may_name_any_account_the_tenants_are_warned_of(enforced: str, by: str, warned: bool) -> None:
    found = doctor._tenants(replace(FACTS, enforced=frozenset({enforced})), by)
    assert [check.verdict for check in found] == [Verdict.WARN] * warned


def test_what_the_site_hides_is_said() -> None:
    found = doctor._private(replace(FACTS, private=frozenset({"jobs", "cloud"})))
    assert [(check.verdict, "jobs" in check.text) for check in found] == [(Verdict.OK, True)]
    assert doctor._private(FACTS) == []


@pytest.mark.parametrize(
    ("parameters", "gpus", "verdict"),
    [
        ("", 100, Verdict.OK),
        ("", 101, Verdict.WARN),
        ("batch_sched_delay=0,default_queue_depth=400,sched_min_interval=0", 400, Verdict.OK),
        ("bf_max_job_test=1000,default_queue_depth=50", 64, Verdict.WARN),
    ],
)
def test_a_scheduler_that_starts_fewer_than_one_round_grants_is_warned_of(
    parameters: str, gpus: int, verdict: Verdict
) -> None:
    found = {check.name: check for check in doctor._scheduler({"SchedulerParameters": parameters}, gpus)}
    together = found["starts together"]
    assert together.verdict is verdict
    assert f"default_queue_depth={gpus} in" in together.remedy
    assert found["start latency"].verdict is (Verdict.OK if "batch_sched_delay=0" in parameters else Verdict.WARN)
