"""What `--export` carries of an environment, and how it is kept: for the caller alone, and not for ever."""

from __future__ import annotations

import errno
import os
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from horae.cli import typed
from horae.elastic.supervisor.typed import OURS, read
from policy.model import BadInput

HERE = {
    "PATH": "/env/bin:/bin", "CONDA_PREFIX": "/env", "VIRTUAL_ENV": "/venv", "LOADEDMODULES": "cuda/12",
    "BASH_FUNC_module%%": "() { :\n}", "LD_PRELOAD": "/x.so", "FOO": "bar",
    "TERM": "xterm", "SSH_AUTH_SOCK": "/s", "SLURM_JOB_ID": "7", "RANK": "3", "HORAE_EPOCH": "2", "PWD": "/here",
}  # fmt: skip
CARRIED = {name: HERE[name] for name in list(HERE)[:7]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "horae" / "typed"


@pytest.mark.parametrize(
    ("words", "env", "whole"),
    [
        ("ALL", CARRIED, True),
        ("NONE", {}, False),
        ("FOO", {"FOO": "bar"}, False),
        ("FOO,PATH", {"FOO": "bar", "PATH": "/env/bin:/bin"}, False),
        ("ALL,FOO=else,NEW=x", {**CARRIED, "FOO": "else", "NEW": "x"}, True),
        ("FLAGS='-L/a,-L/b',EMPTY=", {"FLAGS": "-L/a,-L/b", "EMPTY": ""}, False),
        ('A="it\'s",B=x=y', {"A": "it's", "B": "x=y"}, False),
        ("TERM,SLURM_JOB_ID", {"TERM": "xterm", "SLURM_JOB_ID": "7"}, False),  # named: then they are meant
    ],
)
def test_what_is_carried(words: str, env: dict[str, str], whole: bool) -> None:
    assert typed.chosen(words, HERE) == typed.Chosen(env, whole)


@pytest.mark.parametrize(
    ("words", "why"),
    [("", "names nothing"), ("FOO,,BAR", "names nothing"), ("NONE,FOO", "NONE stands alone"), ("=x", "no name"),
     ("NOT_SET", "is not set here"), ("A='x", "is not closed"), ("A\0=x", "no name"), ("A=x\0", "no name")]
    + [(f"{name}=1", "Horae's own") for name in sorted(OURS)],
)  # fmt: skip
def test_what_cannot_be_carried_is_refused(words: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        typed.chosen(words, HERE)


def test_an_environment_beyond_what_a_program_can_have_is_refused_with_the_names() -> None:
    with pytest.raises(BadInput, match="BIG has 131077 bytes"):
        typed.chosen("ALL", {"BIG": "x" * (typed.LONGEST + 1)})
    many = {f"A{i:02}": "é" * 30_000 for i in range(20)}
    with pytest.raises(BadInput, match="1200100 bytes, and at most 1048576 are carried; the largest: A00, A01, A02"):
        typed.chosen("ALL", many)
    assert typed.chosen("A03", many).env == {"A03": many["A03"]}


def test_only_its_owner_can_read_what_is_kept(home: Path) -> None:
    before = os.umask(0o013)
    try:
        path = typed.keep(typed.Chosen({"SECRET": "x", "ODD": "\udcff", "BELL": "\a" * 100_000}, whole=True))
    finally:
        os.umask(before)
    assert path.parent == home
    assert path.stat().st_mode & 0o7777 == 0o600
    assert home.stat().st_mode & 0o7777 == 0o700
    found = read(str(path))
    assert (found.env["SECRET"], found.env["ODD"], found.whole, found.umask) == ("x", "\udcff", True, 0o013)
    assert found.limits["NOFILE"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))
    assert os.umask(before) == before


def test_a_full_disk_keeps_nothing_and_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("horae.descriptors.Folder.replace", full)
    with pytest.raises(BadInput, match=r"kept for the job: No space left on device") as refused:
        typed.keep(typed.Chosen({}, whole=True))
    assert refused.value.value == str(home)


def test_a_folder_that_others_can_write_keeps_nothing(home: Path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o777)
    with pytest.raises(BadInput, match="others can write it"):
        typed.keep(typed.Chosen())
    home.rmdir()
    home.write_text("")
    with pytest.raises(BadInput, match="cannot be kept"):
        typed.keep(typed.Chosen())


def test_what_jobs_that_are_over_needed_goes_and_all_else_stays(home: Path, tmp_path: Path) -> None:
    ours, others = tmp_path / "a.sock", tmp_path / "b.sock"
    names = ("over", "half", "lives", "young", "elsewhere", "nobodys", "nobodys-old", "spoilt")
    files = {name: typed.keep(typed.Chosen({"NAME": name})) for name in names}
    for name, socket, jobs in (
        ("over", ours, ["1", "2"]), ("half", ours, ["1", "5"]), ("lives", ours, ["5"]), ("young", ours, ["1"]),
        ("elsewhere", others, ["1"]), ("spoilt", ours, ["1"]),
    ):  # fmt: skip
        typed.note(files[name], socket, jobs)
    files["spoilt"].with_suffix(".jobs").write_text("{")
    for name, file in files.items():
        then = time.time() - {"young": 0, "nobodys-old": 100}.get(name, 2) * 86400
        os.utime(file, (then, then))
    assert sorted(typed.swept(ours, lambda: ["5"])) == sorted([files["over"], files["nobodys-old"]])
    assert {name for name in names if files[name].exists()} == set(names) - {"over", "nobodys-old"}
    assert not files["over"].with_suffix(".jobs").exists()
    os.utime(files["young"], (0, 0))
    assert typed.swept(ours, lambda: []) == []  # once a day
    os.utime(home / ".swept", (0, 0))
    assert sorted(typed.swept(ours, lambda: [])) == sorted([files["half"], files["lives"], files["young"]])


def test_nothing_is_asked_of_the_arbiter_where_nothing_is_old(home: Path, tmp_path: Path) -> None:
    assert typed.swept(tmp_path / "a.sock", lambda: pytest.fail("asked")) == []
    typed.keep(typed.Chosen())
    assert typed.swept(tmp_path / "a.sock", lambda: pytest.fail("asked")) == []
