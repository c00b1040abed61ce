"""How long does the history of a site-year take, and how much memory?

The dump is made here: 300,000 jobs of a year with their steps (`.batch`, `.extern`), arrays, incarnations and nodes, as
`sacct -a -D -P` prints them. `horae what-if --from-sacct` reads it in a process of its own: CPU seconds, peak memory;
and once more with a policy: the replay of what happened, the policy, and its band, four simulations of the year.

    python benchmarks/what_if.py [--jobs 300000] [--policy fifo]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _record import record

COLUMNS = "JobIDRaw|JobID|User|Account|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NodeList"
HORAE = "from horae.cli import main; raise SystemExit(main())"
YEAR_S = 365 * 86400


def dump(jobs: int, seed: int) -> Iterator[str]:
    """Lines of a year that begins at 2025-01-01, 60 % of it jobs with GPUs."""
    chance = random.Random(seed)
    yield COLUMNS + "\n"
    at = 1735689600.0

    def stamp(seconds: float) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))

    for number in range(1, jobs + 1):
        at += chance.expovariate(jobs / YEAR_S)
        gpus = chance.choice((0, 0, 0, 0, 1, 1, 1, 2, 4, 8))
        start = at + chance.expovariate(1 / 1800)
        ran = int(min(3 * 86400, chance.lognormvariate(7.5, 1.8)))
        tres = f"cpu=8,gres/gpu:a100={gpus},gres/gpu={gpus},mem=64G,node=1" if gpus else "cpu=8,mem=64G,node=1"
        state = chance.choice(("COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1000"))
        who = f"user{chance.randrange(200)}|account{chance.randrange(30)}"
        times = f"{stamp(at)}|{stamp(at)}|{stamp(start)}|{stamp(start + ran)}|{ran}"
        row = f"{number}|{number}|{who}|{state}|{times}|{tres}|{tres}|gpu[{chance.randrange(1, 60):03d}]\n"
        yield row
        for step in ("batch", "extern", "0"):
            yield f"{number}.{step}|{number}.{step}||{who.partition('|')[2]}|{state}|{times}|{tres}||gpu001\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--policy", default="fifo")
    given = parser.parse_args()
    jobs = given.jobs
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "year.txt"
        with path.open("w") as file:
            file.writelines(dump(jobs, 1))
        command = [sys.executable, "-c", HORAE, "what-if", "--from-sacct", str(path), "--json"]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = json.loads(out)
        assert answer["history"]["jobs"] == jobs
        subprocess.run([*command, "--policies", given.policy], check=True, stdout=subprocess.DEVNULL)
        whole = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = {
            "jobs": jobs,
            "megabytes": round(path.stat().st_size / 1e6),
            "gpu_jobs": answer["history"]["gpu_jobs"],
            "cpu_s": round(used.ru_utime + used.ru_stime, 2),
            "peak_megabytes": round(used.ru_maxrss * 1024 / 1e6),
            "with_policy": {
                "policy": given.policy,
                "cpu_s": round(whole.ru_utime + whole.ru_stime - used.ru_utime - used.ru_stime, 2),
                "peak_megabytes": round(whole.ru_maxrss * 1024 / 1e6),
            },
        }
    print(result)
    record(Path(__file__), result, ["numpy", "ClusterShell"])


if __name__ == "__main__":
    main()
