"""Readers of aggregated logs on files that real NodeManagers wrote, whole, cut and damaged."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model import BadInput
from tests.yarn_bridge.aggregated import FILES, LOG, Memory, recorded
from yarn_bridge.logs.aggregated import entries
from yarn_bridge.logs.tfile import MAGIC, Block, Damaged, Stream, TFile, unpacked

YARNS = {"launch_container.sh", "directory.info", "prelaunch.out", "prelaunch.err"}


def read(data: bytes, piece: int = 4096) -> dict[str, bytes]:
    found = {}
    for entry in entries(Memory(data, piece)):
        text = b"".join(entry.pieces)
        assert len(text) == entry.length
        assert entry.container.startswith("container_")
        found[entry.file] = text
    return found


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_each_log_is_what_the_program_printed(name: str, piece: int) -> None:
    found = read(recorded(name), piece)
    assert set(found) == {"stdout", "stderr"} | YARNS
    assert found["stdout"] == LOG
    assert found["stderr"] == b"a warning of the trainer's\n"
    assert found["launch_container.sh"].startswith(b"#!/bin/bash")


@pytest.mark.parametrize("name", FILES)
def test_a_log_that_nobody_reads_is_passed_over(name: str) -> None:
    assert [each.file for each in entries(Memory(recorded(name)))] == list(read(recorded(name)))


def test_a_log_of_several_chunks_passes_in_small_pieces() -> None:
    """TFile cuts a value into chunks of a megabyte; memory holds a small part of it."""
    sizes = []
    for entry in entries(Memory(recorded("3.4.2-tfile-gz-long"))):
        if entry.file == "stdout":
            text = b""
            for piece in entry.pieces:
                sizes.append(len(piece))
                text += piece
    assert text == LOG_OF_3 + b"step 3/3 loss 0.1 0.5 s/it\n" * 50_000
    assert len(text) > 1 << 20
    assert max(sizes) <= 1 << 16


LOG_OF_3 = b"".join(b"step %d/3 loss %.4f 0.5 s/it\n" % (step, 2.0 / step**0.3) for step in range(1, 4))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_says_where(name: str) -> None:
    data = recorded(name)
    for end in (1, 15, 16, 40, len(data) // 2, len(data) - 16, len(data) - 1):
        with pytest.raises(Damaged) as told:
            read(data[:end])
        assert told.value.where == "/tmp/logs/alice/n1_8041"
        assert 0 <= told.value.offset <= end
        assert "yarn logs" in told.value.remedy


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_damage_is_told_or_harmless_and_never_a_surprise(name: str, data: st.DataObject) -> None:
    """Any few bytes may be wrong: the answer is a Damaged (or an unknown packing), or logs of believable size."""
    content = bytearray(recorded(name))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(content))
    except BadInput as error:
        assert error.where
        assert error.remedy
    else:
        assert sum(map(len, found.values())) < 1 << 20


@given(st.binary(max_size=300))
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        read(data)
    with pytest.raises(BadInput):
        read(MAGIC + data + MAGIC)


def test_an_unknown_packing_is_named() -> None:
    with pytest.raises(BadInput, match="packed with lzo") as told:
        unpacked(Memory(b""), Block(0, 0, 0), "lzo")
    assert "compression-type=gz" in told.value.remedy


def test_a_block_that_unpacks_to_more_than_it_should_is_stopped() -> None:
    packed = zlib.compress(bytes(50 << 20))
    taken = 0
    with pytest.raises(Damaged, match="longer than its index says"):
        for piece in unpacked(Memory(packed), Block(0, len(packed), 1000), "gz"):
            taken += len(piece)
    assert taken <= 1000


def vint(number: int) -> bytes:
    """Written as the Javadoc of Utils.writeVLong tells, independently of the reader."""
    if -32 <= number < 128:
        return number.to_bytes(1, "big", signed=True)
    un = number if number >= 0 else ~number
    for size, base, least in ((2, -52, -20 << 8), (3, -88, -16 << 16), (4, -112, -8 << 24)):
        most = -least
        if least <= number < most:
            high = number >> (8 * (size - 1))
            return bytes([(high + base) & 0xFF]) + (number & ((1 << (8 * (size - 1))) - 1)).to_bytes(size - 1, "big")
    size = max(4, (un.bit_length() + 8) // 8)
    return bytes([(size - 129) & 0xFF]) + number.to_bytes(size, "big", signed=True)


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-1 << 28, 1 << 28) | st.integers(-300, 300))
def test_integers_come_back(number: int) -> None:
    stream = Stream(iter([vint(number) + b"rest"]), "x", 0)
    assert stream.vint() == number
    assert stream.take(4) == b"rest"


def test_an_application_without_logs_has_none() -> None:
    """A TFile whose records tell whose it is, and nothing more."""
    data = recorded("3.4.2-tfile-none")
    keys = [key for key, _ in TFile(Memory(data)).records()]
    assert keys[:3] == [b"\x00\x07VERSION", b"\x00\x0fAPPLICATION_ACL", b"\x00\x11APPLICATION_OWNER"]
