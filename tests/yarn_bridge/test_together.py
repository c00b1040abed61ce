"""Many jobs by one call: each has its own answer, and YARN and HDFS are asked for them side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from horae.port import Batching, FixConfiguration, HandingIn, JobState, Never, TryLater
from policy.model import GpuRange
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.clients.http import Unanswered

JOBS = ("a", "b", "c", "d")
STARTS = [("a", {"n1": 1}, 1), ("b", {"n1": 2}, 1), ("c", {"n2": 1}, 1), ("d", {"n2": 2}, 1)]


def states(site: Site) -> dict[str, JobState]:
    site.look("a")
    return {each.id: each.state for each in site.port.observe().jobs}


def handed_in(site: Site) -> None:
    assert site.port.submit_many([(job, SPEC) for job in JOBS]) == {}


def test_the_port_takes_many_at_once(site: Site) -> None:
    assert isinstance(site.port, Batching)
    assert isinstance(site.port, HandingIn)


def test_of_many_handed_in_each_has_its_own_answer(site: Site) -> None:
    site.yarn.largest = {"memory-mb": 4096}
    site.port.submit("a", SPEC)
    site.look("a")
    odd = replace(SPEC, command=("something", "else"))
    huge = replace(SPEC, memory_per_gpu=1 << 60)
    failed = site.port.submit_many([("a", odd), ("b", SPEC), ("c", huge), ("d", SPEC)])
    assert {job: type(error) for job, error in failed.items()} == {"a": Never, "c": Never}
    assert states(site) == {"a": JobState.QUEUED, "b": JobState.QUEUED, "d": JobState.QUEUED}
    assert site.port.submit_many([("a", SPEC), ("d", SPEC)]) == {}, "twice is once"


def test_jobs_are_listed_once_for_all_that_are_handed_in(site: Site) -> None:
    site.calls.clear()
    handed_in(site)
    for_four = site.calls["entries"]
    site.calls.clear()
    site.port.submit("e", SPEC)
    assert for_four == site.calls["entries"]


def test_of_many_started_each_has_its_own_answer(site: Site) -> None:
    handed_in(site)
    failed = site.port.start_many([*STARTS, ("nobody", {"n1": 1}, 1)])
    assert failed.keys() == {"nobody"}
    assert isinstance(failed["nobody"], Never)
    assert (len(site.yarn.services), site.yarn.calls["create"]) == (4, 4)
    assert site.port.start_many(STARTS) == {}, "twice is once"
    assert site.yarn.calls["create"] == 4
    assert set(states(site).values()) == {JobState.STARTING}


def test_two_are_not_given_the_same_gpus(site: Site) -> None:
    handed_in(site)
    free = next(node.gpus for node in site.port.observe().nodes if node.name == "n1")
    failed = site.port.start_many([("a", {"n1": free}, 1), ("b", {"n1": 1}, 1), ("c", {"n2": 1}, 1)])
    assert {job: type(error) for job, error in failed.items()} == {"b": TryLater}


def test_what_yarn_refuses_is_as_it_was_before_and_the_others_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_in(site)
    create = site.yarn.create

    def refused(body: dict[str, Any], owner: str) -> str:
        if body["name"] == site.port.files.service_name("b"):
            raise FixConfiguration("no such thing")
        return create(body, owner)

    monkeypatch.setattr(site.yarn, "create", refused)
    failed = site.port.start_many(STARTS)
    assert {job: error.text for job, error in failed.items()} == {"b": "no such thing"}
    assert states(site) == dict.fromkeys(JOBS, JobState.STARTING) | {"b": JobState.QUEUED}


def test_a_daemon_that_does_not_answer_is_waited_for_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_in(site)
    create, asked = site.yarn.create, list[str]()

    def silent(body: dict[str, Any], owner: str) -> str:
        asked.append(body["name"])
        raise Unanswered("the ResourceManager did not answer within 35 s")

    monkeypatch.setattr(site.yarn, "create", silent)
    assert site.port.start_many(STARTS) == {}, "the records say what is wanted"
    assert len(asked) == 1
    monkeypatch.setattr(site.yarn, "create", create)
    assert set(states(site).values()) == {JobState.STARTING}
    assert len(site.yarn.services) == 4


def test_a_record_that_nobody_takes_in_time_is_waited_for_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_in(site)
    asked = list[str]()

    def silent(record: Any) -> None:
        asked.append(record.job)
        raise Unanswered("the NameNode did not answer within 35 s")

    with monkeypatch.context() as patch:
        patch.setattr(site.port.files, "keep", silent)
        failed = site.port.start_many(STARTS)
    assert (asked, site.yarn.services) == (["a"], {})
    assert failed.keys() == set(JOBS)
    assert all(isinstance(error, TryLater) for error in failed.values())
    assert failed["d"].text.startswith("not tried: ")
    site.look("a")
    assert site.port.start_many(STARTS) == {}


def test_many_end_by_one_call(site: Site) -> None:
    handed_in(site)
    site.port.start_many(STARTS[:3])
    site.look("a")
    failed = site.port.cancel_many([*JOBS, "nobody"])
    assert failed.keys() == {"nobody"}
    assert set(states(site).values()) == {JobState.CANCELLED}
    assert site.yarn.services == {}


def test_many_are_asked_to_stop_by_one_call(site: Site) -> None:
    handed_in(site)
    site.port.start_many(STARTS[:2])
    failed = site.port.stop_many([*((job, 5.0) for job in JOBS), ("nobody", 5.0)])
    assert failed.keys() == {"nobody"}
    assert all(site.port.files.record(job).stop_s is not None for job in ("a", "b"))  # type: ignore[union-attr]


@pytest.mark.parametrize("what", ["services", "folders"])
def test_several_are_asked_for_side_by_side(site: Site, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Each waits until all of them are on their way."""
    spec = replace(SPEC, gpus=GpuRange(1, 1, 1))
    met = threading.Barrier(len(JOBS), timeout=60.0)

    def met_first(do: Callable[..., Any]) -> Callable[..., Any]:
        def doing(*given: Any, **named: Any) -> Any:
            met.wait()
            with one_by_one:  # the site of dictionaries knows no threads
                return do(*given, **named)

        return doing

    one_by_one = threading.Lock()
    with ThreadPoolExecutor(len(JOBS)) as pool:
        monkeypatch.setattr(site.port._executor, "_helpers", pool)
        if what == "folders":
            monkeypatch.setattr(site.port.files, "add", met_first(site.port.files.add))
        assert site.port.submit_many([(job, spec) for job in JOBS]) == {}
        monkeypatch.setattr(site.yarn, "create", met_first(site.yarn.create))
        assert site.port.start_many([(job, {"n1": 1}, 1) for job in JOBS]) == {}
    assert len(site.yarn.services) == len(JOBS)
    assert set(states(site).values()) == {JobState.STARTING}
