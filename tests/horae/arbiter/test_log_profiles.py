"""The profiler behind the arbiter: any log in, measurements out, across restarts of both."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace

import pytest

from horae.arbiter.observe.log_profiles import LogProfiles
from horae.arbiter.observe.model_key import model_key
from horae.journal.codec import plain, restore
from horae.journal.measured import Measurement
from horae.port import JobState, LogChunk, Observation, ObservedJob, TryLater
from horae.spec import JobSpec
from policy.model import GpuRange, Node, Provenance
from profiler.runs.reader import LogReader

#: A round's reading is not cut short on a busy machine.
PATIENT_S = 600.0
NODES = (
    Node("n1", "v100", 8, rack="r1"),
    Node("n2", "v100", 8, rack="r1"),
    Node("n3", "v100", 8, rack="r2"),
    Node("k1", "k80", 8, rack="r1"),
)


class Logs:
    """Log files that grow, are replaced and refuse."""

    def __init__(self, **files: str) -> None:
        self.files = {job: text.encode() for job, text in files.items()}
        self.identity = "1"
        self.reads: list[tuple[str, int]] = []

    def add(self, job: str, text: str) -> None:
        self.files[job] = self.files.get(job, b"") + text.encode()

    def __call__(self, job: str, offset: int) -> LogChunk:
        self.reads.append((job, offset))
        if job not in self.files:
            raise TryLater("no log yet")
        data = self.files[job]
        start = offset if offset <= len(data) else 0
        return LogChunk(
            data[start : start + 4096], min(start + 4096, len(data)), self.identity, start + 4096 >= len(data)
        )


def spec(model: str | None = "resnet", most: int = 8) -> JobSpec:
    return JobSpec("j", ("python", "train.py"), GpuRange(2, 1, most), tenant="alice", model=model)


def look(now_s: float, *jobs: ObservedJob) -> Observation:
    return Observation(now_s, NODES, jobs)


def job(name: str = "j", epoch: int = 1, nodes: dict[str, int] | None = None, **more: object) -> ObservedJob:
    base: dict[str, object] = {"state": JobState.RUNNING, "since_s": 1.0, "spec": spec(), **more}
    return ObservedJob(name, epoch=epoch, allocation={"n1": 2} if nodes is None else nodes, **base)  # type: ignore[arg-type]


def imagenet(first: int, last: int, seconds: float, total: int = 5000) -> str:
    chance = random.Random(first)
    return "".join(
        f"Epoch: [0][{k}/{total}]\tTime {seconds * (1 + chance.gauss(0, 0.01)):.4f} ({seconds:.4f})\t"
        f"Loss {7.0 / (1 + k / 500):.4f} (7.0000)\n"
        for k in range(first, last, 10)
    )


def test_a_log_that_nobody_instrumented_is_profiled() -> None:
    logs = Logs(j=imagenet(10, 1500, 0.25))
    (found,) = LogProfiles(0, budget_s=PATIENT_S).update(look(100.0, job()), logs).values()
    assert found.done == 1490
    assert found.rates["v100"][2] == pytest.approx(4.0, rel=0.02)
    assert found.provenance["v100"] is Provenance.MEASURED
    assert found.loss[-1] == (1490.0, pytest.approx(7.0 / (1 + 1490 / 500), abs=1e-3))
    assert found.loss_forecast is not None
    assert any("how long it is" in note for note in found.notes)


def test_only_new_text_is_read() -> None:
    logs, profiles = Logs(j=imagenet(10, 300, 0.25)), LogProfiles(10, budget_s=PATIENT_S)
    profiles.update(look(100.0, job()), logs)
    assert profiles.update(look(105.0, job()), logs) == {}, "too soon"
    size = len(logs.files["j"])
    logs.reads.clear()
    logs.add("j", imagenet(300, 400, 0.25))
    (found,) = profiles.update(look(111.0, job()), logs).values()
    assert logs.reads == [("j", size)]
    assert found.done == 390


def test_a_log_of_hours_is_read_less_often_and_its_last_words_at_once() -> None:
    logs, profiles = Logs(j=imagenet(10, 300, 0.25)), LogProfiles(10, budget_s=PATIENT_S)
    profiles.update(look(2500.0, job()), logs)
    logs.add("j", imagenet(300, 400, 0.25))
    assert profiles.update(look(2524.0, job()), logs) == {}, "a hundredth of its time is 25 s"
    assert profiles.update(look(2526.0, job()), logs)["j"].done == 390
    profiles.update(look(1e6, job()), logs)
    logs.add("j", imagenet(400, 500, 0.25))
    assert profiles.update(look(1e6 + 29.0, job()), logs) == {}
    assert profiles.update(look(1e6 + 30.0, job()), logs)["j"].done == 490, "half a minute at the latest"
    logs.add("j", imagenet(500, 600, 0.25))
    ended = job(state=JobState.COMPLETED, since_s=1e6 + 31.0)
    assert profiles.update(look(1e6 + 32.0, ended), logs)["j"].done == 590


def test_a_long_curve_is_forecast_again_as_it_goes_on() -> None:
    """A reader keeps so many points and no more: how many there are does not say how far it has come."""
    logs, profiles = Logs(j=""), LogProfiles(0, budget_s=PATIENT_S)
    told = []
    for start in range(10, 60_000, 3000):
        logs.add("j", imagenet(start, start + 3000, 0.25, total=10**6))
        (found,) = profiles.update(look(100.0 + start, job()), logs).values()
        told.append(found.loss_forecast)
    assert told[5] is not None
    assert told[-1] is not None
    assert told[-1].parameters != told[5].parameters


def test_a_start_that_trains_some_steps_again_does_not_lose_the_curve_before() -> None:
    logs, profiles = Logs(j=imagenet(10, 1500, 0.25)), LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(100.0, job()), logs)
    for start in range(1, 4):  # requeued: the same file, from the last checkpoint
        logs.add("j", imagenet(1000 * start, 1000 * start + 1500, 0.25))
        (found,) = profiles.update(look(100.0 + 10 * start, job()), logs).values()
        at = [k for k, _ in found.loss]
        assert at == sorted(set(at))
    assert found.done == 4490
    assert at[0] <= 2500, "the newest points of the whole curve, not of the last start"
    assert found.loss[-1][1] == pytest.approx(7.0 / (1 + 4490 / 500), abs=1e-3)
    again = LogProfiles(0, budget_s=PATIENT_S)
    again.restore({"j": found})
    logs.add("j", imagenet(4500, 4600, 0.25))
    (later,) = again.update(look(200.0, job()), logs).values()
    assert later.loss[0][0] == pytest.approx(at[0] + 100, abs=100)


def test_what_is_kept_of_a_job_that_is_resized_a_thousand_times_stays_small() -> None:
    logs, profiles = Logs(j=""), LogProfiles(0, budget_s=PATIENT_S)
    sizes = []
    for epoch in range(1, 301):
        held = job(epoch=epoch, nodes={"n1": 1 + epoch % 4}, since_s=1000.0 * epoch)
        profiles.update(look(1000.0 * epoch + 1, held), logs)  # its start is seen
        logs.add("j", imagenet(100 * epoch, 100 * epoch + 100, 0.25))
        for found in profiles.update(look(1000.0 * epoch + 500, held), logs).values():
            sizes.append(len(found.profiler["stretches"]))
    assert 50 <= max(sizes) <= 64


def test_another_training_in_the_same_log_begins_its_own_curve() -> None:
    logs, profiles = Logs(j=imagenet(10, 1500, 0.25)), LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(100.0, job()), logs)
    logs.add("j", imagenet(10, 300, 0.25))
    (found,) = profiles.update(look(200.0, job()), logs).values()
    assert [k for k, _ in found.loss] == list(range(10, 300, 10))


def test_jobs_that_are_read_together_are_told_the_same() -> None:
    """What the first of a sweep is told of its key holds what the last has just shown."""
    logs = Logs(a=imagenet(10, 600, 0.4), b=imagenet(10, 600, 0.1))
    jobs = (job("a", nodes={"n1": 2}), job("b", nodes={"n2": 8}))
    found = LogProfiles(0, budget_s=PATIENT_S).update(look(100.0, *jobs), logs)
    assert found["a"].rates == found["b"].rates
    assert found["a"].rates["v100"].keys() >= {2, 8}


def test_a_resize_starts_a_new_stretch_and_both_counts_are_known() -> None:
    logs, profiles = Logs(j=imagenet(10, 1000, 0.4)), LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(100.0, job()), logs)
    moved = job(epoch=2, nodes={"n1": 4}, since_s=101.0)
    logs.add("j", imagenet(1000, 1010, 9.0))  # of either start
    profiles.update(look(110.0, moved), logs)
    logs.add("j", imagenet(1010, 2000, 0.2))
    (found,) = profiles.update(look(400.0, moved), logs).values()
    assert found.rates["v100"][2] == pytest.approx(2.5, rel=0.03)
    assert found.rates["v100"][4] == pytest.approx(5.0, rel=0.03)
    assert found.done == 1990


def test_jobs_of_a_key_learn_from_each_other() -> None:
    logs = Logs(a=imagenet(10, 600, 0.4), b=imagenet(10, 600, 0.1), c=imagenet(10, 600, 0.3))
    profiles = LogProfiles(0, budget_s=PATIENT_S)
    jobs = (job("a", nodes={"n1": 2}), job("b", nodes={"n2": 8}), job("c", nodes={"n1": 1}, spec=spec("other")))
    profiles.update(look(100.0, *jobs), logs)
    logs.add("a", imagenet(600, 700, 0.4))
    found = profiles.update(look(200.0, *jobs), logs)["a"]
    assert set(found.rates["v100"]) >= {2, 8}
    assert found.rates["v100"][8] == pytest.approx(10.0, rel=0.03)
    assert 4 in found.rates["v100"], "a fit between two measured counts"
    assert found.provenance["v100"] is Provenance.FIT


def test_slowdown_by_span_is_measured() -> None:
    logs, profiles = Logs(a=imagenet(10, 600, 0.2), b=imagenet(10, 600, 0.3)), LogProfiles(0, budget_s=PATIENT_S)
    jobs = (job("a", nodes={"n1": 4}), job("b", nodes={"n1": 2, "n2": 2}))
    found = profiles.update(look(100.0, *jobs), logs)
    s = found["b"].slowdown
    assert s is not None
    assert s.rack == pytest.approx(1.5, rel=0.05)
    assert s.cluster >= s.rack


def test_a_job_over_two_types_measures_no_type() -> None:
    (found,) = (
        LogProfiles(0, budget_s=PATIENT_S)
        .update(look(9.0, job(nodes={"n1": 1, "k1": 1})), Logs(j=imagenet(10, 600, 0.2)))
        .values()
    )
    assert found.done == 590
    assert dict(found.rates) == {}


@pytest.mark.parametrize("via_journal", [False, True])
def test_a_restarted_arbiter_goes_on_at_the_byte_where_it_stopped(via_journal: bool) -> None:
    logs, profiles = Logs(j=imagenet(10, 1000, 0.4) + "Epoch: [0][10"), LogProfiles(0, budget_s=PATIENT_S)
    (found,) = profiles.update(look(100.0, job()), logs).values()
    if via_journal:
        found = restore(Measurement, json.loads(json.dumps(plain(found))))
    again = LogProfiles(0, budget_s=PATIENT_S)
    again.restore({"j": found})
    logs.reads.clear()
    logs.files["j"] = logs.files["j"][: -len("Epoch: [0][10")]
    logs.add("j", imagenet(1000, 2000, 0.4))
    (after,) = again.update(look(500.0, job()), logs).values()
    assert logs.reads[0] == ("j", found.offset)
    assert found.offset > 0
    assert after.done == 1990
    assert after.rates["v100"][2] == pytest.approx(2.5, rel=0.03)
    assert len(after.loss) > len(found.loss) / 2
    assert after.loss[0][0] == found.loss[0][0]
    told = again.store.profiles[again.key_of("j")].stretches.values()
    assert {one.tenant for one in told} == {"alice"}, "who measured it counts once in the site's prior"


def test_the_state_that_the_version_before_wrote_is_gone_on_from() -> None:
    """In base 85, without a word before it."""
    logs, profiles = Logs(j=imagenet(10, 1000, 0.4)), LogProfiles(0, budget_s=PATIENT_S)
    (found,) = profiles.update(look(100.0, job()), logs).values()
    kind, _, digits = str(found.profiler["reader"]).partition(":")
    assert kind == "base64"
    older = base64.b85encode(base64.b64decode(digits)).decode()
    again = LogProfiles(0, budget_s=PATIENT_S)
    again.restore({"j": replace(found, profiler={**found.profiler, "reader": older})})
    logs.reads.clear()
    again.update(look(500.0, job()), logs)
    assert logs.reads[0] == ("j", found.offset)
    assert found.offset > 0


@pytest.mark.parametrize("more", [{"colour": "blue"}, {"seconds": None, "n": "x"}, {"span": 9}, {"gpus": []}])
def test_what_another_version_kept_of_a_placement_is_left_out_and_the_rest_is_kept(more: dict[str, object]) -> None:
    """Raised while the arbiter takes up its journal it would keep it from starting, each time anew."""
    logs, profiles = Logs(j=imagenet(10, 1000, 0.4)), LogProfiles(0, budget_s=PATIENT_S)
    (found,) = profiles.update(look(100.0, job()), logs).values()
    (stretch,) = found.profiler["stretches"]
    strange = {**found.profiler, "stretches": [{**stretch, **more}, 7, stretch]}
    again = LogProfiles(0, budget_s=PATIENT_S)
    again.restore({"j": replace(found, profiler=strange)})
    assert stretch in [one.to_dict() for one in again.store.profiles["resnet"].stretches.values()]


def test_a_key_that_is_derived_otherwise_than_by_the_version_before_is_no_correction_of_anybodys() -> None:
    logs, profiles = Logs(j=imagenet(10, 1000, 0.4)), LogProfiles(0, budget_s=PATIENT_S)
    derived = job(spec=spec(model=None))
    (found,) = profiles.update(look(100.0, derived), logs).values()
    again = LogProfiles(0, budget_s=PATIENT_S)
    again.restore({"j": replace(found, profiler={**found.profiler, "key": "alice/otherwise"})})
    logs.add("j", imagenet(1000, 1100, 0.4))
    (after,) = again.update(look(500.0, derived), logs).values()
    assert (after.key, after.key_from) == (found.key, "derived")
    logs.add("j", imagenet(1100, 1200, 0.4))
    (given,) = again.update(look(600.0, job()), logs).values()
    assert (given.key, given.key_from) == ("resnet", "corrected")


def test_state_of_other_rules_is_read_again_from_the_start() -> None:
    logs, profiles = Logs(j=imagenet(10, 1000, 0.4)), LogProfiles(0, budget_s=PATIENT_S)
    (found,) = profiles.update(look(100.0, job()), logs).values()
    damaged = Measurement(
        done=found.done, offset=found.offset, identity="1", profiler={"reader": "!!", "key": "resnet"}
    )
    again = LogProfiles(0, budget_s=PATIENT_S)
    again.restore({"j": damaged})
    (after,) = again.update(look(200.0, job()), logs).values()
    assert after.done == found.done
    assert ("j", 0) in logs.reads


@pytest.mark.parametrize("last", [1500, 2000])
def test_a_replaced_log_is_read_from_its_start(last: int) -> None:
    """Also where it is longer by now than what was read of the one before."""
    logs, profiles = Logs(j=imagenet(10, 1000, 0.4)), LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(100.0, job()), logs)
    logs.identity, logs.files["j"] = "2", imagenet(1000, last, 0.4).encode()
    (found,) = profiles.update(look(200.0, job()), logs).values()
    assert found.done == last - 10
    assert 1000.0 in [at for at, _ in found.loss]
    assert found.loss[0][0] == 10.0, "what was measured before stays"


def mnist(first: int, last: int) -> str:
    return "".join(f"step {k}/4000 loss {5.0 - k / 1000:.3f}\n" for k in range(first, last, 10))


def test_without_a_printed_time_the_clock_between_its_steps_is_the_rate() -> None:
    logs, profiles = Logs(j=mnist(0, 100)), LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(100.0, job()), logs)
    logs.add("j", mnist(100, 700))
    (found,) = profiles.update(look(160.0, job()), logs).values()
    assert (found.done, found.total) == (690, 4000)
    assert found.rates["v100"][2] == pytest.approx(10.0, rel=0.02)
    assert any("shows no speed" in note for note in found.notes)


def test_a_claim_against_the_clock_is_not_used_and_said() -> None:
    logs, profiles = Logs(j=imagenet(10, 100, 0.001)), LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(100.0, job()), logs)
    logs.add("j", imagenet(100, 700, 0.001))
    (found,) = profiles.update(look(160.0, job()), logs).values()
    assert found.rates["v100"][2] == pytest.approx(10.0, rel=0.05)
    assert any("by the clock" in note for note in found.notes)


def test_a_log_that_tells_nothing_says_what_is_missing() -> None:
    (found,) = LogProfiles(0, budget_s=PATIENT_S).update(look(9.0, job()), Logs(j="hello\nworld\n" * 50)).values()
    assert found.done == 0
    assert "[horae] step=" in found.notes[0]


def keras(last: int) -> str:
    return "".join(f"Epoch {e}/20\n225s - loss: {3 / e:.4f} - acc: 0.29\n" for e in range(1, last + 1))


def test_a_log_of_epochs_is_counted_in_epochs() -> None:
    (found,) = LogProfiles(0, budget_s=PATIENT_S).update(look(9.0, job()), Logs(j=keras(12))).values()
    assert (found.done, found.total) == (12, 20)
    assert found.rates["v100"][2] == pytest.approx(1 / 225, rel=0.02)
    assert any("in epochs" in note for note in found.notes)


def test_a_corrected_key_takes_its_measurements_along() -> None:
    logs, profiles = Logs(j=imagenet(10, 600, 0.2)), LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(9.0, job()), logs)
    logs.add("j", imagenet(600, 700, 0.2))
    profiles.update(look(19.0, job(spec=spec("resnet-50"))), logs)
    assert set(profiles.store.profiles) == {"resnet-50"}


@pytest.mark.parametrize("noise", [b"\x00\xff" * 9000 + b"\n", b"x" * 300_000, b"\xff\xfe\x00\n" * 100, b"\r" * 5000])
def test_what_a_program_prints_can_do_no_harm(noise: bytes) -> None:
    logs = Logs()
    logs.files["j"] = noise
    for found in LogProfiles(0, budget_s=PATIENT_S).update(look(10.0, job()), logs).values():
        assert found.done == 0
        assert dict(found.rates) == {}


def test_a_log_that_cannot_be_read_is_read_later_and_the_last_words_are_read() -> None:
    logs, profiles = Logs(), LogProfiles(10, budget_s=PATIENT_S)
    assert profiles.update(look(10.0, job()), logs) == {}
    logs.add("j", mnist(0, 50))
    assert set(profiles.update(look(20.0, job()), logs)) == {"j"}
    logs.add("j", mnist(50, 100))
    over = job(state=JobState.COMPLETED, since_s=21.0, nodes={})
    (found,) = profiles.update(look(22.0, over), logs).values()
    assert found.done == 90
    assert found.profiler["key"] == "resnet"


def test_a_log_that_costs_much_takes_its_part_of_the_time_and_is_read_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading is stopped between pieces, the others have their turn, and an ended job's rest is read later."""
    clock = [0.0]
    monkeypatch.setattr("horae.arbiter.observe.log_profiles.time.monotonic", lambda: clock[0])
    feed = LogReader.feed

    def slow(self: LogReader, data: bytes) -> None:
        clock[0] += len(data) / 4096  # a second each
        feed(self, data)

    monkeypatch.setattr(LogReader, "feed", slow)
    logs = Logs(a=imagenet(10, 5000, 0.25), b=imagenet(10, 5000, 0.25), c=imagenet(10, 100, 0.25))
    ended = [job(name, state=JobState.COMPLETED) for name in ("a", "b", "c")]
    profiles = LogProfiles(10.0, budget_s=4.0)
    profiles.update(look(100.0, *ended), logs)
    assert clock[0] <= 6.5, "no more than the budget and what was begun"
    assert "c" not in {name for name, _ in logs.reads}
    found: dict[str, Measurement] = {}
    for round_ in range(60):
        began = clock[0]
        before = len(logs.reads)
        found.update(profiles.update(look(101.0 + round_, *ended), logs))
        assert clock[0] - began <= 6.5
        if round_ == 0:
            assert logs.reads[before][0] == "c", "who waited longest comes first"
    assert {name: measured.done for name, measured in found.items()} == {"a": 4990, "b": 4990, "c": 90}
    assert clock[0] * 4096 == pytest.approx(sum(map(len, logs.files.values())), rel=0.01), "each byte once"


def _key(*command: str, model: str | None = None) -> str:
    return model_key(JobSpec("j", command, GpuRange(1, 1, 1), tenant="t", model=model))


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("python train.py --arch resnet50 --lr 0.1 --seed 7 -b 256 --out /tmp/x", "t/train:arch=resnet50"),
        ("python3.11 -u -m pkg.train --batch-size=32 --model bert", "t/pkg.train:batch-size=32,model=bert"),
        ("torchrun --nproc_per_node 4 main.py --data /mnt/imagenet", "t/main:data=imagenet"),
        ("srun -N 2 python x/run.py model=gpt2 hydra.run.dir=/tmp", "t/run:model=gpt2"),
        ("env A=1 ./train.sh", "t/train"),
        ("accelerate launch --mixed_precision fp16 t.py --fp16", "t/t:fp16"),
        ("python", "t/python"),
    ],
)
def test_a_derived_key_says_what_is_computed(command: str, key: str) -> None:
    assert _key(*command.split()) == key


def test_learning_rates_seeds_and_folders_do_not_change_the_key() -> None:
    a = _key("python", "t.py", "--model", "vgg", "--lr", "0.1", "--seed", "1", "--save-dir", "/a", "--epochs", "90")
    b = _key("python", "t.py", "--model", "vgg", "--lr", "0.3", "--seed", "2", "--save-dir", "/b", "--epochs", "10")
    assert a == b
    assert _key("python", "t.py", model="mine") == "mine"
    assert model_key(JobSpec("j", (), GpuRange(1, 1, 1))) == "anyone/nothing"


@pytest.mark.parametrize("command", [["python", "t.py"], ["python", "t.py", "--model", "vgg"], []])
def test_nobody_gives_the_key_that_is_derived_for_another_tenant(command: list[str]) -> None:
    """What is measured of a stranger's job would be believed of all that the tenant's own have shown."""
    theirs = _key(*command)
    assert _key("python", "x.py", model=theirs) == theirs, "the tenant's own may join it"
    named = [JobSpec("j", (), GpuRange(1, 1, 1), tenant=who, model=theirs) for who in ("eve", "tt", "mallory")]
    keys = {model_key(spec) for spec in named}
    assert len(keys) == 1, "who gives the same shares it"
    assert theirs not in keys
    above = JobSpec("j", ("python", "t.py"), GpuRange(1, 1, 1), tenant="t/x")
    assert model_key(above) not in {_key(model=model_key(above)), _key(model="job/7"), "job/7"}


def test_a_log_that_the_reader_fails_at_costs_its_own_job_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = LogReader.feed

    def fails(reader: LogReader, data: bytes) -> None:
        if b"poison" in data:
            raise ValueError("a fault of the reader's")
        feed(reader, data)

    monkeypatch.setattr(LogReader, "feed", fails)
    logs = Logs(a=imagenet(10, 200, 0.25) + "poison\n", b=imagenet(10, 1500, 0.25))
    profiles = LogProfiles(0, budget_s=PATIENT_S)
    jobs = (job("a"), job("b", nodes={"n2": 2}))
    found = profiles.update(look(100.0, *jobs), logs)
    assert found["b"].done == 1490
    assert "was left out" in found["a"].notes[0]
    logs.add("a", " " * (4096 - len(logs.files["a"]) % 4096) + "\n" + imagenet(200, 1500, 0.25))
    assert profiles.update(look(200.0, *jobs), logs)["a"].done == 1490


HOUR_S = 3600.0


def followed(logs: Logs) -> LogProfiles:
    """Profiles that worked a job's log out after six hours."""
    profiles = LogProfiles(0, budget_s=PATIENT_S)
    profiles.update(look(6 * HOUR_S, job()), logs)
    return profiles


def worked_out_to(found: Measurement) -> float:
    """The position that its loss curve reaches."""
    return found.loss[-1][0]


def test_of_a_long_job_the_step_is_told_at_each_look_and_what_it_measures_now_and_then() -> None:
    logs = Logs(j=imagenet(10, 1500, 0.25))
    profiles = followed(logs)
    logs.add("j", imagenet(1500, 1600, 0.25))
    (soon,) = profiles.update(look(6 * HOUR_S + 30, job()), logs).values()
    assert (soon.done, worked_out_to(soon)) == (1590, 1490)
    logs.add("j", imagenet(1600, 2700, 0.25))
    (later,) = profiles.update(look(6 * HOUR_S + 330, job()), logs).values()
    assert (later.done, worked_out_to(later)) == (2690, 2690)


@pytest.mark.parametrize(
    "then",
    [
        job(state=JobState.COMPLETED, since_s=6 * HOUR_S + 20),
        job(epoch=2),
        job(since_s=6 * HOUR_S + 20),
    ],
    ids=[
        "ended",
        "started again",
        "running for a moment",
    ],
)
def test_what_changed_about_a_job_is_worked_out_at_once(then: ObservedJob) -> None:
    logs = Logs(j=imagenet(10, 1500, 0.25))
    profiles = followed(logs)
    logs.add("j", imagenet(1500, 1600, 0.25))
    (found,) = profiles.update(look(6 * HOUR_S + 30, then), logs).values()
    assert worked_out_to(found) == 1590


def steps(first: int, last: int, total: int) -> str:
    return "".join(f"[horae] step={k}/{total} loss={7.0 / k:.4f} iter_s=1.0\n" for k in range(first, last, 10))


@pytest.mark.parametrize(
    ("text", "done", "reached"),
    [
        (steps(10, 100, 5000), 90, 90),
        (steps(1500, 1600, 9000), 1590, 1590),
        (steps(6000, 6010, 5000), 1490, 6000),
    ],
    ids=[
        "it begins again",
        "another total",
        "beyond its own total",
    ],
)
def test_a_log_that_does_not_just_go_on_is_worked_out_at_once(text: str, done: float, reached: float) -> None:
    logs = Logs(j=steps(10, 1500, 5000))
    profiles = followed(logs)
    logs.add("j", text)
    (found,) = profiles.update(look(6 * HOUR_S + 30, job()), logs).values()
    assert (found.done, worked_out_to(found)) == (done, reached)


def test_a_long_log_is_worked_out_once_its_end_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.arbiter.observe.log_profiles.BYTES_A_LOOK", 4096)
    logs = Logs(j=imagenet(10, 5000, 0.25))
    profiles = LogProfiles(0, budget_s=PATIENT_S)
    at = 6 * HOUR_S
    known = Measurement()
    while known.done < 4990:
        at += 1
        known = next(iter(profiles.update(look(at, job()), logs).values()), known)
    assert worked_out_to(known) == 4990
