"""What is asked of a port: in order, and together where the port can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from horae.arbiter.execute.executor import Beat, Do, Executor, Op
from horae.arbiter.observe.measurements import Profiles
from horae.journal.events import Verb
from horae.port import ClusterPort, FixConfiguration, Never, PortError, TryLater
from horae.spec import JobSpec
from policy.model import GpuRange


class Single:
    """Does one job a call, and writes down what it was asked."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.errors: dict[str, PortError] = {}

    def _told(self, what: str, job: str = "") -> None:
        self.said.append(f"{what} {job}".strip())
        if job in self.errors:
            raise self.errors[job]

    def start(self, job: str, allocation: Mapping[str, int], epoch: int) -> None:
        self._told("start", job)

    def checkpoint_and_stop(self, job: str, grace_s: float) -> None:
        self._told("stop", job)

    def submit(self, job: str, spec: JobSpec) -> None:
        self._told("submit", job)

    def cancel(self, job: str) -> None:
        self._told("cancel", job)

    def heartbeat(self) -> None:
        self._told("beat")


class Together(Single):
    """Does many a call too."""

    at_once = 5
    broken: PortError | None = None

    def _many(self, what: str, asked: Sequence[tuple[Any, ...]]) -> Mapping[str, PortError]:
        jobs = [each[0] for each in asked]
        self.said.append(f"{what} {' '.join(jobs)}")
        if self.broken is not None:
            raise self.broken
        return {job: self.errors[job] for job in jobs if job in self.errors}

    def start_many(self, starts: Sequence[tuple[str, Mapping[str, int], int]]) -> Mapping[str, PortError]:
        return self._many("start", starts)

    def stop_many(self, stops: Sequence[tuple[str, float]]) -> Mapping[str, PortError]:
        return self._many("stop", stops)

    def cancel_many(self, jobs: Sequence[str]) -> Mapping[str, PortError]:
        return self._many("cancel", [(job,) for job in jobs])


class Receiving(Single):
    """Takes many new jobs a call."""

    at_once = 3

    def submit_many(self, jobs: Sequence[tuple[str, JobSpec]]) -> Mapping[str, PortError]:
        self.said.append("submit " + " ".join(f"{job}={spec.name}" for job, spec in jobs))
        return {job: self.errors[job] for job, _ in jobs if job in self.errors}


def ops(text: str) -> list[Op]:
    """`-a +b xc` -> stop a, start b, cancel c; `!` the heartbeat."""
    verbs = {"-": Verb.STOP, "+": Verb.START, "x": Verb.CANCEL}
    return [Beat() if word == "!" else Do(verbs[word[0]], word[1:], {"n1": 1}, 1, 5.0) for word in text.split()]


def executor(port: Single, monotonic: Callable[[], float] = lambda: 0.0) -> Executor:
    return Executor(cast(ClusterPort, port), cast(Profiles, None), monotonic)


def test_new_jobs_are_handed_in_together_where_the_port_can() -> None:
    new: list[Op] = [Do(Verb.SUBMIT, each, spec=JobSpec(f"of-{each}", ("true",), GpuRange(1, 1, 1))) for each in "abc"]
    for port, said in (
        (Receiving(), ["submit a=of-a b=of-b c=of-c", "start d"]),
        (Single(), ["submit a", "submit b", "submit c", "start d"]),
        (Together(), ["submit a", "submit b", "submit c", "start d"]),
    ):
        port.errors["b"] = Never("not this one")
        done = executor(port).perform([*new, *ops("+d")], 5.0)
        assert port.said == said
        assert [(each.op.job, each.error) for each in done if isinstance(each.op, Do) and each.error] == [
            ("b", port.errors["b"])
        ]


def test_runs_of_one_verb_go_together_and_nothing_overtakes() -> None:
    port = Together()
    done = executor(port).perform(ops("-a -b -c +d +e xf xg +h ! -i"), 5.0)
    assert port.said == ["stop a b c", "start d e", "cancel f g", "start h", "beat", "stop i"]
    assert [op.op for op in done] == ops("-a -b -c +d +e xf xg +h ! -i")
    assert all(each.error is None and each.tried for each in done)


def test_a_port_that_cannot_is_asked_one_by_one() -> None:
    port = Single()
    executor(port).perform(ops("-a -b +c +d xe xf"), 5.0)
    assert port.said == ["stop a", "stop b", "start c", "start d", "cancel e", "cancel f"]


@pytest.mark.parametrize("port", [Single(), Together()])
def test_an_error_of_one_is_no_others(port: Single) -> None:
    port.errors = {"b": Never("no such job"), "c": TryLater("busy")}
    done = executor(port).perform(ops("+a +b +c +d"), 5.0)
    assert [each.error for each in done] == [None, port.errors["b"], port.errors["c"], None]
    assert all(each.tried for each in done)


def test_what_fails_as_a_whole_failed_for_each() -> None:
    port = Together()
    port.broken = FixConfiguration("the disk is full")
    done = executor(port).perform(ops("-a -b ! "), 5.0)
    assert [each.error for each in done] == [port.broken, port.broken, None]


def test_the_time_is_looked_at_between_lots() -> None:
    times = iter([0.0, 1.0, 9.0, 9.0, 9.0])
    port, most = Together(), Together.at_once
    many = ops(" ".join(f"+j{number}" for number in range(2 * most + 1)))
    done = executor(port, lambda: next(times)).perform(many, 5.0)
    assert [len(said.split()) - 1 for said in port.said] == [most, most]
    assert [each.tried for each in done] == [True] * 2 * most + [False]
