"""`horae attach`: one job's loss and events, line by line and on a terminal, until it ends."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client
from horae.cli import wait
from horae.tui.attached import picture
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

TRAIN = ("--", "python", "train.py")


def test_it_tells_events_and_progress_and_ends_with_the_job(
    site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "_LOOK_S", 0.02)
    horae("submit", "-g", "1", "--iterations", "20", "-c", "ck", *TRAIN)
    said = horae("attach", "1", "--json", "--interval", "0.2")
    assert said.code == 0
    told = [json.loads(line) for line in said.lines]
    assert [each["event"]["kind"] for each in told if "event" in each][::100] == ["submitted"]
    progress = [each["progress"] for each in told if "progress" in each]
    assert (progress[-1]["state"], progress[-1]["ended"], progress[-1]["step"]) == ("completed", True, 20)
    assert told[-1] == {"progress": progress[-1]} or told[-1]["event"]["kind"] == "ended"
    again = horae("attach", "1")  # a job that is over: all that is known, once
    assert again.code == 0
    assert any("handed in" in line for line in again.lines)
    assert again.lines[-1].endswith("completed, step 20 of 20") or "completed, step 20 of 20, " in again.lines[-1]
    assert horae("attach", "9").code == 4


def test_it_ends_as_the_job_did(site: Client, horae: Horae) -> None:
    horae("submit", "-g", "1", "--iterations", "100000", "-c", "ck", *TRAIN)
    other = threading.Thread(
        target=lambda: (eventually(lambda: site.job("1")["state"] == "running"), site.cancel("1", "enough"))
    )
    other.start()
    said = horae("attach", "1", "--interval", "0.2")
    other.join()
    assert said.code == 137
    assert "cancelled" in said.lines[-1]


def test_it_is_no_business_of_strangers(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    horae("submit", "-g", "1", *TRAIN)
    whole = Client.job
    public = ("id", "owner", "name", "state", "ended")
    monkeypatch.setattr(Client, "job", lambda self, job: {key: whole(self, job)[key] for key in public})
    said = horae("attach", "1", "--json")
    assert said.code == 5
    assert said.json["error"]["code"] == "not-allowed"
    assert "ask its owner or an operator" in said.err


def test_on_a_terminal_it_draws_a_screen_and_leaves_the_last_one(site: Client, horae: Horae, tmp_path: Path) -> None:
    horae("submit", "-g", "1", "--iterations", "20", "-c", "ck", "--name", "resnet", *TRAIN)
    ours, its = pty.openpty()
    command = [sys.executable, "-c", "import sys; from horae.cli import main; sys.exit(main(sys.argv[1:]))"]
    with subprocess.Popen(
        [*command, "attach", "1", "--interval", "0.2"], stdin=its, stdout=its, stderr=its,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    ) as process:  # fmt: skip
        os.close(its)
        shown = b""
        with suppress(OSError):  # the other end is closed: it has ended
            while part := os.read(ours, 65536):
                shown += part
        assert process.wait() == 0, shown.decode()
    os.close(ours)
    text = shown.decode()
    assert "resnet" in text
    assert "handed in" in text
    assert "completed" in text.rpartition("job ")[2] or "completed" in text
    assert "\x1b[" in text  # drawn over


JOB: dict[str, Any] = {
    "id": "7", "name": "resnet", "tenant": "ann", "state": "running", "allocation": {"a1": 2}, "starts": 3,
    "ran_s": 90.0, "step": 40.0, "total": 100.0, "loss": 1.0, "rate": 2.5,
    "losses": [[step, 5.0 - step / 10] for step in range(41)],
}  # fmt: skip


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (40, 10), (20, 4)])
def test_the_picture_fits_the_screen(width: int, height: int) -> None:
    events = [{"wall_s": float(i), "text": f"event {i} " + "x" * 200} for i in range(50)]
    text = picture(JOB, events, width, height)
    lines = text.plain.split("\n")
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("job 7 resnet")
    if height > 20:
        assert len(lines) <= height
        assert any("event 49" in line for line in lines)
        assert lines[2].split()[0] == "5" and "█" in lines[2]
        assert lines[-1].startswith(lines[-1][:8]) and "event 49" in lines[-1]


@pytest.mark.parametrize("losses", [[], [[1, 2.0]], [[1, 2.0], [2, 2.0]]])
def test_few_losses_make_no_noise(losses: list[list[float]]) -> None:
    job = {**JOB, "losses": losses, "loss": None, "rate": None, "step": None, "total": None, "allocation": {}}
    text = picture(job, [], 80, 24).plain
    assert ("no loss is known yet" in text) == (not losses)
    assert "no GPUs" in text
