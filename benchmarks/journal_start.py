"""How long does an arbiter take to open a journal of 1,000,000 events, and `history` to read one job of it?

A week of 10,000 jobs, a hundred events each: submitted, then seen in turns to run and to have stopped. It is written by
the journal itself, then opened anew in a process of its own: CPU and wall seconds, the largest resident set, and how
long the newest events of one job and of all take to read. The floor is bare SQLite reading the same rows.

Twice: as an arbiter leaves it, compacted each time that it has grown by `history.compact_events`, with all events kept;
and never compacted, where every event is folded.

    python benchmarks/journal_start.py [--events 1000000] [--jobs 10000]
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks._record import record
from horae.config import History
from horae.journal import Clock, Draft, Journal, events
from horae.port import JobState
from horae.spec import JobSpec
from policy.model import GpuRange

BATCH = 10_000


def drafts(i: int, jobs: int) -> Draft:
    """The i-th event."""
    job = str(i % jobs + 1)
    if i < jobs:
        spec = JobSpec(f"train-{job}", ("python", "train.py"), GpuRange(2, 1, 4), checkpoint="ckpt", owner="ann")
        return events.Submitted(job, spec, pool="main", tenant="ann", app="train", owner="ann", submitted_s=1.0 * i)
    turn = i // jobs
    runs = turn % 2 == 1
    return events.JobSeen(
        job,
        state=JobState.RUNNING if runs else JobState.STOPPED,
        epoch=(turn + 1) // 2,
        allocation={"n1": 2, "n2": 2} if runs else {},
        holding={"v100": 4} if runs else {},
        since_s=1.0 * i,
    )


def written(folder: Path, count: int, jobs: int, compact_events: int) -> int:
    """Its bytes."""
    journal = Journal(folder, Clock())
    for start in range(0, count, BATCH):
        journal.append([drafts(i, jobs) for i in range(start, min(start + BATCH, count))])
        if journal.uncovered >= compact_events and start + BATCH < count:
            journal.compact(history_s=1e9, forget_after_s=1e9)
    journal.close()
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def timed(what: Callable[[], object]) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    what()
    return {"cpu_s": round(time.process_time() - cpu, 3), "wall_s": round(time.perf_counter() - wall, 3)}


def opened(folder: Path) -> dict[str, object]:
    """In a process that has done nothing else."""
    made: list[Journal] = []
    found: dict[str, object] = {"start": timed(lambda: made.append(Journal(folder, Clock())))}
    (journal,) = made
    found["jobs"] = len(journal.ledger.jobs)
    found["history of one job"] = timed(lambda: journal.history(job="77"))
    found["newest 1,000 of all"] = timed(lambda: journal.history(limit=1000, newest_first=True))
    journal.close()
    found["largest_rss_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    return found


def bare(folder: Path) -> dict[str, float]:
    (path,) = [path for path in folder.glob("*.db") if not path.name.startswith(".")]
    return timed(lambda: sum(1 for _ in sqlite3.connect(path).execute("SELECT * FROM events ORDER BY seq")))


def one(asked: argparse.Namespace, compact_events: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="horae-journal-") as name:
        folder = Path(name) / "state"
        size = written(folder, asked.events, asked.jobs, compact_events)
        words = [sys.executable, __file__, "--open", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return {"bytes": size, **json.loads(done.stdout), "bare SQLite reading the rows": bare(folder)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.open is not None:
        print(json.dumps(opened(asked.open)))
        return
    result = {
        "question": "opening a journal of a million events, and reading of it",
        "goal": "start below 5 s, one job's history below 0.5 s",
        "events": asked.events,
        **one(asked, History().compact_events),
        "never compacted": one(asked, asked.events),
    }
    print(json.dumps(result, indent=1))
    record(Path(__file__), result)


if __name__ == "__main__":
    main()
