"""What an app weighs in a living cluster: cutting a sweep into many apps buys nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.decide.snapshot import options_of
from horae.config import Pool
from horae.views.explain import explain
from policy import catalogue
from policy.contract import Context
from policy.decide import propose
from policy.throughput import Throughput
from policy.trials.rounds import after
from tests.horae.arbiter.site import ANN, BEN, Site, spec
from tests.policy.themis.worlds import job, nodes, world

TRIALS, ROUNDS, LEASE_S = 6, 15, 60.0


def part(weigh: str, knob: float, *, split: bool) -> float:
    """The part of four GPUs' time that a tenant with six trials gets beside one with as many in one app."""
    jobs = []
    for tenant in ("mine", "theirs"):
        for i in range(TRIALS):
            app = f"mine/{i}" if split and tenant == "mine" else f"{tenant}/sweep"
            jobs.append(job(f"{tenant}{i}", 1, total=3000.0, tenant=tenant, app=app, submitted=float(i % 2)))
    snapshot = world(nodes(1, 4), jobs, now=10.0)
    entry = catalogue.find("themis")
    options = entry.resolve({"weigh": weigh, "lease": LEASE_S, "fairness_knob": knob})
    speeds = Throughput(snapshot.cluster)
    held = {"m": 0, "t": 0}
    for _ in range(ROUNDS):
        proposal = propose(snapshot, entry, options, Context(speeds, 0))
        for name, where in proposal.allocation.items():
            held[name[0]] += sum(where.values())
        snapshot = after(snapshot, proposal, LEASE_S, speeds)
    return held["m"] / sum(held.values())


@pytest.mark.parametrize("knob", [0.0, 0.5, 0.8])
def test_splitting_a_sweep_into_many_apps_buys_nothing(knob: float) -> None:
    weigh = options_of(Pool(policy="themis"))["weigh"]
    whole = part(weigh, knob, split=False)
    assert part(weigh, knob, split=True) <= whole + 0.02


def test_with_the_plain_count_it_would() -> None:
    assert part("apps", 0.0, split=True) > part("apps", 0.0, split=False) + 0.2


def test_the_papers_count_is_an_option_and_other_policies_are_left_alone() -> None:
    assert options_of(Pool(policy="themis", options={"weigh": "apps", "lease": 5.0})) == {"weigh": "apps", "lease": 5.0}
    assert options_of(Pool(policy="max-min")) == {}


@pytest.mark.parametrize(("options", "weight"), [({}, 0.5), ({"weigh": "apps"}, None)])
def test_explain_says_what_an_app_weighs(tmp_path: Path, options: dict[str, Any], weight: float | None) -> None:
    pool = {"name": "p", "policy": "themis", "options": options}
    tenants = [{"name": "ann", "weight": 2.0}, {"name": "ben"}]
    site = Site(tmp_path, pools=[pool], tenants=tenants)
    site.commands.submit([spec(f"{app}{i}", app=app) for app in "abcd" for i in range(2)], ANN)
    site.commands.submit([spec("other")], BEN)
    site.run(3.0)
    assert site.core.decisions["p"].policy == "themis"
    told = explain(site.core.ledger, site.config, site.job("1"), site.core.now_s())
    (cause,) = [c for c in told.causes if c.what == "app"]
    assert cause.numbers.get("weight") == weight
    assert ("weight 2 of ann over 4 active apps" in cause.text) is (weight is not None)
