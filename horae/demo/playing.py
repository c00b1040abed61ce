"""The play: jobs are handed in at their times, the cluster is watched, and when all is done the account is made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horae.demo import job_history
from horae.demo.cluster import RunningDemo, wait_ready
from horae.demo.record import ShareRecord
from horae.demo.scenario import Arrival, Framework, HyperbandSweep, Scenario, as_body, sweep_file
from horae.demo.summary import summary
from horae.sweeps.sweep import read
from horae.tui.feed import view
from horae.tui.view import View
from policy.model import Seconds
from policy.text.textform import load_file, to_yaml

#: How often the cluster is looked at.
LOOK_S = 0.5
EVENTS = 200


@dataclass(slots=True)
class Play:
    """Runs in a thread of its own between `start` and `end`; `picture` may be asked from any other."""

    stage: RunningDemo
    scenario: Scenario
    framework: Framework
    seconds: Seconds
    policy: str
    asked: threading.Event  #: set when somebody wants it to end early
    record: ShareRecord = field(default_factory=ShareRecord)
    over: threading.Event = field(default_factory=threading.Event)  #: all done, out of time, or asked
    interrupted: bool = False
    failure: Exception | None = None
    _begun: Seconds = 0.0
    _status: Mapping[str, Any] | None = None
    _apps: Sequence[Mapping[str, Any]] = ()
    _thread: threading.Thread | None = None

    def start(self) -> None:
        wait_ready(self.stage.client)
        self._begun = time.monotonic()
        self._look()
        self._thread = threading.Thread(target=self._run, name="play", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._act()
        except Exception as error:  # noqa: BLE001 - told by whoever waits for the end
            self.failure = error
        finally:
            self.over.set()

    def _act(self) -> None:
        waiting: list[Arrival | HyperbandSweep] = sorted(
            (*self.scenario.arrivals, self.scenario.sweep), key=lambda a: a.at_s
        )
        while not self.asked.is_set():
            passed_s = time.monotonic() - self._begun
            while waiting and waiting[0].at_s <= passed_s:
                self.stage.client.submit(self._bodies(waiting.pop(0)))
            self._look()
            if passed_s >= self.seconds or (not waiting and self._all_ended()):
                return
            self.asked.wait(LOOK_S)
        self.interrupted = True

    def _bodies(self, arrival: Arrival | HyperbandSweep) -> list[dict[str, Any]]:
        if isinstance(arrival, Arrival):
            return [as_body(arrival, self.framework, self.stage.checkpoints)]
        path = self.stage.folder / f"{arrival.name}.yaml"  # as `horae submit --sweep FILE` would read it
        path.write_text(to_yaml(sweep_file(arrival, self.framework, self.stage.checkpoints)))
        return read(load_file(path))

    def _look(self) -> None:
        self._status = self.stage.client.status(ended=True, losses=True)
        self._apps = self.stage.client.apps()
        self.record.add(self._status)

    def _all_ended(self) -> bool:
        jobs = self._status["jobs"] if self._status else ()
        return bool(jobs) and all(j["ended"] for j in jobs)

    def picture(self) -> View:
        """What there is to see now."""
        assert self._status is not None, "start first"
        events = self.stage.client.history(limit=EVENTS)
        passed_s = time.monotonic() - self._begun
        return view(self._status, events, apps=self._apps, since_s=passed_s, owed=self.record.fair_gpu_s)

    def end(self) -> dict[str, Any]:
        """Stop playing, and make the account. Raises what went wrong on the way."""
        self.asked.set()
        if self._thread is not None:
            self._thread.join()  # each of its calls has a time-out; its record is read below
        if self.failure is not None:
            raise self.failure
        self._look()
        assert self._status is not None
        return summary(
            policy=self.policy,
            framework=self.framework.value,
            status=self._status,
            apps=self._apps,
            record=self.record,
            stories={j["id"]: job_history.read(self.stage.log(j["id"])) for j in self._status["jobs"]},
            events=self.stage.client.history(limit=100_000),
            interrupted=self.interrupted,
        )


def wait(play: Play, tell: Callable[[str], None]) -> None:
    """Without a picture: a line whenever something is decided or done."""
    newest = 0
    while not play.over.wait(1.0):
        for event in play.stage.client.history(after=newest):
            newest = max(newest, event["seq"])
            if event["kind"] in ("submitted", "intent", "cancel-asked", "ended", "alert") and event["text"]:
                who = f"job {event['job']} {event['name']}: " if event["job"] else ""
                tell(f"{who}{event['text'][:150]}")
