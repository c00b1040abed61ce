"""Which engine a lab takes when nobody says, and how the others find it again."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from horae.lab import LabRequest, LabState, engine
from horae.lab.engines import TwoEngines
from policy.model import BadInput


class Cluster:
    def __init__(self, name: str, did: list[str]) -> None:
        self.name, self.made, self._did = name, False, did

    def up(self, request: LabRequest) -> LabState:
        self.made = True
        return self._said(f"up {request.release}")

    def down(self) -> LabState:
        self.made = False
        return self._said("down")

    def status(self) -> LabState:
        return LabState(self.name, self.made, "")

    def demo(self) -> int:
        self._said("demo")
        return 0

    def _said(self, what: str) -> LabState:
        self._did.append(f"{self.name} {what}")
        return self.status()


class Both(TwoEngines):
    kind = "both"
    releases = ("2", "1")

    def __init__(self) -> None:
        self.did: list[str] = []
        self._private, self._docked = Cluster("process", self.did), Cluster("docker", self.did)

    def private(self, request: LabRequest) -> Cluster:
        return self._private

    def docked(self, request: LabRequest) -> Cluster:
        return self._docked


def no_engine(say: object) -> None:
    raise BadInput("no Docker engine answers")


def an_engine(say: object) -> None:
    pass


def test_containers_where_an_engine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "engine", an_engine)
    lab = Both()
    assert lab.demo(LabRequest("lab")) == 0
    lab.down(LabRequest("lab"))
    assert lab.did == ["docker up 2", "docker demo", "docker down"]


def test_plain_processes_where_none_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(engine, "engine", no_engine)
    lab = Both()
    lab.up(LabRequest("lab", release="1"))
    lab.down(LabRequest("lab"))
    assert lab.did == ["process up 1", "process down"]
    assert "no Docker engine answers: plain processes instead" in capsys.readouterr().err


def test_what_is_there_already_or_was_asked_for_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "engine", an_engine)
    lab = Both()
    lab.up(LabRequest("lab", engine="process"))
    lab.up(LabRequest("lab"))
    assert lab.did == ["process up 2", "process up 2"]


def test_a_release_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "engine", an_engine)
    with pytest.raises(BadInput, match=r"no lab of both 3 \(one of 2, 1\)"):
        Both().up(LabRequest("lab", release="3"))


def test_files_go_where_the_caller_says(tmp_path: Path) -> None:
    assert Both().folder(LabRequest("lab", folder=tmp_path)) == tmp_path
    assert Both().folder(LabRequest("lab")).name == "both"


def test_a_feature_is_of_plain_processes_and_must_be_there() -> None:
    lab = Both()
    lab.features = ("kerberos",)
    wanted = LabRequest("lab", features=frozenset({"kerberos"}))
    lab.up(wanted)
    assert lab.did == ["process up 2"]
    with pytest.raises(BadInput, match="not there in containers"):
        lab.up(dataclasses.replace(wanted, engine="docker"))
    with pytest.raises(BadInput, match="has none of that"):
        lab.up(dataclasses.replace(wanted, features=frozenset({"standbys"})))
    assert lab.did == ["process up 2"]
