"""The file: all or nothing, durable, one writer, bounded, and always giving the ledger that was live."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from horae.journal import AlreadyRunning, Clock, Journal, JournalStopped, Kind, events, schema
from horae.journal.reading import FILE
from horae.journal.store import rebuilt
from horae.port import JobState
from policy.model import BadInput
from tests.horae.arbiter.site import Time
from tests.horae.journal.drafts import submitted


def journal(folder: Path, time: Time | None = None) -> Journal:
    time = time or Time()
    return Journal(folder, Clock(time.wall, time.monotonic))


def test_what_was_appended_is_there_after_opening_again(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.append([submitted("1"), events.JobHeld("1", "ann", "later")], durable=True)
    before = first.ledger
    first.close()
    second = journal(tmp_path)
    assert second.ledger == before
    assert second.ledger.jobs["1"].hold_why == "held by ann: later"
    assert second.id == first.id
    assert not second.new
    assert [e.seq for e in second.history()] == [1, 2]
    second.append([events.JobUnheld("1", "ann")])
    assert [e.kind for e in second.history(job="1")] == [Kind.SUBMITTED, Kind.HELD, Kind.UNHELD]


def test_only_one_arbiter_a_folder(tmp_path: Path) -> None:
    first = journal(tmp_path)
    with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}"):
        journal(tmp_path)
    first.close()
    journal(tmp_path).close()


def test_the_folder_is_the_owners_alone(tmp_path: Path) -> None:
    made = journal(tmp_path / "state")
    made.append([submitted("1")], durable=True)
    for path in [tmp_path / "state", *(tmp_path / "state").iterdir()]:
        assert path.stat().st_mode & 0o077 == 0, f"{path} can be read by others"


def test_a_full_disk_stops_acting_in_words_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.append([submitted("1")], durable=True)
    made._db.executescript("PRAGMA incremental_vacuum")
    made._db.execute(f"PRAGMA max_page_count = {made._db.execute('PRAGMA page_count').fetchone()[0]}")
    before = rebuilt(made.path)
    with pytest.raises(JournalStopped, match="full") as caught:
        made.append([submitted(str(i)) for i in range(2, 20_000)], durable=True)
    assert "free space" in caught.value.remedy
    assert made.ledger == before == rebuilt(made.path)
    made._db.execute("PRAGMA max_page_count = 1000000")  # there is room again
    made.append([submitted("2")], durable=True)
    assert set(made.ledger.jobs) == {"1", "2"}


FILLS = """
    import resource, signal, sys
    from pathlib import Path
    from horae.journal import Journal, JournalStopped
    from tests.horae.journal.drafts import submitted
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    made = Journal(Path(sys.argv[1]))
    made.append([submitted("1")], durable=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    written = 1
    try:
        for written in range(2, 10_000):
            made.append([submitted(str(written))], durable=True)
    except JournalStopped as error:
        print(written - 1, error.text)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    made.append([submitted("99999")], durable=True)
    print(len(made.ledger.jobs))
"""


def test_a_disk_that_fills_up_under_the_file_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """The limit is the operating system's: writes fail in the middle, as on a full disk."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FILLS), str(tmp_path)],
        capture_output=True, text=True, timeout=300, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.strip().split("\n")
    acknowledged = int(first.split()[0])
    assert "cannot be written" in first
    assert int(second) == acknowledged + 1
    ledger = rebuilt(tmp_path / "journal.db")
    assert set(ledger.jobs) == {*(str(i) for i in range(1, acknowledged + 1)), "99999"}


def test_a_folder_without_rights_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalStopped, match="cannot be used"):
        journal(tmp_path / "file")


@pytest.mark.parametrize("damage", [b"this is no database", b"", None])
def test_an_unreadable_file_is_kept_aside(tmp_path: Path, damage: bytes | None) -> None:
    made = journal(tmp_path)
    made.append([submitted(str(i)) for i in range(50)], durable=True)
    made.close()
    if damage is None:  # a table is gone
        with sqlite3.connect(made.path) as db:
            db.execute("DROP TABLE meta")
    else:
        made.path.write_bytes(damage)
    again = journal(tmp_path)
    if damage == b"":
        assert again.quarantined is None, "an empty file is a new journal"
    else:
        assert again.quarantined is not None and ".unreadable-" in again.quarantined
        assert len(list(tmp_path.glob("journal.db.unreadable-*"))) >= 1
    assert again.ledger.jobs == {}
    again.append([submitted("1")], durable=True)


def test_an_event_nobody_can_read_is_no_half_read_journal(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.append([submitted("1")], durable=True)
    made._db.execute("UPDATE events SET data = '{' WHERE seq = 1")
    made.close()
    assert journal(tmp_path).quarantined is not None


def test_a_newer_form_is_refused_in_words_and_not_touched(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made._db.execute("PRAGMA user_version = 99")
    made.close()
    data = made.path.read_bytes()
    with pytest.raises(BadInput, match="newer Horae"):
        journal(tmp_path)
    assert made.path.read_bytes() == data
    assert list(tmp_path.glob("*.unreadable-*")) == []


def test_an_older_form_is_brought_up_in_one_transaction(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.append([submitted("1")], durable=True)
    made.close()

    def second(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE events ADD COLUMN note TEXT DEFAULT 'old'")

    def third(db: sqlite3.Connection) -> None:
        db.execute("UPDATE events SET note = 'brought up'")

    with sqlite3.connect(made.path, isolation_level=None) as db:
        db.execute("PRAGMA user_version = 1")
        with pytest.raises(KeyError):
            schema.prepare(db, "x", version=3, migrations={2: second})
        assert db.execute("PRAGMA user_version").fetchone()[0] == 1
        schema.prepare(db, "x", version=3, migrations={2: second, 3: third})
        assert db.execute("PRAGMA user_version").fetchone()[0] == 3
        assert db.execute("SELECT note FROM events").fetchone()[0] == "brought up"


@pytest.mark.parametrize("compacted", [False, True])
def test_what_the_first_form_has_is_read_as_its_arbiter_meant_it(tmp_path: Path, compacted: bool) -> None:
    """Recorded of an arbiter of that form that was killed: its events, and the ledger that it made of them. Since then
    came priorities, holds with a name, records with a class of their own and more."""
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        schema.prepare(db, "recorded", version=1)
        for line in (Path(__file__).parent / "forms/1.jsonl").read_text().splitlines():
            *row, data = json.loads(line)
            if not compacted or row[3] in ("checkpoint", "opened"):
                db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, json.dumps(data)))
        if not compacted:
            db.execute("DELETE FROM events WHERE kind = 'checkpoint'")
    with closing(journal(tmp_path)) as again:
        assert again.quarantined is None
        assert again._db.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION
        ledger = again.ledger
    found = {
        job.spec.name: (job.state, job.allocation, job.epoch, len(job.restarts), job.exit_code, job.hold_why is None)
        for job in ledger.jobs.values()
    }
    assert found == {
        "elastic": (JobState.RUNNING, {"v100-1": 1}, 2, 1, None, True),
        "rigid": (JobState.RUNNING, {"v100-2": 2}, 1, 0, None, True),
        "failed": (JobState.FAILED, {}, 1, 0, 3, True),
        "cancelled": (JobState.CANCELLED, {}, 1, 0, 143, True),
        "waits": (JobState.QUEUED, {}, 0, 0, None, True),
        "held": (JobState.STOPPED, {}, 1, 1, 86, False),
    }
    accounts = {job.spec.name: {kind: round(s, 3) for kind, s in job.attained.items()} for job in ledger.jobs.values()}
    assert accounts["failed"] == {"k80": 2.192}
    assert accounts["held"] == {"v100": 2.679}
    assert ledger.jobs["4"].cancel_by == "ann"
    assert ledger.next_id == 7
    assert ledger.pools["main"].policy == "themis"


def test_history_can_be_read_beside_the_writer(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.append([submitted("1"), submitted("2")], durable=True)
    made._db.execute("BEGIN IMMEDIATE")
    assert [e.job for e in made.history()] == ["1", "2"]
    made._db.execute("ROLLBACK")
    assert [e.job for e in made.history(newest_first=True, limit=1)] == ["2"]
    assert [e.job for e in made.history(after=1)] == ["2"]
    assert made.history(kinds=[Kind.HELD]) == ()


def test_compaction_keeps_the_ledger_and_bounds_the_file(tmp_path: Path) -> None:
    time = Time()
    made = journal(tmp_path, time)
    for i in range(300):
        made.append([submitted(str(i)), events.Ended(str(i), JobState.COMPLETED, time.now)])
        time.now += 60.0
    before = made.size()
    live = [j for j, r in made.ledger.jobs.items() if (r.ended_s or 0) > time.now - 3600.0]
    dropped = made.compact(history_s=3600.0, forget_after_s=3600.0, keep={"0"})
    assert dropped > 400
    assert set(made.ledger.jobs) == {"0", *live}
    assert rebuilt(made.path) == made.ledger
    (stored,) = made.history(kinds=[Kind.CHECKPOINT])
    assert stored.data == {}, "who asks for history has not the whole ledger read"
    after = made.size()
    assert after[0] < before[0] / 3 and after[1] < before[1]
    ledger = made.ledger
    made.close()
    again = journal(tmp_path, time)
    assert again.ledger == ledger
    assert again.ledger.next_id == 300
    again.compact(history_s=3600.0, forget_after_s=3600.0)
    assert len(again.history(kinds=[Kind.CHECKPOINT])) == 1


def test_time_on_record_never_goes_back(tmp_path: Path) -> None:
    time = Time()
    made = journal(tmp_path, time)
    made.append([submitted("1")])
    made.close()
    time.wall_offset = -1e6
    again = journal(tmp_path, time)
    again.append([submitted("2")])
    first, second = again.history()
    assert second.at_s >= first.at_s
    assert second.wall_s == pytest.approx(first.wall_s - 1e6)
    assert again.clock.stepped() is None
    time.wall_offset = 0.0
    assert again.clock.stepped() == pytest.approx(1e6)


def test_events_are_plain_json_in_the_file(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.append([submitted("1")], durable=True)
    ((data,),) = made._db.execute("SELECT data FROM events")
    assert json.loads(data)["spec"]["name"] == "job 1"


def test_a_file_that_cannot_grow_has_room_of_its_own(tmp_path: Path) -> None:
    """Thousands of events, and the log no longer than it was; with room on the disk it has as much again."""
    made = journal(tmp_path)
    made.take_room()
    room, log = made.room(), made.path.with_name("journal.db-wal")
    assert room.own >= room.size > 0
    pages, size = made._db.execute("PRAGMA page_count").fetchone()[0], log.stat().st_size
    made._db.execute(f"PRAGMA max_page_count = {pages}")
    for i in range(1000):
        made.append([submitted(str(i)), events.JobHeld(str(i), "ann", "later")], durable=not i % 100)
    assert made._db.execute("PRAGMA page_count").fetchone()[0] == pages
    assert room.size <= log.stat().st_size <= size
    assert made.room().own < room.own
    made._db.execute("PRAGMA max_page_count = 1000000")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("horae.journal.room.LOW", 0)
        made._db.executescript("PRAGMA incremental_vacuum")
        made.refill()
    assert made.room().own >= room.size
    made.compact(history_s=0.0, forget_after_s=0.0)
    assert made.room().own > room.size // 2, "what compaction frees goes back to the disk only beyond that"
    assert rebuilt(made.path) == made.ledger


def test_a_disk_that_becomes_read_only_stops_the_journal_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an error of its file system: nothing of the file can be changed, and what it is can be read."""
    journal = Journal(tmp_path)
    journal.append([events.JobUnheld("1", "ann")], durable=True)
    connect = journal._connect

    def read_only() -> None:
        journal._db = sqlite3.connect(f"file:{journal.path}?mode=ro", uri=True, isolation_level=None)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(journal.path))

    monkeypatch.setattr(journal, "_connect", read_only)
    journal._db.execute("PRAGMA query_only = ON")
    for _ in range(3):
        with pytest.raises(JournalStopped, match="readonly database"):
            journal.append([events.JobUnheld("2", "ann")], durable=True)
    assert [event.job for event in journal.history()] == ["1"]
    monkeypatch.undo()
    journal._disconnect()
    connect()
    journal.append([events.JobUnheld("3", "ann")], durable=True)
    assert [event.job for event in journal.history()] == ["1", "3"]
    journal.close()


def test_the_rights_of_a_file_that_has_them_are_not_set_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that is read-only that would fail."""
    Journal(tmp_path).close()
    changed: list[Path] = []
    monkeypatch.setattr(Path, "chmod", lambda path, *_: changed.append(path))
    Journal(tmp_path).close()
    assert changed == []
