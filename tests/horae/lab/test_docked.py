"""Commands in a lab's containers: all that they write comes back, or an error does."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import docker.errors
import pytest

from horae.lab.docked import run_in
from policy.model import BadInput


@dataclass
class Answer:
    exit_code: int
    output: bytes


@dataclass
class Engine:
    """Runs what it is told on this machine; `lost`: answers come without what was written; `gone`: so are files."""

    lost: bool = False
    gone: bool = False
    asked: list[Sequence[str]] = field(default_factory=list)

    def exec_run(self, argv: Sequence[str], user: str, environment: Mapping[str, str]) -> Answer:
        self.asked.append(argv)
        done = subprocess.run(argv, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, check=False)
        if self.lost:
            return Answer(done.returncode, b"")
        return Answer(done.returncode, done.stdout + done.stderr)

    def get_archive(self, path: str) -> tuple[Iterator[bytes], Mapping[str, object]]:
        if self.gone:
            raise docker.errors.NotFound(path)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(path, arcname=Path(path).name)
        whole = packed.getvalue()
        return iter((whole[:700], whole[700:])), {"name": Path(path).name}

    def clean(self) -> None:
        """What a container takes with it when it goes."""
        Path(self.asked[0][3]).unlink()


@pytest.fixture
def make() -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def one(lost: bool = False, gone: bool = False) -> Engine:
        made.append(Engine(lost, gone))
        return made[-1]

    yield one
    for engine in made:
        engine.clean()


def test_output_and_exit_code_come_as_they_are(make: Callable[..., Engine]) -> None:
    script = 'echo out; echo err >&2; printf "$LC_ALL $MORE"; exit 3'
    assert run_in(make(), ["sh", "-c", script], MORE="more") == (3, "out\nerr\nC more")
    assert run_in(make(), ["true"]) == (0, "")


@pytest.mark.parametrize("script", ["echo 17; exit 4", "head -c 100000 /dev/zero | tr '\\0' a", "exit 3"])
def test_output_that_the_engine_lost_is_fetched_and_the_command_runs_once(
    make: Callable[..., Engine], tmp_path: Path, script: str
) -> None:
    ran = tmp_path / "ran"
    engine = make(lost=True)
    whole = subprocess.run(["sh", "-c", script], capture_output=True, check=False, text=True)
    assert run_in(engine, ["sh", "-c", f"echo once >>{ran}; {script}"]) == (whole.returncode, whole.stdout)
    assert ran.read_text() == "once\n"
    assert len(engine.asked) == 1


def test_output_that_never_comes_is_an_error_and_not_an_empty_answer(make: Callable[..., Engine]) -> None:
    with pytest.raises(BadInput, match="what sbatch-not-here wrote did not come, it ended with 127"):
        run_in(make(lost=True, gone=True), ["sbatch-not-here"])
