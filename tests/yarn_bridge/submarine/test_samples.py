"""What becomes of Submarine's own commands and files: the list and the guide's page say the same as the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.yarn_bridge.submarine import samples
from tests.yarn_bridge.submarine.checkout import checkout

__all__ = ["checkout"]

#: Refused by Submarine too, as its own tests and readers of parameters have it; or no command.
NEVER_RAN = {
    "TonYRuntimeGuide.md:158", "YARNRuntimeGuide.md:160", "missing-configs.yaml:1", "invalid-framework.yaml:1",
    "wrong-indentation.yaml:1", "wrong-property-name.yaml:1", "invalid-config-ps-section.yaml:1",
    "invalid-config-tensorboard-section.yaml:1", "invalid-config-scheduler-section.yaml:1", "QuickStart.md:126",
    "QuickStart.md:197", "RunningDistributedCifar10TFJobsWithYarnService.md:94",
}  # fmt: skip


def test_all_but_what_submarine_refuses_itself_runs() -> None:
    rows = samples.known()
    assert {each["where"].rpartition("/")[2] for each in rows if each["verdict"] != "runs"} == NEVER_RAN
    assert len(rows) == 58 and len({each["sha256"] for each in rows}) == 58


def test_the_page_is_made_of_the_list() -> None:
    assert samples.PAGE.read_text() == samples.page(samples.known()), (
        "run python -m tests.yarn_bridge.submarine.samples"
    )


@pytest.mark.soak
def test_every_sample_of_the_releases_becomes_what_the_list_says(checkout: Path, tmp_path: Path) -> None:
    assert [samples.row(each, tmp_path) for each in samples.read(checkout)] == samples.known()
