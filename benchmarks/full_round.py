"""What does a whole round cost with 10,000 jobs on 10,000 GPUs: an observation in, actions out?

    python benchmarks/full_round.py [--jobs N] [--gpus N] [--times N] [--policies fifo max-min ...] [--json]

Half of the GPUs are held by running jobs, the others are free, and the remaining jobs wait; one job has just ended,
and the pool's policy decides for the first time: every job gets a target and a reason, and half the cluster is given
out. The parts: look (what changed), question (the snapshot), answer (through the policy's own process: the pickles
both ways, the model, the policy, reasons, certificate and the checks of the answer), ruling and journal (guards,
refit, record), plan (steps).

CPU seconds of this process and of the policy's process together (the machine may be shared), the median of the
repetitions. Beside the whole: the certificate alone, measured inside the policy's process; the next round, in which
again one job ended (`next`); a look at a cluster in which nothing changed (`unchanged`); and the floor, a bare sort
of the same jobs, which any scheduler does at least. Once, since no policy is asked: a whole tick of the arbiter's core
in which nothing changed, on a cluster that is full (`unchanged_tick_cpu_s`).

`--json` prints one object and records nothing: {"policies": {NAME: {"whole_cpu_s", "certificate_cpu_s", "parts"}},
"jobs": N, "unchanged_tick_cpu_s"}.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from _record import record

from horae.arbiter import round
from horae.arbiter.admit.models import standard
from horae.arbiter.core import Act, Ask, Core
from horae.arbiter.decide.album import Album, SnapshotSources
from horae.arbiter.decide.pickling import dumps, loads
from horae.arbiter.decide.policy_runner import Answer, Question, Worker
from horae.arbiter.decide.snapshot import options_of
from horae.arbiter.execute import positions
from horae.arbiter.execute.executor import Look
from horae.arbiter.observe.reconcile import LastSeen, notice
from horae.config import Config, pools_by_node
from horae.journal import Clock, Journal
from horae.port import JobState, Observation, ObservedJob
from horae.spec import JobSpec
from policy import certificate
from policy import decide as deciding
from policy.catalogue import entries
from policy.model import Decision, GpuRange, Limits, Node, PolicyChoice

#: Policies that solve mathematical programs have benchmarks of their own.
PROGRAMS = ("themis", "oef-", "gavel-")
#: Where the policy's process leaves the CPU seconds of its newest certificate.
NOTE = "HORAE_BENCHMARK_CERTIFICATE"


def timed_decide(*question: Any) -> Decision:
    """`policy.decide.decide` in the policy's process, with the certificate timed."""
    whole = certificate.certify

    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.process_time()
        found = whole(*args, **kwargs)
        Path(os.environ[NOTE]).write_text(str(time.process_time() - started))
        return found

    certificate.certify = timed
    try:
        return deciding.decide(*question)
    finally:
        certificate.certify = whole


def cluster(jobs: int, gpus: int) -> Observation:
    nodes = tuple(Node(f"n{i}", "v100" if i % 2 else "k80", 8, f"r{i // 16}") for i in range(gpus // 8))
    running = min(len(nodes) // 2, jobs)
    found = []
    for i in range(jobs):
        spec = JobSpec(
            f"job{i}", ("train",), GpuRange(4, 1, 8), owner=f"user{i % 50}", checkpoint="ckpt", iterations=1e4 + i,
            throughput={"k80": {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.5}, "v100": {1: 3.0, 2: 5.7, 4: 10.0, 8: 16.0}},
        )  # fmt: skip
        state, allocation = (JobState.RUNNING, {f"n{i}": 8}) if i < running else (JobState.QUEUED, {})
        found.append(
            ObservedJob(str(i + 1), state, int(i < running), allocation, 1.0, spec=spec, submitted_s=1000.0 + i)
        )
    return Observation(1e5, nodes, tuple(found))


def after(observation: Observation, ended: int) -> Observation:
    """The same, fresh from the cluster as a look gives it, with one more job ended."""
    over = replace(observation.jobs[ended], state=JobState.COMPLETED, allocation={}, exit_code=0, since_s=9e4)
    jobs = (replace(j) for j in observation.jobs)
    return replace(
        observation, now_s=observation.now_s + 5, jobs=tuple(over if i == ended else j for i, j in enumerate(jobs))
    )


def configured(policy: str) -> Config:
    pools = [{"mode": "enforce", "policy": policy}]
    return Config.model_validate({"cluster": {"adapter": "fake"}, "pools": pools, "rounds": {"decide_s": 600.0}})


class Start:
    """What every policy's first round begins with, made once: the books after a first look at the cluster."""

    def __init__(self, observation: Observation, folder: Path) -> None:
        bench = Bench("fifo", observation, folder, LastSeen())
        bench.notice(observation)
        asked = bench.question()  # the ledger then knows who rests, as after any look
        self.books = dumps((bench.journal.ledger, bench.last, observation))  # what they share, they share again
        self.few = replace(asked, snapshot=replace(asked.snapshot, jobs=asked.snapshot.jobs[-3:]))
        bench.close()

    def bench(self, policy: str, folder: Path) -> Bench:
        ledger, last, observation = loads(self.books)
        bench = Bench(policy, observation, folder, last)
        bench.journal.ledger = ledger
        bench.see(observation)
        return bench


class Bench:
    """One arbiter without its threads: a journal, a policy process, and the rounds by hand."""

    def __init__(self, policy: str, observation: Observation, folder: Path, last: LastSeen) -> None:
        self.config = configured(policy)
        self.policy, self.first, self.album = policy, observation, Album()
        self.journal, self.last, self.models = Journal(folder, Clock()), last, standard()
        self.pools = pools_by_node(self.config, (n.name for n in observation.nodes))
        self.note = folder.parent / "certificate"
        os.environ[NOTE] = str(self.note)
        self.worker = Worker("full_round:timed_decide", rights=True)

    def notice(self, observation: Observation) -> None:
        now_s = self.journal.clock.now_s()
        drafts = notice(self.journal.ledger, observation, self.last, config=self.config, pools=self.pools, now_s=now_s)
        self.journal.append(drafts)
        self.see(observation)

    def see(self, observation: Observation) -> None:
        now_s = self.journal.clock.now_s()
        self.view = SnapshotSources(observation, self.pools, Limits(), self.config, now_s)

    def question(self) -> Question:
        return round.question(self.journal.ledger, self.config.pools[0], self.view, album=self.album)

    def warm(self, few: Question) -> None:
        """The policy's process is up, and has the policy and the solver imported."""
        options = options_of(self.config.pools[0])
        snapshot = replace(few.snapshot, policy=PolicyChoice(self.policy, options))
        asked = replace(few, snapshot=snapshot, policy=self.policy, options=options)
        for _ in range(2):  # after its first answer it still goes through all that it imported
            self.worker.ask(asked)

    def cpu_s(self) -> float:
        process = self.worker._process
        assert process is not None
        # The kernel's clock of another process's CPU time: what clock_getcpuclockid(3) makes of its number.
        return time.process_time() + time.clock_gettime((~process.pid << 3) | 2)

    def round(self, observation: Observation) -> dict[str, float]:
        """CPU seconds of each part of one whole round."""
        times: dict[str, float] = {}

        def timed(name: str, started: float) -> float:
            times[name] = self.cpu_s() - started
            return self.cpu_s()

        first = at = self.cpu_s()
        self.notice(observation)
        at = timed("look", at)
        asked = self.question()
        at = timed("question", at)
        answer = self.worker.ask(asked)
        at = timed("answer", at)
        if answer.decision is None:
            raise SystemExit(f"{self.policy}: {answer.why_not}")
        admitted = round.admission(self.journal.ledger, self.config.pools[0], self.view, asked, answer, self.models)
        self.journal.append(admitted.drafts)
        at = timed("ruling and journal", at)
        _, steps = positions.steps(self.journal.ledger, "main", self.view, restart_gap_s=0.0, reshape_in_place=False)
        timed("plan", at)
        times["whole"] = self.cpu_s() - first
        times["certificate"] = float(self.note.read_text())
        times["actions"] = sum(1 for s in steps if s.ready)
        at = time.process_time()
        sorted(asked.snapshot.jobs, key=lambda job: job.order)
        times["bare sort"] = time.process_time() - at
        return times

    def unchanged(self, observation: Observation) -> float:
        """CPU seconds of a look at a cluster in which nothing changed."""
        same = replace(observation, jobs=tuple(replace(j) for j in observation.jobs))
        at = self.cpu_s()
        self.notice(same)
        return self.cpu_s() - at

    def close(self) -> None:
        self.worker.close()
        self.journal.close()


def one(policy: str, start: Start, folder: Path) -> dict[str, float]:
    bench = start.bench(policy, folder)
    try:
        bench.warm(start.few)
        seen = after(bench.first, 0)
        times = bench.round(seen)
        seen = after(seen, 1)
        times["next"] = bench.round(seen)["whole"]
        times["unchanged"] = bench.unchanged(seen)
    finally:
        bench.close()
    return times


def unchanged_tick(start: Start, folder: Path, times: int) -> float:
    """CPU seconds of a whole tick in which nothing changed: nodes that running jobs fill, and a queue behind them."""
    bench = start.bench("fifo", folder)
    try:
        core = Core(bench.config, bench.journal, bench.models)
        first = replace(bench.first, nodes=tuple(n for n in bench.first.nodes if n.name in _held(bench.first)))
        (act,) = core.looked(Look(first))  # it claims the cluster first
        assert isinstance(act, Act)
        core.acted([])
        seen = replace(first, claim=core.token)
        (ask,) = core.looked(Look(seen))
        assert isinstance(ask, Ask)
        core.judged("main", Answer(_as_it_is(ask.question)))
        core.acted([])
        took = []
        for _ in range(times + 1):  # the first still tells what the decision left to tell
            same = replace(seen, jobs=tuple(replace(j) for j in seen.jobs))
            core.tick()
            at = time.process_time()
            done = core.looked(Look(same))
            core.acted([])
            took.append(time.process_time() - at)
            if not all(isinstance(d, Act) for d in done) or any(core.plans.values()):
                raise SystemExit("something changed in a tick in which nothing was to")
    finally:
        bench.close()
    return statistics.median(took[1:])


def _held(observation: Observation) -> set[str]:
    return {node for job in observation.jobs for node in job.allocation}


def _as_it_is(asked: Question) -> Decision:
    """The decision that changes nothing."""
    allocation = {job.name: dict(job.allocation) for job in asked.snapshot.jobs}
    measured = certificate.certify(asked.snapshot, allocation)
    return Decision("fifo", {}, 0, allocation, {}, measured)


def measured(runs: list[dict[str, float]]) -> dict[str, Any]:
    middle = {name: round_(statistics.median(run[name] for run in runs)) for name in runs[0]}
    parts = ("look", "question", "answer", "ruling and journal", "plan")
    return {
        "whole_cpu_s": middle["whole"],
        "certificate_cpu_s": middle["certificate"],
        "parts": {part: middle[part] for part in parts},
        "next_cpu_s": middle["next"],
        "unchanged_look_cpu_s": middle["unchanged"],
        "actions": int(middle["actions"]),
        "whole_over_bare_sort": round_(statistics.median(run["whole"] / run["bare sort"] for run in runs)),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--gpus", type=int, default=10_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--policies", nargs="*", help="default: all that solve no program")
    options.add_argument("--json", action="store_true", help="print one object, record nothing")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = Start(cluster(asked.jobs, asked.gpus), Path(folder) / "state")
    with tempfile.TemporaryDirectory() as folder:
        tick_s = round_(unchanged_tick(start, Path(folder) / "state", asked.times))
    found: dict[str, Any] = {}
    for policy in asked.policies or [n for n in entries() if not n.startswith(PROGRAMS)]:
        runs = []
        for _ in range(asked.times):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(one(policy, start, Path(folder) / "state"))
        found[policy] = measured(runs)
        if not asked.json:
            print(policy, found[policy], flush=True)
    if asked.json:
        print(json.dumps({"policies": found, "jobs": asked.jobs, "gpus": asked.gpus, "unchanged_tick_cpu_s": tick_s}))
    else:
        whole = {"jobs": asked.jobs, "gpus": asked.gpus, "unchanged_tick_cpu_s": tick_s, "policies": found}
        record(Path(__file__), whole)


def round_(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    main()
