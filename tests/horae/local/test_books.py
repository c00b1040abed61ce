"""Books that cannot be read: whatever their job holds is given to nobody, it is not started twice, and it is said."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from horae.arbiter.requests.authority import Requester
from horae.local.account import Account
from horae.local.adapter import LocalCluster
from horae.local.books import FORM, Book, Books, Newer, Unreadable, decode, encode
from horae.port import CheckpointMark, FixConfiguration, JobState, Observation, TryLater
from horae.spec import JobSpec
from horae.untrusted import FromUser
from policy.model import GpuRange, Shape
from tests.horae.arbiter.site import Site
from tests.horae.elastic.exec_job import until
from tests.horae.local.cluster import Cluster

FORMS = Path(__file__).parent / "forms"
SPEC = JobSpec(
    "j", ("train", "--fast"), GpuRange(1, 1, 4), owner="ann", tenant="group", app="sweep", cwd="/home/ann",
    env={"A": "1"}, typed="typed", checkpoint="ckpt", gpu_types=("v",), prefer_types=("v",), forbid_types=("k",),
    cpus_per_gpu=2.0, memory_per_gpu=1 << 30, model="m", iterations=1e3, throughput={"v": {1: 2.0}}, time_limit_s=60.0,
    shape=Shape(2, gpus_per_node=2), extra={"pool": "main"}, priority=1,
)  # fmt: skip
END = Account(3, "stopped", 9.0, 86, CheckpointMark(3, 7.0, 8.0), 1, 5.0, FromUser("left"))
BOOK = Book(SPEC, 1.0, 4, {"n": (0, 2)}, 10.0, 30.0, True, True, END, replace(END, epoch=2), True)
WHOLE = json.loads(encode(BOOK))


def test_what_is_written_is_what_its_form_says() -> None:
    """Else an arbiter that was put back would take what it does not know for damage, or leave it out."""
    recorded = (FORMS / f"{FORM}.json").read_bytes()
    assert encode(BOOK) == recorded, "what stands in a book has changed: raise FORM in horae/local/books.py, add a file"


@pytest.mark.parametrize("path", sorted(FORMS.iterdir()), ids=lambda path: path.name)
def test_what_each_form_wrote_is_read(path: Path) -> None:
    assert decode(path.read_bytes(), path.name) == BOOK


def test_a_book_without_a_number_is_of_the_first_form() -> None:
    assert decode(json.dumps({n: v for n, v in WHOLE.items() if n != "form"}).encode(), "book") == BOOK


def test_the_recorded_book_says_all_that_one_can() -> None:
    assert [f.name for f in fields(Book) if getattr(BOOK, f.name) in (None, 0, 0.0, False, {})] == []


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({"form": FORM + 1, "spec": {"colour": "blue"}}, {"n": (0, 2)}),
        ({"form": FORM + 1, "slots": ["n:0"]}, None),
        ({"form": "two"}, {"n": (0, 2)}),
        ({"spec": None}, {"n": (0, 2)}),
        ({"spec": {**WHOLE["spec"], "colour": "blue"}}, {"n": (0, 2)}),
        ({"cancelled": "yes"}, {"n": (0, 2)}),
        ({"end": {"state": "dancing"}}, {"n": (0, 2)}),
        ({"epoch": None}, None),
        ({"epoch": "4"}, None),
        ({"slots": {"n": 0}}, None),
        ({"slots": {"n": ["x"]}}, None),
    ],
)
def test_of_what_cannot_be_read_whole_it_is_known_what_it_holds(changes: dict[str, Any], held: object) -> None:
    with pytest.raises(Unreadable) as raised:
        decode(json.dumps({**WHOLE, **changes}).encode(), "STATE/books/j.json")
    assert raised.value.where == "STATE/books/j.json"
    assert (raised.value.epoch, raised.value.slots) == ((4, held) if held is not None else (0, None))
    assert isinstance(raised.value, Newer) is (changes.get("form") == FORM + 1)


# --- with real processes ----------------------------------------------------------------------------------


def newer(path: Path) -> None:
    value = json.loads(path.read_bytes())
    path.write_text(json.dumps({**value, "form": FORM + 1, "spec": {"colour": "blue"}}))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def wrong(path: Path) -> None:
    path.write_text('{"spec": 1, "epoch": "x", "slots": 7}')


def missing(path: Path) -> None:
    path.unlink()


def foreign(seen: Observation) -> dict[str, int]:
    return {node.name: node.foreign for node in seen.nodes if node.foreign}


def refused(cluster: Cluster, port: LocalCluster, words: str) -> None:
    """Whatever is asked of the job names the file."""
    asked: list[Callable[[], None]] = [
        lambda: port.start("j", {"v100-2": 1}, 2),
        lambda: port.submit("j", cluster.spec("j")),
        lambda: port.checkpoint_and_stop("j", 1.0),
        lambda: port.cancel("j"),
        lambda: port.release("j"),
    ]
    for ask in asked:
        with pytest.raises(FixConfiguration, match=rf"books/j\.json {words}"):
            ask()


def test_a_job_that_a_newer_horae_started_runs_on_and_keeps_its_gpus(cluster: Cluster) -> None:
    cluster.running("j", where={"v100-1": 1})
    cluster.submit("other")
    book = cluster.state / "books" / "j.json"
    before = book.read_bytes()
    newer(book)
    written = book.read_bytes()
    port = LocalCluster(cluster.options)
    port.claim("tests")
    seen = port.observe()
    job = next(job for job in seen.jobs if job.id == "j")
    assert (job.state, job.epoch, dict(job.allocation), job.spec) == (JobState.RUNNING, 1, {"v100-1": 1}, None)
    assert [odd for odd in seen.unread if "books/j.json" in odd and "run the newer Horae" in odd] == list(seen.unread)
    with pytest.raises(TryLater, match="v100-1 has 1 GPUs free"):
        port.start("other", {"v100-1": 2}, 1)
    refused(cluster, port, "was written by a newer Horae")
    assert not any(due.job == "j" for due in port.observe().due)
    assert book.read_bytes() == written
    book.write_bytes(before)  # the newer Horae is back
    assert port.observe().unread == ()
    port.cancel("j")
    cluster.wait("j", JobState.CANCELLED)


@pytest.mark.parametrize("damage", [empty, cut, wrong, missing])
def test_of_a_damaged_book_of_a_job_that_lives_there_is_a_second_copy(
    cluster: Cluster, damage: Callable[[Path], None]
) -> None:
    cluster.running("j", where={"v100-1": 2})
    damage(cluster.state / "books" / "j.json")
    cluster.port = LocalCluster(cluster.options)
    cluster.port.claim("tests")
    job = cluster.job("j")
    assert (job.state, job.epoch, dict(job.allocation)) == (JobState.RUNNING, 1, {"v100-1": 2})
    cluster.port.checkpoint_and_stop("j", 30.0)
    cluster.wait("j", JobState.STOPPED)
    cluster.port.start("j", {"v100-1": 1}, 2)
    cluster.wait("j", JobState.RUNNING)


@pytest.mark.parametrize("damage", [empty, cut, wrong, missing])
def test_while_nobody_knows_what_a_job_holds_nothing_is_given_away_that_it_may_hold(
    cluster: Cluster, damage: Callable[[Path], None]
) -> None:
    cluster.running("other", where={"v100-1": 1})
    cluster.running("j", where={"v100-1": 1})
    cluster.submit("late")
    (cluster.state / "books" / "j.spare").unlink()
    damage(cluster.state / "books" / "j.json")
    cluster.port = LocalCluster(cluster.options)
    cluster.port.claim("tests")
    seen = cluster.port.observe()
    job = next(job for job in seen.jobs if job.id == "j")
    assert (job.state, dict(job.allocation)) == (JobState.RUNNING, {})
    assert foreign(seen) == {"v100-1": 1, "v100-2": 2, "k80-1": 2}
    assert len(seen.unread) == 1 and "put back a copy of this file" in seen.unread[0]
    refused(cluster, cluster.port, "")
    with pytest.raises(TryLater, match="v100-2 has 0 GPUs free"):
        cluster.port.start("late", {"v100-2": 1}, 1)
    cluster.port.cancel("other")
    cluster.wait("other", JobState.CANCELLED)
    cluster.port.start("late", {"v100-1": 1}, 1)  # what another job held was never its
    cluster.wait("late", JobState.RUNNING)
    (cluster.state / "jobs" / "j" / "cancel").touch()
    until("it has ended", lambda: not cluster.lives("j"))
    assert foreign(cluster.port.observe()) == {}


@pytest.mark.parametrize("damage", [empty, cut, wrong, newer])
def test_a_job_that_was_completed_is_not_run_again(cluster: Cluster, damage: Callable[[Path], None]) -> None:
    cluster.submit("j", "print('once')")
    cluster.port.start("j", {"v100-1": 1}, 1)
    cluster.wait("j", JobState.COMPLETED)
    damage(cluster.state / "books" / "j.json")
    port = LocalCluster(cluster.options)
    port.claim("tests")
    seen = port.observe()
    assert [job.id for job in seen.jobs] == []
    assert len(seen.unread) == 1
    refused(cluster, port, "")
    assert Books(cluster.state).lives("j") is False


def test_an_arbiter_says_which_file_cannot_be_read_until_it_can(cluster: Cluster, tmp_path: Path) -> None:
    site = Site(tmp_path / "journal", port=cluster.port, cluster={"adapter": "local"})
    (job,) = site.commands.submit([cluster.spec("j")], Requester(getpass.getuser()))
    book = cluster.state / "books" / f"{job}.json"

    def runs() -> bool:
        site.run(0.25)
        return site.job(job).state is JobState.RUNNING

    until("it runs", runs)
    before = book.read_bytes()
    newer(book)
    site.run(60.0)
    assert f"books/{job}.json was written by a newer Horae" in site.core.ledger.alerts["unread"].text
    assert (site.job(job).state, site.job(job).epoch, site.job(job).ended) == (JobState.RUNNING, 1, None)
    book.write_bytes(before)
    site.run(60.0)
    assert "unread" not in site.core.ledger.alerts
    assert site.job(job).epoch == 1
    site.close()
