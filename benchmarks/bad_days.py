"""How many bad days has the arbiter lived through, and what did it do wrong?

    python benchmarks/bad_days.py [--minutes 10] [--of 1000000] [--years 10] [--workers 2]

Seeded worlds (`horae.sim.faults.worlds`), one after the other from the first that no earlier run has lived: its result
holds the totals of all runs, slice by slice, and is written about once a minute, so that it may be ended at any time
and goes on where it stood. Ends after so many minutes, or once so many faults have taken effect, a twentieth of them of
each kind, in so many years. A violation is kept with its seed and rule, and the exit code is 1; `--seed N` plays that
world alone and prints the shortest schedule of faults that shows it.
Goals: 10 simulated years, 1,000,000 faults, 50,000 of each kind, no violation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from _record import RESULTS, provenance, record

from horae.sim.faults.schedule import FaultKind
from horae.sim.faults.worlds import YEAR_S, lived, world

RESULT = RESULTS / "bad_days.json"
WRITTEN_S = 60.0


def slices() -> list[dict[str, Any]]:
    """What earlier runs lived."""
    found: list[dict[str, Any]] = json.loads(RESULT.read_text())["slices"] if RESULT.exists() else []
    return found


def totals(done: list[dict[str, Any]]) -> dict[str, Any]:
    faults = sum((Counter(part["faults"]) for part in done), Counter[str]())
    return {
        "worlds": sum(part["to"] - part["from"] for part in done),
        "years": round(sum(part["years"] for part in done), 3),
        "jobs": sum(part["jobs"] for part in done),
        "rounds": sum(part["rounds"] for part in done),
        "cpu_s": round(sum(part["cpu_s"] for part in done), 1),
        "faults": faults.total(),
        "by_kind": dict(sorted(faults.items())),
        "violations": [found for part in done for found in part["violations"]],
    }


def timed(seed: int) -> tuple[Mapping[str, Any], float]:
    """A world in which Horae itself raises is as bad as one that breaks a rule, and the others are played on."""
    began_s = time.process_time()
    try:
        found = lived(seed)
    except Exception as error:  # noqa: BLE001 - told with its seed, and the exit code is 1
        told = {"rule": "raised", "text": "".join(traceback.format_exception(error))}
        found = {"seconds": 0.0, "jobs": 0, "rounds": 0, "faults": {}, "violations": [told]}
    return found, time.process_time() - began_s


def worlds(first: int, workers: int) -> Iterator[tuple[Mapping[str, Any], float]]:
    """What became of each world from `first` on, in order, and its CPU seconds; a few ahead of whoever asks."""
    with ProcessPoolExecutor(workers) as pool:
        asked = deque(pool.submit(timed, first + number) for number in range(4 * workers))
        try:
            for seed in count(first + len(asked)):
                yield asked.popleft().result()
                asked.append(pool.submit(timed, seed))
        finally:
            pool.shutdown(cancel_futures=True)


def played(
    first: int, minutes: float, goals: Mapping[str, float], workers: int, before: list[dict[str, Any]]
) -> dict[str, Any]:
    """One slice from seed `first` on."""
    about = provenance(Path(__file__))
    whose = {"commit": about["commit"], "date": about["date"]}
    part: dict[str, Any] = {"from": first, "to": first, "jobs": 0, "rounds": 0, "violations": [], **whose}
    faults, seconds, cpu_s = Counter[str](), 0.0, 0.0
    until_s, written_s = time.monotonic() + 60 * minutes, time.monotonic()
    for found, took_s in worlds(first, workers):
        faults.update(found["faults"])
        seconds += found["seconds"]
        cpu_s += took_s
        part["violations"] += [{"seed": part["to"], **broken} for broken in found["violations"]]
        part["to"] += 1
        part["jobs"] += found["jobs"]
        part["rounds"] += found["rounds"]
        part |= {"years": seconds / YEAR_S, "faults": dict(faults), "cpu_s": round(cpu_s, 1)}
        if time.monotonic() - written_s > WRITTEN_S:
            written_s = time.monotonic()
            written([*before, part])
        if time.monotonic() > until_s or reached(totals([*before, part]), goals):
            return part
    raise AssertionError("worlds are without end")


def reached(sums: Mapping[str, Any], goals: Mapping[str, float]) -> bool:
    each = [sums["by_kind"].get(kind, 0) for kind in FaultKind]
    return sums["faults"] >= goals["faults"] and min(each) >= goals["faults"] / 20 and sums["years"] >= goals["years"]


def written(done: list[dict[str, Any]]) -> None:
    record(Path(__file__), {**totals(done), "slices": done})


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--minutes", type=float, default=10.0)
    words.add_argument("--of", type=int, default=1_000_000, metavar="FAULTS")
    words.add_argument("--years", type=float, default=10.0)
    words.add_argument("--workers", type=int, default=1, help="processes")
    words.add_argument("--seed", type=int, help="this world alone")
    given = words.parse_args()
    if given.seed is not None:
        whole = world(given.seed)
        outcome = whole.lived()
        if outcome.broken is not None:
            print(outcome.broken)
            print(json.dumps([fault.plain() for fault in whole.run.shrunk(outcome).schedule]))
        sys.exit(outcome.broken is not None)
    before = slices()
    part = played(
        before[-1]["to"] if before else 0,
        given.minutes,
        {"faults": given.of, "years": given.years},
        given.workers,
        before,
    )
    done = [*before, part] if part["to"] > part["from"] else before
    written(done)
    sys.exit(bool(totals(done)["violations"]))


if __name__ == "__main__":
    main()
