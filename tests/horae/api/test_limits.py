"""How much of the API one caller can take: silent, slow and many connections, and large bodies at once."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from horae.api import limits
from horae.api.client import Client
from tests.horae.api.backend import Book
from tests.horae.api.conftest import Caller, Serve
from tests.waiting import eventually

ABOUT = b"GET /v1/about HTTP/1.1\r\nHost: x\r\n\r\n"


def connected(client: Client) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(60)
    peer.connect(str(client.socket))
    return peer


def rest(peer: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    try:
        while part := peer.recv(1 << 16):
            found += part
    except (ConnectionResetError, BrokenPipeError):
        pass
    return found


def test_a_connection_that_asks_nothing_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(Book())
    monkeypatch.setattr(limits, "REQUEST_S", 0.3)
    for begin in (
        b"",
        b"GET /v1/about HTTP/1.1\r\nHost",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    ):
        with connected(client) as peer:
            peer.sendall(begin)
            assert b"200 OK" not in rest(peer)
    assert client.about()


def test_a_request_that_comes_byte_by_byte_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(Book())
    monkeypatch.setattr(limits, "REQUEST_S", 0.3)
    with connected(client) as peer:
        peer.sendall(b"GET /v1/about HTTP/1.1\r\nX-A: ")
        until = time.monotonic() + 240
        closed = False
        while not closed and time.monotonic() < until:
            try:
                peer.sendall(b"a")
            except OSError:
                closed = True
            closed = closed or bool(select.select([peer], [], [], 0.05)[0] and not peer.recv(100))
        assert closed


def test_a_body_in_chunks_is_refused_at_its_head(serve: Serve) -> None:
    """A byte a chunk, a few megabytes kept everybody else waiting for half a minute."""
    client = serve(Book())
    with connected(client) as peer:
        peer.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 5)
        assert rest(peer).startswith(b"HTTP/1.1 400 ")
    assert client.about()


def test_an_answer_that_is_never_over_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(Book())
    monkeypatch.setattr(limits, "ANSWER_S", 0.3)
    with connected(client) as peer:
        peer.sendall(b"GET /v1/agents/offer?app=a&after=1000000&wait_s=20 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert rest(peer) == b""


def test_a_user_has_a_share_and_others_have_theirs(serve: Serve, caller: Caller) -> None:
    client = serve(Book(), doors=limits.Doors(most=100, of_a_user=3))
    caller.becomes("ann", 54321)
    mine = [connected(client) for _ in range(3)]
    for peer in mine:  # each is in for certain once it was answered
        peer.sendall(ABOUT)
        assert peer.recv(1 << 16)
    with connected(client) as more:
        told = rest(more)
    assert told.startswith(b"HTTP/1.1 503")
    assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["message"].startswith("you have 3 connections open")
    caller.becomes("ben", 54322)
    assert client.about()["you"]["user"] == "ben"
    for peer in mine:
        peer.close()
    caller.becomes("ann", 54321)
    assert eventually(lambda: _answered(client))


def _answered(client: Client) -> bool:
    with connected(client) as peer:
        peer.sendall(ABOUT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return rest(peer).startswith(b"HTTP/1.1 200")


def test_all_together_leave_room_for_root_and_for_the_arbiter() -> None:
    doors = limits.Doors(most=40, of_a_user=10)
    let_in = [uid for uid in range(5000, 5040) if not doors.enter(uid)]
    assert len(let_in) == 40 - limits.FOR_ROOT
    assert [doors.enter(0) for _ in range(limits.FOR_ROOT)] == [""] * limits.FOR_ROOT
    assert doors.enter(0)
    for uid in let_in:
        doors.leave(uid)
    assert not doors.enter(5099)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert soft == resource.RLIM_INFINITY or limits.Doors().most < soft


def test_bodies_wait_for_room_and_are_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOK_S", 0.001)

    async def run() -> None:
        inside, door = 0, asyncio.Event()

        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            nonlocal inside
            inside += 1
            await door.wait()
            inside -= 1

        gate = limits.BodiesInFlight(app, largest=100, most=250, of_a_user=200)
        answers: list[Any] = []

        async def send(message: Any) -> None:
            answers.append(message)

        def ask(user: str, **headers: str) -> asyncio.Task[None]:
            told = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
            scope: Any = {"type": "http", "headers": told, "client": (user, 0)}
            return asyncio.ensure_future(gate(scope, None, send))  # type: ignore[arg-type]

        tasks = [ask("ann", content_length="100"), ask("ann", transfer_encoding="chunked")]
        tasks += [ask("ann"), ask("ben", content_length="50"), ask("ann", content_length="1")]
        await asyncio.sleep(0.05)
        assert inside == 4, "the last of ann waits, what has no body does not"
        monkeypatch.setattr(limits, "WAIT_S", 0.0)
        await ask("zoe", content_length="100")
        assert [m["status"] for m in answers if "status" in m] == [503]
        door.set()
        await asyncio.gather(*tasks)
        assert inside == 0

    asyncio.run(run())


HISTORY = b"GET /v1/history HTTP/1.1\r\nHost: x\r\n\r\n"


class Slow(Book):
    """Whose history takes until `opened`."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.begun, self.most = threading.Event(), 0, 0

    def history(self, **asked: Any) -> list[dict[str, Any]]:
        with self.lock:
            self.begun += 1
            self.most = max(self.most, self.begun)
        self.opened.wait(100)
        with self.lock:
            self.begun -= 1
        return super().history(**asked)


@pytest.mark.parametrize("leaves", [False, True], ids=["waits", "leaves"])
def test_who_asks_much_at_once_keeps_no_thread_from_others(serve: Serve, caller: Caller, leaves: bool) -> None:
    """Also who asks and is gone at once, whose connections are not counted any more."""
    book = Slow()
    client = serve(book)
    caller.becomes("ann", 54321)
    mine = [connected(client) for _ in range(60)]
    for peer in mine:
        peer.sendall(HISTORY)
        if leaves:
            peer.close()
    eventually(lambda: book.begun == limits.MOST_AT_WORK)
    caller.becomes("ben", 54322)
    try:
        assert Client(client.socket, timeout_s=200).about()["you"]["user"] == "ben"
        assert book.most == limits.MOST_AT_WORK
    finally:
        book.opened.set()
    if not leaves:
        for peer in mine:
            assert peer.recv(1 << 16).startswith(b"HTTP/1.1 200")
            peer.close()
    eventually(lambda: book.begun == 0)


class Watched(dict[str, Any]):
    """Plain data that tells in which threads it was read."""

    threads: set[str]

    def items(self) -> Any:
        self.threads.add(threading.current_thread().name)
        return super().items()


def test_of_a_users_calls_that_wait_for_news_one_asks_at_a_time(serve: Serve, caller: Caller) -> None:
    """More than a hundred may wait, and each goes through all jobs, five times a second: on the rounds' own thread."""
    inside, together, enough = set[int](), list[int](), threading.Event()

    class Waits(Book):
        def offer(self, app: str, *, by: str) -> dict[str, Any]:
            inside.add(threading.get_ident())
            time.sleep(0.05)
            together.append(len(inside))
            inside.discard(threading.get_ident())
            if len(together) > 24:
                enough.set()
            return {**super().offer(app, by=by), "offer": None}

    client = serve(Waits())
    caller.becomes("ann")
    peers = [connected(client) for _ in range(12)]
    for peer in peers:
        peer.sendall(b"GET /v1/agents/offer?app=a&wait_s=20 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert enough.wait(200)
    for peer in peers:
        peer.close()
    assert max(together) == 1


def test_a_large_answer_is_written_in_the_thread_that_made_it(serve: Serve, caller: Caller) -> None:
    """Written in the one that serves everybody, 100,000 events kept all other callers for seconds."""
    caller.becomes("ann")
    watched = Watched(node="n1")
    watched.threads = set()

    class Long(Book):
        def history(self, **asked: Any) -> list[dict[str, Any]]:
            self.worker = threading.current_thread().name
            return [{"seq": 1, "job": None, "text": "up", "data": watched}]

    book = Long()
    assert [each["data"] for each in serve(book, show_others=True).history()] == [{"node": "n1"}]
    assert watched.threads == {book.worker}


def test_turns_go_to_a_user_a_few_at_a_time_and_who_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_WAITING", 3)

    async def run() -> None:
        inside, door = 0, asyncio.Event()
        answers: list[int] = []

        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            nonlocal inside
            inside += 1
            await door.wait()
            inside -= 1

        async def send(message: Any) -> None:
            if "status" in message:
                answers.append(message["status"])

        gate = limits.Turns(app, free=["/news"], at_work=2)

        def ask(user: str, path: str = "/") -> asyncio.Task[None]:
            scope: Any = {"type": "http", "headers": [], "client": (user, 0), "path": path}
            return asyncio.ensure_future(gate(scope, None, send))  # type: ignore[arg-type]

        tasks = [ask(user) for user in ("ann",) * 4 + ("ben",)] + [ask("ann", "/news")]
        await asyncio.sleep(0.05)
        assert (inside, answers) == (4, []), "two of ann's, one of ben's, one that waits for news"
        await ask("ann", "/news")
        assert answers == [503], "as many wait as may, for news too"
        monkeypatch.setattr(limits, "TURN_S", 0.01)
        second = ask("ben")
        await asyncio.sleep(0)
        assert not second.done(), "there is room for it"
        third = ask("ben")
        await third
        assert answers == [503, 503], "its turn did not come in time"
        door.set()
        await asyncio.gather(*tasks, second)
        assert (inside, answers) == (0, [503, 503])

    asyncio.run(run())


# --- a living arbiter of few descriptors, and a user who takes all he can --------------------------------------

HOLD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
for _ in range(1100):
    peer = socket.socket(socket.AF_UNIX); peer.settimeout(5)
    try:
        peer.connect(sys.argv[1]); held.append(peer)
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"""
ASK = """
import socket, sys
peer = socket.socket(socket.AF_UNIX); peer.connect(sys.argv[1]); peer.settimeout(60)
peer.sendall(b"GET /v1/about HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
found = b""
while part := peer.recv(65536):
    found += part
print(found.decode())
"""


@contextmanager
def arbiter(folder: Path) -> Iterator[Path]:
    """`horae serve` with 1,024 descriptors, as a unit without limits of its own has."""
    (folder / "config.yaml").write_text(
        f"state_dir: {folder}/state\ncluster: {{adapter: fake}}\n"
        f"rounds: {{tick_s: 0.5, busy_s: 0.2}}\napi: {{socket: {folder}/a.sock}}\n"
    )
    command = [
        "prlimit",
        "--nofile=1024",
        str(Path(sys.executable).with_name("horae")),
        "serve",
        str(folder / "config.yaml"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
    try:
        eventually((folder / "a.sock").exists)
        yield folder / "a.sock"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def as_user(uid: int, script: str, *words: str, **options: Any) -> subprocess.Popen[str]:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
    return subprocess.Popen([*who, python, "-c", script, *words], text=True, cwd="/", **options)


@pytest.mark.root
def test_one_user_with_1100_connections_stops_neither_the_arbiter_nor_others() -> None:
    folder = Path(tempfile.mkdtemp(prefix="horae-"))
    folder.chmod(0o755)
    try:
        with arbiter(folder) as at:
            holder = as_user(4001, HOLD, str(at), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert holder.stdout is not None and holder.stdin is not None
            assert int(holder.stdout.readline()) > 100
            client = Client(at, timeout_s=200)
            for _ in range(3):
                asked = as_user(4002, ASK, str(at), stdout=subprocess.PIPE)
                text, _ = asked.communicate(timeout=300)
                assert text.startswith("HTTP/1.1 200"), text
            before = client.about()["rounds"]
            eventually(lambda: client.about()["rounds"] > before + 2)
            assert (folder / "log").stat().st_size < 1 << 20
            holder.stdin.close()
            holder.wait(60)
    finally:
        shutil.rmtree(folder)
    assert os.getuid() == 0
