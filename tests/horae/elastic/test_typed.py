"""What a job was typed in reaches its trainer, whole, and nobody else; what a user made of the file costs that job."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horae.elastic import protocol
from horae.elastic.supervisor.gang import Member
from horae.elastic.supervisor.typed import LARGEST, OURS, first_line, read
from tests.horae.elastic.exec_job import ExecJob

Make = Callable[..., ExecJob]
SHOWS = """
    import json, os, resource
    env = {name: os.fsencode(value).decode("latin-1") for name, value in os.environ.items()}
    limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in ("NOFILE", "CORE", "CPU")}
    umask = os.umask(0)
    print("SHOWN " + json.dumps({"env": env, "umask": umask, "limits": limits, "cwd": os.getcwd()}), flush=True)
"""


def typed(path: Path, **changes: Any) -> str:
    value = {"env": {}, "whole": False, "umask": None, "limits": {}, **changes}
    path.write_text(json.dumps(value))
    return str(path)


def shown(job: ExecJob) -> dict[str, Any]:
    """What its trainer saw, once it has ended well."""
    job.start(env={"LC_SITE": "arbiter", "LD_LIBRARY_PATH": "/site", "SITE": "kept"})
    assert job.wait() == 0, job.log
    line = [line for line in job.log.splitlines() if line.startswith("SHOWN ")][-1]
    found: dict[str, Any] = json.loads(line.removeprefix("SHOWN "))
    return found


def test_the_trainer_has_the_environment_umask_and_limits_that_it_was_handed_in_with(
    exec_job: Make, tmp_path: Path
) -> None:
    env = {"FOO": "bar", "PATH": "/my/bin:/usr/bin:/bin", "BASH_FUNC_module%%": "() {  eval 1\n}", "ODD": "\udcff",
           "EMPTY": "", "BOTH": "typed"}  # fmt: skip
    limits = {"NOFILE": [200, 300], "CORE": [0, 0]}
    file = typed(tmp_path / "t.json", env=env, whole=True, umask=0o027, limits=limits)
    job = exec_job(SHOWS, typed=file, env={"BOTH": "job"})
    found = shown(job)
    assert {name: found["env"].get(name) for name in env} == {**env, "ODD": "\xff", "BOTH": "job"}
    assert {"LC_SITE", "LD_LIBRARY_PATH"}.isdisjoint(found["env"])  # the arbiter's, which the whole takes the place of
    assert found["env"]["SITE"] == "kept"
    assert found["umask"] == 0o027
    assert found["limits"]["NOFILE"] == [200, 300]
    assert found["limits"]["CORE"] == [0, 0]
    assert found["limits"]["CPU"] == list(resource.getrlimit(resource.RLIMIT_CPU))
    assert found["cwd"] == job.spec["cwd"]


def test_names_alone_are_added_to_what_every_job_gets(exec_job: Make, tmp_path: Path) -> None:
    found = shown(exec_job(SHOWS, typed=typed(tmp_path / "t.json", env={"FOO": "bar"})))
    assert found["env"]["FOO"] == "bar"
    assert found["env"]["LC_SITE"] == "arbiter"


def test_the_names_that_make_a_gang_are_never_taken_from_where_it_was_typed(exec_job: Make, tmp_path: Path) -> None:
    file = typed(tmp_path / "t.json", env=dict.fromkeys(OURS, "stolen"), whole=True)
    found = shown(exec_job(SHOWS, typed=file))
    assert "stolen" not in found["env"].values()
    assert found["env"]["RANK"] == "0"
    assert found["env"][protocol.ENV_JOB_DIR] != "stolen"


def test_no_limit_is_raised(exec_job: Make, tmp_path: Path) -> None:
    """Whatever the file says: root could, and the user who wrote it must not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for told in ([-1, -1], [(1 << 63) - 1, (1 << 63) - 1], [soft, hard + 1]):
        found = shown(exec_job(SHOWS, typed=typed(tmp_path / "t.json", limits={"NOFILE": told})))
        assert found["limits"]["NOFILE"][1] == hard
        assert found["limits"]["NOFILE"][0] <= hard


def test_what_a_loader_or_python_would_obey_reaches_the_trainer_and_not_its_supervisor(
    exec_job: Make, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("import os\nos.write(2, b'EVIL in %d\\n' % os.getpid())\n")
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['MARKED'] = 'yes'\n")
    evil = {"LD_PRELOAD": "/no/such.so", "PYTHONPATH": str(tmp_path), "PYTHONHOME": "", "PYTHONINSPECT": ""}
    source = f"""
        import os, time
        print("MARKED" in os.environ, os.environ["LD_PRELOAD"], flush=True)
        parent = os.getppid()
        names = open("/proc/%d/environ" % parent, "rb").read()
        print(b"LD_PRELOAD" in names or {str(tmp_path)!r}.encode() in names, flush=True)
        """
    job = exec_job(source, typed=typed(tmp_path / "t.json", env=evil, whole=True), env={})
    job.start()
    assert job.wait() == 0, job.log
    assert "True /no/such.so\nFalse\n" in job.log
    assert "EVIL" not in job.log
    # The linker's own complaint shows that it was obeyed where it belongs: once, by the trainer.
    assert job.log.count("LD_PRELOAD cannot be preloaded") == 1


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)


def text(what: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(what)


def form(**changes: Any) -> Callable[[Path], object]:
    return lambda path: typed(path, **changes)


ODD = {
    "gone": (lambda path: None, "is gone: hand it in again"),
    "a pipe": (a_fifo, "no plain file"),
    "a folder": (Path.mkdir, "no plain file"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "Too many levels of symbolic links"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "Too many levels of symbolic links"),
    "huge": (huge, f"at most {LARGEST} are read"),
    "empty": (text(""), "is not what"),
    "deep": (text("[" * 200_000), "is not what"),
    "a list": (text("[]"), "is not what"),
    "a NUL in a value": (form(env={"A": "x\0y"}), "'A' holds no text"),
    "a NUL in a name": (form(env={"A\0B": "x"}), "no variable can be named"),
    "a name with =": (form(env={"A=B": "x"}), "no variable can be named"),
    "no name": (form(env={"": "x"}), "no variable can be named"),
    "a number": (form(env={"A": 1}), "'A' holds no text"),
    "a umask beyond": (form(umask=0o1777), "umask is"),
    "a umask that is none": (form(umask="rwx"), "umask is"),
    "no such limit": (form(limits={"LOVE": [1, 1]}), "there is no limit 'LOVE'"),
    "half a limit": (form(limits={"CPU": [1]}), "limit CPU is"),
    "a limit beyond": (form(limits={"CPU": [1, 1 << 64]}), "limit CPU is"),
    "a limit below": (form(limits={"CPU": [-2, 1]}), "limit CPU is"),
}


@pytest.mark.parametrize("how", ODD)
def test_a_file_that_is_none_is_not_believed(tmp_path: Path, how: str) -> None:
    make, words = ODD[how]
    make(tmp_path / "t.json")
    with pytest.raises(OSError, match=re.escape(words)):
        read(str(tmp_path / "t.json"))


@pytest.mark.parametrize("how", ["gone", "a pipe", "huge", "a NUL in a value"])
def test_a_file_that_cannot_be_read_ends_the_job_and_says_why(exec_job: Make, tmp_path: Path, how: str) -> None:
    make, words = ODD[how]
    make(tmp_path / "t.json")
    job = exec_job("raise SystemExit('it ran')", typed=str(tmp_path / "t.json"))
    job.start()
    assert job.wait() == 126
    assert job.state["state"] == "failed"
    assert "cannot start" in job.log
    assert words in job.log
    assert "it ran" not in job.log


@pytest.mark.root
def test_another_users_file_is_not_read(tmp_path: Path) -> None:
    file = Path(typed(tmp_path / "t.json"))
    os.chown(file, 65534, 65534)
    with pytest.raises(OSError, match="it belongs to user 65534"):
        read(str(file))


@pytest.mark.parametrize(
    "limits", [{"AS": [1 << 20, 1 << 20]}, {"NOFILE": [0, 0]}, {"DATA": [0, 0]}, {"STACK": [4096, 4096]}]
)
def test_limits_under_which_nothing_runs_end_the_job_and_its_supervisor_tells(
    exec_job: Make, tmp_path: Path, limits: dict[str, list[int]]
) -> None:
    job = exec_job("import socket\nsocket.socket()", typed=typed(tmp_path / "t.json", limits=limits))
    job.start()
    assert job.wait() != 0
    assert job.state["state"] == "failed"


def test_an_environment_too_large_for_any_program_is_told(exec_job: Make, tmp_path: Path) -> None:
    env = {f"A{i}": "x" * 100_000 for i in range(70)}
    job = exec_job(SHOWS, typed=typed(tmp_path / "t.json", env=env))
    job.start()
    assert job.wait() != 0
    assert "Argument list too long" in job.log


# --- the first line -----------------------------------------------------------------------------------------


def test_the_first_line_of_the_log_says_interpreter_and_folder(exec_job: Make, tmp_path: Path) -> None:
    bin_ = tmp_path / "env" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "python").symlink_to(sys.executable)
    (bin_ / "train").write_text("#!/usr/bin/env python\nprint('trains')\n")
    (bin_ / "train").chmod(0o755)
    file = typed(tmp_path / "t.json", env={"PATH": f"{bin_}:/usr/bin:/bin"}, whole=True)
    for command, words in (("python -c 1", f"{bin_}/python in"), ("train", f"{bin_}/train by {bin_}/python in")):
        job = exec_job("", typed=file, command=command.split())
        job.start()
        assert job.wait() == 0, job.log
        assert job.log == f"[horae-exec] runs {words} {job.spec['cwd']}\n" + ("trains\n" if command == "train" else "")
        (job.path / "output.log").unlink()


def test_the_first_line_is_one_line_whatever_the_names(tmp_path: Path) -> None:
    odd = tmp_path / "a\nb\x1b[2J"
    odd.mkdir()
    (odd / "x").write_bytes(b"#!/bin/sh -e\n")
    said = first_line(Member(["./x"], {}, str(odd), 0))
    assert said == f"runs {tmp_path}/a\\nb\\x1b[2J/x by /bin/sh in {tmp_path}/a\\nb\\x1b[2J"
    missing = first_line(Member(["no\nne"], {"PATH": "/usr/bin"}, "", 0))
    assert missing == "finds no program no\\nne on its PATH; folder /"
    os.mkfifo(tmp_path / "pipe")
    assert first_line(Member(["./pipe"], {}, str(tmp_path), 0)).endswith(f"/pipe in {tmp_path}")
    (tmp_path / "windows").write_bytes(b"#! /bin/sh\r\ntrue\r\n")
    assert f"/windows by /bin/sh\\r in {tmp_path}" in first_line(Member(["./windows"], {}, str(tmp_path), 0))
    folder = first_line(Member(["./"], {}, str(tmp_path), 0))
    assert folder == f"finds a folder, and no program, at {tmp_path}; folder {tmp_path}"
