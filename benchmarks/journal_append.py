"""How many events a second does the journal take, against bare SQLite with the same settings on the same disk?

The floor writes the same rows (columns, JSON text) with `sqlite3` alone: no ledger, no encoding of values. Three
ways: durable one by one (a fsync each), durable in batches of 100 (group commit, as a burst of submissions), and
not durable one by one (what was seen). Both sides run in turn, several times; the median of the ratios counts.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _record import record

from horae.journal import Clock, Draft, Journal, events
from horae.journal.codec import text
from horae.journal.form import numbered
from horae.port import JobState


def draft(i: int) -> Draft:
    held = {"n1": 2, "n2": 2}
    return events.JobSeen(
        str(i % 100), state=JobState.RUNNING, epoch=i % 7, allocation=held, holding={"v100": 4}, since_s=1.0 * i
    )


def ours(folder: Path, count: int, batch: int, durable: bool) -> float:
    journal = Journal(folder, Clock())
    drafts = [draft(i) for i in range(count)]
    started = time.perf_counter()
    for i in range(0, count, batch):
        journal.append(drafts[i : i + batch], durable=durable)
    took = time.perf_counter() - started
    journal.close()
    return took


def bare(folder: Path, count: int, batch: int, durable: bool) -> float:
    folder.mkdir(parents=True)
    db = sqlite3.connect(folder / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    db.execute(
        "CREATE TABLE events (seq INTEGER PRIMARY KEY,"
        " wall_s REAL, at_s REAL, kind TEXT, job TEXT, pool TEXT, data TEXT)"
    )
    db.execute("CREATE INDEX events_by_job ON events (job, seq) WHERE job IS NOT NULL")
    db.execute("CREATE INDEX events_by_kind ON events (kind, seq)")
    rows = [
        (i + 1, 1.0, 1.0, "seen", str(i % 100), None, text(numbered(draft(i), i + 1, 1.0, 1.0).data))
        for i in range(count)
    ]
    started = time.perf_counter()
    for i in range(0, count, batch):
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", rows[i : i + batch])
        db.execute("COMMIT")
    took = time.perf_counter() - started
    db.close()
    return took


def measure(name: str, count: int, batch: int, durable: bool, times: int) -> dict[str, float]:
    rates: dict[Callable[[Path, int, int, bool], float], list[float]] = {ours: [], bare: []}
    for _ in range(times):
        for side in (ours, bare):
            with tempfile.TemporaryDirectory() as folder:
                rates[side].append(count / side(Path(folder) / "state", count, batch, durable))
    ratio = statistics.median(b / o for o, b in zip(rates[ours], rates[bare], strict=True))
    found = {
        "events": count,
        "journal_per_s": round(statistics.median(rates[ours])),
        "bare_sqlite_per_s": round(statistics.median(rates[bare])),
        "bare_over_journal": round(ratio, 2),
    }
    print(f"{name}: {found}")
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=5000)
    options.add_argument("--times", type=int, default=5)
    asked = options.parse_args()
    result = {
        "durable one by one": measure("durable one by one", asked.count // 5, 1, True, asked.times),
        "durable in batches of 100": measure("durable in batches of 100", asked.count, 100, True, asked.times),
        "not durable one by one": measure("not durable one by one", asked.count, 1, False, asked.times),
    }
    record(Path(__file__), {"sqlite": sqlite3.sqlite_version, "ways": result})


if __name__ == "__main__":
    main()
