"""`make test` as a newcomer types it, on a machine that has nothing: a piece of it here, since all of it is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.newcomer import newcomers

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.soak]

PIECE = "tests/horae/cli tests/policy/test_cases.py tests/supply tests/docs tests/real/test_frameworks.py"


@pytest.mark.timeout(3000)
def test_on_a_machine_without_anything_make_test_passes(tmp_path: Path) -> None:
    done = newcomers(tmp_path, f"make test ARGS='{PIECE}'")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert "left out: tests against real daemons and training frameworks; HORAE_REAL=1 make test runs them" in said
    assert " 0 failed, " in done.stdout.splitlines()[-1]
    assert not (tmp_path / "upper/home/newcomer/horae/.cache/frameworks").exists()
