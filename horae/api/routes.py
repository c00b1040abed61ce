"""The routes: one a verb of `verbs.py`, made of what it says there.

They hold no logic. Who calls is what the kernel says of the socket's other end; what is sent is read by `words.py`,
answered by `handlers.py`, refused as in `refusals.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, cast

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from horae import __version__, job_form
from horae.api import limits, refusals, words
from horae.api.backend import Backend
from horae.api.errors import ApiError, Code
from horae.api.handlers import Handlers
from horae.api.peers import Caller, caller_of
from horae.api.privacy import access
from horae.api.verbs import VERBS, ApiVerb, May, Returns

DESCRIPTION = """\
JSON over the arbiter's unix socket. The kernel tells the arbiter who calls, so nothing is to be presented: owners act
on their own jobs, operators on all. Commands, paths, losses and logs of other people's jobs are left out of answers,
unless the site shows them (`api.show_others`). Where the cluster hides others' jobs (Slurm's PrivateData), so does
this interface, and answers for them as for jobs that never were. Times are seconds since 1970, durations seconds,
sizes bytes. Nothing is ever folded. A refusal is `{"error": {"code", "message", "field", "value", "remedy"}}`.
"""


def _who(request: Request) -> Caller:
    site: access.AccessRules = request.app.state.site
    if request.client is None:
        raise ApiError(403, Code.NOT_ALLOWED, "the kernel does not say who calls")
    return caller_of(request.client.host, site.operators)


def _operator(caller: Annotated[Caller, Depends(_who)]) -> Caller:
    if not caller.operator:
        raise ApiError(403, Code.NOT_ALLOWED, f"{caller.name} is no operator", remedy="ask an operator")
    return caller


async def _raw(request: Request) -> bytes:
    return await request.body()


Me = Annotated[Caller, Depends(_who)]
Operator = Annotated[Caller, Depends(_operator)]
Bytes = Annotated[bytes, Depends(_raw)]


CLASSES = {Returns.YAML: PlainTextResponse, Returns.TEXT: PlainTextResponse, Returns.BYTES: Response}
ASKS = {May.EVERYBODY: Me, May.OPERATORS: Operator}


def create_app(backend: Backend, site: access.AccessRules) -> FastAPI:
    """The application over `backend`, for the people that `site` knows."""
    app = FastAPI(title="Horae", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    refusals.install(app)
    app.add_middleware(refusals.BoundedBody, most=job_form.LARGEST_BODY)
    app.add_middleware(limits.BodiesInFlight, largest=job_form.LARGEST_BODY)

    def hides() -> Collection[str]:
        return backend.hides()

    site = replace(site, hides=hides)  # asked anew each time: a site may change it
    app.state.site = site
    handlers = Handlers(backend, site)
    patient = [verb.path for verb in VERBS if inspect.iscoroutinefunction(handlers.of(verb))]
    app.add_middleware(limits.Turns, free=patient)
    for verb in VERBS:
        _add(app, verb, handlers)
    return app


def _add(app: FastAPI, verb: ApiVerb, handlers: Handlers) -> None:
    sent = words.body(verb)
    app.add_api_route(
        verb.path,
        _endpoint(verb, handlers, sent),
        methods=[verb.method],
        name=verb.name,
        summary=verb.summary,
        description=inspect.getdoc(verb.function) or "",
        openapi_extra=None if sent is None else _documented(sent),
        response_class=CLASSES.get(verb.returns, JSONResponse),
        response_model=None if verb.returns is not Returns.JSON else dict[str, Any],
        responses={} if verb.returns is not Returns.JSON else {200: {"model": words.model(verb)}},
    )


def _endpoint(verb: ApiVerb, handlers: Handlers, sent: words.Sent | None) -> Callable[..., Any]:
    """What FastAPI calls with what a request says, by the names of the verb's parameters."""
    answer = handlers.of(verb)

    def said(caller: Caller, raw: bytes, asked: Mapping[str, Any]) -> dict[str, Any]:
        if verb.in_path("job"):
            handlers.known(asked["job"], caller)
        return {**asked, **({} if sent is None else sent.read(raw))}

    def at_once(caller: Caller, raw: bytes = b"", **asked: Any) -> Any:
        return _answered(verb, answer(caller, **said(caller, raw, asked)))

    async def waiting(caller: Caller, raw: bytes = b"", **asked: Any) -> Any:
        return _answered(verb, await answer(caller, **said(caller, raw, asked)))

    endpoint: Callable[..., Any] = waiting if inspect.iscoroutinefunction(answer) else at_once
    endpoint.__signature__ = _signature(verb, sent)  # type: ignore[attr-defined]
    return endpoint


def _signature(verb: ApiVerb, sent: words.Sent | None) -> inspect.Signature:
    types = words.hints(verb)
    asked = [p.replace(annotation=types[p.name], kind=p.KEYWORD_ONLY)
             for p in verb.parameters if verb.method == "GET" or verb.in_path(p.name)]  # fmt: skip
    caller = inspect.Parameter("caller", inspect.Parameter.KEYWORD_ONLY, annotation=ASKS[verb.may])
    raw = inspect.Parameter("raw", inspect.Parameter.KEYWORD_ONLY, annotation=Bytes)
    return inspect.Signature([caller, *asked, *([] if sent is None else [raw])])


def _answered(verb: ApiVerb, found: Any) -> Any:
    if isinstance(found, Iterator):
        return refusals.JsonLots(verb.under, found)
    if verb.returns is Returns.JSON:
        return refusals.Json({verb.under: found} if verb.under else found)
    if verb.returns is Returns.BYTES:
        headers = {"X-Next-Offset": str(found.next_offset), "X-End": str(found.eof).lower()}
        return Response(found.data, media_type=verb.returns.value, headers=headers)
    return PlainTextResponse(found, media_type=verb.returns.value)


def _documented(sent: words.Sent) -> dict[str, Any]:
    content = {"application/json": {"schema": sent.form.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def openapi() -> dict[str, Any]:
    """The OpenAPI document, without an arbiter."""
    return create_app(cast(Backend, None), access.AccessRules()).openapi()
