"""How long from submission to the first training step, beside a plain YARN service launched by hand?

On a real YARN, side by side in one run: a gang of two as a plain service (one POST; each container trains at once), the
adapter (job folder, service, gate, ranks), and a whole arbiter that is told by its API. The clock stops when every
rank has taken its first step.

    python benchmarks/yarn_start.py [--rounds 8] [--lab FOLDER]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import record
from _yarn import USER, ByHand, arguments, bridge, hadoop, spec, until

from horae.api.client import Client
from horae.api.service import Service
from horae.config import Config
from horae.port import attend
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab.private import PrivateHadoop

RANKS = 2
#: `train.py MARKS`, and under Horae the SDK: a step is a sleep, the first one leaves a file
PLAIN = """import os, sys, time
time.sleep(0.02)
open(sys.argv[1] + "/" + os.environ["CONTAINER_ID"], "w").close()
time.sleep(10**6)
"""
ELASTIC = """import os, sys, time
from horae import elastic
def save(folder): open(folder + "/done", "w").close()
def load(folder): pass
for step in elastic.Training(steps=10**9, global_batch=64, save=save, load=load, checkpoint_every_s=3600):
    time.sleep(0.02)
    open(sys.argv[1] + "/" + os.environ["RANK"], "w").close()
"""


class Bench:
    def __init__(self, lab: PrivateHadoop, folder: Path) -> None:
        self.lab, self.folder, self.hand = lab, folder, ByHand(lab)
        self.number = int(time.time())
        (folder / "elastic.py").write_text(ELASTIC)
        self.hand.put(f"/user/{USER}/plain.py", PLAIN.encode())

    def timed(
        self, begin: Callable[[str, Path], object], look: Callable[[], object], end: Callable[[str], object]
    ) -> float:
        """Seconds until all ranks train; then it is taken away and its GPUs are waited for."""
        self.number += 1
        name = f"start-{self.number}"
        marks = self.folder / name
        marks.mkdir()

        def trained() -> bool:
            look()
            return len(list(marks.iterdir())) == RANKS

        began = time.monotonic()
        begin(name, marks)
        until("all ranks train", trained)
        took_s = time.monotonic() - began
        end(name)
        until("its GPUs are free", lambda: (look(), self.hand.used() == 0)[1])
        return took_s

    def plain(self) -> float:
        def begin(name: str, marks: Path) -> None:
            command = f"exec {sys.executable} plain.py {marks}"
            self.hand.create(name, {"n1": RANKS}, command, {"plain.py": f"/user/{USER}/plain.py"})

        return self.timed(begin, int, self.hand.destroy)

    def adapter(self, port: YarnCluster) -> float:
        def begin(name: str, marks: Path) -> None:
            port.submit(name, spec(self.lab, name, self.words(marks), (RANKS, RANKS)))
            port.start(name, {"n1": RANKS}, 1)

        return self.timed(begin, lambda: attend(port), port.cancel)

    def arbiter(self, client: Client) -> float:
        def begin(name: str, marks: Path) -> None:
            job = spec(self.lab, name, self.words(marks), (RANKS, RANKS))
            client.submit([{
                "name": name, "command": list(job.command), "checkpoint": job.checkpoint,
                "gpus": {"min": RANKS, "max": RANKS},
            }])  # fmt: skip

        def end(name: str) -> None:
            for job in client.status()["jobs"]:
                client.cancel(job["id"], "measured")

        return self.timed(begin, int, end)

    def words(self, marks: Path) -> list[str]:
        return [sys.executable, str(self.folder / "elastic.py"), str(marks)]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"plain service": [], "adapter": [], "arbiter": []}
    with hadoop("bench-yarn-start", options.lab) as lab, tempfile.TemporaryDirectory() as made:
        bench = Bench(lab, Path(made))
        port = bridge(lab, folder=f"/user/{USER}/start-{bench.number}")
        config = Config.model_validate({
            "state_dir": str(bench.folder / "arbiter"),
            "cluster": {"adapter": "yarn", "options": {
                **lab.facts(), "memory_mib": 256, "folder": f"/user/{USER}/arbiter-{bench.number}",
            }},
            "pools": [{"name": "all", "mode": "enforce", "policy": "max-min"}],
            "api": {"socket": str(bench.folder / "api.sock")},
        })  # fmt: skip
        service = Service(config)
        service.start()
        try:
            client = Client(service.socket)
            for _ in range(options.rounds + 1):
                times["plain service"].append(bench.plain())
                times["adapter"].append(bench.adapter(port))
                times["arbiter"].append(bench.arbiter(client))
        finally:
            service.stop()
            port.close()
    times = {name: values[1:] for name, values in times.items()}  # the first of each fills caches
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {name: medians[name] / medians["plain service"] for name in ("adapter", "arbiter")}
    result: dict[str, Any] = {"ranks": RANKS, "rounds": options.rounds, "median_s": medians, "ratio": ratios}
    record(Path(__file__), {**result, "all_s": times}, ("requests", "hdfs"))
    print({name: round(value, 2) for name, value in medians.items()}, ratios)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
