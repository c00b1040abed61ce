"""What wakes the arbiter: the words of workers, and nothing of ours; how often that is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from horae.port import Noticing, TryLater
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.clients.hdfs import Status
from yarn_bridge.clients.stamps import Stamps


@dataclass
class Folders:
    """Listed as they are; each listing takes `takes_s`."""

    stamps: dict[str, float] = field(default_factory=lambda: {"a": 1.0, "b": 1.0})
    now_s: float = 0.0
    takes_s: float = 0.005
    asked: int = 0
    away: bool = False

    def __call__(self) -> dict[str, Status]:
        self.asked += 1
        self.now_s += self.takes_s
        if self.away:
            raise TryLater("no NameNode answers")
        return {name: Status(name, True, 0, stamp, "ann", "755") for name, stamp in self.stamps.items()}


@pytest.fixture
def folders() -> Folders:
    return Folders()


@pytest.fixture
def stamps(folders: Folders) -> Stamps:
    made = Stamps(folders, lambda: folders.now_s)
    made.news(moves=True)
    folders.now_s += 1.0
    return made


def ask(stamps: Stamps, folders: Folders, moves: bool = True) -> int:
    folders.now_s += 60.0
    return stamps.news(moves=moves)


def test_a_stamp_that_changes_is_news_once(stamps: Stamps, folders: Folders) -> None:
    assert ask(stamps, folders) == 0
    folders.stamps["a"] = 2.0
    assert [ask(stamps, folders), ask(stamps, folders)] == [1, 1]
    folders.stamps |= {"a": 3.0, "b": 3.0}
    assert ask(stamps, folders) == 2, "what comes together is looked at together"
    folders.stamps["new"] = 3.0
    assert ask(stamps, folders) == 2, "whoever handed it in has told us himself"
    del folders.stamps["b"]
    assert ask(stamps, folders) == 2


def test_what_we_write_is_no_news(stamps: Stamps, folders: Folders) -> None:
    with stamps.writing("a"):
        folders.stamps["a"] = 2.0
        assert ask(stamps, folders) == 0, "between two requests of one writing"
        folders.stamps["a"] = 3.0
    assert ask(stamps, folders) == 0
    folders.stamps["a"] = 4.0
    assert ask(stamps, folders) == 1, "that is another's"
    with pytest.raises(TryLater), stamps.writing("a"):
        folders.stamps["a"] = 5.0
        raise TryLater("it broke off")
    assert ask(stamps, folders) == 1


def test_what_a_look_has_seen_is_no_news(stamps: Stamps, folders: Folders) -> None:
    folders.stamps["a"] = 2.0
    asked_s = stamps.now_s()
    stamps.saw(folders(), asked_s)
    assert ask(stamps, folders) == 0
    old = folders()
    folders.stamps["a"] = 3.0
    assert ask(stamps, folders) == 1
    stamps.saw(old, asked_s)
    assert ask(stamps, folders) == 1, "an older listing says nothing"


@pytest.mark.parametrize(("takes_s", "moves", "most"), [(0.004, True, 100), (0.004, False, 20), (0.5, True, 2)])
def test_it_is_asked_for_seldomer_the_longer_it_takes(folders: Folders, takes_s: float, moves: bool, most: int) -> None:
    """In ten seconds, whoever asks thirty times a second."""
    stamps = Stamps(folders, lambda: folders.now_s)
    folders.takes_s = takes_s
    while folders.now_s < 10.0:
        stamps.news(moves=moves)
        folders.now_s += 0.03
    assert most / 2 <= folders.asked <= most
    folders.away = True
    with pytest.raises(TryLater):
        ask(stamps, folders)
    asked = folders.asked
    assert stamps.news(moves=moves) == 0
    assert folders.asked == asked, "who is away is not asked at once again"


def test_one_job_cannot_keep_the_arbiter_awake(stamps: Stamps, folders: Folders) -> None:
    heard = 0
    for turn in range(300):
        folders.stamps["a"] += 1.0
        folders.now_s += 0.15
        heard = stamps.news(moves=True)
        if turn == 100:
            assert heard == 60
    assert heard == 60
    folders.stamps["b"] = 9.0
    folders.now_s += 0.15
    assert stamps.news(moves=True) == 61, "another job is heard"
    folders.stamps["a"] += 1.0
    assert ask(stamps, folders) == 62


def test_the_adapter_tells_of_workers_and_not_of_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(site.port, Noticing)
    now = [0.0]
    monkeypatch.setattr(site.port.files.stamps, "_clock", lambda: now[0])

    def noticed() -> object:
        now[0] += 60.0
        return site.port.noticed()

    site.port.submit("job", SPEC)
    site.look()
    site.calls.clear()
    first = noticed()
    assert site.calls == {}, "nobody could tell anything: nobody is asked"
    site.port.start("job", {"n1": 2}, 1)
    site.look()
    assert noticed() == first
    names = site.register()
    came = noticed()
    assert came != first
    assert site.look().state.value == "running"
    assert noticed() == came, "the gate is ours"
    site.port.set_reason("job", "keeps its 2 GPUs")
    assert noticed() == came
    site.acknowledge(names, 1, "completed", 0, step=100.0)
    ended = noticed()
    assert ended != came
    assert site.look().state.value == "completed"
    site.calls.clear()
    assert (noticed(), site.calls) == (ended, {})


def test_another_reason_is_written_over_the_last_one(site: Site) -> None:
    """Nobody reads a job's folder again because of it, and it is written anew where somebody took it away."""
    at, folder = "/hdfs/jobs/job/reason", "/hdfs/jobs/job"
    site.port.submit("job", SPEC)
    site.port.set_reason("job", "needs 2 GPUs; 1 is free")
    stamp = site.hdfs.times[folder]
    site.port.set_reason("job", "keeps its 2 GPUs")
    assert (site.hdfs.files[at], site.hdfs.times[folder]) == (b"keeps its 2 GPUs\n", stamp)
    del site.hdfs.files[at]
    site.port.set_reason("job", "has no work left")
    assert site.hdfs.files[at] == b"has no work left\n"
    site.hdfs.files[at] = b"what another arbiter said, at length"
    site.port.claim("me")
    site.port.set_reason("job", "keeps its 2 GPUs")
    assert site.hdfs.times[folder] > stamp, "of what others wrote nobody knows how long it is"
