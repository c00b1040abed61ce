"""The arbiter is killed at every boundary of offer, bid and win, and its successor finishes what was acknowledged."""

from __future__ import annotations

from pathlib import Path

from horae.arbiter.requests.agents import Agents
from horae.journal import Kind
from horae.journal.store import rebuilt
from horae.port import JobState
from policy.decide import decide
from policy.model import BadInput, Node
from tests.horae.arbiter.killing import Boundaries, Deed, MortalSite, check, play, submission
from tests.horae.arbiter.site import ANN, BEN

APP = "ann/tune"
NODES = (Node("n1", "v100", 2), Node("n2", "v100", 2))
RATES = {"throughput": {"v100": {1: 2.0}}}
ENDS = dict.fromkeys(("a", "b", "other"), JobState.COMPLETED)
PARTS = ("agent", "offered", "bid", "settled")


def story(acknowledged: set[int]) -> list[Deed]:
    """Two apps; the agent of one looks every half second, and bids on what it has not bid on yet."""

    def looks(site: MortalSite) -> None:
        agents = Agents(site.core)
        try:
            agents.register("tune", ANN)
            offer = agents.offer("tune", ANN)["offer"]
            if offer is not None and not offer["came"]:
                node = next(iter(offer["gpus"]))
                agents.bid("tune", offer["number"], [{"nodes": {node: 1}, "rho": 0.5}], ANN)
                acknowledged.add(offer["number"])
        except BadInput:  # it has no jobs yet, or none any more
            return

    arrivals: list[Deed] = [
        (0.0, "a arrives", submission("a", (1, 2), 20, app="tune", **RATES)),
        (0.0, "b arrives", submission("b", (1, 2), 30, app="tune", **RATES)),
        (0.0, "other arrives", submission("other", (1, 2), 30, BEN, **RATES)),
    ]
    return [*arrivals, *((0.5 * i, "the agent looks", looks) for i in range(40))]


def site(folder: Path, boundaries: Boundaries) -> MortalSite:
    pool = {"name": "p", "policy": "themis", "options": {"lease": 4.0, "fairness_knob": 0.0}}
    return MortalSite(folder, boundaries, policy=decide, nodes=NODES, pools=[pool], rounds={"bid_s": 2.0})


def played(folder: Path, boundaries: Boundaries) -> None:
    acknowledged: set[int] = set()
    this = site(folder, boundaries)
    try:
        play(this, story(acknowledged))
        check(this.world, this.journal.path, ENDS)
        assert rebuilt(this.journal.path) == this.core.ledger
        settled = {e.data["number"]: e.data["apps"] for e in this.journal.history(kinds=[Kind.SETTLED])}
        offered = [e.data["number"] for e in this.journal.history(kinds=[Kind.OFFERED])]
        assert offered == sorted(set(offered)), "no number is given twice"
        assert acknowledged
        for number in acknowledged & settled.keys():
            assert settled[number][APP]["came"], f"the bid on offer {number} was acknowledged and lost"
    finally:
        this.close()


def test_killed_at_every_boundary_of_an_offer(tmp_path: Path) -> None:
    whole = Boundaries()
    played(tmp_path / "whole", whole)
    chosen = [
        i for i, name in enumerate(whole.names) if any(f" {part}" in name or f"+{part}" in name for part in PARTS)
    ]
    assert all(any(part in whole.names[i] for i in chosen) for part in PARTS), whole.names
    for at in chosen[:16]:
        try:
            played(tmp_path / str(at), Boundaries(die_at=at))
        except BaseException as error:
            error.add_note(f"killed at boundary {at}: {whole.names[at]}")
            raise
