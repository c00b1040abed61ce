"""Ranks that talk by plain TCP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horae.elastic.sdk import ranks
from horae.elastic.sdk.environment import Environment
from horae.elastic.sdk.ranks import Alone, NotFormed, RankLost, Star, connect
from horae.elastic.supervisor.shape import free_ports, local_members


def environment(rank: int, world: int, port: int, epoch: int = 1, secret: str = "theirs") -> Environment:
    return Environment({
        "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_PORT": str(port), "HORAE_EPOCH": str(epoch),
        "HORAE_SECRET": secret,
    })  # fmt: skip


def gang(world: int, body: Callable[[Star], Any]) -> list[Any]:
    """`body` on every rank of a star, each in a thread; their results by rank. Raises what any of them raised."""
    port = free_ports()
    results: list[Any] = [None] * world
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            star = Star(environment(rank, world, port), patience_s=120.0)
            try:
                results[rank] = body(star)
            finally:
                star.close()
        except Exception as error:  # noqa: BLE001  (handed to the test)
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200.0)
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("world", [2, 5])
def test_sums_and_maxima_are_the_same_everywhere(world: int) -> None:
    def body(star: Star) -> Any:
        array = star.all_sum(np.full((2, 3), star.rank + 1, dtype=np.float32))
        return (
            array.tolist(),
            array.dtype.name,
            star.all_max([star.rank, -star.rank]),
            star.all_sum([0.5, star.rank]),
        )

    total = world * (world + 1) / 2
    expected = ([[total] * 3] * 2, "float32", [world - 1, 0], [0.5 * world, total - world])
    assert gang(world, body) == [expected] * world


def test_sums_do_not_depend_on_who_is_faster() -> None:
    """Floating-point sums in rank order: bit for bit the same each time."""
    values = [np.random.RandomState(rank).randn(1000) for rank in range(4)]
    expected = values[0] + values[1] + values[2] + values[3]
    for result in gang(4, lambda star: star.all_sum(values[star.rank])):
        assert (result == expected).all()


def test_rank_zero_tells_the_others() -> None:
    assert gang(3, lambda star: star.broadcast(b"x" * 100_000 if star.rank == 0 else b"")) == [b"x" * 100_000] * 3
    assert gang(2, lambda star: star.barrier()) == [None, None]


def test_a_rank_that_leaves_breaks_the_star_for_all() -> None:
    with pytest.raises(RankLost):
        gang(3, lambda star: None if star.rank == 1 else star.all_max([1.0]))


def two_find_each_other(port: int, meanwhile: Callable[[], None]) -> None:
    """Ranks 0 and 1 do, whatever comes to rank 0 before the other."""
    found: list[list[float]] = []

    def one(rank: int) -> None:
        star = Star(environment(rank, 2, port), patience_s=120.0)
        found.append(star.all_max([float(rank)]))
        star.close()

    zero = threading.Thread(target=one, args=(0,))
    zero.start()
    meanwhile()
    one(1)
    zero.join(120.0)
    assert found == [[1.0], [1.0]]


def test_strangers_and_ranks_of_another_start_are_not_let_in() -> None:
    port = free_ports()

    def come() -> None:
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 8 + b"", b"\0" * 7 + b"\x05hello"):
            with socket.create_connection(("127.0.0.1", _listening(port + 1)), timeout=90.0) as stranger:
                stranger.sendall(greeting)
        with pytest.raises(RankLost):
            Star(environment(1, 2, port, epoch=0), 120.0)

    two_find_each_other(port, come)


def test_who_knows_all_but_the_secret_joins_nothing() -> None:
    """The name of a gang is no secret: job, start and port can be seen by every user of the machine."""
    port = free_ports()

    def guess() -> None:
        for secret in ("", "mine"):
            with pytest.raises(RankLost):
                Star(environment(1, 2, port, secret=secret), 120.0)

    two_find_each_other(port, guess)


def test_the_ranks_of_one_start_are_given_one_secret() -> None:
    told: list[str] = []
    for _ in range(2):
        started = local_members(["x"], {}, "/", {"a": 2, "b": 1})
        of_this = {member.env["HORAE_SECRET"] for member in started}
        assert len(of_this) == 1 and all(of_this)
        told += of_this
    assert told[0] != told[1]


def test_who_listens_in_rank_zeros_place_tells_the_others_nothing() -> None:
    """What it said would be where the checkpoint is that they load."""
    port, over = free_ports(), threading.Event()

    def false_zero() -> None:
        with pytest.raises(NotFormed):  # nobody joined it
            Star(environment(0, 2, port, secret="mine"), 120.0, over.is_set)

    def mimic() -> None:
        with socket.create_server(("127.0.0.1", port + 1)) as server:
            peer, _ = server.accept()
            peer.sendall(b"\0" * 16)
            peer.recv(4096)
            word = b"formed" + b"\0" * 32
            peer.sendall(len(word).to_bytes(8, "big") + word)
            peer.recv(4096)

    for stranger in (false_zero, mimic):
        thread = threading.Thread(target=stranger)
        thread.start()
        with pytest.raises(RankLost):
            Star(environment(1, 2, port), 120.0)
        over.set()
        thread.join(120.0)


def test_who_connects_and_says_nothing_keeps_nobody_waiting() -> None:
    port, silent = free_ports(), list[socket.socket]()
    found: list[list[float]] = []

    def one(rank: int) -> None:
        star = Star(environment(rank, 2, port), patience_s=300.0)
        found.append(star.all_max([float(rank)]))
        star.close()

    zero = threading.Thread(target=one, args=(0,))
    zero.start()
    try:
        for _ in range(200):
            silent.append(socket.create_connection(("127.0.0.1", _listening(port + 1)), timeout=90.0))
        started = threading.Thread(target=one, args=(1,))
        started.start()
        started.join(200.0)
        zero.join(200.0)
    finally:
        for each in silent:
            each.close()
    assert found == [[1.0], [1.0]]


def _listening(port: int) -> int:
    """`port`, once somebody listens there."""
    import time

    deadline = time.monotonic() + 240
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return port
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_gang_that_does_not_form_is_told() -> None:
    port = free_ports()
    with pytest.raises(RankLost, match=r"ranks \[1, 2\] did not come"):
        Star(environment(0, 3, port), patience_s=0.1)
    with pytest.raises(RankLost, match="rank 0 did not come"):
        Star(environment(1, 3, port), patience_s=0.1)


def test_a_gang_asked_to_leave_while_it_forms_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four ranks came; rank 0 hears the request, and the other one is told by it."""
    port, joined, told = free_ports(), threading.Event(), list[int]()
    join = ranks._Door._join

    def noticed(*arguments: Any) -> None:
        join(*arguments)
        joined.set()

    def one(rank: int, asked: Callable[[], bool]) -> None:
        with pytest.raises(NotFormed):
            Star(environment(rank, 4, port), 200.0, asked)
        told.append(rank)

    monkeypatch.setattr(ranks._Door, "_join", noticed)
    threads = [threading.Thread(target=one, args=pair) for pair in ((0, joined.is_set), (1, lambda: False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100.0)
    assert sorted(told) == [0, 1]
    with pytest.raises(NotFormed):  # and nobody waits for a rank 0 that will not come
        Star(environment(2, 4, port), 200.0, lambda: True)


def test_who_is_at_the_door_when_all_are_asked_to_leave_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had connected and not said yet who it was: it failed, and its job with it."""
    port, asked, connected = free_ports(), threading.Event(), threading.Event()
    dismiss = ranks._Door.dismiss

    def once_somebody_is_there(door: ranks._Door) -> None:
        assert connected.wait(100.0)
        dismiss(door)

    def zero() -> None:
        with pytest.raises(NotFormed):
            Star(environment(0, 2, port), 200.0, lambda: asked.set() or True)  # type: ignore[func-returns-value]

    monkeypatch.setattr(ranks, "_LOOK_S", 2.0)
    monkeypatch.setattr(ranks._Door, "dismiss", once_somebody_is_there)
    thread = threading.Thread(target=zero)
    thread.start()
    assert asked.wait(100.0)
    own = environment(1, 2, port)
    with socket.create_connection(("127.0.0.1", port + 1), timeout=60.0) as guest:
        connected.set()
        drawn, ours, said = ranks._exactly(guest, ranks._NONCE), bytes(ranks._NONCE), ranks._said(own, 1)
        ranks._send(guest, ours + ranks._Bond(own, drawn, ours).proof(said) + said)
        word = ranks._receive(guest, limit=100)
    thread.join(100.0)
    assert word == ranks._Bond(own, ours, drawn).signed(ranks._LEAVE)


def test_a_rank_whose_rank_zero_has_left_leaves_once_it_is_asked_itself() -> None:
    """The request reaches one before the other."""
    port, asked = free_ports(), threading.Event()
    server = socket.create_server(("127.0.0.1", port + 1))

    def leaves() -> None:
        with server, server.accept()[0] as peer:
            peer.sendall(bytes(ranks._NONCE))
            ranks._receive(peer, limit=4096)
        asked.set()

    thread = threading.Thread(target=leaves)
    thread.start()
    with pytest.raises(NotFormed):
        Star(environment(1, 2, port), 200.0, asked.is_set)
    thread.join(100.0)


def test_alone_needs_nobody() -> None:
    alone = connect(Environment({}))
    assert isinstance(alone, Alone)
    assert alone.all_max([1, 2]) == [1, 2]
    assert alone.broadcast(b"x") == b"x"


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"RANK": "two"}, "RANK='two' is not a whole number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is not below WORLD_SIZE=2"),
    ],
)
def test_an_environment_that_cannot_be_is_refused(variables: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Environment(variables)


def test_launchers_words_are_understood() -> None:
    slurm = Environment({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"})
    assert (slurm.rank, slurm.world, slurm.local_rank) == (3, 4, 1)
    alone = Environment({})
    assert (alone.rank, alone.world, alone.epoch, alone.checkpoint) == (0, 1, 0, None)
