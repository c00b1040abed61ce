"""What does the bridge cost at 1,000 nodes of 8 GPUs, beside the bare requests?

A real ResourceManager under Hadoop's scheduler load simulator, which starts no process: one observation beside a bare
GET of the nodes, the first look of an arbiter at 100 jobs, and 100 grants at once, from the first request until YARN
has accepted all of their applications. Told: seconds, requests to each daemon, and the CPU seconds of the
ResourceManager (which simulates the nodes' heartbeats as well) and of this process.

    python benchmarks/yarn_thousand.py [--nodes 1000] [--grants 100] [--rounds 10]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import record
from _yarn import ByHand, Wire, bridge, spec, until
from _yarn_sls import GPUS_A_NODE, simulated

GPUS_A_JOB = 16
BARE, OURS = "bare GET of the nodes", "bridge: whole observation"
ACCEPTED = {"ACCEPTED", "RUNNING"}


def bare(hand: ByHand) -> int:
    """How many there are; parsed, since somebody wants to know what the answer says."""
    return len(hand.ask("GET", "/ws/v1/cluster/nodes").json()["nodes"]["node"])


def accepted(hand: ByHand) -> int:
    apps = (hand.ask("GET", "/ws/v1/cluster/apps").json()["apps"] or {}).get("app") or ()
    return sum(app["state"] in ACCEPTED and app["name"].startswith("h-") for app in apps)


def measured(wire: Wire, does: Callable[[], object]) -> dict[str, Any]:
    before, cpu_s, own_s, began = wire.now(), wire.cpu_s(), time.process_time(), time.perf_counter()
    does()
    return {
        "s": time.perf_counter() - began,
        "cpu_s": time.process_time() - own_s,
        "rm_cpu_s": wire.cpu_s() - cpu_s,
        "requests": wire.since(before),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--grants", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with simulated(options.nodes) as lab:
        wire, hand = Wire(lab), ByHand(lab)
        more = {"folder": "/user/horae/thousand"}
        port = bridge(lab, **more)
        result: dict[str, Any] = {"nodes": options.nodes, "GPUs a node": GPUS_A_NODE, "jobs": options.grants}
        names = [f"job-{number}" for number in range(options.grants)]

        def hand_in() -> None:
            for name in names:
                port.submit(name, spec(lab, name, [sys.executable, "train.py"], (1, GPUS_A_JOB)))

        def grant() -> None:
            nodes = [node.name for node in port.observe().nodes]
            pairs = [(nodes[2 * at % len(nodes)], nodes[(2 * at + 1) % len(nodes)]) for at in range(len(names))]
            starts = [(name, dict.fromkeys(pair, GPUS_A_JOB // 2), 1) for name, pair in zip(names, pairs, strict=True)]
            for at in range(0, len(starts), port.at_once):  # as the arbiter does
                failed = port.start_many(starts[at : at + port.at_once])
                if failed:
                    raise RuntimeError(f"not granted: {failed}")
            until("YARN has accepted all of them", lambda: accepted(hand) == len(names), 600.0)

        result["handing in"] = measured(wire, hand_in)
        result["first look"] = measured(wire, lambda: bridge(lab, **more).close())
        port.claim("benchmark")
        port.observe()
        calls = {BARE: lambda: bare(hand), OURS: port.observe}
        result["observations"] = wire.side_by_side(calls, options.rounds)
        result["grants"] = measured(wire, grant)
        result["observation of them all"] = measured(wire, port.observe)
        port.close()
    record(Path(__file__), result, ("requests", "hdfs"))
    rows = result["observations"]
    print(rows[OURS]["median_s"], rows[OURS]["median_s"] / rows[BARE]["median_s"], result["grants"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
