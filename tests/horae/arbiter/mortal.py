"""An arbiter in a process of its own that is killed by SIGKILL at a boundary; run as a module by `test_kill_9.py`.

    python -m tests.horae.arbiter.mortal STATE_DIR SOCKET DIE_AT

It submits what is missing of the story, serves until all of it is over, and prints how many boundaries it passed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import cast

from horae.arbiter.decide.policy_runner import Inline
from horae.arbiter.service import Arbiter
from horae.journal import Clock
from horae.port import ClusterPort
from horae.views import watch
from tests.horae.arbiter.killing import Boundaries, MortalJournal, MortalPort
from tests.horae.arbiter.remote import RemotePort
from tests.horae.arbiter.site import ANN, config, equal_shares, spec

#: name -> (GPUs, steps), in order of arrival
STORY = {"a": ((1, 8), 400), "b": ((2, 8), 300), "c": ((1, 4), 100)}
QUICK = {"tick_s": 0.1, "busy_s": 0.03, "debounce_s": 0.01, "repeat_s": 0.5, "settle_s": 2.0}


def main() -> None:
    folder, socket, die_at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) or None
    boundaries = Boundaries(die_at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    arbiter = Arbiter(
        config(folder, rounds=QUICK),
        cast(ClusterPort, MortalPort(RemotePort(socket), boundaries)),
        runner=Inline(equal_shares),
        journal=MortalJournal(folder, Clock(), boundaries),
    )
    arbiter.start()
    for name, (gpus, steps) in STORY.items():
        if all(row.name != name for row in watch.jobs(arbiter)):
            arbiter.submit(spec(name, gpus, steps=steps), ANN)
        time.sleep(0.2)
    while any(row.ended_s is None for row in watch.jobs(arbiter)):
        time.sleep(0.05)
    arbiter.stop()
    print(boundaries.count)


if __name__ == "__main__":
    main()
