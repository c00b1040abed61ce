"""A real user hands in a job from a shell of theirs: it runs there, and nobody else learns of that shell."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.horae.local.attack_day import ACCOUNT, ANN, BOB, PYTHON, Day, everybodys_python, serving
from tests.waiting import eventually

pytestmark = pytest.mark.root
SECRET = "s3cret-of-anns"
SHOWS = (
    "import json, os, resource, sys, time\n"
    "print('SHOWN', json.dumps([sys.executable, os.getcwd(), os.environ.get('TOKEN'), os.environ.get('TERM'),"
    " os.umask(0), resource.getrlimit(resource.RLIMIT_NOFILE), os.getuid()]), flush=True)\n"
    "time.sleep(600)\n"
)


class Shell:
    """A shell of a user's, with an environment of its own."""

    def __init__(self, day: Day, uid: int) -> None:
        self._day, self._uid = day, uid
        self.home = day.folder / f"home-{uid}"
        (self.home / "env" / "bin").mkdir(parents=True)
        (self.home / "env" / "bin" / "python3").symlink_to(PYTHON)
        for path in (self.home, self.home / "env", self.home / "env" / "bin"):
            os.chown(path, uid, uid)
        self.env = {"PATH": f"{self.home}/env/bin:/usr/bin:/bin", "TOKEN": SECRET, "TERM": "xterm"}
        self.env["XDG_STATE_HOME"] = str(self.home)

    def types(self, *words: str, umask: int = 0o027, **env: str) -> subprocess.CompletedProcess[str]:
        python, more = everybodys_python()
        who = ["setpriv", f"--reuid={self._uid}", f"--regid={self._uid}", "--clear-groups", "--"]
        limited = ["prlimit", "--nofile=300:400", "--", python]
        horae = ["-P", "-c", "import sys; from horae.cli import main; sys.exit(main(sys.argv[1:]))", *words]
        found = {**more, **self.env, "HORAE_SOCKET": str(self._day.socket), **env}
        return subprocess.run(
            [*who, *limited, *horae], env=found, cwd=self.home, umask=umask, capture_output=True, text=True, check=False
        )

    def submits(self, *words: str) -> str:
        said = self.types("submit", "-g", "1", *words, "--", "python3", "-c", SHOWS)
        assert said.returncode == 0, said.stderr
        return said.stdout.split()[-1]

    def log(self, job: str) -> str:
        status, text = self._day.calls(self._uid, "GET", f"/v1/jobs/{job}/log")
        assert status == 200
        return text

    def shown(self, job: str) -> list[object]:
        """What the job's trainer found."""
        eventually(lambda: "SHOWN" in self.log(job))
        found: list[object] = json.loads(self.log(job).partition("SHOWN ")[2].splitlines()[0])
        return found


@pytest.mark.parametrize("account", [ACCOUNT, pytest.param("", marks=pytest.mark.soak)], ids=["account", "root"])
def test_a_users_job_runs_as_the_user_typed_it_and_nobody_else_learns_how(open_to_all: Path, account: str) -> None:
    with serving(open_to_all / "site", account) as day:
        ann = Shell(day, ANN)
        job = ann.submits()
        python = f"{ann.home}/env/bin/python3"
        assert ann.shown(job) == [python, str(ann.home), SECRET, None, 0o027, [300, 400], ANN]
        assert ann.log(job).startswith(f"[horae-exec] runs {python} in {ann.home}\n")

        (kept,) = (ann.home / "horae" / "typed").glob("*.json")
        assert (kept.stat().st_mode & 0o7777, kept.stat().st_uid) == (0o600, ANN)
        assert SECRET in kept.read_text()
        looks = day.runs(BOB, "import sys; open(sys.argv[1])", kept)
        assert looks.wait() != 0

        told = [
            day.operator.snapshot(),
            json.dumps(day.operator.history(limit=1000)),
            json.dumps(day.operator.config()),
        ]
        told += [json.dumps(ask(job)) for ask in (day.operator.job, day.operator.explain)]
        told += [json.dumps(day.operator.status(ended=True))]
        assert not [text for text in told if SECRET in text]
        for part in ("state", "local"):
            for folder, _, names in os.walk(day.folder / part):  # folders may go meanwhile
                for file in (Path(folder, name) for name in names if name != "output.log"):
                    assert not (file.is_file() and SECRET.encode() in file.read_bytes()), file
        keeper = (day.folder / "local" / "keepers" / job).read_text().split()[0]
        assert SECRET.encode() not in Path(f"/proc/{keeper}/environ").read_bytes()
        assert SECRET.encode() not in Path(f"/proc/{day.process.pid}/environ").read_bytes()


def test_what_is_chosen_is_carried_and_what_cannot_be_kept_or_read_is_told(open_to_all: Path) -> None:
    with serving(open_to_all / "site", ACCOUNT) as day:
        ann = Shell(day, ANN)
        assert ann.shown(ann.submits("--export", "NONE"))[2:5] == [None, None, 0o027]
        assert ann.shown(ann.submits("--export", "TERM,TOKEN='a,b'"))[2:4] == ["a,b", "xterm"]
        left = {path.name for path in (ann.home / "horae" / "typed").iterdir()}

        refused = ann.types("submit", "-g", "1", "--export", "NOT_SET", "--", "true")
        assert refused.returncode == 3
        assert "is not set here" in refused.stderr
        assert ann.types("submit", "-g", "9:1", "--", "true").returncode == 3
        assert ann.types("submit", "-g", "1", "-t", "nobody", "--", "true").returncode in (3, 5)
        assert {path.name for path in (ann.home / "horae" / "typed").iterdir()} == left

        homeless = {"XDG_STATE_HOME": "/proc/nope"}
        refused = ann.types("submit", "-g", "1", "--", "true", **homeless)
        assert refused.returncode == 3
        assert "--export NONE" in refused.stderr
        taken = ann.types("submit", "-g", "1", "--export", "NONE", "--", "true", **homeless)
        assert taken.returncode == 0
        assert "umask and limits are not carried" in taken.stderr

        # A pipe, or a link to what only root reads, where the environment was: those jobs end with words.
        jobs = {}
        day.operator.hold(filler := day.submits(BOB, command=["/bin/true"]))
        for name, plant in (("pipe", os.mkfifo), ("link", lambda path: path.symlink_to("/etc/shadow"))):
            plant(planted := ann.home / name)
            jobs[name] = day.submits(ANN, command=["/bin/echo", "it ran"], typed=str(planted), retries=0)
        for job in jobs.values():
            eventually(lambda job=job: day.operator.job(job)["state"] == "failed")
            assert "cannot start" in ann.log(job)
            assert "it ran" not in ann.log(job)
            assert "root:" not in ann.log(job)
        assert ann.types("attach", jobs["pipe"]).returncode == 126
        looks = Shell(day, BOB).types("attach", jobs["pipe"], "--json")
        assert (looks.returncode, set(json.loads(looks.stdout))) == (5, {"error"})
        day.operator.unhold(filler)
        eventually(lambda: day.operator.job(filler)["state"] == "completed")
