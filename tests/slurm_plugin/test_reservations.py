"""Maintenance that Slurm knows ahead is shown to the arbiter."""

from __future__ import annotations

from pathlib import Path

from horae.port import Absence
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.choose import choose
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
