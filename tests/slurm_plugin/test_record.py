"""The file of memos: what a crash, a full disk or another's hand leaves of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import FixConfiguration
from slurm_plugin.jobs import record
from slurm_plugin.jobs.record import Grant, Memo, Memories, Stop

FULL = Memo(
    "7.abc", (Grant(1, 0, ("n1", "n2"), 2, 5.0, started=True),), Stop(9.0, 60.0, 0), limit_s=3600.0, used_s=1.5,
    blocked=("limit", "QOS"), state="running", left=(("n1",), 8.0),
)  # fmt: skip


def lines(folder: Path) -> list[str]:
    return (folder / "memos").read_text().splitlines()


def test_the_last_word_about_each_job_is_remembered(tmp_path: Path) -> None:
    memories = Memories(tmp_path)
    memories.put(FULL)
    memories.put(Memo("8"))
    memories.put(replace(FULL, used_s=2.5))
    memories.put(replace(FULL, used_s=2.5))
    assert len(lines(tmp_path)) == 3, "what does not differ is not written"
    memories.forget("8")
    memories.keep(Memo("9"))
    again = Memories(tmp_path)
    assert again.all() == (replace(FULL, used_s=2.5),)
    assert again.notes == []


def test_what_is_put_together_is_written_at_once(tmp_path: Path) -> None:
    memories = Memories(tmp_path)
    with memories.together(durable=True):
        memories.put(FULL)
        memories.put(Memo("8"))
        memories.forget("8")
        assert memories.get("7.abc") == FULL
        assert not (tmp_path / "memos").exists()
    assert len(lines(tmp_path)) == 3
    assert Memories(tmp_path).all() == (FULL,)


def test_a_line_that_a_crash_cut_off_was_never_said(tmp_path: Path) -> None:
    Memories(tmp_path).put(FULL)
    with (tmp_path / "memos").open("a") as file:
        file.write('{"job":"8","gra')
    again = Memories(tmp_path)
    assert again.all() == (FULL,)
    assert again.notes == []
    again.put(Memo("9"))
    assert [json.loads(line)["job"] for line in lines(tmp_path)] == ["7.abc", "9"], "it is gone from the file as well"


@pytest.mark.parametrize("bad", ["not json", "[]", '{"job": "8", "wrong": 1}', '{"job": "8", "grants": [{"x": 1}]}'])
def test_a_line_that_is_no_memo_is_left_out_and_told(tmp_path: Path, bad: str) -> None:
    (tmp_path / "memos").write_text(f"{bad}\n")
    memories = Memories(tmp_path)
    assert memories.all() == ()
    assert len(memories.notes) == 1
    assert "memos:1" in memories.notes[0]
    memories.put(FULL)
    assert Memories(tmp_path).notes == []


def test_reading_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "memos").write_text('not json\n{"job":')
    before = (tmp_path / "memos").read_text()
    Memories(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["memos"]
    assert (tmp_path / "memos").read_text() == before


def test_the_file_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_COMPACT_AT", 10_000)
    memories = Memories(tmp_path)
    for number in range(1000):
        memories.put(replace(FULL, used_s=float(number)))
    assert (tmp_path / "memos").stat().st_size < 12_000
    assert Memories(tmp_path).get("7.abc").used_s == 999.0


def test_what_could_not_be_written_is_written_the_next_time(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    memories = Memories(folder)
    folder.rmdir()
    with pytest.raises(FixConfiguration) as raised, memories.together():
        memories.put(FULL)
    assert "memory/memos" in str(raised.value)
    folder.mkdir()
    memories.put(FULL)
    assert Memories(folder).all() == (FULL,)


def test_who_only_looks_makes_no_folder(tmp_path: Path) -> None:
    """Root's doctor before the first start: the service's account could not use a folder of root's."""
    folder = tmp_path / "spool/state"
    memories = Memories(folder)
    assert memories.all() == ()
    assert not (tmp_path / "spool").exists()
    memories.put(FULL)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert Memories(folder).all() == (FULL,)
