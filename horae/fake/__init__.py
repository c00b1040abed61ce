"""The in-memory cluster: a small world with its own clock that can refuse, be slow, lie and fail at chosen calls.

`world.py` is what is true (nodes, jobs, time), `program.py` what a job's program does, `port.py` one arbiter's
connection to the world, `faults.py` what goes wrong with its calls. Any number of connections share one world, so
that two arbiters, or one that was killed and its successor, meet there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from horae.fake.faults import Crash, Delay, Drop, Faults, LoseReply, Raise
from horae.fake.port import FakePort
from horae.fake.program import Program
from horae.fake.world import World
from policy.model import BadInput, Limits, Node, Pinning

__all__ = ["Crash", "Delay", "Drop", "FakePort", "Faults", "LoseReply", "Program", "Raise", "World", "connect"]


def connect(options: Mapping[str, Any]) -> FakePort:
    """A fresh world that moves with the real clock.

    Options: `nodes` (a list of `{name, gpu_type, gpus, rack}`; default four nodes of four GPUs of two types),
    `iteration_s`, `start_s`, `stop_s`, `equal_gpus_per_node`, `one_type_per_job`, `pinning`.
    """
    known = {
        "nodes", "iteration_s", "start_s", "stop_s", "equal_gpus_per_node", "one_type_per_job", "pinning"
    }  # fmt: skip
    for key in options:
        if key not in known:
            raise BadInput(
                "the fake cluster has no such option", field=f"options.{key}", remedy=f"one of {sorted(known)}"
            )
    try:
        nodes = tuple(Node(**each) for each in options.get("nodes", ())) or _NODES
        world = World(
            nodes,
            clock=time.time,
            limits=Limits(
                bool(options.get("equal_gpus_per_node", False)),
                bool(options.get("one_type_per_job", False)),
                Pinning(options.get("pinning", Pinning.EXACT)),
            ),
            program=Program(
                iteration_s=float(options.get("iteration_s", 0.1)),
                start_s=float(options.get("start_s", 1.0)),
                stop_s=float(options.get("stop_s", 0.5)),
            ),
        )
    except (TypeError, ValueError) as error:
        raise BadInput(str(error), field="options", value=dict(options), remedy="mend the value") from error
    return FakePort(world)


_NODES = tuple(Node(f"n{i}", gpu_type, 4) for i, gpu_type in enumerate(("k80", "k80", "v100", "v100"), 1))
