"""What makes a resize invisible: shares, weights, and an order of samples that no gang's size changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.elastic.sdk.batches import Sampler, derived_seed, micro_batches, share_of


@given(batch=st.integers(1, 200), world=st.integers(1, 40))
def test_shares_are_disjoint_whole_and_even(batch: int, world: int) -> None:
    shares = [share_of(batch, rank, world) for rank in range(world)]
    assert [i for share in shares for i in share] == list(range(batch))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(batch=st.integers(1, 200), world=st.integers(1, 16), largest=st.none() | st.integers(1, 20))
def test_weighted_micro_batches_give_the_global_mean(batch: int, world: int, largest: int | None) -> None:
    """Mean over ranks of the weighted micro-batch means = the mean over the global batch, for any split."""
    if batch < world:
        with pytest.raises(ValueError, match=r"gpus\.max to at most"):
            micro_batches(range(batch), 0, world, largest)
        return
    values = [(i * 37 % 101) / 7.0 for i in range(batch)]
    averaged, summed, seen = 0.0, 0.0, []
    for rank in range(world):
        for part in micro_batches(list(range(batch)), rank, world, largest):
            assert part.indices
            assert largest is None or len(part.indices) <= largest
            seen += list(part.indices)
            mean = sum(values[i] for i in part.indices) / len(part.indices)
            averaged += part.weight * mean / world
            summed += part.fraction * mean
    assert sorted(seen) == list(range(batch))
    assert averaged == pytest.approx(sum(values) / batch)
    assert summed == pytest.approx(sum(values) / batch)


def test_the_order_of_samples_is_fixed_by_the_seed_alone() -> None:
    """Literal values: another Python or another day must give the same order, or a resumed run would differ."""
    assert Sampler(10, seed=7).batch(0, 10) == [8, 2, 6, 3, 4, 7, 9, 1, 0, 5]
    assert Sampler(10, seed=7).batch(10, 5) != Sampler(10, seed=7).batch(0, 5)
    assert Sampler(10, seed=8).batch(0, 10) != Sampler(10, seed=7).batch(0, 10)
    assert derived_seed(7, 1, 2) == derived_seed(7, 1, 2) != derived_seed(7, 2, 1)


@given(samples=st.integers(1, 50), start=st.integers(0, 200), size=st.integers(1, 60), cut=st.integers(0, 60))
def test_a_sequence_read_in_pieces_is_the_sequence(samples: int, start: int, size: int, cut: int) -> None:
    cut = min(cut, size)
    whole = Sampler(samples, seed=1).batch(start, size)
    pieces = Sampler(samples, seed=1)
    assert pieces.batch(start, cut) + pieces.batch(start + cut, size - cut) == whole


@given(samples=st.integers(1, 50), passes=st.integers(0, 3))
def test_every_pass_sees_every_sample_once(samples: int, passes: int) -> None:
    assert sorted(Sampler(samples, seed=3).batch(passes * samples, samples)) == list(range(samples))


def test_without_shuffling_the_order_is_the_data_sets_own() -> None:
    assert Sampler(4, shuffle=False).batch(2, 5) == [2, 3, 0, 1, 2]


def test_an_empty_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="0 samples"):
        Sampler(0)
