"""The in-memory cluster for the contract suite."""

from __future__ import annotations

from horae.fake import FakePort, Program, World
from horae.port import JobId
from horae.spec import JobSpec
from policy.model import GpuRange, Health, Node
from tests.contract.harness import FAILURE_CODE, Behaviour

NODES = tuple(Node(f"n{i}", "k80" if i < 3 else "v100", 4) for i in range(1, 5))
EXTRA = {
    Behaviour.TRAINS: {"fake.steps": "100000"},
    Behaviour.FINISHES: {"fake.steps": "5"},
    Behaviour.FAILS: {"fake.fail_at": "5", "fake.fail_code": str(FAILURE_CODE)},
    Behaviour.FAILS_ONCE: {"fake.steps": "5", "fake.fail_at": "3", "fake.fail_runs": "1"},
    Behaviour.IGNORES: {"fake.steps": "100000", "fake.ignores": "1"},
}


class FakeHarness:
    patience_s = 120.0
    can_lose_nodes = True

    def __init__(self) -> None:
        self._time = 1000.0
        self.world = World(NODES, clock=lambda: self._time, program=Program(iteration_s=0.05, start_s=0.2, stop_s=0.1))
        self.port = FakePort(self.world)

    def pause(self) -> None:
        self._time += 0.05

    def spec(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobSpec:
        retries = {Behaviour.FAILS: 0, Behaviour.FAILS_ONCE: 1}.get(behaviour, 3)
        return JobSpec(
            name,
            ("train",),
            GpuRange(gpus[1], *gpus),
            checkpoint="ckpt",
            retries=retries,
            extra=EXTRA[behaviour],
        )

    def submit(self, name: str, behaviour: Behaviour, *, gpus: tuple[int, int] = (1, 4)) -> JobId:
        self.port.submit(name, self.spec(name, behaviour, gpus=gpus))
        return name

    def other_arbiter(self) -> FakePort:
        return FakePort(self.world)

    def restart_arbiter(self) -> FakePort:
        self.port = FakePort(self.world)
        return self.port

    def lose_node(self, node: str) -> None:
        self.world.set_health(node, Health.DOWN)

    def restore_node(self, node: str) -> None:
        self.world.set_health(node, Health.UP)
