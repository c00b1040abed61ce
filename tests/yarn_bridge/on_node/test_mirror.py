"""Rank 0's output, copied while it grows: nothing lost, nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from horae.elastic.stores import documents
from yarn_bridge.on_node.mirror import Mirror


def write(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_what_is_written_from_now_on_is_copied(tmp_path: Path) -> None:
    spool, target = tmp_path / "output.log", tmp_path / "log" / "00000002"
    write(spool, b"epoch 1\n")
    mirror = Mirror(str(spool), str(target))
    mirror.start()
    write(spool, b"epoch 2\n")
    mirror.end()
    write(spool, b"its last words\n")
    mirror.finish()
    mirror.await_sent()
    mirror.await_end()
    assert target.read_bytes() == b"epoch 2\nits last words\n"


def test_what_cannot_be_copied_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, target = tmp_path / "output.log", tmp_path / "00000001"
    mirror, tried = Mirror(str(spool), str(target)), []

    def away(url: str, data: bytes, sent: object) -> None:
        tried.append(data)
        raise OSError("connection refused")

    monkeypatch.setattr("yarn_bridge.on_node.mirror._PATIENCE_S", 0.0)
    monkeypatch.setattr("yarn_bridge.on_node.mirror._EVERY_S", 0.01)
    monkeypatch.setattr(documents, "append", away)
    write(spool, b"last words\n")
    mirror.finish()
    mirror.await_sent()  # both return
    mirror.await_end()
    assert (tried, target.exists()) == ([b"last words\n"], False)


def test_the_end_is_sent_before_it_is_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDFS takes its time for the end of a file: who waits for the bytes to be on their way does not wait for that."""
    spool, target = tmp_path / "output.log", tmp_path / "00000001"
    mirror = Mirror(str(spool), str(target))
    confirm, real = threading.Event(), documents.append

    def slow(url: str, data: bytes, sent: Callable[[], object]) -> None:
        real(url, data, sent)
        confirm.wait()

    monkeypatch.setattr(documents, "append", slow)
    write(spool, b"last words\n")
    mirror.finish()
    mirror.await_sent()
    assert target.read_bytes() == b"last words\n"
    confirm.set()
    mirror.await_end()


def test_a_spool_that_began_a_new_file_goes_on(tmp_path: Path) -> None:
    spool, target = tmp_path / "output.log", tmp_path / "00000001"
    mirror = Mirror(str(spool), str(target))
    write(spool, b"first generation\n")
    assert mirror.push()
    spool.rename(tmp_path / "output.log.1")
    write(spool, b"second\n")
    assert mirror.push()
    assert target.read_bytes() == b"first generation\nsecond\n"


@pytest.mark.parametrize("stored", [True, False])
def test_an_answer_that_is_lost_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool) -> None:
    spool, target = tmp_path / "output.log", tmp_path / "00000001"
    mirror = Mirror(str(spool), str(target))
    write(spool, b"one\n")
    real = documents.append

    def broken(url: str, data: bytes, sent: object) -> None:
        if stored:
            real(url, data)
        raise OSError("connection reset")

    monkeypatch.setattr(documents, "append", broken)
    assert not mirror.push()
    monkeypatch.setattr(documents, "append", real)
    write(spool, b"two\n")
    assert mirror.push()
    assert target.read_bytes() == b"one\ntwo\n"
