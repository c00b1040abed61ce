"""What the owner of a job folder may do to it, as a real user under an arbiter that is root: nothing beyond his job."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.port import Never
from horae.spec import JobSpec
from policy.model import GpuRange
from tests.horae.elastic.exec_job import until
from tests.horae.local.cluster import Cluster

NOBODY = 65534
PYTHON = "/usr/bin/python3"


class Site:
    """A cluster whose arbiter is root, and a user of it."""

    def __init__(self, path: Path) -> None:
        self.home = path / "home"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)
        self.cluster = Cluster(path)
        self.port = self.cluster.port

    def submit(self, name: str, *command: str, **changes: Any) -> Path:
        """A job of the user's; its folder."""
        fields: dict[str, Any] = {"gpus": GpuRange(1, 1, 4), "owner": "nobody", "cwd": str(self.home), "retries": 0}
        self.port.submit(name, JobSpec(name=name, command=command, **{**fields, **changes}))
        return self.cluster.state / "jobs" / name

    def as_user(self, source: str, *words: object) -> subprocess.Popen[bytes]:
        """A program of the user's."""
        command = [PYTHON, "-I", "-c", source, *map(str, words)]
        return subprocess.Popen(command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env={})

    def does(self, source: str, *words: object) -> None:
        assert self.as_user(source, *words).wait(60) == 0


@pytest.fixture
def site(open_to_all: Path) -> Iterator[Site]:
    made = Site(open_to_all)
    yield made
    made.cluster.end()


SAYS_WHO = ("/bin/sh", "-c", "id -u; sleep 600")
EDIT = """
import json, os, sys
folder, changes = sys.argv[1], json.loads(sys.argv[2])
spec = json.load(open(folder + "/spec.json"))
spec.update(changes)
open(folder + "/x", "w").write(json.dumps(spec))
os.rename(folder + "/x", folder + "/spec.json")
"""


@pytest.mark.root
@pytest.mark.parametrize("owner", ["root", "", "daemon", "no-such-user"])
def test_whose_a_job_is_does_not_stand_in_the_folder(site: Site, owner: str) -> None:
    folder = site.submit("esc", *SAYS_WHO)
    site.does(EDIT, folder, json.dumps({"owner": owner}))
    try:
        site.port.start("esc", {"v100-1": 1}, 1)
    except Never:
        return  # as good: it runs as nobody else
    until("it speaks", lambda: site.cluster.log("esc").strip())
    assert site.cluster.log("esc").split() == [str(NOBODY)]


@pytest.mark.root
def test_a_folder_that_is_being_given_away_gives_nothing_else_away(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment that anything in a new job's folder is given to its owner, he plants links to a file of root's."""
    target = tmp_path / "secret"
    target.touch(0o600)
    planted: list[str] = []

    def quick(real: Callable[..., None]) -> Callable[..., None]:
        def chown(path: Any, *args: Any, **options: Any) -> None:
            real(path, *args, **options)
            for folder in (site.cluster.state / "jobs").iterdir():
                if folder.stat().st_uid == NOBODY:
                    (folder / "spec.json").unlink()
                    (folder / "spec.json").symlink_to(target)
                    planted.append(folder.name)

        return chown

    for name in ("chown", "fchown", "lchown"):
        monkeypatch.setattr(os, name, quick(getattr(os, name)))
    site.submit("j", "true")
    monkeypatch.undo()
    assert planted
    assert target.stat().st_uid == 0
