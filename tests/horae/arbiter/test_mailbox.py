"""Who calls an arbiter while it comes up or goes away gets an answer, or is told to come again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from horae.arbiter.mailbox import Mailbox, Posted
from horae.port import TryLater


def test_who_asks_while_it_comes_up_is_answered() -> None:
    mail = Mailbox()
    with ThreadPoolExecutor() as callers:
        asked = callers.submit(mail.ask, lambda: 7)
        mail.open()
        (message,) = mail.batch(None)
        assert isinstance(message, Posted)
        assert message.answer is not None
        message.answer.set_result(message.what())
        assert asked.result() == 7


def test_who_asks_when_it_goes_away_is_told() -> None:
    mail = Mailbox()
    mail.open()
    mail.close()
    with pytest.raises(TryLater, match="not running"):
        mail.ask(lambda: 7)
