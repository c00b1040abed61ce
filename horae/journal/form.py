"""How an event is written and read: between its class (`events.py`) and a row of the journal file. No I/O.

A draft is an event before it has a number and a time. What is folded is always what a row says, so an event folded as
it is appended and the same event read back later do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from functools import partial
from types import UnionType
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_args, get_type_hints

from horae.journal.codec import plain, restore
from horae.port import JobId
from policy.model import Seconds
from policy.records import quick

T = TypeVar("T")
#: What a row that is not ours, or is damaged, may raise while it is read, folded or told.
ODD = (LookupError, ValueError, ArithmeticError, TypeError, AttributeError, AssertionError, RecursionError)


class Kind(StrEnum):
    # the arbiter's own life
    OPENED = "opened"  #: an arbiter took this journal up
    CLAIMED = "claimed"  #: it is about to claim the cluster with this token
    STOOD_DOWN = "stood-down"  #: another arbiter claimed the cluster
    RECOVERED = "recovered"  #: the journal was lost, corrupt or old; the cluster's word was taken
    ALERT = "alert"  #: something an operator should know, until `CLEARED`
    CLEARED = "cleared"
    CLOCK_STEPPED = "clock-stepped"
    CHECKPOINT = "checkpoint"  #: the whole ledger; older events may be gone
    # what people asked
    SUBMITTED = "submitted"
    CANCEL_ASKED = "cancel-asked"
    HELD = "held"
    UNHELD = "unheld"
    PRIORITY = "priority"
    MODE = "mode"
    MAINTENANCE = "maintenance"
    AGENT = "agent"  #: an app's own agent came, or left
    BID = "bid"
    BID_REFUSED = "bid-refused"
    # what the cluster showed
    ADOPTED = "adopted"  #: a job that the cluster knew before we did
    RESPECIFIED = "respecified"  #: its owner changed it in the cluster
    SEEN = "seen"
    REOPENED = "reopened"  #: it was taken for ended, and the cluster goes on showing it alive
    MISSING = "missing"  #: the cluster does not show it (any more)
    MEASURED = "measured"
    CAPPED = "capped"  #: a site's limit on a tenant or a job, learnt from a blocked grant
    AVOIDED = "avoided"  #: GPUs of a node that a blocked grant showed to be unusable for now
    # what was decided and done
    OFFERED = "offered"  #: GPUs, to the agents of apps, until a deadline
    SETTLED = "settled"  #: what came of an offer
    DECIDED = "decided"
    UNUSED = "unused"  #: GPUs that a job holds and does not use; or it does again
    GUARDED = "guarded"
    ASIDE = "aside"  #: a job that the policy cannot take is decided about without it, for a while
    PROBED = "probed"  #: a job runs elsewhere for a moment, because knowing its speed there is worth it
    ADVISED = "advised"  #: what would have been done, in the modes that do not act
    ORDERED = "ordered"  #: the order of waiting jobs that is being set
    INTENT = "intent"
    OUTCOME = "outcome"
    ENDED = "ended"
    FORGOTTEN = "forgotten"


class Draft:
    """What happened, before it has a number and a time. Each kind is a subclass, made by `event`."""

    __slots__ = ()
    kind: ClassVar[Kind]


@quick
@dataclass(frozen=True, slots=True)
class Event:
    """A row: `data` is the plain JSON of the draft's fields, but for its job and pool."""

    seq: int
    wall_s: Seconds
    at_s: Seconds
    kind: Kind
    data: Mapping[str, Any]
    job: JobId | None = None
    pool: str | None = None


def written(*, default: T) -> T:
    """An optional field that is written even where it holds its default; the others are left out then."""
    return field(default_factory=lambda: default, metadata={"written": True})


@dataclass(frozen=True, slots=True)
class _Form:
    """What is to be known of a kind's class to write and read it."""

    of: Callable[..., Draft]
    of_job: bool
    of_pool: bool
    kept: tuple[tuple[str, bool, Any], ...]  #: field, whether it may be left out, its default
    values: tuple[tuple[str, Callable[[Any], Any]], ...]  #: fields that are more than JSON: how they are read
    rest: str | None  #: the field that is all that no other field is

    def data(self, draft: Draft) -> dict[str, Any]:
        out = dict(plain(getattr(draft, self.rest))) if self.rest else {}
        for name, optional, default in self.kept:
            value = getattr(draft, name)
            if not optional or value != default:
                out[name] = plain(value)
        return out

    def draft(self, event: Event) -> Draft:
        given = dict(event.data)
        if self.rest is not None:
            own = {name: given.pop(name) for name, _, _ in self.kept if name in given}
            given = {self.rest: given, **own}
        for name, read_ in self.values:
            if (value := given.get(name)) is not None:
                given[name] = read_(value)
        if self.of_job:
            given["job"] = event.job
        if self.of_pool:
            given["pool"] = event.pool
        try:
            return self.of(**given)
        except TypeError:  # a newer arbiter wrote more into it than this one knows
            known = {"job", "pool", *(name for name, _, _ in self.kept)}
            return self.of(**{name: value for name, value in given.items() if name in known})


_FORMS: dict[Kind, _Form] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(written, field))
def event(kind: Kind, *, rest: str | None = None) -> Callable[[type[T]], type[T]]:
    """Make a subclass of `Draft` the class of `kind`. `rest`: its field that stands in the file not under a name of its
    own: its keys do, beside the other fields."""

    def make(plain_class: type[T]) -> type[T]:
        made: Any = quick(dataclass(frozen=True, slots=True)(plain_class))
        made.kind = kind
        known: tuple[Field[Any], ...] = fields(made)
        hints = get_type_hints(made)
        kept = tuple(_kept(f) for f in known if f.name not in ("job", "pool", rest))
        values = tuple((f.name, r) for f in known if (r := _reader(hints[f.name])) is not None)
        _FORMS[kind] = _Form(made, "job" in hints, "pool" in hints, kept, values, rest)
        return made  # type: ignore[no-any-return]

    return make


def _kept(f: Field[Any]) -> tuple[str, bool, Any]:
    optional = f.default is not MISSING and not f.metadata.get("written", False)
    return f.name, optional, f.default


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    """How a value of an enumeration or of a dataclass is made of its JSON; None: the JSON is the value."""
    for kind in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {member.value: member for member in kind}.__getitem__
        if isinstance(kind, type) and is_dataclass(kind):
            return partial(restore, kind)
    return None


def numbered(draft: Draft, seq: int, wall_s: Seconds, at_s: Seconds) -> Event:
    """The row of this draft."""
    job, pool = getattr(draft, "job", None), getattr(draft, "pool", None)
    return Event(seq, wall_s, at_s, draft.kind, _FORMS[draft.kind].data(draft), job, pool)


#: By value: a week of a site is a million events.
KINDS = {kind.value: kind for kind in Kind}


def read(row: Event) -> Draft:
    """What a row tells. Raises KeyError, TypeError, ValueError for one that is not ours or is damaged."""
    return _FORMS[row.kind].draft(row)
