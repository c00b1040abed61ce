"""A disk that a user fills, as the documented small layout has it: state, jobs and all on 12 MB of it."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from horae import doctor
from tests.horae.local.attack_day import ACCOUNT, ANN, BOB, MIB, PYTHON, Day, end_all, serving
from tests.small_disk import small_disk
from tests.waiting import eventually

pytestmark = pytest.mark.root

FLOOD = "import sys\nwhile True: sys.stdout.write('x' * 4000 + chr(10))"
#: What is freed, by whomever, is his at once: into his own job's folder.
FILLS = """
import os
os.fork()
fd = os.open(os.path.join(os.environ["HORAE_JOB_DIR"], "mine"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    for size in (65536, 4096, 100):
        try:
            os.write(fd, b"x" * size)
        except OSError:
            pass
"""


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk() as folder:
        try:
            yield folder
        finally:
            end_all(folder)


@pytest.fixture(params=["", ACCOUNT], ids=["root", "account"])
def account(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def alerts(day: Day) -> dict[str, str]:
    return {alert["what"]: alert["text"] for alert in day.operator.status()["alerts"]}


def rounds_go_on(day: Day) -> None:
    before = day.operator.about()["rounds"]
    eventually(lambda: day.operator.about()["rounds"] > before + 2)
    assert not alerts(day).keys() & {"journal", "stalled", "bug"}


def acknowledged_is_on_record(day: Day, jobs: set[str]) -> None:
    with closing(sqlite3.connect(f"file:{day.folder}/state/journal.db?mode=ro", uri=True)) as db:
        numbers = [seq for (seq,) in db.execute("SELECT seq FROM events ORDER BY seq")]
        known = {job for (job,) in db.execute("SELECT job FROM events WHERE kind = 'submitted'")}
    assert numbers == list(range(1, len(numbers) + 1))
    assert known == jobs


def test_a_jobs_output_never_makes_the_journal_unwritable(
    disk: Path, account: str, request: pytest.FixtureRequest
) -> None:
    """It asks for no limit and writes for ever: what would fill the disk is dropped, and requests are still taken."""
    with serving(disk, account) as day, day.watched(request.node):
        loud = day.submits(ANN, name="loud", command=[PYTHON, "-c", FLOOD], extra={"log_limit_bytes": "0"})
        eventually(lambda: day.operator.job(loud)["state"] == "running")
        eventually(lambda: shutil.disk_usage(disk).free < MIB)
        quiet = day.submits(BOB, command=["/bin/true"])
        eventually(lambda: day.operator.job(quiet)["state"] == "completed")
        rounds_go_on(day)
        account = disk / "local" / "jobs" / loud / "state.json"
        eventually(lambda: json.loads(account.read_text())["dropped_bytes"] > 0)
        assert json.loads(account.read_text())["state"] == "running"
        free = shutil.disk_usage(disk).free
        assert free > MIB // 4, f"{free} bytes are left for the journal"
        day.operator.cancel(loud)
        eventually(lambda: day.operator.job(loud)["state"] == "cancelled")


def test_who_hands_in_for_ever_is_refused_before_the_others(
    disk: Path, account: str, request: pytest.FixtureRequest
) -> None:
    with serving(disk, account) as day, day.watched(request.node):
        filler = disk / "others"
        filler.write_bytes(b"x" * (shutil.disk_usage(disk).free - MIB))
        taken, (status, text) = set(), day.calls(ANN, "POST", "/v1/jobs", {"command": ["x"], "gpus": 9, "cwd": "/tmp"})
        while status == 200:
            taken.add(json.loads(text)["jobs"][0])
            assert len(taken) < 200, "he is never refused"
            status, text = day.calls(ANN, "POST", "/v1/jobs", {"command": ["x"], "gpus": 9, "cwd": "/tmp"})
        assert status == 503
        assert "no new job of daemon is taken" in text
        mine = day.submits(BOB, command=["/bin/true"])
        eventually(lambda: day.operator.job(mine)["state"] == "completed")
        rounds_go_on(day)
        acknowledged_is_on_record(day, {*taken, mine})
        filler.unlink()
        day.ends(*taken)


def test_a_disk_that_a_job_fills_stops_nobody_else(
    disk: Path, open_to_all: Path, account: str, request: pytest.FixtureRequest
) -> None:
    """He takes every byte, and each that is freed, and hands in for ever. What is left is the journal's own room."""
    with serving(disk, account) as day, day.watched(request.node):
        flag = open_to_all / "flag"
        waits = f"while ! test -e {flag}; do sleep 0.1; done"
        works = day.submits(BOB, name="works", command=["/bin/sh", "-c", waits])
        eventually(lambda: day.operator.job(works)["state"] == "running")
        fills = day.submits(ANN, name="fills", command=[PYTHON, "-c", FILLS])
        eventually(lambda: shutil.disk_usage(disk).free == 0)
        rounds_go_on(day)
        taken, status, text = {works, fills}, 200, ""
        while status == 200:
            assert len(taken) < 200, "he is never refused"
            status, text = day.calls(ANN, "POST", "/v1/jobs", {"command": ["x"], "gpus": 1, "cwd": "/tmp"})
            taken |= set(json.loads(text)["jobs"]) if status == 200 else set()
        assert status == 503
        assert "no new job of daemon is taken" in text
        later = day.submits(BOB, name="later", command=["/bin/true"])
        taken.add(later)
        rounds_go_on(day)
        assert "nearly full" in alerts(day)["disk"]
        assert any("nearly full" in check.text and check.remedy for check in doctor.arbiter(day.socket))

        flag.touch()
        eventually(lambda: day.operator.job(works)["state"] == "completed")
        day.operator.cancel(fills)
        eventually(lambda: day.operator.job(fills)["state"] == "cancelled")
        assert shutil.disk_usage(disk).free < MIB
        rounds_go_on(day)
        acknowledged_is_on_record(day, taken)

        (disk / "local" / "jobs" / fills / "mine").unlink()
        day.ends(*taken - {works, fills, later})
        eventually(lambda: "disk" not in alerts(day))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_an_arbiter_that_is_restarted_on_a_full_disk_comes_up(
    disk: Path, open_to_all: Path, account: str, end: signal.Signals
) -> None:
    """He still takes each byte that is freed. It knows what it knew; jobs end and are cancelled."""
    flag, events = open_to_all / "flag", 0
    with serving(disk, account, ends=False) as day:
        works = day.submits(BOB, command=["/bin/sh", "-c", f"while ! test -e {flag}; do sleep 0.1; done"])
        eventually(lambda: day.operator.job(works)["state"] == "running")
        fills = day.submits(ANN, command=[PYTHON, "-c", FILLS])
        eventually(lambda: shutil.disk_usage(disk).free == 0)
        rounds_go_on(day)
        events = day.operator.history()[-1]["seq"]
        day.process.send_signal(end)
        day.process.wait(60)
    assert shutil.disk_usage(disk).free < MIB
    with serving(disk, account, ends=False) as day:
        assert {day.operator.job(job)["state"] for job in (works, fills)} == {"running"}
        assert [event["seq"] for event in day.operator.history(limit=100_000)][:events] == [*range(1, events + 1)]
        assert day.calls(BOB, "GET", "/v1/status")[0] == 200
        flag.touch()
        eventually(lambda: day.operator.job(works)["state"] == "completed")
        day.operator.cancel(fills)
        eventually(lambda: day.operator.job(fills)["state"] == "cancelled")
        rounds_go_on(day)
        (disk / "local" / "jobs" / fills / "mine").unlink()
        later = day.submits(BOB, command=["/bin/true"])
        eventually(lambda: day.operator.job(later)["state"] == "completed")
    acknowledged_is_on_record(day, {works, fills, later})
