"""Every way a gang can end, and what becomes of its job."""

from __future__ import annotations

import pytest

from horae.elastic.supervisor.verdict import End, judge

CASES = [
    # finishes
    (End(0), "completed", False),
    (End(0, stop=True), "completed", False),
    (End(0, stop=True, own_checkpoints=True, complete=True), "stopped", False),
    # asked to leave
    (End(86, stop=True, complete=True), "stopped", False),
    (End(86, complete=True), "stopped", False),
    (End(137, stop=True, killed=True), "stopped", False),
    (End(137, stop=True, killed=True, complete=True), "stopped", False),
    (End(74, stop=True, complete=True, retries=1), "stopped", True),
    (End(74, stop=True, complete=True), "failed", True),
    # says that it checkpointed and did not
    (End(86, stop=True, retries=1), "stopped", True),
    (End(86, stop=True), "failed", True),
    (End(86), "failed", True),
    # asked to leave before its ranks had come
    (End(86, stop=True, unformed=True), "stopped", False),
    (End(86, unformed=True), "failed", True),
    # fails
    (End(7), "failed", True),
    (End(7, retries=1), "retry", True),
    (End(7, failures=1, retries=1), "failed", True),
    (End(7, retries=9, resumable=False), "failed", True),
    (End(139, retries=1), "retry", True),
    # its launcher fails before a rank began
    (End(1, unbegun=1), "retry", False),
    (End(1, unbegun=3, resumable=False, lost="full"), "retry", False),
    (End(1, unbegun=4), "stopped", True),
    (End(1, unbegun=4, resumable=False, lost="full"), "stopped", True),
    (End(1, unbegun=4, failures=1), "failed", True),
    (End(1, unbegun=4, failures=1, retries=1), "stopped", True),
    (End(1, unbegun=1, stop=True), "failed", True),
    (End(143, unbegun=1, cancel=True), "cancelled", False),
    # could never write a checkpoint: it is not run again from the beginning
    (End(1, retries=9, lost="read-only"), "failed", True),
    (End(1, retries=9, lost="full", complete=True), "retry", True),
    # is cancelled
    (End(143, cancel=True), "cancelled", False),
    (End(0, cancel=True), "cancelled", False),
    (End(86, cancel=True, stop=True, complete=True), "cancelled", False),
    # runs out of time
    (End(86, stop=True, complete=True, out_of_time=True), "cancelled", False),
    (End(0, stop=True, out_of_time=True), "completed", False),
]


@pytest.mark.parametrize(("end", "state", "failure"), CASES)
def test_verdicts(end: End, state: str, failure: bool) -> None:
    verdict = judge(end)
    assert (verdict.state, verdict.failure) == (state, failure)
    assert verdict.text
