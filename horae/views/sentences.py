"""An event of the journal as one sentence for a person. Pure; what has no sentence shows its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, TypeVar

from horae.journal import Event, events
from horae.journal.events import Verb
from horae.journal.form import ODD, Draft, read
from horae.port import JobState

E = TypeVar("E", bound=Draft)
#: The port's verbs as people would say them.
_VERBS = {
    Verb.SUBMIT: "hand it to the cluster",
    Verb.START: "start",
    Verb.RESHAPE: "resize",
    Verb.STOP: "ask it to checkpoint and leave",
    Verb.CANCEL: "end it",
    Verb.RELEASE: "hand it back",
    Verb.FOLLOW_UP: "follow up",
}
#: The same, of an intent.
_ASKED = {Verb.SUBMIT: "handed to the cluster", Verb.CANCEL: "ended", Verb.RELEASE: "handed back"}


def sentence(event: Event) -> str:
    """What happened. Jobs and their names stand beside it, not in it."""
    make = _SENTENCES.get(event.kind)
    try:
        told = None if make is None else make(read(event))
    except ODD:  # of a row that is damaged, or far older than this reader
        told = None
    return told if told is not None else ", ".join(f"{k} {v}" for k, v in event.data.items())


def gpus(allocation: Mapping[str, int] | None) -> str:
    """`4 GPUs: v100-1:4`, `no GPUs`."""
    total = sum((allocation or {}).values())
    if not total:
        return "no GPUs"
    places = ",".join(f"{node}:{n}" for node, n in sorted((allocation or {}).items()))
    return f"{total} GPU{'s' if total > 1 else ''}: {places}"


def _because(text: str) -> str:
    return f": {text}" if text else ""


def _seen(e: events.JobSeen) -> str:
    start = f", start {e.epoch}" if e.epoch else ""
    held = f" on {gpus(e.allocation)}" if e.allocation else ""
    code = f" with exit code {e.exit_code}" if e.exit_code not in (None, 0, 86) else ""
    left = e.state in (JobState.STOPPED, JobState.LOST)
    kept = f", checkpoint at step {e.checkpoint.step:g}" if e.checkpoint and left else ""
    blocked = f"; the cluster does not let it run: {e.blocked.text}" if e.blocked else ""
    words = f" ({e.native})" if left and e.native and e.native.lower() != e.state else ""
    return f"{e.state}{held}{start}{code}{kept}{blocked}{words}"


def _decided(e: events.Decided) -> str:
    told = e.told
    if told.get("fallback"):
        return f"the previous allocation stands: {told['fallback']}"
    moved = [f"{job}: {sum(target.values())}" for job, target in e.targets.items()]
    what = [f"GPUs by job {', '.join(moved)}"] if moved else []
    if told.get("cancel"):
        what.append(f"jobs {', '.join(told['cancel'])} have lost in their app and end")
    took = f"{told.get('policy', 'the policy')} decided in {told.get('took_s', 0.0) * 1e3:.0f} ms"
    return f"{took}: {'; '.join(what) or 'nothing is to change'}"


def _intent(e: events.Intent) -> str:
    """In the present tense: it is about to be asked of the cluster."""
    if e.verb in (Verb.START, Verb.RESHAPE):
        return f"start {e.epoch} on {gpus(e.allocation)}"
    if e.verb is Verb.STOP:
        return f"{e.text}: checkpoints and leaves" if e.text else "is asked to checkpoint and leave"
    if e.verb is Verb.FOLLOW_UP:
        return f"is followed up{_because(e.text)}"
    return f"is {_ASKED[e.verb]}{_because(e.text)}"


def _answered(e: events.Answered) -> str:
    words = _VERBS[e.verb]
    return f"the cluster took the request to {words}" if e.error is None else f"could not {words}{_because(e.text)}"


def _kept_back(e: events.KeptBack) -> str:
    return "no guard holds it back any more" if e.guard is None else f"held back by a guard{_because(e.text)}"


def _probed(e: events.Probed) -> str:
    if e.over:
        return f"its probe is over: {e.over}"
    return f"its speed on {e.gpus} {e.gpu_type} is to be measured: {e.text}"


def _measured(e: events.Measured) -> str:
    loss, total = e.told.get("loss"), e.told.get("total")
    of = f" of {total:g}" if total else ""
    at = f", loss {loss[-1][1]:.4g}" if loss else ""
    return f"step {e.told.get('done', 0):g}{of}{at}"


def _submitted(e: events.Submitted) -> str:
    program, *words = e.spec.command or ("",)
    command = " ".join([PurePath(program).name, *words])[:200]
    return f"handed in by {e.owner} for tenant {e.tenant}: {command}"


def _settled(e: events.Settled) -> str:
    told = []
    for app, result in e.apps.items():
        held = sum(sum(a.values()) for a in result["jobs"].values())
        told.append(f"{app}: {result['text']}; it has {held} GPU{'' if held == 1 else 's'} now")
    return f"offer {e.number} is settled. " + ". ".join(told)


def _agent(e: events.AgentNamed) -> str:
    if e.by:
        return f"an agent of {e.by} bids for app {e.app}"
    return f"nobody's agent bids for app {e.app} any more"


def _capped(e: events.Capped) -> str:
    whom = "it" if e.alone else f"tenant {e.tenant}"
    return f"the site lets {whom} hold {e.cap} GPUs{_because(e.text)}"


_SENTENCES: dict[str, Callable[[Any], str]] = {}


def _say(event: type[E], make: Callable[[E], str]) -> None:
    _SENTENCES[event.kind] = make


_say(events.Opened, lambda e: f"arbiter {e.version} took up the journal on {e.host}, pid {e.pid} ({e.how})")
_say(events.Claimed, lambda e: "claims the cluster")
_say(events.StoodDown, lambda e: f"stood down: another arbiter claimed the cluster ({e.by})")
_say(events.Recovered, lambda e: f"rebuilt from what the cluster shows: {e.why}")
_say(events.Alerted, lambda e: f"alert: {e.text}")
_say(events.Cleared, lambda e: f"over: {e.what}")
_say(events.ClockStepped, lambda e: f"the clock jumped by {e.by_s:.0f} s")
_say(events.Compacted, lambda e: "the journal was compacted")
_say(events.Submitted, _submitted)
_say(events.CancelAsked, lambda e: f"to be ended, says {e.by}{_because(e.text)}")
_say(events.JobHeld, lambda e: f"held by {e.by}{_because(e.text)}")
_say(events.JobUnheld, lambda e: f"no longer held, says {e.by}")
_say(events.Prioritised, lambda e: f"{'precedence' if e.across else 'priority'} {e.to}, says {e.by}")
_say(events.ModeSet, lambda e: f"mode {e.mode}, says {e.by}")
_say(
    events.Maintenance,
    lambda e: f"maintenance {'begins' if e.on else 'is over'}, says {e.by}{_because(e.text)}",
)
_say(events.AgentNamed, _agent)
_say(events.Offered, lambda e: f"offer {e.number}, {gpus(e.gpus)}, goes to {', '.join(e.asked)}")
_say(events.Bid, lambda e: f"app {e.app} bids {len(e.rows)} rows on offer {e.offer}")
_say(events.BidRefused, lambda e: f"the bid of app {e.app} on offer {e.offer} is refused{_because(e.text)}")
_say(events.Settled, _settled)
_say(events.Adopted, lambda e: "found in the cluster")
_say(events.Respecified, lambda e: "its owner changed it in the cluster")
_say(events.JobSeen, _seen)
_say(events.Missing, lambda e: "the cluster does not show it")
_say(events.Measured, _measured)
_say(events.Capped, _capped)
_say(events.Avoided, lambda e: f"{e.gpus} GPUs of {e.node} are left alone for now{_because(e.text)}")
_say(events.Decided, _decided)
_say(events.KeptBack, _kept_back)
_say(events.LeftUnused, lambda e: f"{e.gpus} GPUs that it holds lie unused" if e.gpus else "it uses its GPUs again")
_say(events.PutAside, lambda e: f"decided about without it for now{_because(e.text)}")
_say(events.Probed, _probed)
_say(events.Advised, lambda e: f"{len(e.steps)} steps would be taken")
_say(events.Intent, _intent)
_say(events.Answered, _answered)
_say(events.Ended, lambda e: e.text if e.text.startswith(e.state) else f"{e.state}{_because(e.text)}")
_say(events.Forgotten, lambda e: f"{len(e.jobs)} jobs that ended long ago were forgotten")
