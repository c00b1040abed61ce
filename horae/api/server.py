"""The routes, and the thread that serves them on a unix socket.

Routes hold no logic: they ask the backend, `access.py` says who may see and do what, `forms.py` what may be sent.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import uvicorn
from fastapi import FastAPI, Query
from fastapi.responses import PlainTextResponse, Response

from horae import __version__, job_form
from horae.api import agents, answers, limits, metrics
from horae.api.backend import Backend
from horae.api.callers import Bytes, Me, Operator
from horae.api.peers import Caller, PeerProtocol
from horae.api.privacy import access
from horae.arbiter.requests.authority import NotAllowed
from horae.arbiter.requests.commands import NoSuchJob
from policy.model import BadInput, Seconds
from policy.text.forms import Priority
from policy.text.textform import Form, fit, load

DESCRIPTION = """\
JSON over the arbiter's unix socket. The kernel tells the arbiter who calls, so nothing is to be presented: owners act
on their own jobs, operators on all. Commands, paths, losses and logs of other people's jobs are left out of answers,
unless the site shows them (`api.show_others`). Where the cluster hides others' jobs (Slurm's PrivateData), so does
this interface, and answers for them as for jobs that never were. Times are seconds since 1970, durations seconds,
sizes bytes. Nothing is ever folded. A refusal is `{"error": {"code", "message", "field", "value", "remedy"}}`.
"""

#: How long a stopping server waits for answers under way.
GRACE_S = 3


class WhyForm(Form):
    why: job_form.Why = ""


class ModeForm(Form):
    mode: job_form.Title


class PriorityForm(Form):
    priority: Priority
    across: bool = False


def create_app(backend: Backend, site: access.AccessRules) -> FastAPI:
    """The application over `backend`, for the people that `site` knows."""
    app = FastAPI(title="Horae", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    answers.install(app)
    app.add_middleware(answers.BoundedBody, most=job_form.LARGEST_BODY)
    app.add_middleware(limits.BodiesInFlight, largest=job_form.LARGEST_BODY)

    def hides() -> Collection[str]:
        return backend.hides()

    site = replace(site, hides=hides)  # asked anew each time: a site may change it
    app.state.site = site

    def known(job: str, caller: Caller) -> None:
        """A job that is hidden is answered like one that never was. Raises NoSuchJob."""
        if not access.seen(backend.job(job)["owner"], caller, site):
            raise NoSuchJob(job)

    @app.get("/v1/about", summary="The arbiter: version, cluster, pools, who you are.")
    def about(caller: Me) -> dict[str, Any]:
        you = {"user": caller.name, "uid": caller.uid, "operator": caller.operator}
        return {**access.about(backend.about(), caller, site), "you": you}

    @app.get("/v1/status", summary="Everything now: jobs, nodes, tenants, pools, alerts.")
    def status(caller: Me, ended: bool = False, losses: bool = False, starts: bool = False) -> dict[str, Any]:
        """`ended`: also jobs that ended and are remembered. `losses`: with the newest points of each loss curve.
        `starts`: with `start_s`, when a waiting job might start by the ends of those that run; null: nobody knows."""
        return access.status(backend.status(ended=ended, losses=losses, starts=starts), caller, site)

    @app.get("/v1/jobs/{job}", summary="One job.")
    def one(job: str, caller: Me) -> dict[str, Any]:
        known(job, caller)
        return access.job(backend.job(job), caller, site)

    @app.get("/v1/jobs/{job}/explain", summary="Why a job holds what it holds, and what would change it.")
    def explain(job: str, caller: Me) -> dict[str, Any]:
        """For its owner and operators also what the end of its output says, once it failed."""
        known(job, caller)
        owner = backend.job(job)["owner"]
        reader = (owner if site.open else caller.name) if access.whole(owner, caller, site) else None
        return access.job(backend.explain(job, reader=reader), caller, site)

    @app.get("/v1/jobs/{job}/report", summary="What became of the job's GPU time. Its owner and operators only.")
    def report(job: str, caller: Me) -> dict[str, Any]:
        known(job, caller)
        if not access.whole(backend.job(job)["owner"], caller, site):
            raise NotAllowed(f"how job {job} used its GPUs is its owner's and the operators' to read")
        return backend.report(job)

    @app.get("/v1/jobs/{job}/log", summary="The job's output from an offset.", response_class=Response)
    def log(job: str, caller: Me, offset: Annotated[int, Query(ge=0, le=1 << 62)] = 0) -> Response:
        """Raw bytes. `X-Next-Offset` is where to go on, `X-End` is `true` when that is the present end."""
        known(job, caller)
        reader = backend.job(job)["owner"] if site.open else caller.name
        chunk = backend.log(job, offset, by=reader)
        headers = {"X-Next-Offset": str(chunk.next_offset), "X-End": str(chunk.eof).lower()}
        return Response(chunk.data, media_type="application/octet-stream", headers=headers)

    @app.get("/v1/history", summary="What happened, oldest first.")
    def history(
        caller: Me,
        job: str | None = None,
        after: Annotated[int | None, Query(ge=0, le=1 << 62, description="newer than this event's number")] = None,
        since_s: Annotated[float | None, Query(ge=0, le=1e12, description="of the last so many seconds")] = None,
        limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    ) -> dict[str, Any]:
        """At most `limit` events, the newest ones that match."""
        if job is not None:
            known(job, caller)
        events = backend.history(job=job, after=after, since_s=since_s, limit=limit)
        return {"events": access.events(events, caller, site)}

    @app.get("/v1/snapshot", summary="What the policy sees now: an instance file.", response_class=PlainTextResponse)
    def snapshot(caller: Operator, pool: str | None = None) -> PlainTextResponse:
        return PlainTextResponse(backend.snapshot(pool), media_type="application/yaml")

    @app.get("/v1/config", summary="The configuration in force, with every default. Operators only.")
    def config(caller: Operator) -> dict[str, Any]:
        return backend.config()

    @app.post(
        "/v1/jobs", summary="Hand in jobs: all of them are taken, or none.", openapi_extra=_body(job_form.JobsForm)
    )
    def submit(caller: Me, raw: Bytes) -> dict[str, Any]:
        """One job, or `{"jobs": [...]}`. They run as you; `tenant` must be one that you may submit for."""
        specs = [form.spec(owner=caller.name) for form in job_form.read_jobs(raw, "body.json")]
        taken = backend.submit(specs, by=caller.name)
        notes = backend.notes(taken)
        return {"jobs": taken, **({"notes": notes} if notes else {})}

    @app.post(
        "/v1/dry-run", summary="What would become of jobs if they came now.", openapi_extra=_body(job_form.JobsForm)
    )
    def dry_run(caller: Me, raw: Bytes) -> dict[str, Any]:
        """The body of a submission, of which nothing is kept. `jobs`: what each would hold, and why; `start_in_s`,
        where it waits: by the ends of running jobs. `others`: whose GPUs would differ. Guards are not asked."""
        specs = [form.spec(owner=caller.name) for form in job_form.read_jobs(raw, "body.json")]
        return access.trial(backend.dry_run(specs, by=caller.name), caller, site)

    @app.post("/v1/jobs/{job}/cancel", summary="End a job for good.", openapi_extra=_body(WhyForm))
    def cancel(job: str, caller: Me, raw: Bytes) -> dict[str, Any]:
        known(job, caller)
        why = _read(WhyForm, raw).why
        return {"job": job, "text": backend.cancel(job, by=caller.name, why=why)}

    @app.post(
        "/v1/jobs/{job}/hold", summary="Let a job keep what it holds and get nothing.", openapi_extra=_body(WhyForm)
    )
    def hold(job: str, caller: Me, raw: Bytes) -> dict[str, Any]:
        known(job, caller)
        why = _read(WhyForm, raw).why
        return {"job": job, "text": backend.hold(job, by=caller.name, why=why)}

    @app.post("/v1/jobs/{job}/unhold", summary="Undo a hold.")
    def unhold(job: str, caller: Me) -> dict[str, Any]:
        known(job, caller)
        return {"job": job, "text": backend.unhold(job, by=caller.name)}

    @app.post(
        "/v1/jobs/{job}/priority",
        summary="Move a job in line: among its tenant's jobs, or (operators) among all.",
        openapi_extra=_body(PriorityForm),
    )
    def prioritise(job: str, caller: Me, raw: Bytes) -> dict[str, Any]:
        """Owners may move their jobs behind others of the tenant; the tenant's leads and operators before them too."""
        known(job, caller)
        wanted = _read(PriorityForm, raw)
        text = backend.prioritise(job, wanted.priority, across=wanted.across, by=caller.name)
        return {"job": job, "text": text}

    @app.post(
        "/v1/pools/{pool}/mode", summary="Set how far the arbiter goes. Operators only.", openapi_extra=_body(ModeForm)
    )
    def mode(pool: str, caller: Operator, raw: Bytes) -> dict[str, Any]:
        wanted = _read(ModeForm, raw).mode
        return {"pool": pool, "text": backend.set_mode(pool, wanted, by=caller.name)}

    @app.post(
        "/v1/release-all", summary="Hand every job back to the cluster. Operators only.", openapi_extra=_body(WhyForm)
    )
    def release_all(caller: Operator, raw: Bytes) -> dict[str, Any]:
        return {"text": backend.release_all(by=caller.name, why=_read(WhyForm, raw).why)}

    agents.add_routes(app, backend, site)

    @app.get("/metrics", summary="Numbers for Prometheus.", response_class=PlainTextResponse)
    def prometheus(caller: Me) -> PlainTextResponse:
        return PlainTextResponse(metrics.render(access.counted(backend.status(ended=True, losses=False), caller, site)))

    return app


F = TypeVar("F", bound=Form)


def _read(form: type[F], raw: bytes) -> F:
    """A small body; none at all is an empty one."""
    return fit(form, load(raw or b"{}", "body.json"))


def _body(form: type[Form]) -> dict[str, Any]:
    schema = form.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def openapi() -> dict[str, Any]:
    """The OpenAPI document, without an arbiter."""
    from typing import cast

    return create_app(cast(Backend, None), access.AccessRules()).openapi()


class SocketInUse(Exception):
    """Another server answers on this socket."""


class _Listener(socket.socket):
    """Its queue is as long as the kernel has it: asyncio would make it as short as what it takes out in one go."""

    def listen(self, _: int = 0, /) -> None:
        super().listen(limits.QUEUE)


class Server:
    """Serves `app` on a unix socket from a thread of its own, until `stop`."""

    def __init__(self, app: FastAPI, path: Path, *, doors: limits.Doors | None = None) -> None:
        self._path = path
        logger = logging.getLogger("asyncio")
        if not any(isinstance(found, limits.Sparse) for found in logger.filters):
            logger.addFilter(limits.Sparse())
        config = uvicorn.Config(
            app,
            http=type("Protocol", (PeerProtocol,), {"doors": doors or limits.Doors()}),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            backlog=limits.TAKEN_AT_ONCE,
            h11_max_incomplete_event_size=1 << 16,
        )
        self._server = uvicorn.Server(config)
        self._listener = listen(path)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), name="api", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take the socket away, answer what is under way, and close."""
        # The name first: as soon as nobody listens there, it may be the next server's.
        self._path.unlink(missing_ok=True)
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(GRACE_S + 2)
        self._listener.close()


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, open to every local user: the kernel tells who calls.

    The name appears only when the socket is ready. A dead server's socket is replaced, a living one's is not:
    raises `SocketInUse`.
    """
    if len(os.fsencode(path)) > 100:
        raise BadInput(
            "is too long for a unix socket (100 bytes)", field="api.socket", value=str(path),
            remedy="set api.socket to a shorter path",
        )  # fmt: skip
    if _is_socket(path) and _answers(path):
        raise SocketInUse(str(path))
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    listener = _Listener(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(fresh))
        fresh.chmod(0o666)
        listener.listen()
        fresh.rename(path)
    except OSError:
        listener.close()
        fresh.unlink(missing_ok=True)
        raise
    return listener


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _answers(path: Path, timeout_s: Seconds = 1.0) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):  # it may be taken away at this moment
            return False
        except OSError:
            return True
        return True


__all__: Sequence[str] = ("Server", "SocketInUse", "create_app", "listen", "openapi")
