"""What a sweep over snapshots from seeds (`sweep.py`) found once, and a few seeds of it at every run."""

from __future__ import annotations

import pytest

from policy import catalogue
from tests.policy.sweep import KINDS, faults

POLICIES = sorted(catalogue.entries())

#: By what was wrong: the kind of snapshot, the seed, policies.
FOUND = {
    "what was free beside a job that shares no node was counted until it ran there": (
        ("everything", 27110006, ("afs-l", "afs-p", "max-min", "optimus")),
        ("everything", 27110010, ("optimus",)),
        ("everything", 27110022, ("afs-l", "max-min", "slaq")),
    ),
    "whose gang grows within a limit was said by the order of the file": (
        ("everything", 27110009, ("fifo", "drf", "afs-p", "themis")),
    ),
    "who lost its GPUs kept its part in a limit, until the policy was asked again": (
        ("everything", 27110005, ("max-min", "srtf-e", "gavel-fifo", "oef-cooperative")),
        ("everything", 27110020, ("afs-s", "gandiva", "themis", "oef-cooperative")),
        ("everything", 27110031, ("oef-noncooperative",)),
    ),
    "who lost its GPUs was among those whose budget lets them run on": (("everything", 27110040, ("gavel-makespan",)),),
    "a job that does nothing on its fewest GPUs had no place in OEF's round, and what was idle beside it stayed idle": (
        ("odd-rates", 27112001, ("oef-cooperative", "oef-noncooperative")),
    ),
    "where a job of unknown speed leaves GPUs that another could use, it stays": (
        ("odd-rates", 27112003, ("oef-noncooperative",)),
    ),
    "what it held on GPUs on which it does nothing was the size it was to have, until it was stopped": (
        ("odd-rates", 34110122, ("srtf", "srsf", "srtf-e", "srsf-e")),
    ),
    "what is free beside a job that shares no node was supposed, and known once it ran: other sizes a round later": (
        ("everything", 33110182, ("afs-l",)),
        ("everything", 35110085, ("optimus",)),
    ),
    "what is free beside it on one GPU type was counted on another, by turns": (("everything", 35200418, ("afs-l",)),),
    "who ran on what others left idle took its home once asked again": (
        ("everything", 33110167, ("gandiva-fair", "lottery")),
    ),
    "a slow GPU type hid that a gang could be faster on two others": (("odd-holdings", 33110148, ("gavel-makespan",)),),
    "an app took idle GPUs in every exchange and could use them in none, which kept them from another until the next "
    "round": (("everything", 35110118, ("themis",)), ("odd-holdings", 35110118, ("themis",))),
    "who ran ahead of its phase rested, until all others of its app had started": (
        ("everything", 27110012, ("drf", "las", "srsf")),
    ),
}
CASES = [(*case[:2], policy) for cases in FOUND.values() for case in cases for policy in case[2]]


@pytest.mark.parametrize(("kind", "seed", "policy"), CASES)
def test_what_was_found_is_right(kind: str, seed: int, policy: str) -> None:
    assert not list(faults(KINDS[kind](seed), policy, seed))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_fault_on_a_few_seeds(policy: str) -> None:
    for seed in range(27119000, 27119004):
        assert not list(faults(KINDS["everything"](seed), policy, seed)), seed
