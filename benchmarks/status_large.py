"""How long does `horae status` take where the arbiter has 10,000 jobs, beside a bare read of the same answer?

    python benchmarks/status_large.py [--jobs N] [--times N]

Wall seconds of the command as a user waits for it (a pipe, no terminal): the table, one user's jobs, all as JSON. The
floor is a bare Python that asks the socket for what the table is made of, reads it as JSON, and prints as many lines;
`--json` asks for three times as many bytes. Half of the jobs run, the others wait. The arbiter is the real one with
its API; its fake cluster lives in the same process, and goes on meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from _record import record

from horae.api.arbiter import ArbiterBackend
from horae.api.privacy.access import AccessRules
from horae.api.routes import create_app
from horae.api.server import Server
from horae.arbiter.requests.authority import Requester
from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.fake import FakePort, Program, World
from horae.spec import JobSpec
from horae.views import watch
from policy.model import GpuRange, Node

COMMANDS = {
    "horae status": ("status",),
    "horae status -u nobody": ("status", "-u", "nobody"),
    "horae status --json": ("status", "--json"),
}
FLOOR = """\
import json, socket, sys
there = socket.socket(socket.AF_UNIX)
there.connect(sys.argv[1])
there.sendall(b"GET /v1/status?brief=true HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n")
told = b"".join(iter(lambda: there.recv(1 << 20), b""))
for job in json.loads(told.partition(b"\\r\\n\\r\\n")[2])["jobs"]:
    print(job["id"])
"""


def timed(argv: Sequence[str], environment: Mapping[str, str]) -> float:
    at = time.perf_counter()
    subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - at


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--times", type=int, default=9)
    asked = options.parse_args()
    nodes = [Node(f"n{i}", "v100", 8, f"r{i // 16}") for i in range(asked.jobs // 16)]
    world = World(nodes, program=Program(steps=10**7, iteration_s=1.0, start_s=0.1, checkpoint_every=600, log_every=10))
    with tempfile.TemporaryDirectory() as folder:
        config = Config.model_validate({
            "cluster": {"adapter": "fake"},
            "state_dir": folder,
            "pools": [{"mode": "enforce", "policy": "max-min"}],
            "rounds": {"decide_s": 600.0},
        })  # fmt: skip
        arbiter, socket = Arbiter(config, FakePort(world)), Path(folder) / "api.sock"
        arbiter.start()
        server = Server(create_app(ArbiterBackend(arbiter), AccessRules()), socket)
        server.start()
        try:
            specs = [
                JobSpec(f"job{i}", ("train",), GpuRange(1, 1, 1), checkpoint="ckpt", iterations=1e7)
                for i in range(asked.jobs)
            ]
            arbiter.submit_many(specs, Requester("root"))
            while watch.status(arbiter).running < len(nodes) * 8:
                time.sleep(0.5)
            time.sleep(15.0)  # the last starts settle
            environment = {**os.environ, "HORAE_SOCKET": str(socket)}
            horae = str(Path(sys.executable).with_name("horae"))
            ways = {name: [horae, *words] for name, words in COMMANDS.items()}
            ways["floor"] = [sys.executable, "-c", FLOOR, str(socket)]
            took: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(asked.times):
                for name, argv in ways.items():  # by turns: what else the machine does meets all alike
                    took[name].append(timed(argv, environment))
        finally:
            server.stop()
            arbiter.stop()
    floor = statistics.median(took["floor"])
    found = {
        name: {
            "median_s": round(statistics.median(times), 3),
            "min_s": round(min(times), 3),
            "ratio": round(statistics.median(times) / floor, 2),
        }
        for name, times in took.items()
    }
    print(found)
    record(Path(__file__), {"jobs": asked.jobs, "times": asked.times, "commands": found})


if __name__ == "__main__":
    main()
