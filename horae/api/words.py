"""What the parameters of `verbs.py` may be, and the forms of what is sent: the server's side of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import Field, create_model

from horae import job_form
from horae.api import verbs
from horae.api.verbs import ApiVerb
from horae.arbiter.requests import answers
from horae.job_form import Title, Why
from horae.port import LogChunk
from policy import bounds
from policy.text.forms import MOST_POINTS, Priority
from policy.text.textform import Form, fit, load

#: A call waits at most this long: shorter than a client's patience, and a stopping server need not wait for it.
LONGEST_WAIT_S = 20.0
MOST = 1 << 62

Count = Annotated[int, Field(ge=0, le=MOST)]
Offset = Annotated[int, Field(ge=0, le=MOST)]
Newer = Annotated[int | None, Field(ge=0, le=MOST, description="newer than this event's number")]
Since = Annotated[float | None, Field(ge=0, le=1e12, description="of the last so many seconds")]
Limit = Annotated[int, Field(ge=1, le=100_000)]
Wait = Annotated[float, Field(ge=0, le=LONGEST_WAIT_S, description="wait so long for news")]
Name = Annotated[str, Field(min_length=1, max_length=300)]
AppName = Annotated[
    str, Field(min_length=1, max_length=300, description="TENANT/APP, or APP where that is no question")
]
Offer = Annotated[int, Field(ge=1, le=MOST)]
Jobs = Sequence[Mapping[str, Any]]
#: Before the rows are looked at: the arbiter puts on record what was wrong with them.
Rows = Annotated[Sequence[Mapping[str, Any]], Field(max_length=10 * bounds.MOST_BIDS)]


class RowForm(Form):
    """What the app's finish-time fairness would be with these GPUs beside those under its lease."""

    nodes: dict[Name, Annotated[int, Field(gt=0, le=bounds.MOST_GPUS)]] = Field(
        max_length=MOST_POINTS, description="offered GPUs by node; none: of winning nothing"
    )
    rho: Annotated[float, Field(ge=bounds.LEAST_RHO, le=bounds.MOST_RHO)]
    gpus: int | None = Field(None, description="their sum, as `horae decide --bids` prints it")


class BidForm(Form):
    """A table of valuations, one row an allocation that would be welcome. No rows: nothing is wanted."""

    app: AppName
    offer: Offer
    bids: list[RowForm] = Field(max_length=bounds.MOST_BIDS)


@dataclass(frozen=True)
class Sent:
    """What a verb is sent."""

    form: type[Form]  #: as the documentation has it
    read: Callable[[bytes], dict[str, Any]]  #: the arguments that it holds. Raises BadInput


def hints(verb: ApiVerb) -> dict[str, Any]:
    """The types of a verb's parameters, and of what it returns."""
    names = {"words": sys.modules[__name__], "answers": answers}
    return get_type_hints(verb.function, {**vars(verbs), **names}, include_extras=True)


def model(verb: ApiVerb) -> Any:
    """The type of its JSON answer."""
    value = hints(verb)["return"]
    if not verb.under:
        return value
    fields: dict[str, Any] = {verb.under: (value, ...)}
    return create_model(f"{verb.name.title()}Answer", **fields)


def body(verb: ApiVerb) -> Sent | None:
    """None: the verb is sent nothing."""
    types = hints(verb)
    said = {p.name: (types[p.name], ... if p.default is p.empty else p.default)
            for p in verb.parameters if not verb.in_path(p.name)}  # fmt: skip
    if verb.method == "GET" or not said:
        return None
    if types.get("jobs") == Jobs:
        return Sent(job_form.JobsForm, lambda raw: {"jobs": job_form.read_jobs(raw, "body.json")})
    form: type[Form] = create_model(f"{verb.name.title().replace('_', '')}Form", __base__=Form, **said)  # type: ignore[call-overload]
    return Sent(BidForm if verb.name == "bid" else form, lambda raw: read(form, raw))


def read(form: type[Form], raw: bytes) -> dict[str, Any]:
    """A small body; none at all is an empty one."""
    found = fit(form, load(raw or b"{}", "body.json"))
    return {name: getattr(found, name) for name in form.model_fields}


__all__ = ["LogChunk", "Priority", "Title", "Why"]  # beside what is defined here
