"""What does one observation of a cluster with 1,000 applications cost, beside one bare GET of the same?

A real ResourceManager whose queue is full of waiting YARN services, and beside them jobs of ours that rest: all that
an arbiter has to look at in a round. Side by side, in one run: the bare GET of these applications and its JSON, a GET
without leaving anything out, and the adapter's whole observation (nodes, applications, job folders in HDFS); and the
first one of an arbiter that has just been started. Told: seconds, requests to each daemon, and the ResourceManager's
CPU seconds.

    python benchmarks/yarn_observe.py [--apps 100 1000] [--jobs 100] [--rounds 15] [--lab FOLDER]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from _record import record
from _yarn import ByHand, Wire, arguments, bridge, hadoop, spec, until

from yarn_bridge.clients.resource_manager import LEAN
from yarn_bridge.lab.private import PrivateHadoop

QUERY = {"applicationTypes": "yarn-service", "states": "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"}
BARE, WHOLE, OURS = "bare GET", "bare GET of everything", "bridge: whole observation"
_BASE = "/ws/v1/cluster/apps"


def submit(hand: ByHand, number: int) -> str:
    """An application whose master asks for more than a node has free once the first of them runs."""
    app = str(hand.ask("POST", f"{_BASE}/new-application").json()["application-id"])
    body = {
        "application-id": app,
        "application-name": f"waits-{number}",
        "application-type": "yarn-service",
        "queue": "default",
        "am-container-spec": {"commands": {"command": "sleep 3600"}},
        "resource": {"memory": 2048, "vCores": 1},
    }
    hand.ask("POST", _BASE, json=body)
    return app


def bare(hand: ByHand, **query: str) -> int:
    """How many there are; parsed, since somebody wants to know what the answer says."""
    answer = hand.session.get(f"{hand.rm}{_BASE}", params={"user.name": "horae", **query}, timeout=60)
    answer.raise_for_status()
    return len((answer.json()["apps"] or {}).get("app") or ())


def first(lab: PrivateHadoop, folder: str, wire: Wire) -> dict[str, Any]:
    """It knows nothing yet, and reads every job's record and specification."""
    before, began = wire.now(), time.perf_counter()
    port = bridge(lab, folder=folder)
    found = {"s": time.perf_counter() - began, "jobs": len(port.observe().jobs), "requests": wire.since(before)}
    port.close()
    return found


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--apps", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    result: dict[str, Any] = {"observations": []}
    apps: list[str] = []
    with hadoop("bench-yarn-observe", options.lab) as lab:
        wire, hand = Wire(lab), ByHand(lab)
        folder = f"/user/horae/observe-{int(time.time())}"
        port = bridge(lab, folder=folder)
        for number in range(options.jobs):
            port.submit(f"rests-{number}", spec(lab, f"rests-{number}", [sys.executable, "train.py"], (1, 4)))
        try:
            for count in sorted(options.apps):
                while len(apps) < count:
                    apps.append(submit(hand, len(apps)))
                until("all of them wait", lambda: bare(hand, **QUERY) == len(apps))
                while True:  # what was just submitted is read once more, and then rests
                    before = wire.now()
                    port.observe()
                    if sum(wire.since(before).values()) <= 4:
                        break
                lean = {**QUERY, "deSelects": ",".join(LEAN)}
                rows = wire.side_by_side(
                    {
                        BARE: lambda query=lean: bare(hand, **query),  # type: ignore[misc]
                        WHOLE: lambda: bare(hand),
                        OURS: port.observe,
                    },
                    options.rounds,
                )
                ratios = {name: rows[OURS]["median_s"] / rows[name]["median_s"] for name in (BARE, WHOLE)}
                found = {"applications": count, "jobs": len(port.observe().jobs), **rows, "ratio": ratios}
                result["observations"].append(found)
        finally:
            for app in apps:
                hand.ask("PUT", f"{_BASE}/{app}/state", json={"state": "KILLED"})
            port.close()
        result["first observation of a new arbiter"] = first(lab, folder, wire)
    record(Path(__file__), result, ("requests", "hdfs"))
    for found in result["observations"]:
        print(found["applications"], found["ratio"], found[OURS]["requests"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
