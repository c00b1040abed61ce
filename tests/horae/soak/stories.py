"""Random stories for an arbiter: arrivals, losses, foreign jobs, failing calls, kills, all from one seed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from horae.arbiter.requests.authority import Requester
from horae.fake import Delay, Drop, LoseReply, Raise
from horae.port import FixConfiguration, JobState, TryLater
from policy.model import Health
from tests.horae.arbiter.killing import Boundaries, Deed, Kill, MortalSite, check, named, submission
from tests.horae.arbiter.site import ANN, BEN, ROOT, equal_shares, first_come

VERBS = ("submit", "start", "checkpoint_and_stop", "cancel", "observe", "claim", "heartbeat", "set_reason")


class Story:
    """`deeds` for a site, and how every job must end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ends: dict[str, JobState] = {}
        self.lossless: set[str] = set()
        self.deeds: list[Deed] = []
        self.policy = self.random.choice([equal_shares, first_come])
        for i in range(self.random.randint(2, 8)):
            self._job(f"job{i}")
        for _ in range(self.random.randint(0, 3)):
            self._node()
        for _ in range(self.random.randint(0, 4)):
            self._fault()
        self.deeds.sort(key=lambda deed: deed[0])
        self.kills = sorted(self.random.randint(1, 300) for _ in range(self.random.randint(0, 4)))

    def _time(self, most_s: float = 60.0) -> float:
        return self.random.uniform(0.0, most_s)

    def _job(self, name: str) -> None:
        pick, at_s = self.random, self._time()
        least = pick.choice([1, 1, 2, 4])
        most = pick.choice([m for m in (1, 2, 4, 8, 12) if m >= least])
        who: Requester = pick.choice([ANN, BEN])
        changes: dict[str, Any] = {}
        if pick.random() < 0.15:
            changes["checkpoint"] = None
        if pick.random() < 0.1:
            changes |= {"extra": {"fake.ignores": "1"}, "grace_s": 3.0}
        self.deeds.append((at_s, name, submission(name, (least, most), pick.randint(5, 300), who, **changes)))
        self.ends[name] = JobState.COMPLETED
        fate = pick.random()
        if fate < 0.15:
            self.ends[name] = JobState.CANCELLED
            # Long before it could end by itself, however many GPUs it gets.
            self.deeds[-1] = (at_s, name, submission(name, (least, most), 10**6, who, **changes))
            self.deeds.append(
                (at_s + self._time(30), f"{name} cancel", lambda s: s.commands.cancel(named(s, name), ROOT))
            )
        elif fate < 0.3 and "checkpoint" not in changes:
            held_s = at_s + self._time(20)
            self.deeds.append((held_s, f"{name} hold", lambda s: s.commands.hold(named(s, name), ROOT)))
            self.deeds.append(
                (held_s + self._time(30), f"{name} unhold", lambda s: s.commands.unhold(named(s, name), ROOT))
            )

    def _node(self) -> None:
        node, at_s = self.random.choice(["n1", "n2", "n3", "n4"]), self._time()
        back_s = at_s + self._time(30)
        kind = self.random.random()
        if kind < 0.5:
            self.deeds.append((at_s, f"{node} lost", lambda s: s.world.set_health(node, Health.DOWN)))
            self.deeds.append((back_s, f"{node} back", lambda s: s.world.set_health(node, Health.UP)))
        elif kind < 0.7:
            self.deeds.append((at_s, f"{node} drains", lambda s: s.world.set_health(node, Health.DRAIN)))
            self.deeds.append((back_s, f"{node} back", lambda s: s.world.set_health(node, Health.UP)))
        else:
            gpus = self.random.randint(1, 4)
            self.deeds.append((at_s, f"foreign on {node}", lambda s: s.world.set_foreign(node, gpus)))
            self.deeds.append((back_s, f"foreign leaves {node}", lambda s: s.world.set_foreign(node, 0)))

    def _fault(self) -> None:
        pick, verb = self.random, self.random.choice(VERBS)
        faults = [
            Raise(TryLater("busy", pick.uniform(0.1, 5))),
            LoseReply(),
            Drop(),
            Delay(pick.uniform(0.1, 5)),
            Raise(FixConfiguration("no rights", "grant them")),
        ]
        fault = pick.choice(faults if verb != "observe" else faults[:1])
        times = pick.randint(1, 4)
        self.deeds.append((self._time(), f"{verb} fails", lambda s: s.faults.on(verb, fault, times=times)))


def assert_ends_well(folder: Path, seed: int) -> None:
    """One story to its end, with its kills; then everything must hold."""
    story = Story(seed)
    site = MortalSite(folder, Boundaries(story.kills.pop(0) if story.kills else None), policy=story.policy)
    start_s, coming = site.time.now, list(story.deeds)
    try:
        while coming or any(record.live for record in site.core.ledger.jobs.values()):
            left = [r for r in site.core.ledger.jobs.values() if r.live]
            assert site.time.now - start_s < 4000, f"still there: {left}"
            try:
                while coming and site.time.now - start_s >= coming[0][0]:
                    coming[0][2](site)
                    coming.pop(0)
                site.driver.tick()
            except Kill:
                site.close()
                site.time.now += story.random.uniform(0.0, 20.0)
                site.boundaries.count, site.boundaries.die_at = 0, story.kills.pop(0) if story.kills else None
                site.open()
                continue
            site.time.now += 0.25
        check(site.world, site.journal.path, story.ends)
    except BaseException as error:
        error.add_note(f"seed {seed}: {[f'{at:.1f} {what}' for at, what, _ in story.deeds]}")
        raise
    finally:
        site.close()
