"""The core, its executor and a policy runner in one thread: each instruction is carried out before the next is asked
for.

Dry runs, benchmarks and tests drive the arbiter this way; the daemon does it with threads (`service.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from horae.arbiter.core import Act, Ask, Core, Instruction, LookNow
from horae.arbiter.decide.policy_runner import PolicyRunner
from horae.arbiter.execute.executor import Executor
from horae.arbiter.modes import mode_of


def reads_logs(core: Core) -> bool:
    """Logs are only read for a policy's sake."""
    return any(mode_of(core.ledger, pool).decides for pool in core.config.pools)


class Driver:
    def __init__(self, core: Core, executor: Executor, runner: PolicyRunner) -> None:
        self.core, self._executor, self._runner = core, executor, runner

    def tick(self) -> None:
        """One round, if one is due, from its first instruction to its last."""
        self.follow(self.core.tick())

    def follow(self, instructions: Iterable[Instruction]) -> None:
        instructed = deque(instructions)
        while instructed:
            match instructed.popleft():
                case LookNow():
                    instructed.extend(self.core.looked(self._executor.look(read_logs=reads_logs(self.core))))
                case Ask(question):
                    instructed.extend(self.core.judged(question.pool, self._runner.ask(question)))
                case Act(ops, budget_s):
                    instructed.extend(self.core.acted(self._executor.perform(ops, budget_s)))
