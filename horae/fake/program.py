"""What a fake job's program does: it trains at a steady rate, checkpoints now and then, and may misbehave.

Everything is computed from the time since the start; nothing runs. A job's specification may set any field of
`Program` by `extra`, as `fake.FIELD`. Its log is what a trainer with the SDK prints.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from horae.spec import JobSpec
from policy.model import Gpus, GpuType, Seconds


@dataclass(frozen=True, slots=True)
class Program:
    steps: int = 4000  #: iterations, unless the specification says how many
    iteration_s: Seconds = 0.1  #: on one GPU, unless the specification has a throughput table; linear in GPUs
    checkpoint_every: int = 10  #: iterations between its own checkpoints; 0: only when it is asked to stop
    log_every: int = 1
    start_s: Seconds = 1.0  #: from granted to running
    warmup_s: Seconds = 0.0  #: from running to its first iteration
    stop_s: Seconds = 0.5  #: to checkpoint and leave
    fail_at: int = 0  #: exits with `fail_code` after that many iterations of a run; 0: does not
    fail_runs: int = 1_000_000  #: in how many of its runs it does that
    fail_code: int = 7
    ignores: int = 0  #: 1: ignores every request to stop


def program_of(spec: JobSpec, default: Program) -> Program:
    """The program a specification describes. Raises ValueError for a value that is no number."""
    told: dict[str, Any] = {}
    for field in dataclasses.fields(Program):
        text = spec.extra.get(f"fake.{field.name}")
        if text is not None:
            told[field.name] = (int if isinstance(field.default, int) else float)(text)
    if spec.iterations is not None:
        told.setdefault("steps", int(spec.iterations))
    return dataclasses.replace(default, **told)


@dataclass(slots=True)
class ProgramRun:
    """One start of a program."""

    program: Program
    epoch: int
    first_step: int
    world: int
    iteration_s: Seconds
    since_s: Seconds  #: when it came to run
    fails: bool
    logged: int = -1  #: last step in the log; -1: not even the start line

    def step_at(self, now_s: Seconds) -> int:
        if now_s >= self.ends_s:
            return self.last_step
        done = math.floor((now_s - self.since_s) / self.iteration_s + 1e-3)  # wall times have steps of 1e-7 s
        return min(self.first_step + max(done, 0), self.last_step)

    @property
    def last_step(self) -> int:
        if self.fails:
            return min(self.first_step + self.program.fail_at, self.program.steps)
        return self.program.steps

    @property
    def ends_s(self) -> Seconds:
        return self.since_s + max(self.last_step - self.first_step, 0) * self.iteration_s

    def own_checkpoint(self, step: int) -> int | None:
        """The newest checkpoint of this run that it made by itself, by `step`."""
        every = self.program.checkpoint_every
        newest = step // every * every if every else 0
        return newest if newest > self.first_step else None

    def log_until(self, step: int) -> bytes:
        lines = []
        if self.logged < 0:
            lines.append(f"[horae] start step={self.first_step} world={self.world} epoch={self.epoch}")
            self.logged = self.first_step
        every = max(self.program.log_every, 1)
        for done in range(self.logged + 1, step + 1):
            if done % every == 0 or done == self.program.steps:
                loss = 0.5 + 6.0 / (1.0 + 0.01 * done)
                elapsed = (done - self.first_step) * self.iteration_s
                lines.append(
                    f"[horae] step={done}/{self.program.steps} loss={loss:.4f} iter_s={self.iteration_s:.6g}"
                    f" samples_s={32 * self.world / self.iteration_s:.6g} world={self.world}"
                    f" epoch={self.epoch} t={elapsed:.3f}"
                )
        self.logged = max(self.logged, step)
        return "".join(line + "\n" for line in lines).encode()


def iteration_s(spec: JobSpec, program: Program, gpu_types: set[GpuType], gpus: Gpus) -> Seconds:
    """Seconds an iteration takes: the table's where it has the point, on the slowest type; else linear."""
    rates = [spec.throughput.get(gpu_type, {}) for gpu_type in gpu_types]
    known = [table.get(gpus) or (table[1] * gpus if 1 in table else None) for table in rates]
    found = [rate for rate in known if rate]
    return 1.0 / min(found) if found else program.iteration_s / gpus
