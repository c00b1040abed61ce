"""`make test`: all checks, then all tests, then a summary that says what ran, how long and what was skipped.

Root hides the permission errors that sites have. So when root runs this, every test that needs no daemon runs
as the user `nobody`, in a copy of the checkout with an environment of its own (under an interpreter that every
user may run); the tests marked `real` and `root` follow as root. Anybody else runs everything in one go, in place.
Each test runs once either way.

The tests marked `real` download some 3 GB and bring up clusters: they run where that was asked for, by CI=true or
HORAE_REAL=1. Elsewhere the summary says in a line that they were left out.

`tests/real/setup` works beside the first part. Arguments are passed on to pytest. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
BIN = TREE / ".venv" / "bin"
WORKERS = "3"
#: Tests of real daemons wait for most of their time.
WAITING_WORKERS = "4"
#: Whose seconds the summary tells: the rooms have a budget each.
ROOMS_TOLD = 8
OF_SEVERAL_CLUSTERS = ("tests/contract", "tests/real")
#: A test is marked in its own module (`conftest.py` sees to it), so that no other needs to be read for these.
MARKED = re.compile(r"\bmark\.(?:real|root)\b")
REAL = Path("tests/real")
#: `env` in between: setpriv itself still has root's rights when it looks for the program.
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--", "env")


@dataclass
class Step:
    name: str
    ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  #: reason -> tests
    rooms: dict[str, float] = field(default_factory=dict)  #: room -> seconds of its tests, which run side by side


def main(arguments: Sequence[str]) -> int:
    setup = subprocess.Popen([str(TREE / "tests/real/setup")], stdin=subprocess.DEVNULL)
    steps = [_timed("checks", ["make", "--no-print-directory", "check"])]
    real = asked_for_real(os.environ)
    wanted, name = "not soak" if real else "not soak and not real", "tests"
    if os.getuid() == 0 and (python := _python_of_everybody()) is not None:
        with tempfile.TemporaryDirectory(prefix="horae-user-") as folder:
            copy = _copy_for_user(Path(folder), python)
            steps.append(_pytest("tests, as nobody", copy, ["-m", "not real and not root and not soak"], arguments))
        wanted, name = ("(real or root) and not soak" if real else "root and not real and not soak"), "tests, as root"
    elif os.getuid() == 0:
        print("no Python 3.11 here that every user may run: all tests run as root", file=sys.stderr)
        steps.append(Step("tests, as nobody", os.environ.get("CI") != "true", 0.0))
    steps.append(Step("tests/real/setup", setup.wait() == 0, 0.0))
    modules = [] if wanted.startswith("not") or any(map(_is_path, arguments)) else marked(TREE)
    steps.append(_pytest(name, TREE, ["-m", wanted, *modules], arguments, WAITING_WORKERS if real else WORKERS))
    return _summary(steps, real)


def marked(tree: Path) -> list[str]:
    """The test modules that mark tests as `real` or `root`: a seventh of all, and reading them takes each process as
    much of the time. `tests/real` as a whole: whoever is named himself is read even where its conftest leaves him out.
    """
    modules = [module.relative_to(tree) for module in (tree / "tests").rglob("test_*.py")]
    named = {module for module in modules if MARKED.search((tree / module).read_text())}
    return sorted({str(REAL if REAL in module.parents else module) for module in named})


def _is_path(argument: str) -> bool:
    return (TREE / argument.partition("::")[0]).exists() and not argument.startswith("-")


def asked_for_real(environment: Mapping[str, str]) -> bool:
    """As in `tests/real/setup`."""
    return environment.get("CI") == "true" or environment.get("HORAE_REAL") == "1"


def _timed(name: str, command: Sequence[str], **options: object) -> Step:
    start = time.monotonic()
    print(f"\n== {name}", flush=True)
    code = subprocess.run(command, cwd=TREE, stdin=subprocess.DEVNULL, check=False).returncode
    return Step(name, code == 0, time.monotonic() - start)


def _python_of_everybody() -> str | None:
    """An interpreter that `nobody` can run: ours, unless it lives in root's home, else one of the system's."""
    ours = str(Path(sys.executable).resolve())
    named = [
        f"{folder}/python3{minor}" for folder in ("/usr/bin", "/usr/local/bin") for minor in ("", ".11", ".12", ".13")
    ]
    probe = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    for python in (ours, *named):
        found = subprocess.run(
            [*AS_NOBODY, python, "-c", probe],
            cwd="/",
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if found.returncode == 0:
            return python
    return None


def _copy_for_user(folder: Path, python: str) -> Path:
    """A copy of the checkout that `nobody` owns, with its own environment; from the cache where that has it all."""
    copy = folder / "checkout"
    copy.mkdir()
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=TREE, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    for name in filter(None, names):
        source, target = TREE / name, copy / name
        if source.is_file():  # a deleted file is still listed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    uv = [str(BIN / "uv"), "--quiet"]
    subprocess.run([*uv, "venv", "--python", python, str(copy / ".venv")], check=True)
    install = [*uv, "pip", "install", "--python", str(copy / ".venv/bin/python"), "--compile-bytecode"]
    locked = [*install, "--link-mode", "copy", "--require-hashes"]
    locked += ["--requirements", "supply/build.txt", "--requirements", "supply/lock.txt"]
    if subprocess.run([*locked, "--offline"], cwd=copy, check=False, stderr=subprocess.DEVNULL).returncode:
        for pause_s in (2, 5, 15, None):  # downloads fail now and then
            if not subprocess.run(locked, cwd=copy, check=pause_s is None).returncode:
                break
            time.sleep(pause_s or 0)
    ours = [*install, "--no-deps", "--no-build-isolation", "--offline", "--editable", "."]
    subprocess.run(ours, cwd=copy, check=True)
    subprocess.run(["chown", "--recursive", "nobody:", str(folder)], check=True)
    return copy


def _pytest(name: str, tree: Path, selection: Sequence[str], arguments: Sequence[str], workers: str = WORKERS) -> Step:
    start = time.monotonic()
    print(f"\n== {name}", flush=True)
    report = tree / ".cache" / "junit.xml"
    command = [str(tree / ".venv/bin/python"), "-m", "pytest", "-n", workers, "--junitxml", str(report)]
    environment = dict(os.environ)
    if tree != TREE:
        command = [*AS_NOBODY, *command]
        environment |= _home(tree.parent)
    report.unlink(missing_ok=True)
    run = [*command, "--dist", "loadgroup", *selection, *arguments]
    code = subprocess.run(run, cwd=tree, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    step = Step(name, code in (0, 5), time.monotonic() - start)  # 5: nothing was selected
    if report.exists():
        _count(step, report)
    return step


def _home(folder: Path) -> Mapping[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    shutil.chown(temporary, "nobody")
    return {"HOME": str(folder), "TMPDIR": str(temporary), "USER": "nobody", "LOGNAME": "nobody"}


def _count(step: Step, report: Path) -> None:
    for case in ET.parse(report).iter("testcase"):
        room = _room(case.get("classname") or "")
        step.rooms[room] = step.rooms.get(room, 0.0) + float(case.get("time") or 0.0)
        skip = case.find("skipped")
        if skip is not None:
            reason = skip.get("message") or "no reason"
            step.skipped[reason] = step.skipped.get(reason, 0) + 1
        elif case.find("failure") is not None or case.find("error") is not None:
            step.failed += 1
        else:
            step.passed += 1


def _room(module: str) -> str:
    """The folder of a test, and where one folder holds the tests of several clusters, which of them."""
    folder, _, name = module.rpartition(".")
    room = "/".join(folder.split(".")[:3])
    return f"{room}/{'_'.join(name.split('_')[:2])}*" if room in OF_SEVERAL_CLUSTERS else room


def _summary(steps: Sequence[Step], real: bool) -> int:
    print("\n== summary")
    for step in steps:
        counts = f"{step.passed} passed, {step.failed} failed" if step.passed or step.failed else ""
        print(f"{'ok' if step.ok else 'FAILED':7}{step.name:20}{step.seconds:7.0f} s  {counts}")
        for reason, number in sorted(step.skipped.items()):
            print(f"{'':7}skipped {number}: {reason}")
        longest = sorted(step.rooms.items(), key=lambda room: -room[1])[:ROOMS_TOLD]
        if longest:
            print(f"{'':7}seconds of tests: " + ", ".join(f"{room} {seconds:.0f}" for room, seconds in longest))
    if not real:
        print("left out: tests against real daemons and training frameworks; HORAE_REAL=1 make test runs them")
    print(f"{'':27}{sum(step.seconds for step in steps):7.0f} s  in all")
    skipped = sum(sum(step.skipped.values()) for step in steps)
    failed = sum(step.failed for step in steps) or sum(not step.ok for step in steps)
    print(f"{sum(step.passed for step in steps)} passed, {failed} failed, {skipped} skipped")
    return 0 if all(step.ok for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
