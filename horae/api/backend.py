"""What the API asks of an arbiter, as plain data: `horae.arbiter.service.Arbiter` behind it, or a test's own.

Every method may be called from any thread and returns when the answer is certain: an acknowledged submission is in
the journal. Whether `by` may do it is the backend's affair: it raises `NotAllowed`, as it raises `NoSuchJob`,
`BadInput` and the port's errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from horae.port import JobId, LogChunk
from horae.spec import JobSpec
from policy.model import Seconds

if TYPE_CHECKING:
    from horae.arbiter.requests import answers


class Backend(Protocol):
    def hides(self) -> Collection[str]:
        """What the cluster hides of one user's from the others (`horae.port.Capabilities.hides`)."""

    def about(self) -> answers.AboutArbiter: ...

    def status(
        self, *, ended: bool, losses: bool, starts: bool = False, brief: bool = False
    ) -> answers.StatusAnswer: ...

    def job(self, job: JobId) -> answers.JobAnswer: ...

    def explain(self, job: JobId, *, reader: str | None = None) -> answers.ExplanationAnswer:
        """`reader`: who may read its output, and is told what its end says; None: nobody."""

    def history(
        self, *, job: JobId | None, after: int | None, since_s: Seconds | None, limit: int
    ) -> Iterable[dict[str, Any]]:
        """Made as it is read, where that is much."""

    def log(self, job: JobId, offset: int, *, by: str) -> LogChunk: ...

    def apps(self) -> list[answers.App]: ...

    def register_agent(self, app: str, *, by: str) -> answers.Registered: ...

    def leave_agent(self, app: str, *, by: str) -> answers.Left: ...

    def offer(self, app: str, *, by: str) -> answers.OfferTold: ...

    def agent_instance(self, app: str, *, by: str) -> str: ...

    def bid(self, app: str, offer: int, bids: Sequence[Mapping[str, Any]], *, by: str) -> answers.Taken: ...

    def win(self, app: str, offer: int, *, by: str) -> answers.Win: ...

    def snapshot(self, pool: str | None) -> str: ...

    def config(self) -> dict[str, Any]: ...

    def submit(self, specs: Sequence[JobSpec], *, by: str) -> list[JobId]: ...

    def report(self, job: JobId) -> answers.Report:
        """What became of its GPU time. Raises NoSuchJob."""

    def notes(self, jobs: Sequence[JobId]) -> list[str]:
        """What is to be said at once of jobs that were just taken."""

    def dry_run(self, specs: Sequence[JobSpec], *, by: str) -> answers.DryRunAnswer:
        """What would become of them now: `jobs`, and `others`, whose GPUs would differ."""

    def cancel(self, job: JobId, *, by: str, why: str) -> str: ...

    def hold(self, job: JobId, *, by: str, why: str) -> str: ...

    def unhold(self, job: JobId, *, by: str) -> str: ...

    def prioritise(self, job: JobId, *, priority: int, across: bool, by: str) -> str: ...

    def mode(self, pool: str, mode: str, *, by: str) -> str: ...

    def release_all(self, *, by: str, why: str) -> str: ...
