"""Who came first: Slurm's stamps are whole seconds, its numbers tell the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.pace import Pace
from slurm_plugin.clients.routes import Routes
from slurm_plugin.files.spool import Spool
from slurm_plugin.jobs.observation import Observer
from slurm_plugin.jobs.record import Memories
from slurm_plugin.jobs.waiting import Arrivals
from slurm_plugin.options import Options
from tests.slurm_plugin.boundary import Boundary, job
from tests.slurm_plugin.rows import ROW

IDS = ["9", "10", "11_2", "11_10", "11_100", "11_101", "100"]


def test_jobs_of_one_second_are_first_in_first_out_by_number(tmp_path: Path) -> None:
    """Ten arrays of one second: the last was started first, tasks as 1, 10, 100, 101, 102."""
    slurm = Boundary({each: job(int(each.split("_")[0]), JobArrayID=each) for each in reversed(IDS)})
    options = Options(partitions=("dl",), spool=str(tmp_path / "spool"))
    client = Routes([CommandClient(slurm)], Pace())
    sight = Observer(options, client, Spool(slurm.files, options.spool), Memories(tmp_path / "state"))
    sight.look()
    first = {seen.id: seen.submitted_s for seen in sight.jobs.values()}
    assert [seen.split(".")[0] for seen in sorted(first, key=lambda each: first[each] or 0.0)] == IDS
    assert len(set(first.values())) == len(IDS)
    slurm.jobs["99"] = job(99)  # of the same second, seen later: behind those who are known
    sight.look()
    assert {seen.id: seen.submitted_s for seen in sight.jobs.values() if seen.id in first} == first
    newest = max(sight.jobs.values(), key=lambda seen: seen.submitted_s or 0.0)
    assert newest.id.startswith("99.")


def test_places_of_a_second_are_forgotten_with_its_jobs() -> None:
    places = Arrivals()
    rows = {str(number): replace(ROW, id=str(number), submit_s=5.0) for number in range(1000)}
    places.look(rows)
    came = [places.of(str(number)) for number in range(1000)]
    assert came == sorted(set(came), key=lambda time_s: time_s or 0.0)
    assert all(5.0 <= (time_s or 0.0) < 6.0 for time_s in came)
    places.look({})
    assert places.of("7") is None
    places.look({"7": replace(rows["7"], submit_s=None)})
    assert places.of("7") is None, "Slurm does not tell when it came"
    places.look({"8": rows["8"]})
    assert places.of("8") == 5.0
