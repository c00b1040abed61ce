"""What is left of a decision after vetoes always fits, and changes no more than it must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.arbiter.admit.repair import Offer, repair
from policy.model import Allocation
from tests.horae.arbiter.allocations import NODES, allocations


@settings(max_examples=400, deadline=None)
@given(st.data(), st.integers(1, 6))
def test_targets_fit_and_vetoed_jobs_keep_what_they_hold(data: st.DataObject, jobs: int) -> None:
    order = [f"j{i}" for i in range(jobs)]
    held = data.draw(st.composite(allocations)(order), label="held")
    targets = data.draw(st.composite(allocations)(order), label="targets")
    running = [j for j in order if held[j]]
    vetoed = frozenset(data.draw(st.lists(st.sampled_from(running), unique=True)) if running else [])
    soft = data.draw(st.lists(st.sampled_from(running), unique=True)) if running else []
    fit = repair(order, targets, held, capacity=NODES, vetoed=vetoed, stay={j: held[j] for j in soft})
    used: Counter[str] = Counter()
    for job, target in fit.targets.items():
        used.update(target)
        assert target in (held[job], targets[job], {}), "a size nobody asked for"
        if job in vetoed:
            assert target == held[job]
        if not target and targets[job]:
            assert not held[job], "a running job lost its GPUs to a veto"
    assert all(gpus <= NODES[node] for node, gpus in used.items())
    if not vetoed:
        assert all(fit.targets[j] == targets[j] for j in order if j not in soft)
        assert not fit.stepped_back


def test_who_could_not_start_on_its_new_place_keeps_the_old_one() -> None:
    """Of two that wanted the GPUs of one that stays the later was stopped for its part, and then refused it."""
    held: dict[str, Allocation] = {"stays": {"a": 2}, "late": {"a": 2}}
    targets: dict[str, Allocation] = {"stays": {}, "early": {"a": 3}, "late": {"a": 1, "b": 1}}
    fit = repair(["early", "late", "stays"], targets, held, capacity=NODES, vetoed=frozenset({"stays"}))
    assert fit.targets == {"stays": {"a": 2}, "early": {}, "late": {"a": 2}}


def test_without_vetoes_a_decision_stands() -> None:
    fit = repair(["x", "y"], {"x": {"a": 4}, "y": {"b": 2}}, {"x": {"b": 4}}, capacity=NODES, vetoed=frozenset())
    assert fit.targets == {"x": {"a": 4}, "y": {"b": 2}}


def test_a_waiting_job_steps_back_before_a_running_one() -> None:
    held: dict[str, Allocation] = {"stays": {"a": 2}, "grows": {"a": 1}}
    targets: dict[str, Allocation] = {"stays": {}, "grows": {"a": 2}, "new": {"a": 2}}
    fit = repair(["grows", "new", "stays"], targets, held, capacity=NODES, vetoed=frozenset({"stays"}))
    assert fit.targets == {"grows": {"a": 2}, "new": {}, "stays": {"a": 2}}
    assert fit.stepped_back == {"new": ("stays",)}


def test_who_lost_its_place_is_offered_another() -> None:
    def place(settled: Mapping[str, Allocation]) -> Offer:
        assert settled["stays"] == {"a": 4}
        return lambda job, most: {"c": min(most, 2)}

    targets: dict[str, Allocation] = {"stays": {}, "new": {"a": 4}}
    held: dict[str, Allocation] = {"stays": {"a": 4}}
    fit = repair(["stays", "new"], targets, held, capacity=NODES, vetoed=frozenset({"stays"}), place=place)
    assert fit.targets == {"stays": {"a": 4}, "new": {"c": 2}}


def test_a_move_of_little_use_is_made_when_it_makes_room() -> None:
    held: dict[str, Allocation] = {"mover": {"a": 2}}
    alone = repair(["mover"], {"mover": {"b": 2}}, held, capacity=NODES, vetoed=frozenset(), stay=held)
    assert alone.targets == {"mover": {"a": 2}}
    targets: dict[str, Allocation] = {"mover": {"b": 2}, "wide": {"a": 4}}
    room = repair(["mover", "wide"], targets, held, capacity=NODES, vetoed=frozenset(), stay=held)
    assert room.targets == targets
    assert room.overruled == {"mover"}


def test_who_lost_its_place_to_a_gang_that_only_has_to_stand_first_waits_and_so_who_follows_it() -> None:
    held: dict[str, Allocation] = {"forms": {"a": 4}, "runs": {"b": 2}, "other": {"c": 2}}
    targets: dict[str, Allocation] = {
        "forms": {"c": 4},
        "runs": {"a": 2},
        "new": {"b": 4},
        "other": {},
        "last": {"c": 2},
    }

    def place(settled: Mapping[str, Allocation]) -> Offer:
        return lambda job, most: {"z": most}

    order = ["forms", "runs", "other", "new", "last"]
    fit = repair(
        order, targets, held, capacity=NODES, vetoed=frozenset({"forms"}), soon=frozenset({"forms"}), place=place
    )
    assert fit.targets == {"forms": {"a": 4}, "runs": {"b": 2}, "other": {}, "new": {}, "last": {"c": 2}}
    vetoed = frozenset({"forms"})
    assert repair(order, targets, held, capacity=NODES, vetoed=vetoed, place=place).targets["new"] == {"z": 4}


def test_all_who_lost_their_places_are_offered_others_however_they_did() -> None:
    """One that stays sends a mover back, and that sends a third away: not only the third is offered what is free."""
    held: dict[str, Allocation] = {"mover": {"a": 1}, "v": {"b": 1}, "u": {"c": 1}}
    targets: dict[str, Allocation] = {"third": {"a": 1}, "mover": {"b": 1}, "new": {"c": 1}, "v": {}, "u": {}}
    offered = []

    def place(_settled: Mapping[str, Allocation]) -> Offer:
        return lambda job, gpus: offered.append((job, gpus)) or {}  # type: ignore[func-returns-value]

    order = ["third", "mover", "new", "v", "u"]
    nodes = {"a": 1, "b": 1, "c": 1}
    fit = repair(order, targets, held, capacity=nodes, vetoed=frozenset({"v", "u"}), place=place)
    assert fit.stepped_back == {"mover": ("v",), "new": ("u",), "third": ("mover",)}
    assert offered == [("third", 1), ("new", 1)]


class Counted(dict[str, Allocation]):
    """Allocations that count how often somebody looks at one."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


@pytest.mark.parametrize("kept", [2, 50])
def test_each_job_is_looked_at_a_few_times_however_many_are_vetoed(kept: int) -> None:
    jobs = 2000
    order, nodes = [f"j{i}" for i in range(jobs)], {f"n{i}": 8 for i in range(jobs // 8)}
    held = Counted({job: {f"n{i // 8}": 1} for i, job in enumerate(order)})
    changed = Random(1).sample(order, jobs)
    targets = {job: held[other] for job, other in zip(order, changed, strict=True)}
    fit = repair(order, targets, held, capacity=nodes, vetoed=frozenset(order[::kept]))
    assert len(fit.stepped_back) > jobs // 4
    assert held.looks < 10 * jobs
