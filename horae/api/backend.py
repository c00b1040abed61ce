"""What the API asks of an arbiter, as plain data: `horae.arbiter.service.Arbiter` behind it, or a test's own.

Every method may be called from any thread and returns when the answer is certain: an acknowledged submission is in
the journal. Whether `by` may do it is the backend's affair: it raises `NotAllowed`, as it raises `NoSuchJob`,
`BadInput` and the port's errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from horae.port import JobId, LogChunk
from horae.spec import JobSpec
from policy.model import Seconds


class Backend(Protocol):
    def about(self) -> dict[str, Any]: ...

    def status(self, *, ended: bool, losses: bool) -> dict[str, Any]: ...

    def job(self, job: JobId) -> dict[str, Any]: ...

    def explain(self, job: JobId) -> dict[str, Any]: ...

    def history(
        self, *, job: JobId | None, after: int | None, since_s: Seconds | None, limit: int
    ) -> list[dict[str, Any]]: ...

    def log(self, job: JobId, offset: int, *, by: str) -> LogChunk: ...

    def snapshot(self, pool: str | None) -> str: ...

    def config(self) -> dict[str, Any]: ...

    def submit(self, specs: Sequence[JobSpec], *, by: str) -> list[JobId]: ...

    def cancel(self, job: JobId, *, by: str, why: str) -> str: ...

    def hold(self, job: JobId, *, by: str, why: str) -> str: ...

    def unhold(self, job: JobId, *, by: str) -> str: ...

    def set_mode(self, pool: str, mode: str, *, by: str) -> str: ...

    def release_all(self, *, by: str, why: str) -> str: ...
