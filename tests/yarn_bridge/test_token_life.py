"""How long tokens live: as the site says, else as the NameNode tells, else as Hadoop has it."""

from __future__ import annotations

from typing import Any

import pytest

from yarn_bridge.clients.settings import Settings
from yarn_bridge.jobs import token_life
from yarn_bridge.jobs.token_life import DEFAULT_S, SETTING, TokenLife
from yarn_bridge.options import Options

KERBEROS = Options(resource_manager=("http://rm:8088",), webhdfs=("http://nn:9870",), auth="kerberos")


@pytest.fixture
def namenode(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What it answers next, one after the other; the last for ever. A test fails where it is asked unexpectedly."""
    answers: list[Settings] = []
    monkeypatch.setattr(token_life, "HttpClient", lambda *_: None)

    def answer(*_: Any) -> Settings:
        return answers.pop(0)

    monkeypatch.setattr(token_life, "settings_of", answer)
    return answers


def test_without_kerberos_there_are_no_tokens(namenode: list[Settings]) -> None:
    assert TokenLife(Options(), lambda: 0.0).seconds() == 0.0


def test_what_the_site_says_is_believed(namenode: list[Settings]) -> None:
    assert TokenLife(Options(auth="kerberos", token_life_s=60.0), lambda: 0.0).seconds() == 60.0


def test_the_namenode_is_asked_now_and_then(namenode: list[Settings]) -> None:
    now = [0.0]
    life = TokenLife(KERBEROS, lambda: now[0])
    namenode.append(Settings({}, "the NameNode does not answer"))
    assert (life.seconds(), life.seconds()) == (DEFAULT_S, DEFAULT_S)
    now[0] += 301.0
    namenode.append(Settings({SETTING: "1d"}))
    assert (life.seconds(), life.seconds()) == (86_400.0, 86_400.0)
    now[0] += 3601.0
    namenode.append(Settings({}, "the NameNode does not answer"))
    assert life.seconds() == 86_400.0, "what was known stays"
    now[0] += 301.0
    namenode.append(Settings({}))
    assert life.seconds() == DEFAULT_S, "Hadoop's own where the site set none"
