"""What a route may ask of a request: who calls, whether they operate, and the body as it came."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from horae.api.errors import ApiError, Code
from horae.api.peers import Caller, caller_of
from horae.api.privacy import access


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
