"""Maintenance that Slurm knows ahead is shown to the arbiter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import Absence
from policy.model import Health
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.choose import choose
from slurm_plugin.clients.command_reading import NODE_FIELDS, node_row, node_rows_of
from slurm_plugin.jobs.holdings import health
from slurm_plugin.jobs.record import Memo
from slurm_plugin.jobs.shapes import into_maintenance
from slurm_plugin.options import Options
from slurm_plugin.reservations import read
from tests.slurm_plugin.boundary import Boundary

#: As 24.11 prints it with SLURM_TIME_FORMAT=%s.
TOLD = """\
ReservationName=root_1 StartTime=1796122800 EndTime=1796137200 Duration=04:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   TRES=cpu=16
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)

ReservationName=course StartTime=1796122800 EndTime=1796137200 Duration=04:00:00
   Nodes=n3 NodeCnt=1 CoreCnt=8 Features=(null) PartitionName=(null) Flags=SPEC_NODES
   Users=ann Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)

ReservationName=odd StartTime=tomorrow EndTime=1796137200 Duration=04:00:00
   Nodes=n4 NodeCnt=1 Flags=MAINT
   Users=root State=INACTIVE
"""
ROOT_1 = Absence("root_1", ("n1", "n2"), 1796122800.0, 1796137200.0, "reserved for maintenance in Slurm")


def test_only_what_is_flagged_maintenance_counts_and_what_is_odd_is_told() -> None:
    found, odd = read(TOLD)
    assert found == (ROOT_1,)
    assert len(odd) == 1 and "'odd' cannot be read" in odd[0]
    assert read("No reservations in the system\n") == ((), ())


def test_an_observation_shows_it(tmp_path: Path) -> None:
    slurm = Boundary({})
    slurm.reservations = TOLD
    options = Options(partitions=("dl",), spool=str(tmp_path / "spool"), state=str(tmp_path / "memory"))
    port = SlurmCluster(options, slurm, choose(options, slurm))
    seen = port.observe()
    assert seen.away == (ROOT_1,)
    assert any("'odd' cannot be read" in note for note in seen.notes)
    port.close()


@pytest.mark.parametrize(
    ("long", "complete", "healthy"),
    [
        ("mixed", "mixed+reserved", Health.DRAIN),  # in part used by one who may have it
        ("idle", "idle", Health.UP),
        ("reserved", "idle+reserved", Health.DRAIN),
        ("mixed-", "mixed+planned", Health.UP),
        ("maint", "mixed+maintenance+reserved", Health.DRAIN),
    ],
)
def test_what_is_reserved_of_a_node_that_is_used_in_part_is_nobody_elses(
    long: str, complete: str, healthy: Health
) -> None:
    said = {**dict.fromkeys(NODE_FIELDS, ""), "NodeList": "n1", "StateLong": long, "StateComplete": complete}
    assert health(node_row(said).state) is healthy


def test_nodes_of_a_partition_that_is_closed_take_nothing_new_and_keep_what_they_have() -> None:
    """Else a job that is resized leaves its nodes, and has none until the partition is opened."""
    for shown, healthy in (
        (("up",), Health.UP), (("down",), Health.DRAIN), (("inact",), Health.DRAIN), (("drain",), Health.UP),
        (("up", "down"), Health.UP), (("inact", "up"), Health.UP), (("inact", "down"), Health.DRAIN),
    ):  # fmt: skip
        said = {**dict.fromkeys(NODE_FIELDS, ""), "NodeList": "n1", "StateLong": "idle", "StateComplete": "idle"}
        records = ["\x1f".join({**said, "Available": each}.values()) for each in shown]
        rows = node_rows_of("".join(f"{each}\x1e\n" for each in ("\x1f".join(NODE_FIELDS), *records)))
        assert [(row.name, health(row.state)) for row in rows] == [("n1", healthy)], shown


def test_a_job_that_may_outstay_what_is_reserved_is_not_asked_of_slurm() -> None:
    """An elastic one, too: Slurm starts none whose time limit runs into maintenance."""
    begins_s, hour = ROOT_1.from_s, Memo("1.abc", limit_s=3600.0)
    for memo, at_s, nodes, told in (
        (hour, begins_s - 3599.0, ("n1",), True), (hour, begins_s - 3600.0, ("n1",), False),
        (hour, begins_s - 60.0, ("n3",), False), (hour, ROOT_1.to_s, ("n1",), False),
        (hour, begins_s + 60.0, ("n2", "n3"), True), (Memo("1.abc"), begins_s - 1e6, ("n2",), True),
        (replace(hour, used_s=1800.0), begins_s - 1800.0, ("n1",), False),
    ):  # fmt: skip
        assert bool(into_maintenance(nodes, memo, [ROOT_1], at_s)) is told
    text = into_maintenance(("n1", "n2"), hour, [ROOT_1], begins_s - 90.0)
    assert text == "n[1-2]: reserved for maintenance in Slurm in 2 min, before its time limit is over"
