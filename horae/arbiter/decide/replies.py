"""What a policy's process replies: JSON, because that process runs code of any origin and is not believed.

Its questions are pickles, of the arbiter's own making; a pickle that it made could run anything in the arbiter. Here
data of a known form comes back, or an error. Reasons travel as columns of those that differ, since many jobs share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from horae.journal.codec import Plain, given, plain
from horae.journal.quiet import quiet
from policy.model import Certificate, Code, Decision, JobName, Reason, Snapshot, SolverSummary, TenantShare

#: What a policy's process sends back: what it answered or None, what it raised, jobs left out and why.
Reply = tuple[object, str, Mapping[JobName, str]]

#: Bytes of one reply at most: so many, and for each job and GPU of the question so many more. A job of which reasons,
#: state and shares are told takes some 400.
MOST_BYTES, MOST_OF_A_JOB, MOST_OF_A_GPU = 1 << 26, 1 << 11, 1 << 8

_REASON = tuple(f.name for f in fields(Reason))
_OTHERS = tuple(f.name for f in fields(Decision) if f.name != "reasons")
#: Come back to the policy as it gave them: made plain before they are written, since any iterable has a JSON.
_COME_BACK = ("options", "leases", "state")


@dataclass(frozen=True, slots=True)
class _Sent:
    """A decision as it is sent. Allocations are looked through by `validation.py`, reasons here below."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    policy: str
    options: dict[str, Any]
    seed: int
    allocation: Any
    certificate: Certificate
    shares: dict[str, dict[str, float]] | None
    tenants: dict[str, TenantShare]
    leases: dict[str, dict[str, tuple[float, ...]]]
    cancel: tuple[str, ...]
    solver: SolverSummary | None
    state: dict[str, Any]
    reasons: tuple[list[str], list[str], list[Any], list[str]]  #: columns of those that differ
    whose: dict[str, Annotated[int, Field(ge=0)]]  #: of each job, the number of its own


_FORM: TypeAdapter[tuple[_Sent | None, str, dict[str, str]]] = TypeAdapter(tuple[_Sent | None, str, dict[str, str]])
_CODES: dict[Any, Code] = {str(code): code for code in Code}


def most_bytes(snapshot: Snapshot) -> int:
    gpus = sum(node.gpus for node in snapshot.cluster.nodes)
    return MOST_BYTES + MOST_OF_A_JOB * len(snapshot.jobs) + MOST_OF_A_GPU * gpus


def dumps(reply: Reply) -> bytes:
    """Raises TypeError or ValueError for an answer that is no decision, or has no plain form."""
    found, why_not, aside = reply
    with quiet():
        sent = None if found is None else _columns(found)
        return to_json((sent, why_not, aside), fallback=plain, inf_nan_mode="constants")


def loads(body: bytes) -> Reply:
    """Raises ValueError for what no policy's process of ours sends."""
    with quiet():
        try:
            # Most texts of a reply are met once or twice: to look for them among those met costs more than they do.
            found, why_not, aside = _FORM.validate_python(from_json(body, cache_strings="none"))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise _misshapen(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return None if found is None else _decision(found), why_not, aside


def _columns(decision: object) -> dict[str, Any]:
    if not isinstance(decision, Decision):
        raise TypeError(f"the answer is {type(decision).__name__}, not a decision")
    reasons = decision.reasons
    differ = {id(reason): reason for reason in reasons.values()}
    number = {key: i for i, key in enumerate(differ)}
    codes, *columns = [list(map(attrgetter(name), differ.values())) for name in _REASON]
    sent = {name: getattr(decision, name) for name in _OTHERS}
    return {
        **sent,
        **{name: given(sent[name]) for name in _COME_BACK},
        "reasons": [list(map(str, codes)), *columns],  # a member of an enumeration costs ten times its text
        "whose": {name: number[id(reason)] for name, reason in reasons.items()},
    }


def _decision(sent: _Sent) -> Decision:
    codes, texts, numbers, changes = sent.reasons
    if not {dict}.issuperset(map(type, numbers)):
        raise _misshapen("the numbers of a reason are no mapping")
    try:
        made = list(map(Reason, map(_CODES.__getitem__, codes), texts, numbers, changes))
        reasons = dict(zip(sent.whose, map(made.__getitem__, sent.whose.values()), strict=True))
    except LookupError as error:
        raise _misshapen(f"a reason, or its code, that is not there: {error}") from None
    others = {name: getattr(sent, name) for name in _OTHERS}
    return Decision(reasons=reasons, **{**others, "state": Plain(sent.state)})


def _misshapen(what: str) -> ValueError:
    return ValueError(f"its answer is not of the form: {what}")
