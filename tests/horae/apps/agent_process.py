"""An app scheduler of one's own, as a program of its own: it bids over the API, and ends what loses.

    python agent_process.py SOCKET APP ITERATIONS

Halving by hand: it says to be a little better off than the built-in agent would say, and once every job has done
ITERATIONS it cancels all but the best. A line a call for bids goes to standard output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from horae.api.client import Client
from horae.apps.agent import Agent, Call


def main(socket: str, app: str, iterations: float) -> int:
    client = Client(Path(socket), timeout_s=200)
    decided = False

    def watch(jobs: Sequence[Mapping[str, Any]]) -> None:
        nonlocal decided
        if not decided and len(jobs) > 1 and all(j["done"] >= iterations and j["loss"] is not None for j in jobs):
            decided = True
            for job in sorted(jobs, key=lambda j: j["loss"])[1:]:
                client.cancel(job["id"], "its own scheduler ended it")

    def value(call: Call) -> Sequence[dict[str, Any]]:
        return [{**row, "rho": row["rho"] * 0.9} for row in call.table()]

    for win in Agent(client, app).run(value, watch):
        print(json.dumps(win), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
