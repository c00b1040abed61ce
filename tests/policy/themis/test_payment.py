"""What the winners of an auction of Themis pay, and how the draw between two whole numbers goes."""

from __future__ import annotations

from math import inf

import pytest

from policy.themis.auction.payment import pay
from tests.policy.themis.worlds import job, nodes, rounds, world


def test_the_share_kept_is_what_others_lose() -> None:
    """Two equal apps, linear speed-up, four GPUs: two each, and each would have left the other all four."""
    jobs = [job(n, (1, 4), total=100.0) for n in ("a", "b")]
    this = rounds(world(nodes(1, 4), jobs))
    assert this.outcome is not None
    assert this.outcome.wins == {"a": {"n0": 2}, "b": {"n0": 2}}
    assert this.outcome.kept_fraction == pytest.approx({"a": 0.5, "b": 0.5})
    assert this.payments["a"].expected == pytest.approx(0.5 / this.standings["a"].agent.rho({"n0": 2}))
    assert sum(sum(b.values()) for b in this.bundles.values()) == 4  # leftovers come back: nothing idles


def test_nobody_pays_where_nobody_is_in_the_way() -> None:
    this = rounds(world(nodes(2, 4), [job("a", (1, 4)), job("b", (1, 4))]))
    assert this.outcome is not None
    assert this.outcome.kept_fraction == {"a": 1.0, "b": 1.0}
    assert this.outcome.solves == 1  # no solve without a winner was needed


def test_floor_is_the_largest_gang_below_the_share() -> None:
    rho = {1: 4.0, 2: 2.0, 3: inf, 4: 1.0}
    for fraction, kept in ((1.0, 4), (0.99, 2), (0.75, 2), (0.5, 2), (0.49, 1), (0.24, 0)):
        from random import Random

        paid = pay({"n": 4}, {}, {"n": ""}, fraction, 0.1, lambda b: rho[b["n"]], "floor", Random(0))
        assert sum(paid.kept.values()) == kept


def test_the_draw_has_the_expected_value() -> None:
    """Ten thousand draws come within three standard errors of c times the value of the win."""
    from random import Random

    random = Random(1)
    values = []
    for _ in range(10_000):
        paid = pay({"n": 4}, {}, {"n": ""}, 0.6, 0.1, lambda b: 4 / b["n"], "randomised", random)
        values.append(sum(paid.kept.values()) / 4)
    mean = sum(values) / len(values)
    spread = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
    assert set(values) == {0.5, 0.75}
    assert abs(mean - 0.6) < 3 * spread / 100


@pytest.mark.parametrize("share", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("fraction", [0.05, 0.37, 0.6, 1.0])
def test_the_expectation_is_exact_however_coarsely_the_win_is_cut(share: float, fraction: float) -> None:
    from random import Random

    paid = pay({"n": 160}, {}, {"n": ""}, fraction, 0.0, lambda b: 1 / b["n"], "randomised", Random(0), share)
    assert paid.exact
    assert sum(gpus * chance for gpus, chance in paid.choices) == pytest.approx(fraction * 160)


def test_gpus_go_back_from_the_least_local_node() -> None:
    from random import Random

    rack = {"a": "r", "b": "r", "c": "s"}
    won = {"a": 3, "b": 2, "c": 3}
    paid = pay(won, {}, rack, 0.5, 0.0, lambda b: 8 / sum(b.values()), "floor", Random(0))
    assert paid.kept == {"a": 3, "b": 1}


def test_a_lease_can_be_worth_more_than_what_is_due() -> None:
    """With most of the value under lease, giving back all of the win is still too little: kept as far as it goes."""
    from random import Random

    paid = pay({"n": 1}, {"n": 3}, {"n": ""}, 0.5, 1 / (4 / 3), lambda b: 4 / (3 + b["n"]), "randomised", Random(0))
    assert paid.kept == {}
    assert not paid.exact
    assert paid.expected > paid.due


def test_of_equals_that_hold_nothing_the_winner_of_a_gang_may_keep_it() -> None:
    """The gang's worth is nothing without it, so it is kept with probability c: what the auction puts in the place of
    an unbounded rho is no value to fall back on. (Counted as one, c of the win was worth less, and all went back.)"""
    this = rounds(world(nodes(1, 4), [job("a", 4), job("b", 4)]))
    assert this.outcome is not None
    ((winner, payment),) = this.payments.items()
    c = this.outcome.kept_fraction[winner]
    assert 0 < c < 1
    assert dict(payment.choices) == pytest.approx({0: 1 - c, 4: c})
