"""How much does `horae --help` cost over a bare `python -c pass`? And the other commands people type all day?

Each command is started many times, in turns with the bare floor, so that a busy machine slows both alike. Reported is
the median wall time and its ratio to the floor's median. One interpreter, the one that runs this script.

    python benchmarks/cli_startup.py [--rounds 40]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks._record import record

HORAE = "import sys; from horae.cli import main; sys.exit(main())"
#: name -> arguments of the interpreter, and the exit code it must end with
COMMANDS: dict[str, tuple[list[str], int]] = {
    "python -c pass": (["-c", "pass"], 0),
    "horae --help": (["-c", HORAE, "--help"], 0),
    "horae status --help": (["-c", HORAE, "status", "--help"], 0),
    "horae status, no arbiter": (["-c", HORAE, "status", "--socket", "/nonexistent/api.sock"], 6),
    "import typer": (["-c", "import typer"], 0),
}


def once(words: list[str], code: int) -> float:
    environment = {**os.environ, "TERM": "dumb"}
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, check=False, env=environment)
    took = time.perf_counter() - begin
    if done.returncode != code:
        raise SystemExit(f"{words} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for words, code in COMMANDS.values():
        once(words, code)  # caches of the file system and of compiled files
    for _ in range(rounds):
        for name, (words, code) in COMMANDS.items():
            times[name].append(once(words, code))
    medians = {name: statistics.median(found) for name, found in times.items()}
    floor = medians["python -c pass"]
    rows = {
        name: {"median_s": round(median, 5), "min_s": round(min(times[name]), 5), "ratio": round(median / floor, 2)}
        for name, median in medians.items()
    }
    for name, row in rows.items():
        print(f"{name:28}{row['median_s'] * 1e3:8.1f} ms   {row['ratio']:6.2f} x the floor")
    record(Path(__file__), {"rounds": rounds, "commands": rows}, ["typer", "rich"])


if __name__ == "__main__":
    main()
