"""Commands in a lab's containers: all that they write comes back, or an error does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from horae.lab.docked import run_in
from policy.model import BadInput


@dataclass
class Answer:
    exit_code: int
    output: bytes


@dataclass
class Engine:
    """Runs what it is told on this machine; `lost`: how many of its first answers come without what was written."""

    lost: int = 0
    asked: list[Sequence[str]] = field(default_factory=list)

    def exec_run(self, argv: Sequence[str], user: str, environment: Mapping[str, str]) -> Answer:
        self.asked.append(argv)
        done = subprocess.run(argv, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, check=False)
        if len(self.asked) <= self.lost:
            return Answer(done.returncode, b"")
        return Answer(done.returncode, done.stdout + done.stderr)

    def clean(self) -> None:
        """What a container takes with it when it goes."""
        Path(self.asked[0][3]).unlink()


@pytest.fixture
def make() -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def one(lost: int = 0) -> Engine:
        made.append(Engine(lost))
        return made[-1]

    yield one
    for engine in made:
        engine.clean()


def test_output_and_exit_code_come_as_they_are(make: Callable[..., Engine]) -> None:
    script = 'echo out; echo err >&2; printf "$LC_ALL $MORE"; exit 3'
    assert run_in(make(), ["sh", "-c", script], MORE="more") == (3, "out\nerr\nC more")
    assert run_in(make(), ["true"]) == (0, "")


def test_output_that_the_engine_lost_is_read_again_and_the_command_runs_once(
    make: Callable[..., Engine], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    engine = make(lost=2)
    assert run_in(engine, ["sh", "-c", f"echo once >>{ran}; echo 17; exit 4"]) == (4, "17\n")
    assert ran.read_text() == "once\n"
    assert len(engine.asked) == 3


def test_output_that_never_comes_is_an_error_and_not_an_empty_answer(make: Callable[..., Engine]) -> None:
    with pytest.raises(BadInput, match="what sbatch-not-here wrote did not come, it ended with 127"):
        run_in(make(lost=9), ["sbatch-not-here"])
