"""Random days of a site whose pools go differently far: no call of the port touches a job beyond what its pool's mode
allows, whatever users and operators ask, the policy answers, the cluster loses and the arbiter forgets.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from horae.arbiter.modes import mode_of, releasing
from horae.arbiter.requests.authority import NotAllowed
from horae.arbiter.requests.commands import NoSuchJob
from horae.config import Mode
from horae.fake.faults import Fault, Faults, LoseReply, Raise
from horae.port import ClusterPort, Never, TryLater
from policy.model import BadInput, Decision, Snapshot
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, answer, fill, room, spec

#: What may be done to a job in a pool of this mode; handing back besides, where that is under way.
ALLOWED = {
    Mode.OBSERVE: set[str](),
    Mode.ADVISE: set[str](),
    Mode.ORDER: {"submit", "cancel", "set_reason"},
    Mode.ENFORCE: {"submit", "start", "reshape", "checkpoint_and_stop", "cancel", "set_reason", "follow_up"},
}
LOOKS = {"observe", "capabilities", "read_log", "close"}
OURS = {"claim", "heartbeat", "set_order"}  #: of the cluster as a whole, where any pool acts


class Watched(Faults):
    def __init__(self, day: Day) -> None:
        super().__init__()
        self.day, self.did = day, Counter[str]()

    def next(self, verb: str, job: str | None) -> Fault | None:
        self.day.saw(verb, job)
        self.did[verb] += 1
        return super().next(verb, job)


class Day:
    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        modes = [self.dice.choice(list(Mode)) for _ in range(2)]
        nodes = ("n[1-2]", "n[3-4]")
        pools = [{"name": f"p{i}", "nodes": n, "mode": m} for i, (n, m) in enumerate(zip(nodes, modes, strict=True))]
        self.site = Site(folder, pools=pools, policy=self.decides)
        self.broken: list[str] = []
        self.watched = self.site.fake.faults = Watched(self)

    def saw(self, verb: str, job: str | None) -> None:
        ledger, config = self.site.core.ledger, self.site.config
        if verb in LOOKS:
            return
        if verb in OURS:
            if not any(mode_of(ledger, p).acts or releasing(ledger, p.name) for p in config.pools):
                self.broken.append(f"{verb} where no pool acts")
            if verb == "set_order":
                self.broken += [
                    f"{each} is put in order" for each in self.site.world.order_asked if not self.orders(each)
                ]
            return
        record = ledger.jobs.get(job or "")
        pool = config.pool(record.pool) if record is not None else None
        if pool is None:
            self.broken.append(f"{verb} of {job}, which nobody handed in")
        elif verb not in (ALLOWED[mode_of(ledger, pool)] | ({"release"} if releasing(ledger, pool.name) else set())):
            self.broken.append(f"{verb} of {job} in {pool.name}, which is in mode {mode_of(ledger, pool)}")

    def orders(self, job: str) -> bool:
        ledger, config = self.site.core.ledger, self.site.config
        pool = config.pool(ledger.jobs[job].pool) if job in ledger.jobs else None
        return pool is not None and mode_of(ledger, pool) is Mode.ORDER

    def decides(self, snapshot: Snapshot, policy: str, *_: Any) -> Decision:
        """Anything that a policy may say, and at times what it may not: nodes and jobs of the other pool."""
        free, dice = room(snapshot), self.dice
        if dice.random() < 0.2:
            free |= dict.fromkeys(("n1", "n4"), 4)
        named = [job.name for job in snapshot.jobs] + ["1", "2", "3"]
        lost = tuple(name for name in dict.fromkeys(named) if dice.random() < 0.05)
        given = {
            j.name: fill(j, j.gpus.at_most(dice.randrange(1, 9)), free) for j in snapshot.jobs if dice.random() < 0.8
        }
        return answer(snapshot, given, policy, cancel=lost)

    def asks(self) -> None:
        dice, site = self.dice, self.site
        who, job = dice.choice([ANN, BEN, ROOT]), str(dice.randrange(1, 9))
        pool = dice.choice(["p0", "p1"])
        commands = site.commands
        deeds = [
            lambda: commands.submit(
                [spec("j", (1, dice.randrange(1, 9)), steps=200, extra={"pool": pool})], dice.choice([ANN, BEN])
            ),
            lambda: commands.submit(
                [spec("j", (1, dice.randrange(1, 9)), steps=200, extra={"pool": pool})], dice.choice([ANN, BEN])
            ),
            lambda: commands.cancel(job, who),
            lambda: commands.hold(job, who),
            lambda: commands.unhold(job, who),
            lambda: commands.prioritise(job, dice.randrange(-9, 9), who, across=dice.random() < 0.5),
            lambda: commands.set_mode(pool, dice.choice(list(Mode)), dice.choice([ROOT, ANN])),
            lambda: commands.maintenance(pool, dice.random() < 0.5, who),
            lambda: commands.release_all(dice.choice([ROOT, who])),
            self.loses,
            lambda: site.fake.faults.on("*", dice.choice([Raise(TryLater("busy")), LoseReply(), Raise(Never("no"))])),
            site.reopen,
        ]
        with suppress(NotAllowed, NoSuchJob, BadInput, Never, TryLater):
            dice.choice(deeds)()

    def loses(self) -> None:
        running = [job for job in self.site.world.jobs.values() if job.state.holds]
        if running:
            self.site.world.lose(self.dice.choice(running))

    def goes_by(self) -> None:
        for _ in range(12):
            self.asks()
            self.site.run(self.dice.choice([0.25, 1.0, 6.0]))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
@example(seed=0)
def test_no_call_goes_further_than_its_pool(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    day = Day(tmp_path_factory.mktemp("day"), seed)
    day.goes_by()
    assert day.broken == []


def test_these_days_know_every_verb(tmp_path: Path) -> None:
    """The test above has something to see."""
    did = Counter[str]()
    for seed in range(16):
        day = Day(tmp_path / str(seed), seed)
        day.goes_by()
        did += day.watched.did
    known = {name for name in vars(ClusterPort) if not name.startswith("_")} - LOOKS - {"reshape"}
    assert known <= did.keys(), "reshape: this world starts anew instead"
