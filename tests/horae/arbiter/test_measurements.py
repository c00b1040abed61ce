"""What the built-in reader takes from the SDK's progress lines, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.arbiter.observe.measurements import LOGS_A_ROUND, SdkProfiles
from horae.port import JobState, LogChunk, Observation, ObservedJob, TryLater
from policy.model import Node, Provenance

NODES = (Node("n1", "k80", 8), Node("n2", "v100", 8))


class Logs:
    """Log files that grow, shrink and refuse."""

    def __init__(self, **files: bytes) -> None:
        self.files = files
        self.identity = "1"
        self.reads: list[tuple[str, int]] = []

    def __call__(self, job: str, offset: int) -> LogChunk:
        self.reads.append((job, offset))
        if job not in self.files:
            raise TryLater("no log yet")
        data = self.files[job]
        start = offset if offset <= len(data) else 0
        return LogChunk(data[start : start + 64], min(start + 64, len(data)), self.identity, start + 64 >= len(data))


def running(now_s: float, job: str = "j", epoch: int = 1, **changes: object) -> Observation:
    values: dict[str, object] = {"allocation": {"n1": 2}, "since_s": 1.0, "state": JobState.RUNNING, **changes}
    return Observation(now_s, NODES, (ObservedJob(job, epoch=epoch, **values),))  # type: ignore[arg-type]


def line(step: int, world: int = 2, epoch: int = 1, iter_s: float = 0.5, loss: float = 2.0) -> bytes:
    return (
        f"[horae] step={step}/100 loss={loss} iter_s={iter_s} samples_s=64 world={world} epoch={epoch} t=1.0\n".encode()
    )


def test_progress_speed_and_loss_come_from_the_lines() -> None:
    profiles, logs = SdkProfiles(every_s=10), Logs(j=b"noise\n" + line(1, loss=3.0) + line(2) + b"[horae] step=")
    (found,) = profiles.update(running(100.0), logs).values()
    assert (found.done, found.total, found.epoch) == (2, 100, 1)
    assert found.rates == {"k80": {2: 2.0}}
    assert found.provenance == {"k80": Provenance.MEASURED}
    assert found.loss == ((1, 3.0), (2, 2.0))
    assert profiles.update(running(105.0), logs) == {}, "too soon"
    logs.files["j"] += b"3/100 iter_s=0.5 world=2 epoch=1\n"
    (found,) = profiles.update(running(111.0), logs).values()
    assert found.done == 3


def test_only_new_text_is_read_and_a_restarted_arbiter_goes_on_where_it_was() -> None:
    profiles, logs = SdkProfiles(every_s=0), Logs(j=line(1) + line(2) + b"[horae] st")
    (found,) = profiles.update(running(10.0), logs).values()
    assert found.offset == len(line(1) + line(2))
    again = SdkProfiles(every_s=0)
    again.restore({"j": found})
    logs.reads.clear()
    logs.files["j"] = line(1) + line(2) + line(3)
    (found,) = again.update(running(20.0), logs).values()
    assert logs.reads[0] == ("j", len(line(1) + line(2)))
    assert (found.done, len(found.loss)) == (3, 3)


def test_a_replaced_log_is_read_from_its_start() -> None:
    profiles, logs = SdkProfiles(every_s=0), Logs(j=line(1) + line(2) + line(3))
    profiles.update(running(10.0), logs)
    logs.files["j"], logs.identity = line(4), "2"
    (found,) = profiles.update(running(20.0), logs).values()
    assert found.done == 4


def test_a_line_of_an_older_start_says_nothing_about_todays_gpus() -> None:
    profiles, logs = SdkProfiles(every_s=0), Logs(j=line(1, world=8, epoch=1) + line(2, world=4, epoch=2))
    moved = running(10.0, epoch=2, allocation={"n2": 4})
    (found,) = profiles.update(moved, logs).values()
    assert found.rates == {"v100": {4: 2.0}}


def test_a_job_over_several_types_measures_no_type() -> None:
    profiles, logs = SdkProfiles(every_s=0), Logs(j=line(1))
    (found,) = profiles.update(running(10.0, allocation={"n1": 1, "n2": 1}), logs).values()
    assert (found.done, dict(found.rates)) == (1, {})


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\xff" * 5000 + b"\n",
        b"[horae] step=x/y iter_s=0.5\n",
        b"[horae] step=5 iter_s=0 world=2 epoch=1\n",
        b"[horae] step=5 iter_s=-1 world=0 epoch=1\n",
        b"[horae] step=5 iter_s=nan world=inf epoch=1\n",
        b"[horae] step=5 loss=1e999 iter_s=zero world=2 epoch=1\n",
        b"x" * 100_000,
    ],
)
def test_what_a_program_prints_can_do_no_harm(text: bytes) -> None:
    profiles = SdkProfiles(every_s=0)
    for found in profiles.update(running(10.0), Logs(j=text)).values():
        assert dict(found.rates) == {}
        assert found.done in (0, 5)
        assert found.loss == ()


def test_a_log_that_cannot_be_read_is_read_later() -> None:
    profiles, logs = SdkProfiles(every_s=0), Logs()
    assert profiles.update(running(10.0), logs) == {}
    logs.files["j"] = line(1)
    assert set(profiles.update(running(20.0), logs)) == {"j"}


def test_the_last_words_of_an_ended_job_are_read_once() -> None:
    profiles, logs = SdkProfiles(every_s=10), Logs(j=line(1))
    profiles.update(running(10.0), logs)
    logs.files["j"] += line(100)
    over = running(12.0, state=JobState.COMPLETED, since_s=11.0, allocation={})
    (found,) = profiles.update(over, logs).values()
    assert found.done == 100
    logs.reads.clear()
    assert profiles.update(running(99.0, state=JobState.COMPLETED, since_s=11.0, allocation={}), logs) == {}
    assert logs.reads == []


def test_a_round_reads_no_more_logs_than_it_may_and_forgets_no_job() -> None:
    names = [f"j{i}" for i in range(LOGS_A_ROUND + 100)]
    logs = Logs(**{name: line(1) for name in names})
    profiles = SdkProfiles(every_s=5)
    many = Observation(10.0, NODES, tuple(ObservedJob(n, JobState.RUNNING, 1, {"n1": 1}, since_s=1.0) for n in names))
    first = profiles.update(many, logs)
    second = profiles.update(many, logs)
    assert len(first) == LOGS_A_ROUND
    assert set(first) | set(second) == set(names)


def test_the_time_before_the_first_iteration_is_part_of_a_restarts_cost(tmp_path: Path) -> None:
    """The program says it runs 1 s after its grant, and takes its first step 4 s later."""
    from tests.horae.arbiter.site import ANN, BEN, Site, equal_shares, spec

    site = Site(tmp_path, policy=equal_shares)
    slow = spec("slow", (1, 8), steps=10**6, extra={"fake.warmup_s": "4"})
    (first,) = site.commands.submit([slow], ANN)
    site.until(first, JobState.RUNNING)
    site.run(25)
    assert site.job(first).warmup_s == pytest.approx(4.0, abs=1.0)
    assert site.job(first).whole_restart_cost_s is None
    site.commands.submit([spec("second", (1, 8), steps=10**6), spec("third", (1, 8), steps=10**6)], BEN)
    site.run(40)
    record = site.job(first)
    assert record.epoch == 2
    assert record.whole_restart_cost_s == pytest.approx(0.5 + 1.0 + 4.0, abs=2.0)
