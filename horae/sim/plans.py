"""One simulation as it is asked for: names and files, before any of them is read. It travels to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from horae.sim.conditions.told import MOST_NOISE, Conditions, lies_of, slow_nodes
from horae.sim.engine.asking import Settings
from horae.sim.engine.cluster import cluster_of, is_file, pooled
from horae.sim.engine.simulation import Simulated, simulate
from horae.sim.engine.workload import Table, tables
from horae.sim.traces.model import BadRow, Trace
from horae.sim.traces.reading import read
from policy.catalogue import named
from policy.model import BadInput, Seconds

ENGINES = ("fast", "arbiter")


@dataclass(frozen=True, slots=True)
class Plan:
    trace: Path
    cluster: str
    policy: str
    options: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    ideal: bool = False
    restart_s: Seconds | None = None
    limit: int | None = None
    form: str = "ours"
    skip_bad: bool = False
    throughputs: str | None = None
    engine: str = "fast"
    noise: float = 0.0
    lies: tuple[str, ...] = ()
    stragglers: str | None = None

    def __hash__(self) -> int:
        return hash((self.trace, self.cluster, self.policy, self.seed))

    def files(self) -> list[Path]:
        """Those that it reads."""
        return [Path(name) for name in (str(self.trace), self.cluster, self.throughputs or "") if is_file(name)]

    def run(self, *, keep_changes: bool = False) -> tuple[Simulated, tuple[BadRow, ...]]:
        """The outcome, and the rows that were left out or are doubtful. `keep_changes`: who held how many GPUs when.

        Raises BadInput, PolicyFailed, OSError.
        """
        trace, settings, table = self.read()
        outcome = simulate(
            trace, settings, table, engine=self.engine, skip_bad=self.skip_bad, keep_changes=keep_changes
        )
        return outcome, trace.remarks

    def read(self) -> tuple[Trace, Settings, Table]:
        """Its files. Raises BadInput, OSError."""
        if self.engine not in ENGINES:
            raise BadInput("is no engine", field="--engine", value=self.engine, remedy=" or ".join(ENGINES))
        cluster, policy = cluster_of(self.cluster), named(self.policy).name
        settings = Settings.of(
            pooled(cluster) if self.ideal else cluster,
            policy,
            self.options,
            seed=self.seed,
            ideal=self.ideal,
            restart_s=self.restart_s,
            conditions=self.conditions(),
        )
        table = tables(self.throughputs)
        trace = read(self.trace, self.form, skip_bad=self.skip_bad)
        if self.limit is not None:
            trace = replace(trace, jobs=trace.jobs[: self.limit])
        return trace, settings, table

    def conditions(self) -> Conditions:
        """Raises BadInput."""
        if not 0 <= self.noise <= MOST_NOISE:
            raise BadInput("is no part of a profile", field="--noise", value=self.noise, remedy=f"0 to {MOST_NOISE}")
        slow = None if self.stragglers is None else slow_nodes(self.stragglers)
        return Conditions(self.noise, lies_of(self.lies), slow)
