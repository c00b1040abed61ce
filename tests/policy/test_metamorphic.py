"""What a decision must not depend on, under every policy, on snapshots that mix all that a snapshot can say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from policy import catalogue
from policy.model import Snapshot
from tests.policy import metamorphic
from tests.policy.crowds import crowd
from tests.policy.mixtures import mixtures

POLICIES = sorted(catalogue.entries())
RANDOM = settings(
    deadline=None,
    max_examples=4,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

Change = Callable[[Snapshot], tuple[Snapshot, metamorphic.Translate]]


def name(change: Change) -> str:
    return change.__name__


@pytest.mark.parametrize("change", metamorphic.ANYWHERE, ids=name)
@RANDOM
@given(snapshot=mixtures())
def test_what_has_no_claim_and_what_has_another_name_changes_nothing(change: Change, snapshot: Snapshot) -> None:
    for policy in POLICIES:
        metamorphic.check(snapshot, policy, change)


@pytest.mark.parametrize("change", metamorphic.OF_KNOWN, ids=name)
@RANDOM
@given(snapshot=mixtures())
def test_of_what_is_known_the_units_change_nothing(change: Change, snapshot: Snapshot) -> None:
    for policy in POLICIES:
        metamorphic.check(metamorphic.all_known(snapshot), policy, change)


@pytest.mark.parametrize("seed", (200, 202, 203))
def test_nor_on_crowded_clusters(seed: int) -> None:
    snapshot = crowd(seed)
    for policy in POLICIES:
        for change in metamorphic.ANYWHERE:
            metamorphic.check(snapshot, policy, change)
        for change in metamorphic.OF_KNOWN:
            metamorphic.check(metamorphic.all_known(snapshot), policy, change)
