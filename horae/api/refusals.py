"""How the server says no: every exception as the JSON form of `errors.py`, and a bound on what may be sent.

A failure nobody foresaw is a `bug`: it is logged here with its traceback and told to the caller by its number alone.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, islice
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horae.api.errors import ApiError, Code, body, no_such_job
from horae.arbiter.requests.authority import NotAllowed
from horae.arbiter.requests.commands import NoSuchJob
from horae.port import FixConfiguration, PortError, TryLater
from policy.model import BadInput
from policy.text.textform import brief

log = structlog.get_logger("horae.api")
#: Of a long answer, so much is made before it is sent.
_LOT_BYTES = 1 << 16


class Json(JSONResponse):
    """An answer that is written where it is made: of a large one, in the thread that worked on it, so that nobody else
    waits."""

    def render(self, content: Any) -> bytes:
        return rendered(content)


class JsonLots(StreamingResponse):
    """`{under: [...]}` of what is made as it is read: no more of it is in memory than who asked has taken."""

    media_type = Json.media_type

    def __init__(self, under: str, found: Iterator[Any]) -> None:
        first = list(islice(found, 1))  # what goes wrong at once is an answer of its own
        self.made = _lots(under, chain(first, found))
        super().__init__(self.made)


def _lots(under: str, found: Iterator[Any]) -> Iterator[bytes]:
    lot = b"{%s:[" % rendered(under)
    between = b""
    for each in found:
        lot += between + rendered(each)
        between = b","
        if len(lot) >= _LOT_BYTES:
            yield lot
            lot = b""
    yield lot + b"]}"


def rendered(content: Any) -> bytes:
    """It may quote what was sent, and that may hold halves of characters, which JSON can write and UTF-8 cannot."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=jsonable_encoder)
    return text.encode(errors="backslashreplace")


def not_allowed(what: str, remedy: str = "") -> ApiError:
    return ApiError(403, Code.NOT_ALLOWED, what, remedy=remedy or "ask its owner or an operator")


def as_error(error: BaseException) -> ApiError | None:
    """The refusal for an exception that was foreseen, None for a bug."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, NoSuchJob):
        return no_such_job(error.job)
    if isinstance(error, NotAllowed):
        return not_allowed(error.text)
    if isinstance(error, BadInput):
        more = {"field": error.field, "line": error.line, "value": shown(error.value)}
        return ApiError(422, Code.BAD_INPUT, error.message, remedy=error.remedy, **more)
    if isinstance(error, TryLater):
        return ApiError(503, Code.TRY_LATER, error.text, retry_after_s=error.retry_after_s)
    if isinstance(error, FixConfiguration):
        return ApiError(503, Code.CONFIGURATION, error.text, remedy=error.remedy)
    if isinstance(error, PortError):
        return ApiError(409, Code.REFUSED, error.text)
    return None


def shown(value: object, most: int = 200) -> Any:
    """A value that can be sent back: short, and JSON."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 62):
        return value
    text = value if isinstance(value, str) else brief(value)
    return text if len(text) <= most else text[:most] + "..."


def answer(error: ApiError) -> Json:
    headers = {"Retry-After": str(max(int(error.more["retry_after_s"]), 1))} if "retry_after_s" in error.more else {}
    return Json(body(error.code, error.message, remedy=error.remedy, **error.more), error.status, headers)


def install(app: FastAPI) -> None:
    """Teach `app` to answer every exception in this form."""

    async def known(_: Request, error: Exception) -> Json:
        found = as_error(error)
        return _bug(error) if found is None else answer(found)

    async def http(_: Request, error: Exception) -> Json:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = error.detail if isinstance(error, HTTPException) else str(error)
        code = Code.NOT_FOUND if status in (404, 405) else Code.BAD_INPUT
        return Json(body(code, str(detail)), status)

    async def query(_: Request, error: Exception) -> Json:
        first: Any = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": str(error)}
        field = ".".join(str(step) for step in first["loc"][1:])
        return Json(body(Code.BAD_INPUT, first["msg"], field=field, value=shown(first.get("input"))), 422)

    app.add_exception_handler(RequestValidationError, query)
    for kind in (ApiError, BadInput, NoSuchJob, NotAllowed, PortError):
        app.add_exception_handler(kind, known)
    app.add_exception_handler(HTTPException, http)
    app.middleware("http")(_last_resort)


async def _last_resort(request: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
    try:
        return await call_next(request)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody is there to read it
    except Exception as error:  # noqa: BLE001 - a caller must get an answer, the log gets the traceback
        return _bug(error)


def _bug(error: BaseException) -> Json:
    number = secrets.token_hex(4)
    log.error("bug in the API", number=number, exc_info=error)
    message = f"a bug in the arbiter, number {number} in its log"
    return Json(body(Code.BUG, message, remedy="please report it"), 500)


class BoundedBody:
    """Refuses request bodies above `most` bytes before anything reads them whole."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told) > self._most:
            await self._refuse(send)
            return
        seen, over = 0, False

        async def bounded() -> Message:
            nonlocal seen, over
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                over = True
                return {"type": "http.disconnect"}
            return message

        async def guarded(message: Message) -> None:
            if not over:
                await send(message)

        try:
            await self._app(scope, bounded, guarded)
        except Exception:
            if not over:  # else it is only the application's dismay at a body that was cut off
                raise
        if over:
            await self._refuse(send)

    async def _refuse(self, send: Send) -> None:
        text = json.dumps(
            body(Code.TOO_LARGE, f"the body is larger than {self._most} bytes", remedy="send fewer jobs at once")
        ).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": text})
