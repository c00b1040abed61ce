"""A worker by hand, for the floor of yarn_resize: it does what a resize needs, and nothing else.

    python worker.py BASE MARKS                   in a container: waits at the gate, runs a trainer whenever it opens
    python worker.py BASE MARKS EPOCH RANK        the trainer: goes on from the checkpoint; TERM: rank 0 checkpoints

BASE: a folder in HDFS, by WebHDFS. MARKS: a local folder where a rank tells that it trains. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

LOOK_S = 0.1
base, marks = sys.argv[1], sys.argv[2]


def hdfs(method: str, path: str, operation: str, data: bytes | None = None) -> bytes | None:
    """The answer; None where there is no such file. Data goes to the DataNode that the NameNode names."""
    query = f"?user.name=horae&op={operation}{'&noredirect=true&overwrite=true' if data is not None else ''}"
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path + query, method=method)) as answer:
            found: bytes = answer.read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    if data is not None:
        urllib.request.urlopen(urllib.request.Request(json.loads(found)["Location"], data, method="PUT")).close()
    return found


def waits() -> None:
    me, epoch = os.environ["CONTAINER_ID"], 0
    signal.signal(signal.SIGTERM, lambda *_: None)  # the trainer hears it too: a signal goes to the whole group
    hdfs("PUT", "/members/" + me, "CREATE", b"here")
    while True:
        told = json.loads(hdfs("GET", "/gate", "OPEN") or b'{"epoch": 0}')
        if told["epoch"] > epoch and me in told["members"]:
            epoch = told["epoch"]
            rank = told["members"].index(me)
            subprocess.run([sys.executable, *sys.argv, str(epoch), str(rank)], check=False)
        time.sleep(LOOK_S)


def trains(epoch: str, rank: str) -> None:
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    done = int(hdfs("GET", f"/checkpoint-{int(epoch) - 1}", "OPEN") or b"0")
    while not asked:
        time.sleep(0.02)
        done += 1
        Path(marks, f"{epoch}-{rank}").touch()
    if rank == "0":
        hdfs("PUT", "/.part", "CREATE", str(done).encode())
        prefix = "/webhdfs/v1"
        target = base[base.index(prefix) + len(prefix) :] + "/checkpoint-" + epoch
        hdfs("PUT", "/.part", "RENAME&destination=" + target)


if __name__ == "__main__":
    waits() if len(sys.argv) == 3 else trains(sys.argv[3], sys.argv[4])
