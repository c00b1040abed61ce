"""How the server answers each verb of `verbs.py`: the backend's answer, as the caller may see it.

A request that has no method here is the backend's, in the caller's name, and the answer the text that it gives. Who may
see what is said in `horae/api/privacy/access.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from fastapi.concurrency import run_in_threadpool

from horae.api import metrics
from horae.api.backend import Backend
from horae.api.peers import Caller
from horae.api.privacy import access, hidden
from horae.api.verbs import ApiVerb
from horae.arbiter.requests.authority import NotAllowed
from horae.arbiter.requests.commands import NoSuchJob
from horae.job_form import JobForm
from horae.port import LogChunk
from horae.spec import JobSpec
from policy.model import BadInput, Seconds

#: Plain data, as `horae.answers` has it for the verb.
Answer = Mapping[str, Any]

#: How often a waiting call looks.
LOOK_S = 0.2


class Handlers:
    def __init__(self, backend: Backend, site: access.AccessRules) -> None:
        self._backend, self._site = backend, site
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  #: by user, while calls wait

    def of(self, verb: ApiVerb) -> Callable[..., Any]:
        """What answers it, given who calls and what they say."""
        own = getattr(self, verb.name, None)
        return own if own is not None else self._passed_on(verb)

    def _passed_on(self, verb: ApiVerb) -> Callable[..., Any]:
        def answer(caller: Caller, **said: Any) -> Answer:
            text = getattr(self._backend, verb.name)(**said, by=caller.name)
            return {**{name: value for name, value in said.items() if verb.in_path(name)}, "text": text}

        return answer

    def known(self, job: str, caller: Caller) -> None:
        """A job that is hidden is answered like one that never was. Raises NoSuchJob."""
        if not access.seen(self._owner(job), caller, self._site):
            raise NoSuchJob(job)

    def _owner(self, job: str) -> str:
        return str(self._backend.job(job)["owner"])

    # --- questions ----------------------------------------------------------------------------------------

    def about(self, caller: Caller) -> Answer:
        you = {"user": caller.name, "uid": caller.uid, "operator": caller.operator}
        return {**access.about(self._backend.about(), caller, self._site), "you": you}

    def status(self, caller: Caller, *, ended: bool, losses: bool, starts: bool, brief: bool) -> Answer:
        # Where others' are hidden a tenant's row is made anew of one's own jobs, of more than their lines.
        less = brief and not self._site.hides()
        found = self._backend.status(ended=ended, losses=losses, starts=starts, brief=less)
        return access.status(found, caller, self._site)

    def job(self, caller: Caller, job: str) -> Answer:
        return access.job(self._backend.job(job), caller, self._site)

    def explain(self, caller: Caller, job: str) -> Answer:
        owner = self._owner(job)
        reader = self._reader(owner, caller) if access.whole(owner, caller, self._site) else None
        return access.job(self._backend.explain(job, reader=reader), caller, self._site)

    def report(self, caller: Caller, job: str) -> Answer:
        if not access.whole(self._owner(job), caller, self._site):
            raise NotAllowed(f"how job {job} used its GPUs is its owner's and the operators' to read")
        return self._backend.report(job)

    def log_part(self, caller: Caller, job: str, *, offset: int) -> LogChunk:
        return self._backend.log(job, offset, by=self._reader(self._owner(job), caller))

    def _reader(self, owner: str, caller: Caller) -> str:
        """In whose name the job's output is read: where all is everybody's, in its owner's."""
        return owner if self._site.open else caller.name

    def history(
        self, caller: Caller, *, job: str | None, after: int | None, since_s: Seconds | None, limit: int
    ) -> Iterable[Answer]:
        if job is not None:
            self.known(job, caller)
        events = self._backend.history(job=job, after=after, since_s=since_s, limit=limit)
        return access.events(events, caller, self._site)

    def snapshot(self, caller: Caller, pool: str | None) -> str:
        return self._backend.snapshot(pool)

    def config(self, caller: Caller) -> Answer:
        return self._backend.config()

    def metrics(self, caller: Caller) -> str:
        status = self._backend.status(ended=True, losses=False)
        return metrics.render(access.numbers(status, caller, self._site))

    # --- requests -----------------------------------------------------------------------------------------

    def hand_in(self, caller: Caller, jobs: Sequence[JobForm]) -> Answer:
        taken = self._backend.submit(_specs(jobs, caller), by=caller.name)
        notes = self._backend.notes(taken)
        return {"jobs": taken, **({"notes": notes} if notes else {})}

    def dry_run(self, caller: Caller, jobs: Sequence[JobForm]) -> Answer:
        found = self._backend.dry_run(_specs(jobs, caller), by=caller.name)
        return access.trial(found, caller, self._site)

    # --- apps and their own agents ------------------------------------------------------------------------

    def apps(self, caller: Caller) -> Sequence[Answer]:
        return access.apps(self._backend.apps(), caller, self._site)

    def register_agent(self, caller: Caller, app: str) -> Answer:
        return self._backend.register_agent(self._meant(app, caller), by=caller.name)

    def leave_agent(self, caller: Caller, app: str) -> Answer:
        return self._backend.leave_agent(self._meant(app, caller), by=caller.name)

    async def offer(self, caller: Caller, app: str, *, after: int, wait_s: Seconds) -> Answer:
        def news(found: Answer) -> bool:
            return found["offer"] is not None and found["offer"]["number"] > after

        meant = await run_in_threadpool(self._meant, app, caller)
        found = await self._waited(caller, lambda: self._backend.offer(meant, by=caller.name), news, wait_s)
        return found if news(found) else {**found, "offer": None}

    def agent_instance(self, caller: Caller, app: str) -> str:
        return self._backend.agent_instance(self._meant(app, caller), by=caller.name)

    def bid(self, caller: Caller, app: str, offer: int, bids: Sequence[Answer]) -> Answer:
        return self._backend.bid(self._meant(app, caller), offer, bids, by=caller.name)

    async def win(self, caller: Caller, app: str, offer: int, *, wait_s: Seconds) -> Answer:
        meant = await run_in_threadpool(self._meant, app, caller)

        def ask() -> Answer:
            return self._backend.win(meant, offer, by=caller.name)

        return await self._waited(caller, ask, lambda found: bool(found["settled"]), wait_s)

    async def _waited(
        self, caller: Caller, ask: Callable[[], Answer], enough: Callable[[Answer], bool], wait_s: Seconds
    ) -> Answer:
        """Ask until there is news or the time is over. Holds no thread while it waits.

        Of one user's calls that wait, one at a time asks: more than a hundred may, and each goes through all jobs.
        """
        turn = self._asking.setdefault(caller.name, asyncio.Lock())
        until = time.monotonic() + wait_s
        while True:
            async with turn:
                found = await run_in_threadpool(ask)
            if enough(found) or time.monotonic() >= until:
                return found
            await asyncio.sleep(LOOK_S)

    def _meant(self, name: str, caller: Caller) -> str:
        """The app that the caller means; one with jobs that are hidden is answered like one that never was."""
        if caller.operator or not hidden.jobs(self._site.hides()):
            return name
        mine = [str(row["name"]) for row in self.apps(caller)]
        meant = [found for found in mine if name in (found, found.partition("/")[2])]
        if len(meant) == 1:
            return meant[0]
        wrong = f"several tenants have an app {name}" if meant else f"there is no app {name} with jobs to run"
        remedy = f"say which: {', '.join(sorted(meant))}" if meant else "`horae apps` lists them"
        raise BadInput(wrong, field="app", value=name, remedy=remedy)


def _specs(jobs: Sequence[JobForm], caller: Caller) -> list[JobSpec]:
    """Raises BadInput for a folder that is named from where the caller is, which no request tells."""
    for number, form in enumerate(jobs):
        if form.cwd is not None and not form.cwd.startswith("/"):
            why = "is no full path, and nobody here knows from where it is meant"
            remedy = "a path that begins with /; `horae submit` makes one of what you type"
            raise BadInput(why, field=f"jobs[{number}].cwd", value=form.cwd, remedy=remedy)
    return [form.spec(owner=caller.name) for form in jobs]
