"""What an operator should know is told by `horae serve` itself, once, and again when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from horae.arbiter.service import Arbiter
from horae.arbiter.teller import Teller
from horae.fake import FakePort, World
from horae.journal.ledger import Alert
from horae.port import FixConfiguration, Observation
from tests.horae.arbiter.site import NODES, config
from tests.waiting import eventually


def told(logged: Sequence[Any]) -> list[str]:
    return [str(each["event"]) for each in logged]


def test_each_alert_is_told_once_and_its_end_too() -> None:
    teller = Teller()
    with capture_logs() as logged:
        for _ in range(3):
            teller.look({"cluster": Alert("squeue is not there", "install it", 1.0, 1.0)}, None)
        teller.look({"cluster": Alert("squeue says no", "", 2.0, 2.0)}, "no room")
        for _ in range(2):
            teller.look({}, None)
    assert told(logged) == [
        "alert: squeue is not there", "alert: squeue says no", "alert: no room",
        "no longer: squeue says no", "no longer: no room",
    ]  # fmt: skip
    assert logged[0]["remedy"] == "install it"
    assert [each["log_level"] for each in logged] == ["warning"] * 3 + ["info"] * 2


def test_what_is_told_never_commands_the_terminal() -> None:
    with capture_logs() as logged:
        Teller().look({"cluster": Alert("a\x1b]0;b\x07\u202ec", "\x9bd", 1.0, 1.0)}, None)
    assert told(logged) == ["alert: a?]0;b??c"]
    assert logged[0]["remedy"] == "?d"


class Away(FakePort):
    """A cluster whose commands are not there."""

    def observe(self) -> Observation:
        raise FixConfiguration("squeue is not on PATH", "set the option path")


def test_an_arbiter_says_what_it_cannot_read(tmp_path: Path) -> None:
    with capture_logs() as logged:
        arbiter = Arbiter(config(tmp_path), Away(World(NODES)))
        arbiter.start()
        try:
            eventually(lambda: any("squeue is not on PATH" in each for each in told(logged)))
        finally:
            arbiter.stop()
    (alert,) = [each for each in logged if "squeue" in str(each["event"])]
    assert alert["remedy"] == "set the option path"
