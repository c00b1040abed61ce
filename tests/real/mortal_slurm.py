"""An arbiter on a real Slurm that is killed by SIGKILL at a named boundary; run as a module by `test_slurm_killed.py`.

    python -m tests.real.mortal_slurm CONFIG JOBS BOUNDARY

JOBS: how many jobs it serves until all have ended. BOUNDARY: a regular expression and how often it must have been
met, `after stop:1`; empty: it is not killed. Boundaries are those of `tests/horae/arbiter/killing.py`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import cast

from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.journal import Clock
from horae.port import ClusterPort
from horae.views import watch
from slurm_plugin import connect
from tests.horae.arbiter.killing import Boundaries, MortalJournal, MortalPort


class NamedBoundaries(Boundaries):
    def __init__(self, where: str) -> None:
        super().__init__()
        self._pattern, _, times = where.rpartition(":")
        self._left = int(times or 0)

    def at(self, name: str) -> None:
        super().at(name)
        if self._left and re.search(self._pattern, name):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    config = Config.model_validate(json.loads(Path(sys.argv[1]).read_text()))
    jobs, boundaries = int(sys.argv[2]), NamedBoundaries(sys.argv[3])
    port = connect(config.cluster.options)
    arbiter = Arbiter(
        config,
        cast(ClusterPort, MortalPort(port, boundaries)),
        journal=MortalJournal(config.state_dir, Clock(), boundaries),
    )
    arbiter.start()
    while len(watch.jobs(arbiter)) < jobs or any(row.ended_s is None for row in watch.jobs(arbiter)):
        time.sleep(0.05)
    arbiter.stop()
    port.close()
    print("\n".join(boundaries.names))


if __name__ == "__main__":
    main()
