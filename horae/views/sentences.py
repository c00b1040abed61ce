"""An event of the journal as one sentence for a person. Pure; a kind without a sentence shows its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from horae.journal import Event, Kind

Data = Mapping[str, Any]
#: The port's verbs as people would say them.
_VERBS = {
    "submit": "hand it to the cluster",
    "start": "start",
    "reshape": "resize",
    "checkpoint_and_stop": "ask it to checkpoint and leave",
    "cancel": "end it",
    "release": "hand it back",
    "follow_up": "follow up",
}


#: The same, of an intent.
_ASKED = {"submit": "handed to the cluster", "cancel": "ended", "release": "handed back"}


def sentence(event: Event) -> str:
    """What happened. Jobs and their names stand beside it, not in it."""
    make = _SENTENCES.get(event.kind)
    return make(event.data) if make is not None else ", ".join(f"{k} {v}" for k, v in event.data.items())


def gpus(allocation: Mapping[str, int] | None) -> str:
    """`4 GPUs: v100-1:4`, `no GPUs`."""
    total = sum((allocation or {}).values())
    if not total:
        return "no GPUs"
    places = ",".join(f"{node}:{n}" for node, n in sorted((allocation or {}).items()))
    return f"{total} GPU{'s' if total > 1 else ''}: {places}"


def _because(data: Data, key: str = "text") -> str:
    return f": {data[key]}" if data.get(key) else ""


def _whom(capped: Data) -> str:
    return "it" if capped.get("alone") else f"tenant {capped['tenant']}"


def _seen(data: Data) -> str:
    state, start = data["state"], f", start {data['epoch']}" if data.get("epoch") else ""
    held = f" on {gpus(data['allocation'])}" if data["allocation"] else ""
    code = f" with exit code {data['exit_code']}" if data.get("exit_code") not in (None, 0, 86) else ""
    mark = data.get("checkpoint")
    kept = f", checkpoint at step {mark['step']:g}" if mark and state in ("stopped", "lost") else ""
    blocked = f"; the cluster does not let it run: {data['blocked']['text']}" if data.get("blocked") else ""
    said = str(data.get("native") or "")
    words = f" ({said})" if state in ("stopped", "lost") and said.lower() != state and said else ""
    return f"{state}{held}{start}{code}{kept}{blocked}{words}"


def _decided(data: Data) -> str:
    if data.get("fallback"):
        return f"the previous allocation stands: {data['fallback']}"
    moved = [f"{job}: {sum(target.values())}" for job, target in data.get("targets", {}).items()]
    what = [f"GPUs by job {', '.join(moved)}"] if moved else []
    if data.get("cancel"):
        what.append(f"jobs {', '.join(data['cancel'])} have lost in their app and end")
    took = f"{data.get('policy', 'the policy')} decided in {data.get('took_s', 0.0) * 1e3:.0f} ms"
    return f"{took}: {'; '.join(what) or 'nothing is to change'}"


def _intent(data: Data) -> str:
    """In the present tense: it is about to be asked of the cluster."""
    verb, why = str(data["verb"]), data.get("text")
    if verb in ("start", "reshape"):
        return f"start {data.get('epoch')} on {gpus(data['allocation'])}"
    if verb == "checkpoint_and_stop":
        return f"{why}: checkpoints and leaves" if why else "is asked to checkpoint and leave"
    if verb == "follow_up":
        return f"is followed up{_because(data)}"
    return f"is {_ASKED.get(verb, verb)}{_because(data)}"


def _outcome(data: Data) -> str:
    words = _VERBS.get(data["verb"], data["verb"])
    if data.get("error") is None:
        return f"the cluster took the request to {words}"
    return f"could not {words}{_because(data)}"


def _guarded(data: Data) -> str:
    if data.get("guard") is None:
        return "no guard holds it back any more"
    return f"held back by a guard{_because(data)}"


def _probed(data: Data) -> str:
    if "over" in data:
        return f"its probe is over: {data['over']}"
    return f"its speed on {data['gpus']} {data['gpu_type']} is to be measured: {data['text']}"


def _measured(data: Data) -> str:
    total = f" of {data['total']:g}" if data.get("total") else ""
    loss = data.get("loss")
    return f"step {data.get('done', 0):g}{total}" + (f", loss {loss[-1][1]:.4g}" if loss else "")


def _submitted(data: Data) -> str:
    spec = data["spec"]
    program, *words = spec.get("command", ("",))
    command = " ".join([PurePath(program).name, *words])[:200]
    return f"handed in by {data['owner']} for tenant {data['tenant']}: {command}"


def _settled(data: Data) -> str:
    told = []
    for app, result in data["apps"].items():
        held = sum(sum(a.values()) for a in result["jobs"].values())
        told.append(f"{app}: {result['text']}; it has {held} GPU{'' if held == 1 else 's'} now")
    return f"offer {data['number']} is settled. " + ". ".join(told)


_SENTENCES: dict[Kind, Callable[[Data], str]] = {
    Kind.OPENED: lambda d: f"arbiter {d['version']} took up the journal on {d['host']}, pid {d['pid']} ({d['how']})",
    Kind.CLAIMED: lambda d: "claims the cluster",
    Kind.STOOD_DOWN: lambda d: f"stood down: another arbiter claimed the cluster ({d['by']})",
    Kind.RECOVERED: lambda d: f"rebuilt from what the cluster shows: {d['why']}",
    Kind.ALERT: lambda d: f"alert: {d['text']}",
    Kind.CLEARED: lambda d: f"over: {d['what']}",
    Kind.CLOCK_STEPPED: lambda d: f"the clock jumped by {d['by_s']:.0f} s",
    Kind.CHECKPOINT: lambda d: "the journal was compacted",
    Kind.SUBMITTED: _submitted,
    Kind.CANCEL_ASKED: lambda d: f"to be ended, says {d['by']}{_because(d)}",
    Kind.HELD: lambda d: f"held by {d['by']}{_because(d)}",
    Kind.UNHELD: lambda d: f"no longer held, says {d['by']}",
    Kind.PRIORITY: lambda d: f"{'precedence' if d['across'] else 'priority'} {d['to']}, says {d['by']}",
    Kind.MODE: lambda d: f"mode {d['mode']}, says {d['by']}",
    Kind.MAINTENANCE: lambda d: f"maintenance {'begins' if d['on'] else 'is over'}, says {d['by']}{_because(d)}",
    Kind.AGENT: lambda d: (
        f"an agent of {d['by']} bids for app {d['app']}"
        if d["by"]
        else f"nobody's agent bids for app {d['app']} any more"
    ),
    Kind.OFFERED: lambda d: f"offer {d['number']}, {gpus(d['gpus'])}, goes to {', '.join(d['asked'])}",
    Kind.BID: lambda d: f"app {d['app']} bids {len(d['rows'])} rows on offer {d['offer']}",
    Kind.BID_REFUSED: lambda d: f"the bid of app {d['app']} on offer {d['offer']} is refused{_because(d)}",
    Kind.SETTLED: _settled,
    Kind.ADOPTED: lambda d: "found in the cluster",
    Kind.RESPECIFIED: lambda d: "its owner changed it in the cluster",
    Kind.SEEN: _seen,
    Kind.MISSING: lambda d: "the cluster does not show it",
    Kind.MEASURED: _measured,
    Kind.CAPPED: lambda d: f"the site lets {_whom(d)} hold {d['cap']} GPUs{_because(d)}",
    Kind.AVOIDED: lambda d: f"{d['gpus']} GPUs of {d['node']} are left alone for now{_because(d)}",
    Kind.DECIDED: _decided,
    Kind.GUARDED: _guarded,
    Kind.UNUSED: lambda d: f"{d['gpus']} GPUs that it holds lie unused" if d["gpus"] else "it uses its GPUs again",
    Kind.ASIDE: lambda d: f"decided about without it for now{_because(d)}",
    Kind.PROBED: _probed,
    Kind.ADVISED: lambda d: f"{len(d['steps'])} steps would be taken",
    Kind.INTENT: _intent,
    Kind.OUTCOME: _outcome,
    Kind.ENDED: lambda d: f"{d['state']}{_because(d)}",
    Kind.FORGOTTEN: lambda d: f"{len(d['jobs'])} jobs that ended long ago were forgotten",
}
