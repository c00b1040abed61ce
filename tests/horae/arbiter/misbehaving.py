"""Policies that a worker process must survive, named by `module:function`; and what they are asked."""

from __future__ import annotations

import os
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from horae.arbiter.decide import replies
from horae.arbiter.decide.policy_runner import Question
from policy.model import BadInput, Cluster, Decision, GpuRange, Job, Node, Snapshot
from tests.horae.arbiter.site import answer, first_come

SNAPSHOT = Snapshot(
    Cluster((Node("n1", "k80", 4),), gpu_types=("k80",)),
    (Job("1", "ann", "ann/a", GpuRange(2, 1, 2), throughput=MappingProxyType({"k80": {1: 1.0}})),),
)


def question(limit_s: float = 60.0) -> Question:
    return Question("main", SNAPSHOT, "test", {}, 7, limit_s)


def well(*asked: Any) -> Decision:
    return first_come(*asked)


def forever(*asked: Any) -> Decision:
    while True:
        time.sleep(0.01)


def deaf(*asked: Any) -> Decision:
    """Computes without ever letting go."""
    n = 0
    while True:
        n += 1


def exits(*asked: Any) -> Decision:
    os._exit(3)


def prints(snapshot: Snapshot, *asked: Any) -> Decision:
    print("solving ... done", flush=True)
    os.write(1, b"straight to the pipe\n")
    return first_come(snapshot, *asked)


def forgetful(snapshot: Snapshot, *asked: Any) -> Decision:
    """Goes on from nothing that it remembers."""
    if snapshot.state:
        raise BadInput("is none that it goes on from", field="state.turn", remedy="none")
    return first_come(snapshot, *asked)


def unsendable(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {}, state={"file": open("/dev/null")})


def exhausts(*asked: Any) -> Decision:
    raise MemoryError


class Attack:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(os.environ["ATTACK_MARK"]),)


def attacks(snapshot: Snapshot, *asked: Any) -> Decision:
    return answer(snapshot, {}, state={"kept": Attack()})


def attacks_on_the_wire(snapshot: Snapshot, *asked: Any) -> Decision:
    """Whoever runs in the process can write into its pipe what no code of ours would."""
    replies.dumps = lambda _reply: pickle.dumps(Attack())
    return first_come(snapshot, *asked)


def boasts(snapshot: Snapshot, *asked: Any) -> Decision:
    """Says that its answer has a terabyte."""
    worker: Any = sys.modules["__main__"]
    worker.packed = lambda body: (1 << 40).to_bytes(8, "big") + body
    return first_come(snapshot, *asked)


def tells_who_it_is(snapshot: Snapshot, *asked: Any) -> Decision:
    """In its state: its account and groups, what rights it could get back, what of the arbiter's it can reach."""
    reached = []
    for deed in (lambda: os.kill(os.getppid(), 0), lambda: os.setuid(0), lambda: Path("/etc/shadow").read_text()):
        try:
            deed()
            reached.append(deed.__code__.co_names[-1])
        except OSError:
            continue
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    told = {
        "uids": sorted({*os.getresuid(), *os.getresgid()}), "groups": os.getgroups(), "reached": reached,
        "rights": int(status["CapPrm"], 16), "no_new": status["NoNewPrivs"], "secret": os.environ.get("SECRET"),
    }  # fmt: skip
    return replace(first_come(snapshot, *asked), state=told)
