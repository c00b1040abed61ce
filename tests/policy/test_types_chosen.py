"""What jobs say of GPU types is kept to by every policy; a preference where the policy leaves the type open."""

from __future__ import annotations

import pytest

from policy.decide import decide
from policy.model import Code
from policy.text import instance
from tests.policy.worlds import NAMES

CLUSTER = """
cluster: {groups: [{count: 1, gpu_type: v100, gpus: 4}, {count: 1, gpu_type: k80, gpus: 4}]}
jobs:
"""
SPEEDS = "throughput: {v100: {1: 2, 2: 4, 4: 8}, k80: {1: 1, 2: 2, 4: 4}}, work: {total: 1000}"
#: Policies that choose sizes and leave types to the placement (docs/faq.md).
OPEN = ("drf", "fifo", "fifo-backfill", "las", "srsf", "srsf-e", "srtf", "srtf-e", "tiresias-l")


def world(*jobs: str) -> str:
    return CLUSTER + "".join(
        f"  - {{name: {name}, {SPEEDS}, gpus: {words}}}\n" for name, words in zip("abc", jobs, strict=False)
    )


@pytest.mark.parametrize("speeds", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("policy", NAMES)
def test_what_is_required_and_forbidden_is_kept_to(policy: str, speeds: bool) -> None:
    text = world("2, gpu_types: {forbid: [v100]}", "{min: 1, max: 8}, gpu_types: {forbid: [k80]}",
                 "2, gpu_types: {require: [k80]}")  # fmt: skip
    found = decide(instance.parse(text if speeds else text.replace(SPEEDS, "work: {total: 1000}")), policy)
    assert {job: set(nodes) for job, nodes in found.allocation.items() if nodes} == {
        job: {"k80-1" if job != "b" else "v100-1"} for job, nodes in found.allocation.items() if nodes
    }
    assert found.certificate is None or found.certificate.feasible


@pytest.mark.parametrize("policy", NAMES)
def test_a_type_that_is_not_there_or_forbidden_everywhere_is_infeasible(policy: str) -> None:
    text = world("1, gpu_types: {require: [a100]}", "1, gpu_types: {forbid: [v100, k80]}", "1")
    found = decide(instance.parse(text), policy)
    assert not found.allocation["a"]
    assert not found.allocation["b"]
    assert {found.reasons[job].code for job in ("a", "b")} == {Code.INFEASIBLE}


@pytest.mark.parametrize(
    ("choice", "ways"),
    [
        ("require: [V100]", "other GPU types (here: v100, k80)"),
        ("require: [V100], forbid: [k80]", "other GPU types (here: v100)"),
        ("forbid: [v100, k80]", "other GPU types"),
    ],
)
def test_who_names_a_type_that_is_not_there_is_told_those_that_are(choice: str, ways: str) -> None:
    found = decide(instance.parse(world(f"1, gpu_types: {{{choice}}}", "1")), "max-min")
    assert set(found.reasons["a"].change.split(", or ")[1:]) == {ways}


@pytest.mark.parametrize("speeds", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("policy", NAMES)
def test_shares_are_of_types_that_a_job_may_run_on(policy: str, speeds: bool) -> None:
    """A tenant that was owed the type that its job must not have waited for its turn for ever."""
    text = world("{min: 1, max: 8}, gpu_types: {require: [k80]}, tenant: ann", "{min: 1, max: 8}, tenant: ben",
                 "{min: 1, max: 8}, tenant: cay")  # fmt: skip
    shares = decide(instance.parse(text if speeds else text.replace(SPEEDS, "work: {total: 1000}")), policy).shares
    assert shares is None or {t for t, x in shares["a"].items() if x > 0} == {"k80"}


@pytest.mark.parametrize("policy", OPEN)
def test_a_preference_is_followed_where_there_is_room(policy: str) -> None:
    found = decide(instance.parse(world("2, gpu_types: {prefer: [k80]}")), policy)
    assert found.allocation == {"a": {"k80-1": 2}}
    taken = CLUSTER.replace("gpu_type: k80, gpus: 4", "gpu_type: k80, gpus: 1")
    full = world("2, gpu_types: {prefer: [k80]}").replace(CLUSTER, taken)
    assert decide(instance.parse(full), policy).allocation == {"a": {"v100-1": 2}}


@pytest.mark.parametrize("policy", NAMES)
def test_a_job_of_unknown_speed_is_on_the_type_that_it_holds_else_on_the_newest_with_room(policy: str) -> None:
    """To programs and auctions the types were a tie, which they broke for the oldest; all others for the newest."""
    text = CLUSTER.replace("jobs:", "  gpu_types: [k80, v100]\njobs:").replace("cluster: {", "cluster:\n  ")
    text = text.replace("}]}\n", "}]\n")
    alone = "  - {name: a, gpus: 2, submitted: 5, work: {total: 1000}"
    other = f"  - {{name: b, {SPEEDS}, gpus: 4, gpu_types: {{require: [v100]}}, allocation: {{v100-1: 4}}}}\n"
    assert decide(instance.parse(text + alone + "}\n"), policy).allocation["a"] == {"v100-1": 2}
    holds = decide(instance.parse(text + alone + ", allocation: {k80-1: 2}}\n"), policy)
    assert holds.allocation["a"] == {"k80-1": 2}
    full = decide(instance.parse(text + alone + "}\n" + other), policy)
    assert full.allocation["a"] == {"k80-1": 2}
    assert full.allocation["b"] == {"v100-1": 4}
    assert "k80-1" in full.reasons["a"].text or "v100" not in full.reasons["a"].text
