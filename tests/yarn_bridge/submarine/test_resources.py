"""The resource grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model import BadInput
from yarn_bridge.submarine.given import Given
from yarn_bridge.submarine.resources import FPGA, Resources, parse
from yarn_bridge.submarine.table import BY_NAME


def read(text: str) -> Resources:
    return parse(Given(BY_NAME["worker_resources"], text, "--worker_resources"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory=4G,vcores=2,gpu=1", Resources(4096, 2, 1)),
        ("[memory=4g, vcores=2, yarn.io/gpu=3]", Resources(4096, 2, 3)),
        ("memory-mb=2048,vcores=2", Resources(2048, 2)),
        ("memory-mb=2G,VCORES=2", Resources(2048, 2)),
        ("Memory=512 M,vcores=1,fpga=1", Resources(512, 1, 0, {FPGA: 1})),
        ("vcores=1,memory=1m,yarn.io/fpga=2,site/nic=1", Resources(1, 1, 0, {FPGA: 2, "site/nic": 1})),
    ],
)
def test_what_submarine_read_is_read(text: str, expected: Resources) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory=2048,vcores=1", "bytes"),
        ("memory=4T,vcores=1", "units are M and G"),
        ("memory=4G,vcores=2G", "a count has no unit"),
        ("memory=4G,vcores=1,gpu=1M", "a count has no unit"),
        ("memory=4G", "says no vcores"),
        ("vcores=1", "says no memory"),
        ("memory=0G,vcores=1", "says no memory"),
        ("memory=4G,vcores=1,gpu=1,yarn.io/gpu=1", "stands twice"),
        ("memory=4G,memory-mb=4096,vcores=1", "stands twice"),
        ("[memory=4G,vcores=1", "bracket"),
        ("memory=4G,vcores=1]", "bracket"),
        ("memory=4G,,vcores=1", "is no KEY=AMOUNT"),
        ("memory=-1G,vcores=1", "is no KEY=AMOUNT"),
        ("memory=1.5G,vcores=1", "is no KEY=AMOUNT"),
        ("memory:4G,vcores=1", "is no KEY=AMOUNT"),
        ("memory=4G,vcores=99999999999", "more than YARN can count"),
        ("", "is no KEY=AMOUNT"),
        ("[]", "is no KEY=AMOUNT"),
    ],
)
def test_what_would_mean_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        read(text)
    assert (caught.value.field, caught.value.value) == ("--worker_resources", text)
    assert caught.value.remedy


amounts = st.integers(1, 2**20)


@given(amounts, st.sampled_from("MmGg"), amounts, st.integers(0, 64), st.booleans(), st.randoms())
def test_order_case_and_brackets_mean_nothing(
    memory: int, unit: str, vcores: int, gpus: int, brackets: bool, dice: object
) -> None:
    pairs = [f"memory={memory}{unit}", f"vcores={vcores}", f"gpu={gpus}"]
    dice.shuffle(pairs)  # type: ignore[attr-defined]
    text = " , ".join(pairs)
    found = read(f"[{text}]" if brackets else text)
    assert found == Resources(memory * (1024 if unit in "Gg" else 1), vcores, gpus)
    assert read(found.text) == found


@given(st.text(alphabet="memoryvcorsgpu=,[]0123456789MGk .-/", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read(text)
    except BadInput as error:
        assert error.remedy
    else:
        assert found.memory_mb > 0
        assert read(found.text) == found
