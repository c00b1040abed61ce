"""What the owner of a job folder may do to it, as a real user under an arbiter that is root: nothing beyond his job."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.elastic import protocol
from horae.elastic.supervisor.processes import descendants
from horae.local.adapter import LocalCluster
from horae.local.asked import Asked
from horae.local.confine import started
from horae.local.launch import environment
from horae.local.operations import REASON_FILE, RELEASED_FILE
from horae.port import JobState, Never, PortError
from horae.spec import JobSpec
from policy.model import GpuRange
from tests.horae.elastic.exec_job import gone, until
from tests.horae.local.cluster import Cluster

NOBODY = 65534
BIN = 2
PYTHON = "/usr/bin/python3"


class Site:
    """A cluster whose arbiter is root, and a user of it."""

    def __init__(self, path: Path, helped: bool) -> None:
        """`helped`: what is done to folders and processes is asked of a helper, as an arbiter asks that is not root."""
        self.home = path / "home"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)
        self.cluster = Cluster(path)
        self._operations: Asked | None = None
        if helped:
            peer = started(self.cluster.state, sys.executable, environment(), 1000, BIN)
            self._operations = Asked(peer, self.cluster.state)
            self.cluster.port = self.another()
        self.port = self.cluster.port

    def another(self) -> LocalCluster:
        """Another arbiter."""
        port = LocalCluster(self.cluster.options, self._operations)
        port.claim("tests")
        return port

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


@pytest.fixture(params=[False, True], ids=["root", "helper"])
def site(open_to_all: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(open_to_all, request.param)
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
    until("it speaks", lambda: site.cluster.log("esc").count("\n") > 1)
    assert site.cluster.log("esc").splitlines()[1:] == [str(NOBODY)]


@pytest.mark.root
@pytest.mark.parametrize("site", [False], ids=["root"], indirect=True)  # the helper's operations are the same
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


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_write_beside_the_job_folders_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        cluster = Cluster(tmp_path)
        cluster.submit("j")
        cluster.port.cancel("j")
    finally:
        os.umask(before)
    for folder in (cluster.state, cluster.state / "jobs", cluster.state / "jobs" / "j"):
        assert folder.stat().st_mode & 0o022 == 0
    books = cluster.state / "books"
    assert books.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in books.iterdir() if path.stat().st_mode & 0o077] == []


# --- odd files --------------------------------------------------------------------------------------------

#: What stands in a job's folder, and what its owner could put there.
FILES = [
    protocol.SPEC_FILE,
    protocol.EPOCH_FILE,
    protocol.STOP_FILE,
    protocol.CANCEL_FILE,
    protocol.STATE_FILE,
    protocol.LOCK_FILE,
    protocol.LOG_FILE,
    REASON_FILE,
    RELEASED_FILE,
]
ALMOST = {"epoch": 1, "state": "running", "slots": {"v100-1": [0]}}
TEXTS = {
    "infinite epoch": '{"epoch": Infinity, "state": "running"}',
    "infinite checkpoint": json.dumps({**ALMOST, "checkpoint": {"epoch": 1e999, "step": 1, "time_s": 1}}),
    "infinite slots": json.dumps({**ALMOST, "slots": {"v100-1": [1e999]}}),
    "other slots": json.dumps({**ALMOST, "slots": {}}),
    "many slots": json.dumps({**ALMOST, "slots": {"v100-1": list(range(10000)), "v100-2": [0, 1]}}),
    "long number": '{"epoch": 1, "state": "running", "since_s": 1' + "0" * 400 + "}",
    "far future": json.dumps({**ALMOST, "since_s": 9e10}),
    "deep list": "[" * 100_000,
    "deep object": '{"a":' * 30_000,
    "wrong types": '{"epoch": "x", "state": 3, "slots": 7, "checkpoint": [1], "native": {}, "exit_code": "0"}',
    "a list": "[1]",
    "no text": "\udcff\udcfe",
    "another epoch": json.dumps({**ALMOST, "epoch": 10**9}),
    "an end that is none": json.dumps({**ALMOST, "state": "completed", "exit_code": 0}),
    "escapes": json.dumps({**ALMOST, "native": "\x1b]0;PWNED\x07\x9b2J\u202e"}),
    "a digit": "\u00b2",
    "a long epoch": "9" * 4000,
}


def put(path: Path, how: str) -> None:
    if path.is_dir() and not path.is_symlink():
        (path / "x").unlink()
        path.rmdir()
    path.unlink(missing_ok=True)
    if how == "link":
        path.symlink_to("/etc/shadow")
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "folder":
        path.mkdir()
        (path / "x").touch()
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "socket":
        before = Path.cwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(before)
    elif how == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif how != "missing":
        path.write_bytes(TEXTS[how].encode(errors="surrogateescape"))


KINDS = ["missing", "link", "loop", "folder", "pipe", "socket", "huge", *TEXTS]


def test_whatever_stands_in_a_jobs_folder_costs_that_job_alone(cluster: Cluster) -> None:
    """Every file of a running job's folder as every odd thing: looking goes on, another job starts and runs, what the
    job holds stays, and when all is as it was nothing is left to say."""
    cluster.running("mine", "import time; time.sleep(600)", {"v100-1": 2})
    supervisor = cluster.supervisor("mine")
    os.kill(supervisor, signal.SIGSTOP)  # or it would write its account again
    folder = cluster.state / "jobs" / "mine"
    account = (folder / "state.json").read_bytes()
    cluster.running("other", "import time; time.sleep(600)", {"v100-2": 1})
    troubled = set()
    for name in FILES:
        for how in KINDS:
            put(folder / name, how)
            if (name, how) == (protocol.LOG_FILE, "huge"):
                (folder / name).unlink()  # a spool of that size is a log, and sparse
            for port in (cluster.port, LocalCluster(cluster.options)):
                seen = {job.id: job for job in port.observe().jobs}
                assert seen["other"].state is JobState.RUNNING, (name, how)
                mine = seen["mine"]
                assert dict(mine.allocation) == {"v100-1": 2}, (name, how)
                assert mine.state.holds, (name, how)
                assert mine.epoch == 1, (name, how)
                assert mine.since_s <= time.time(), (name, how)
                assert mine.native.isprintable(), (name, how)
                if mine.native and port is cluster.port:
                    troubled.add((name, how))
                for act in (
                    lambda: cluster.port.set_reason("mine", "why"),
                    lambda: cluster.port.read_log("mine", 0, 100),
                ):
                    try:
                        act()
                    except PortError as error:
                        assert "mine" in str(error)
        put(folder / name, "missing")
        if name == protocol.STATE_FILE:
            (folder / name).write_bytes(account)
    odd = {how for name, how in troubled if name == protocol.STATE_FILE}
    assert odd >= {"link", "loop", "folder", "pipe", "socket", "huge", "infinite epoch", "long number", "deep list"}
    assert cluster.job("mine").native == "", "what was mended is not complained of"
    os.kill(supervisor, signal.SIGCONT)
    cluster.port.cancel("mine")
    cluster.wait("mine", JobState.CANCELLED)


@pytest.mark.parametrize("how", ["link", "folder", "pipe", "socket", "huge", "deep list"])
def test_a_job_starts_whatever_stands_in_its_folder(cluster: Cluster, how: str) -> None:
    """What is in the way is replaced, and what is run does not stand there."""
    folder = cluster.state / "jobs" / cluster.submit("j", "import time; print('runs', flush=True); time.sleep(600)")
    for name in FILES:
        if name not in (protocol.CANCEL_FILE, protocol.STOP_FILE, protocol.LOG_FILE):
            put(folder / name, how)
    cluster.port.start("j", {"v100-1": 1}, 1)
    until("it runs", lambda: "runs\n" in cluster.log("j"))
    cluster.port.cancel("j")
    assert cluster.wait("j", JobState.CANCELLED, JobState.LOST).allocation == {}


def test_an_account_that_is_swapped_while_it_is_read_stops_nothing(cluster: Cluster) -> None:
    cluster.running("mine", "import time; time.sleep(600)")
    folder = cluster.state / "jobs" / "mine"
    os.kill(cluster.supervisor("mine"), signal.SIGSTOP)
    program = f"""
import os
os.chdir({str(folder)!r})
open("good", "wb").write(open("state.json", "rb").read())
while True:
    for how in (lambda: os.symlink("/etc/shadow", "x"), lambda: os.mkfifo("x"), lambda: os.link("good", "x")):
        how()
        os.rename("x", "state.json")
        if os.path.lexists("x"):
            os.unlink("x")
"""
    swapper = subprocess.Popen([PYTHON, "-I", "-c", program])
    try:
        for _ in range(200):
            job = cluster.job("mine")
            assert (job.state, dict(job.allocation)) == (JobState.RUNNING, {"v100-1": 1})
    finally:
        swapper.kill()
        swapper.wait()
    os.kill(_stopped(cluster), signal.SIGCONT)


def _stopped(cluster: Cluster) -> int:
    """The supervisor, by what the kernel knows: below the keeper that wrote itself down."""
    keeper = int((cluster.state / "keepers" / "mine").read_text().split()[0])
    return min(descendants(keeper))


def test_an_end_that_is_on_record_is_not_changed_by_the_owner(cluster: Cluster) -> None:
    cluster.submit("done", "import sys; sys.exit(0)")
    cluster.port.start("done", {"v100-1": 1}, 1)
    cluster.wait("done", JobState.COMPLETED)
    path = cluster.state / "jobs" / "done" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": "stopped", "exit_code": 86}))
    for port in (cluster.port, LocalCluster(cluster.options)):
        (seen,) = port.observe().jobs
        assert (seen.state, seen.exit_code) == (JobState.COMPLETED, 0)


# --- those who do not leave -------------------------------------------------------------------------------

STAYS = """
    import os, signal, time
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "601"], {})  # no mark, no session, no parent of the job
        os._exit(0)
    print("stays", flush=True)
    time.sleep(600)
"""


def tree(cluster: Cluster, name: str) -> set[int]:
    keeper = int((cluster.state / "keepers" / name).read_text().split()[0])
    return {keeper, *descendants(keeper)}


@pytest.mark.parametrize("what", ["cancel", "stop"])
def test_a_request_ends_in_a_kill_whatever_the_job_did(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its supervisor is stopped, folders stand where requests are written, a process has left session and parents."""
    monkeypatch.setattr("horae.local.upkeep.PRESS_S", 0.3)
    cluster.running("stays", STAYS)
    until("it forked away", lambda: "stays" in cluster.log("stays"))
    everything = tree(cluster, "stays")
    assert len(everything) >= 4
    for name in (protocol.STOP_FILE, protocol.CANCEL_FILE):
        put(cluster.state / "jobs" / "stays" / name, "folder")
    for pid in everything - {min(everything)}:
        os.kill(pid, signal.SIGSTOP)
    if what == "cancel":
        cluster.port.cancel("stays")
    else:
        cluster.port.checkpoint_and_stop("stays", 0.2)
    seen = cluster.wait("stays", JobState.CANCELLED, JobState.LOST)
    assert seen.state is (JobState.CANCELLED if what == "cancel" else JobState.LOST)
    assert seen.allocation == {}
    until("all of it is gone", lambda: all(gone(pid) for pid in everything))


@pytest.mark.root
def test_its_owner_cannot_end_a_jobs_keeper_and_run_on(site: Site) -> None:
    """He kills and stops all that he may, and unlinks what he may: what runs on is still held against him."""
    folder = site.submit("runs", PYTHON, "-c", "import os, time; print('runs', flush=True); time.sleep(600)")
    site.port.start("runs", {"v100-1": 2}, 1)
    until("it runs", lambda: "runs\n" in site.cluster.log("runs"))
    keeper = int((site.cluster.state / "keepers" / "runs").read_text().split()[0])
    (supervisor,) = [pid for pid in descendants(keeper) if _parent(pid) == keeper]
    attack = """
import os, signal, sys
keeper, supervisor, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGUSR2):
    try:
        os.kill(keeper, number)
    except PermissionError:
        continue
    sys.exit("the keeper took a signal")
for name in ("lock", "state.json", "epoch"):
    os.unlink(os.path.join(folder, name))
os.kill(supervisor, signal.SIGSTOP)
try:
    os.listdir(os.path.join(folder, "..", "..", "books"))
except PermissionError:
    sys.exit(0)
sys.exit("the books can be read")
"""
    site.does(attack, keeper, supervisor, folder)
    for port in (site.port, site.another()):
        (seen,) = port.observe().jobs
        assert (seen.state.holds, dict(seen.allocation)) == (True, {"v100-1": 2})
    os.kill(supervisor, signal.SIGKILL)
    assert site.cluster.wait("runs", JobState.LOST).allocation == {}


@pytest.mark.root
@pytest.mark.parametrize("what", ["cancel", "stop"])
def test_an_owner_keeps_no_gpus_against_a_request(site: Site, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """He makes folders of the requests' names and stops his supervisor."""
    monkeypatch.setattr("horae.local.upkeep.PRESS_S", 0.3)
    folder = site.submit("stays", PYTHON, "-c", "import time; print('runs', flush=True); time.sleep(600)")
    site.port.start("stays", {"v100-1": 2}, 1)
    until("it runs", lambda: "runs\n" in site.cluster.log("stays"))
    everything = tree(site.cluster, "stays")
    attack = """
import os, signal, sys
for name in ("stop", "cancel"):
    os.mkdir(os.path.join(sys.argv[1], name))
    open(os.path.join(sys.argv[1], name, "x"), "w").close()
for pid in map(int, sys.argv[2:]):
    try:
        os.kill(pid, signal.SIGSTOP)
    except PermissionError:
        continue
"""
    site.does(attack, folder, *everything)
    (site.port.cancel if what == "cancel" else lambda job: site.port.checkpoint_and_stop(job, 0.1))("stays")
    seen = site.cluster.wait("stays", JobState.CANCELLED, JobState.LOST)
    assert (seen.state.ended, dict(seen.allocation)) == (what == "cancel", {})
    assert all(gone(pid) for pid in everything)


@pytest.fixture
def roots_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTSECRET", "hunter2")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")


@pytest.mark.root
def test_a_users_job_has_his_name_and_home_and_nothing_of_roots(roots_secrets: None, site: Site) -> None:
    site.submit("says", PYTHON, "-c", "import os, time; print(dict(os.environ), flush=True); time.sleep(600)")
    site.port.start("says", {"v100-1": 1}, 1)
    until("it speaks", lambda: "}" in site.cluster.log("says"))
    said = site.cluster.log("says")
    assert "'USER': 'nobody'" in said
    assert "hunter2" not in said
    assert "/run/user/0" not in said
    assert "'/root'" not in said
    for pid in tree(site.cluster, "says"):
        assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# --- what a job is given ----------------------------------------------------------------------------------


def test_nothing_of_the_arbiters_environment_reaches_a_job(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOTSECRET", "hunter2")
    monkeypatch.setenv("SITES_WORD", "meant for all")
    cluster = make_cluster(pass_env=["SITES_WORD"])
    cluster.running("says", "import os, time; print(dict(os.environ), flush=True); time.sleep(600)")
    until("it speaks", lambda: "}" in cluster.log("says"))
    assert "SITES_WORD" in cluster.log("says")
    for pid in tree(cluster, "says"):
        assert b"ROOTSECRET" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_output_is_bounded_by_the_site(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(log_limit_bytes=50_000)
    flood = "print('x' * 1000 + '\\n' * 1, flush=True)\n" * 300
    cluster.submit("loud", flood, extra={"log_limit_bytes": "0"})
    cluster.port.start("loud", {"v100-1": 1}, 1)
    cluster.wait("loud", JobState.COMPLETED)
    sizes = [path.stat().st_size for path in (cluster.state / "jobs" / "loud").glob("output.log*")]
    assert 1 <= len(sizes) <= 2
    assert max(sizes) <= 50_000 + (1 << 18), "at most one piece of output more than its limit"


def test_the_arbiter_asks_no_address_that_a_user_names(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor dies; the job's own side looks for the newest checkpoint, and no round waits for that."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"webhdfs://127.0.0.1:{silent.getsockname()[1]}/x"
        cluster.running("asks", "import time; time.sleep(600)", checkpoint=url)

        asked: list[object] = []
        monkeypatch.setattr(socket.socket, "connect", lambda _, address: asked.append(address))
        os.kill(min(tree(cluster, "asks") - {min(tree(cluster, "asks"))}), signal.SIGKILL)
        cluster.wait("asks", JobState.LOST)
        assert asked == [], "the arbiter opens a connection"


def test_no_path_below_the_jobs_is_opened_by_its_name(cluster: Cluster) -> None:
    """Every opening of a file by an arbiter is traced: job folders by descriptor only, and never through a link."""
    cluster.running("mine", "import time; time.sleep(600)")
    program = f"""
import json, os, sys
from horae.local.adapter import LocalCluster
from horae.local.options import parse
seen = []
def hook(event, args):
    if event == "open":
        seen.append((os.fspath(args[0]) if not isinstance(args[0], int) else "", args[2]))
port = LocalCluster(parse({{"state": {str(cluster.state)!r}, "nodes": "v100:2x2,k80:1x2"}}))
sys.addaudithook(hook)
port.observe()
port.read_log("mine", 0)
port.set_reason("mine", "why")
port.checkpoint_and_stop("mine", 600.0)
port.cancel("mine")
port.observe()
print(json.dumps(seen))
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    jobs = str(cluster.state / "jobs")
    named = [path for path, _ in seen if str(path).startswith(jobs + "/")]
    assert named == []
    inside = [
        (path, flags) for path, flags in seen if re.search(r"state\.json|output\.log|^mine$|reason|stop|cancel", path)
    ]
    assert {path for path, _ in inside} >= {"mine", "state.json", "output.log"}
    assert all(flags & os.O_NOFOLLOW for _, flags in inside)
