"""The child that holds pyslurm: one JSON line a request in, one a reply out. Standard library and pyslurm alone.

It runs under the Python that pyslurm was built for (`python -u -c SOURCE`), beside libslurm, and may be another
version than Horae's: nothing of Horae is imported. It exists so that what pyslurm does to its process (a segmentation
fault, libslurm's exit(1), the GIL held over every call, dlopen flags) is not done to the arbiter.

    {"id": 1, "op": "jobs", "names": [...]}   ->  {"id": 1, "ok": [[value, ...], ...]}
    {"id": 2, "op": "write", "job": 7, "verb": "hold"}  ->  {"id": 2, "ok": null}, or
                                                            {"id": 2, "error": "...", "number": 2017}
"""

from __future__ import annotations

import json
import sys
from typing import Any


def jobs(pyslurm: Any, asked: Any) -> list[list[Any]]:
    return [[getattr(job, name, None) for name in asked["names"]] for job in pyslurm.Jobs.load().values()]


def nodes(pyslurm: Any, asked: Any) -> list[list[Any]]:
    """What this pyslurm does not tell is empty, and None what slurmctld does not know."""
    return [[getattr(node, name, "") for name in asked["names"]] for node in pyslurm.Nodes.load().values()]


def write(pyslurm: Any, asked: Any) -> None:
    job = pyslurm.Job(asked["job"])
    verb = asked["verb"]
    if verb == "hold":
        job.hold()  # never hold(mode="user"): it ends the interpreter
    elif verb == "release":
        job.release()
    else:
        job.requeue(hold=True)


def signal(pyslurm: Any, asked: Any) -> None:
    pyslurm.Job(asked["job"]).send_signal("SIG" + asked["signal"], steps="batch")


def cancel(pyslurm: Any, asked: Any) -> None:
    for number in asked["jobs"]:
        pyslurm.Job(number).cancel()


def main() -> None:
    try:
        import pyslurm
    except Exception as error:  # noqa: BLE001 - a missing module, another Slurm, a broken build: said, not raised
        print(json.dumps({"id": 0, "error": f"{type(error).__name__}: {error}"}), flush=True)
        return
    known: dict[str, Any] = {"jobs": jobs, "nodes": nodes, "write": write, "signal": signal, "cancel": cancel}
    print(json.dumps({"id": 0, "ok": pyslurm.__version__}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        reply: dict[str, Any] = {"id": asked["id"]}
        try:
            reply["ok"] = known[asked["op"]](pyslurm, asked)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side decides
            number = getattr(error, "errno", None)
            reply["error"] = str(getattr(error, "msg", None) or error) or type(error).__name__
            reply["number"] = number if isinstance(number, int) else None
        print(json.dumps(reply, default=str), flush=True)


if __name__ == "__main__":
    main()
