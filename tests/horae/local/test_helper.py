"""Who is root beside an arbiter that is not, and what somebody who has taken the arbiter over gets out of it: nothing
as root, nothing as an account of the system, nothing outside the folders of jobs."""

from __future__ import annotations

import errno
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from horae.config import parse
from horae.local import confine, helper
from horae.local.adapter import LocalCluster
from horae.local.asked import Asked, file_of
from horae.local.helper import ANSWER, REQUEST
from horae.local.launch import environment
from horae.local.operations import READ, WRITTEN
from horae.untrusted import Unbelievable
from policy.model import BadInput
from tests.horae.elastic.exec_job import gone, until
from tests.horae.local.attack_day import ACCOUNT, ANN, BOB, Day, serving
from tests.horae.local.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.root
BIN, DAEMON, NOBODY = 2, 1, 65534


class Taken:
    """A helper, and its socket in the wrong hands."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.peer = confine.started(state, sys.executable, environment(), 1000, BIN)
        self.asked = Asked(self.peer, state)

    def raw(self, message: bytes, *given: int) -> tuple[int, str]:
        """(code, why) of the answer to any message."""
        socket.send_fds(self.peer, [message], given)
        data, made, _, _ = socket.recv_fds(self.peer, ANSWER.size, 8)
        assert made == []
        code, where, why = ANSWER.unpack(data)
        return code, (where + why).replace(b"\0", b"").decode()

    def job(self, name: str = "j", owner: str = "nobody") -> Path:
        self.asked.make(name, b"{}", owner)
        return self.state / "jobs" / name


@pytest.fixture
def taken(open_to_all: Path) -> Iterator[Taken]:
    made = Taken(open_to_all / "state")
    yield made
    made.peer.close()


def refused(does: Callable[[], Any]) -> str:
    with pytest.raises(OSError, match=r".") as error:
        does()
    assert error.value.errno == errno.EPERM
    return str(error.value)


# --- messages -----------------------------------------------------------------------------------------------

WHOLE = REQUEST.pack(helper.OPEN, 0, 0, b"j", b"")


NONE = [
    b"x",
    WHOLE[:-1],
    WHOLE + b"\0",
    b"\0" * 60_000,
    random.Random(1).randbytes(REQUEST.size),
    REQUEST.pack(0, 0, 0, b"j", b""),
    REQUEST.pack(255, 0, 0, b"j", b""),
    REQUEST.pack(helper.OPEN, 2, 0, b"j", b""),
    REQUEST.pack(helper.OPEN, 0, 0, b"j\0k", b""),
    REQUEST.pack(helper.OPEN, 0, 0, b"j", b"state.json\0x"),
    REQUEST.pack(helper.OPEN, 0, 0, b"\xff", b""),
    *(
        REQUEST.pack(verb, 0, 0, name, b"")
        for verb in (helper.OPEN, helper.SIGNAL, helper.KILL, helper.CLEAR)
        for name in (b"", b".", b"..", b"../books", b"a/b", b"/etc", b".gone.j", b"j\n", b"x" * 201, b"x" * 256)
    ),
]


@pytest.mark.parametrize("message", NONE, ids=map(str, range(len(NONE))))
def test_a_message_that_is_none_is_refused_and_the_next_one_answered(taken: Taken, message: bytes) -> None:
    taken.job()
    code, _ = taken.raw(message)
    assert code in (errno.EPERM, errno.EINVAL)
    os.close(taken.asked.open("j").fd)


def test_descriptors_where_none_belong_and_others_than_files_are_refused(taken: Taken, tmp_path: Path) -> None:
    taken.job()
    held, (read, write) = os.open(tmp_path, os.O_RDONLY), os.pipe()
    with file_of(b"{}") as file, socket.socket() as peer:
        for given in ([file], [file, file], [file] * 8, [file] * 30):
            assert taken.raw(WHOLE, *given)[0] == errno.EPERM
        make = REQUEST.pack(helper.MAKE, 0, 0, b"k", b"nobody")
        for given in ([], [file, file], [held], [read], [write], [peer.fileno()]):
            assert taken.raw(make, *given)[0] == errno.EPERM
        start = REQUEST.pack(helper.START, 0, 0, b"j", b"nobody")
        for given in ([], [file], [file, held], [read, file], [file, file, file]):
            assert taken.raw(start, *given)[0] == errno.EPERM
        os.ftruncate(file, helper.MOST_BYTES + 1)
        assert taken.raw(make, file)[0] == errno.EPERM
        assert taken.raw(start, file, file)[0] == errno.EPERM
    for fd in (held, read, write):
        os.close(fd)
    assert [path.name for path in (taken.state / "jobs").iterdir()] == ["j"]
    (pid,) = helpers(taken.state)
    assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 12, "it keeps nothing that it was handed"


def helpers(state: Path) -> list[int]:
    mark = os.fsencode(state)
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words and any(b"horae.local.helper" in word for word in words):
            found.append(int(path.parent.name))
    return found


def test_it_ends_with_the_arbiter_and_has_nothing_of_roots_environment(
    open_to_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOTSECRET", "hunter2")
    taken = Taken(open_to_all / "state")
    (pid,) = helpers(taken.state)
    assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()
    taken.peer.close()
    until("it is gone", lambda: gone(pid))
    with pytest.raises(OSError, match="restart the arbiter"):
        Asked(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0], taken.state).open("j")


def test_it_imports_nothing_from_where_it_was_started(open_to_all: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted, ran = open_to_all / "planted", open_to_all / "ran"
    planted.mkdir()
    for name in ("ctypes", "json", "pwd", "socket", "struct", "horae", "sitecustomize", "usercustomize"):
        (planted / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\n")
    monkeypatch.chdir(planted)
    monkeypatch.setenv("PYTHONPATH", str(planted))
    taken = Taken(open_to_all / "state")
    taken.job()
    taken.peer.close()
    assert not ran.exists()


# --- as whom ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["root", "daemon", "bin", "no-such-user", "", "0", "nobody/", "x" * 255])
def test_nothing_is_done_for_root_accounts_of_the_system_and_the_arbiter(taken: Taken, user: str) -> None:
    refused(lambda: taken.asked.make("k", b"{}", user))
    folder = taken.job()
    with file_of(b"{}") as file:
        refused(lambda: taken.asked.start("j", user, file, file))
    refused(lambda: taken.asked.kill_left("j", user))
    assert folder.stat().st_uid == NOBODY
    assert not (taken.state / "jobs" / "k").exists()
    assert not list((taken.state / "keepers").iterdir())


@pytest.mark.parametrize("uid", [0, DAEMON, BIN])
def test_a_folder_of_theirs_is_not_touched(taken: Taken, uid: int) -> None:
    folder = taken.job()
    os.chown(folder, uid, uid)
    for does in (
        lambda: taken.asked.open("j"),
        lambda: taken.asked.ask(helper.DROP, "j", "stop"),
    ):
        with pytest.raises(Unbelievable, match="nothing is done for"):
            does()
    with file_of(b"{}") as file:
        with pytest.raises(Unbelievable, match="nothing is done for"):
            taken.asked.ask(helper.PUT, "j", "stop", [file])
        with pytest.raises(Unbelievable, match="nothing is done for"):
            taken.asked.start("j", "nobody", file, file)
    assert [path.name for path in folder.iterdir()] == ["spec.json"]


def test_no_job_is_started_as_another_than_its_folders_owner(taken: Taken) -> None:
    taken.job()
    other = next(entry.pw_name for entry in users() if entry.pw_uid >= 1000 and entry.pw_uid != NOBODY)
    with file_of(b"{}") as file:
        assert "another user's job" in refused(lambda: taken.asked.start("j", other, file, file))


def users() -> list[Any]:
    return pwd.getpwall()


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["spec", "../spec.json", "spec.json/", "..", ".", "mine", "x" * 200])
def test_other_files_are_neither_read_nor_written(taken: Taken, name: str) -> None:
    folder = taken.job()
    (folder / "mine").write_text("his")
    refused(lambda: taken.asked.ask(helper.OPEN, "j", name))
    refused(lambda: taken.asked.ask(helper.DROP, "j", name))
    with file_of(b"evil") as file:
        refused(lambda: taken.asked.ask(helper.PUT, "j", name, [file]))
    assert sorted(path.name for path in folder.iterdir()) == ["mine", "spec.json"]


@pytest.mark.parametrize("name", sorted(READ - WRITTEN))
def test_what_is_only_read_is_not_written(taken: Taken, name: str) -> None:
    folder = taken.job()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with file_of(b"evil") as file:
        refused(lambda: taken.asked.ask(helper.PUT, "j", name, [file]))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_only_plain_files_of_the_owners_are_handed_out_and_only_to_read(taken: Taken, tmp_path: Path) -> None:
    folder = taken.job()
    secret = folder.parent.parent / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    place = folder / "state.json"
    for plant in (
        lambda: place.symlink_to(secret),
        lambda: place.hardlink_to(secret),  # where the kernel lets users do that
        lambda: os.mkfifo(place),
        place.mkdir,
        lambda: place.symlink_to("spec.json"),
    ):
        plant()
        with pytest.raises(Unbelievable):
            taken.asked.ask(helper.OPEN, "j", "state.json")
        place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()
    fd = taken.asked.ask(helper.OPEN, "j", "spec.json")
    assert fd is not None
    with pytest.raises(OSError, match="Bad file"):
        os.write(fd, b"x")
    os.close(fd)
    with taken.asked.open("j") as seen:
        assert seen.names() == ["spec.json"]
        inner = "import os, sys\nos.setuid(2)\nos.open('spec.json', os.O_RDONLY, dir_fd=int(sys.argv[1]))"
        done = subprocess.run(
            [sys.executable, "-I", "-c", inner, str(seen.fd)], pass_fds=[seen.fd], capture_output=True, check=False
        )
        assert b"PermissionError" in done.stderr, "the folder's descriptor shows names and opens nothing"


def test_what_is_written_is_the_owners_and_follows_no_link(taken: Taken, tmp_path: Path) -> None:
    folder = taken.job()
    secret = tmp_path / "secret"
    secret.write_text("root's")
    (folder / "stop").symlink_to(secret)
    (folder / "cancel").mkdir()
    for name in ("stop", "cancel"):
        with file_of(b"new") as file:
            taken.asked.ask(helper.PUT, "j", name, [file])
        found = (folder / name).lstat()
        assert (stat.S_ISREG(found.st_mode), found.st_uid) == (True, NOBODY)
    assert (secret.read_text(), secret.stat().st_uid) == ("root's", 0)


# --- folders that are swapped ---------------------------------------------------------------------------------


def test_a_folder_put_in_the_place_of_the_jobs_is_not_entered(taken: Taken) -> None:
    """Whoever has the arbiter's account may rename in STATE: the helper stays where it began."""
    taken.job()
    other = taken.state / "other"
    other.mkdir()
    (other / "j").mkdir()
    (taken.state / "jobs").rename(taken.state / "away")
    other.rename(taken.state / "jobs")
    taken.asked.make("k", b"{}", "nobody")
    with file_of(b"x") as file:
        taken.asked.ask(helper.PUT, "j", "stop", [file])
    assert sorted(path.name for path in (taken.state / "away").iterdir()) == ["j", "k"]
    assert (taken.state / "away" / "j" / "stop").exists()
    assert not list((taken.state / "jobs" / "j").iterdir())


@pytest.mark.parametrize("which", ["jobs", "keepers"])
@pytest.mark.parametrize("how", ["owner", "mode", "link"])
def test_it_does_not_begin_in_folders_that_others_can_write(open_to_all: Path, which: str, how: str) -> None:
    state = open_to_all / "state"
    Taken(state).peer.close()
    folder = state / which
    if how == "owner":
        os.chown(folder, BIN, BIN)
    elif how == "mode":
        folder.chmod(0o777)
    else:
        folder.rename(state / "away")
        folder.symlink_to(state / "away")
    with pytest.raises(OSError, match=r"is not root's alone|is not a folder|is a link"):
        Taken(state)


# --- signals --------------------------------------------------------------------------------------------------


def test_only_keepers_are_signalled_and_only_as_keepers_are(taken: Taken) -> None:
    taken.job()
    with subprocess.Popen(["/bin/sleep", "600"]) as victim:
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, -1, 65, 1 << 30):
            refused(lambda number=number: taken.asked.signal("j", number))
        for note in (f"{victim.pid} 1\n", f"{victim.pid}\n", f"-1 {victim.pid}\n", "1 1", "\u0662 1", ""):
            (taken.state / "keepers" / "j").write_text(note)
            assert not taken.asked.signal("j", signal.SIGUSR2)
        assert victim.poll() is None
        victim.kill()


@pytest.mark.parametrize("name", ["sleep", "a\rUid:\t7", "Uid:\n"])
def test_what_is_killed_is_the_owners_and_carries_the_jobs_mark(taken: Taken, open_to_all: Path, name: str) -> None:
    """Whatever name his process gives itself, where the kernel writes whose it is."""
    program = shutil.copy("/bin/sleep", open_to_all / name)
    mark = {"HORAE_JOB_DIR": str(taken.job())}

    def sleeps(uid: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen([program, "600"], user=uid, group=uid, extra_groups=[], env=env)

    his, others = sleeps(NOBODY, mark), [sleeps(NOBODY, {}), sleeps(DAEMON, mark), sleeps(0, mark)]
    taken.asked.kill_left("j", "nobody")
    assert his.wait(30) == -signal.SIGKILL
    assert [process.poll() for process in others] == [None] * 3
    for process in others:
        process.kill()
        process.wait()


# --- a whole arbiter ------------------------------------------------------------------------------------------


def identity(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_the_arbiter_is_not_root_and_cannot_be_again_while_jobs_of_two_users_run_as_themselves(
    open_to_all: Path,
) -> None:
    with serving(open_to_all / "site", ACCOUNT) as day:
        jobs = {uid: day.submits(uid, command=["/bin/sh", "-c", "id -u; exec sleep 600"]) for uid in (ANN, BOB)}
        eventually(lambda: all(day.operator.job(job)["state"] == "running" for job in jobs.values()))
        for uid, job in jobs.items():
            eventually(lambda uid=uid, job=job: f"\n{uid}\n" in day.calls(uid, "GET", f"/v1/jobs/{job}/log")[1])
        for task in Path(f"/proc/{day.process.pid}/task").iterdir():
            found = identity(int(task.name))
            assert found["Uid"].split() == found["Gid"].split() == [str(BIN)] * 4
            assert "0" not in found["Groups"].split()
            assert {found[key].strip("0") for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
            assert found["NoNewPrivs"] == "1"
        assert identity(day.helper)["Uid"].split() == ["0"] * 4
        notes = day.operator.about()["notes"]
        assert not any("root as a whole" in note for note in notes)


def test_keepers_are_found_again_and_an_arbiter_may_become_root_as_a_whole_and_back(open_to_all: Path) -> None:
    """Jobs of one arbiter run on under the next, whichever of the two ways that is started."""
    site, jobs = open_to_all / "site", list[str]()
    for account, submits in (("", 2), (ACCOUNT, 1), (ACCOUNT, 0), ("", 0)):
        with serving(site, account, ends=False) as day:
            all_run(day, jobs)
            if jobs:
                ends_at_once(day, jobs.pop(0))
            jobs += [day.submits(ANN, command=["/bin/sleep", "600"]) for _ in range(submits)]
            all_run(day, jobs)
            assert any("root as a whole" in note for note in day.operator.about()["notes"]) == (not account)
    assert jobs == []


def all_run(day: Day, jobs: Sequence[str]) -> None:
    eventually(lambda: all(day.operator.job(job)["state"] == "running" for job in jobs))


def ends_at_once(day: Day, job: str) -> None:
    """By its keeper: its supervisor is stopped and reads no request."""
    keeper = int((day.folder / "local" / "keepers" / job).read_text().split()[0])
    day.operator.cancel(job)
    eventually(lambda: day.operator.job(job)["state"] == "cancelled")
    until("its keeper is gone", lambda: gone(keeper))


@pytest.mark.parametrize(
    ("account", "words"), [("no-such-user", "useradd --system"), ("root", "is root"), ("../x", "not a user's name")]
)
def test_an_account_that_is_none_is_refused_with_what_to_do(tmp_path: Path, account: str, words: str) -> None:
    with pytest.raises(BadInput, match=r".") as error:
        confine.confine(configured(tmp_path, account), Path("/etc/passwd"))
    assert words in str(error.value)


@pytest.mark.parametrize("how", ["the file is the account's", "everybody may write it", "its folder is the account's"])
def test_a_configuration_that_others_can_change_is_not_followed_as_root(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    file = folder / "config.yaml"
    file.write_text("")
    if how == "everybody may write it":
        file.chmod(0o666)
    else:
        os.chown(file if how == "the file is the account's" else folder, BIN, BIN)
    with pytest.raises(BadInput, match="can be changed by others than root"):
        confine.confine(configured(tmp_path, ACCOUNT), file)
    assert tmp_path.stat().st_uid == 0


def test_folders_that_hold_others_things_are_given_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    with pytest.raises(BadInput, match="'mail', which is not the arbiter's"):
        confine.confine(configured(tmp_path, ACCOUNT), Path("/etc/passwd"))
    assert tmp_path.stat().st_uid == 0


def test_a_note_of_a_keeper_in_the_accounts_own_folder_is_not_taken_over(open_to_all: Path) -> None:
    """Root takes over from an arbiter that is not: what that could write names no process to signal."""
    cluster = Cluster(open_to_all)
    books = cluster.state / "books"
    for path in (cluster.state, books):
        os.chown(path, BIN, BIN)
    (books / "j.keeper").write_text(f"{os.getpid()} 1\n")
    LocalCluster(cluster.options).claim("root's")
    assert not list((cluster.state / "keepers").iterdir())
    os.chown(books, 0, 0)
    LocalCluster(cluster.options).claim("root's")
    assert [path.name for path in (cluster.state / "keepers").iterdir()] == ["j"], "root's own are"


def test_what_root_writes_beside_an_arbiter_that_is_not_stays_that_ones(open_to_all: Path) -> None:
    cluster = Cluster(open_to_all)
    books = cluster.state / "books"
    os.chown(books, BIN, BIN)
    other = LocalCluster(cluster.options)
    other.submit("j", cluster.spec("j"))
    other.cancel("j")
    assert {path.stat().st_uid for path in books.iterdir()} == {BIN}


@pytest.mark.parametrize("name", ["books", "jobs", "keepers", "nodes"])
@pytest.mark.parametrize("how", ["link", "swapped"])
def test_what_the_account_puts_into_its_folder_is_not_given_to_it(
    open_to_all: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    """It plants links and other folders of root's in the places of those that a start looks for."""
    state, roots = open_to_all / "state", open_to_all / "roots"
    Cluster(open_to_all)
    roots.mkdir()
    (roots / "x.keeper").write_text("1 1")
    user = pwd.getpwnam(ACCOUNT)
    confine._cluster_folders(state, user)
    assert {path.name: path.stat().st_uid for path in state.iterdir()} == {
        "books": BIN, "claim": BIN, "jobs": 0, "keepers": 0, "nodes": 0,
    }  # fmt: skip
    (state / name).rename(state / "away")
    (state / name).symlink_to(roots) if how == "link" else roots.rename(state / name)
    confine._cluster_folders(state, user)
    roots = state / name if how == "swapped" else roots
    assert [(path.stat().st_uid, path.read_text()) for path in (roots, roots / "x.keeper") if path.is_file()] == [
        (0, "1 1")
    ]
    assert roots.stat().st_uid == 0
    assert not (state / "keepers" / "x").exists()


def configured(folder: Path, account: str) -> Any:
    options = f"state: {folder}, nodes: 'a:1', account: {account}"
    return parse(f"state_dir: {folder}\ncluster: {{adapter: local, options: {{{options}}}}}")
