"""Figures and tables of the papers, as `horae reproduce` gives them, checked by their own inputs."""

from __future__ import annotations

import pytest

from horae.sim.reproductions.catalogue import every, find, reproduce
from policy.model import BadInput


def test_all_are_listed_with_what_they_are() -> None:
    for name, one in every().items():
        assert name.startswith(f"{one.paper}-")
        assert one.what.endswith(".")


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(BadInput, match="did you mean oef-fig-6"):
        find("oef-fig-66")


@pytest.mark.parametrize("name", ["gandiva-fair-fig-1d", "gandiva-fair-table-3"])
def test_those_that_come_out_as_printed(name: str) -> None:
    found = reproduce(name)
    assert (found["verdict"], found["why"]) == ("reproduced", "")
    assert found["paper"].keys() == found["here"].keys()


def test_table_2_is_exact_for_stride_and_says_that_backfill_differs() -> None:
    found = reproduce("gandiva-fair-table-2")
    assert found["here"]["stride"] == found["paper"]["stride"]
    assert found["verdict"] == "differs"
    assert "backfill" in found["why"]


def test_oef_4_follows_from_its_inputs() -> None:
    found = reproduce("oef-fig-4")
    honest, lied = found["here"]["honest"], found["here"]["lied"]
    assert honest == pytest.approx([honest[0]] * 4, abs=1e-5)
    assert lied[0] < honest[0] < min(lied[1:])


def test_oef_6_is_the_shares_times_the_speedups_and_nobody_envies() -> None:
    found = reproduce("oef-fig-6")
    speedups, shares, throughput = found["inputs"]["speedups"], found["here"]["shares"], found["here"]["throughput"]
    for mine, row in zip(speedups, throughput, strict=True):
        assert row == pytest.approx(
            [sum(s * x for s, x in zip(mine, share, strict=True)) for share in shares], abs=1e-5
        )
    assert all(row[n] >= max(row) - 1e-5 for n, row in enumerate(throughput))
    assert [sum(column) for column in zip(*shares, strict=True)] == pytest.approx(found["inputs"]["gpus"], abs=1e-5)
