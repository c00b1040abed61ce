"""A tenant's cap, from the configuration: never more at once, said where it keeps a job waiting, and nobody's share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from horae.arbiter.round import question
from horae.config import parse
from horae.journal import JobRecord, Ledger
from horae.port import JobState
from horae.views import jobs
from horae.views.watch import explained
from policy.decide import decide
from policy.model import BadInput, Node
from tests.horae.arbiter.site import ANN, BEN, ROOT, Site, spec


def site_with(folder: Path, cap: int) -> Site:
    tenants = [{"name": "ann", "cap": cap}, {"name": "ben"}]
    return Site(folder, nodes=[Node("n1", "v100", 4), Node("n2", "v100", 4)], policy=decide, tenants=tenants)


def held(site: Site, *names: str) -> int:
    return sum(sum(site.job(name).allocation.values()) for name in names)


def test_it_is_held_also_while_gpus_are_idle(tmp_path: Path) -> None:
    site = site_with(tmp_path, 3)
    first, second = site.commands.submit([spec("a", (1, 8), steps=10**6), spec("b", (1, 8), steps=10**6)], ANN)
    site.until(first, JobState.RUNNING)
    site.until(second, JobState.RUNNING)
    site.run(300)
    assert held(site, first, second) == 3
    limit = next(cause for cause in explained(site.core, first).causes if cause.what == "limit")
    assert limit.text == "its tenant ann may hold 3 GPUs at once (its cap) and holds 3"
    assert limit.change == "a higher cap, by an operator, or other jobs of the tenant that end or shrink"
    assert site.core.view is not None
    nodes = site.core.view.observation.nodes
    ann = jobs.tenants(site.core.ledger, site.config, nodes, site.core.now_s())[0]
    assert (ann["cap"], ann["fair"], ann["held"]) == (3, 3, 3)


def test_a_job_that_needs_more_waits_and_the_others_run(tmp_path: Path) -> None:
    site = site_with(tmp_path, 3)
    (large,) = site.commands.submit([spec("large", 4)], ANN)
    (other,) = site.commands.submit([spec("other", (1, 8), steps=10**6)], BEN)
    site.until(other, JobState.RUNNING)
    site.run(300)
    assert (held(site, large), held(site, other)) == (0, 8)
    causes = {cause.what: cause for cause in explained(site.core, large).causes}
    assert causes["limit"].change == "a higher cap, by an operator, or a smaller minimum"
    assert causes["policy"].text == "its tenant ann may take 3 GPUs more; it needs 4"
    assert causes["policy"].change == "a higher limit, or a smaller minimum"


def test_what_is_being_cancelled_counts_until_it_has_gone(tmp_path: Path) -> None:
    site = site_with(tmp_path, 3)
    (leaves,) = site.commands.submit([spec("leaves", 2, steps=10**6, extra={"fake.stop_s": "8"})], ANN)
    site.until(leaves, JobState.RUNNING)
    (comes,) = site.commands.submit([spec("comes", 2)], ANN)
    site.commands.cancel(leaves, ANN)
    site.run(3)
    assert site.core.view is not None
    (ann,) = question(site.core.ledger, site.config.pools[0], site.core.view).snapshot.tenants
    assert ann.cap == 1
    site.until(comes, JobState.RUNNING)


@pytest.mark.parametrize("tenants", [2, 20])
def test_all_caps_are_found_in_one_walk_through_the_jobs(
    tmp_path: Path, tenants: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{i}" for i in range(tenants)]
    site = Site(tmp_path, policy=decide, tenants=[{"name": name, "cap": 1} for name in names])
    site.commands.submit([spec(name, owner=name, tenant=name) for name in names], ROOT)
    site.run(2)
    assert site.core.view is not None
    walks, astir = list[str | None](), Ledger.astir

    def counted(ledger: Ledger, pool: str | None = None) -> Iterable[JobRecord]:
        walks.append(pool)
        return astir(ledger, pool)

    monkeypatch.setattr(Ledger, "astir", counted)
    found = question(site.core.ledger, site.config.pools[0], site.core.view).snapshot.tenants
    assert [(tenant.name, tenant.cap) for tenant in found] == [(name, 1) for name in sorted(names)]
    assert len(walks) == 2  # for the caps, and for what others hold of the nodes


def test_it_is_a_number_of_gpus() -> None:
    with pytest.raises(BadInput, match="cap"):
        parse("state_dir: /x\ncluster: {adapter: fake}\ntenants: [{name: ann, cap: -1}]\n")
