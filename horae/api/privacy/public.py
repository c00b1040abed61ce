"""What everybody may know, as lists of what is public: a field, a cause, an event that is not named here is private.

Names, sizes, places, times and the kinds of reasons are public: fairness can be checked by everybody. Commands,
paths, losses, logs, model keys and whatever people, clusters or policies wrote are not. So sentences for strangers
are made here, of public data alone; none is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from horae import job_number
from horae.journal.form import ODD
from horae.views.rows import UNDECIDED
from horae.views.sentences import gpus

Data = Mapping[str, Any]

JOB = frozenset(
    "id name owner tenant app pool state gpus range allocation target submitted_s since_s ended_s ran_s time_left_s "
    "waited_s attained step total rate starts resizes restart_cost_s exit_code ended code rho elastic "
    "ahead ahead_jobs policy decided_ago_s start_s priority precedence".split()
)
APP = frozenset(
    "name app tenant pool owners scheduler phase jobs running waiting completed ended_early held gpu_s weight rho best "
    "agent".split()
)
TRIAL = frozenset("id name state held step rank".split())
ABOUT = frozenset("version cluster state_dir pools rounds stage looked_ago_s you".split())
NODE = frozenset("name gpu_type gpus held foreign health rack pool away".split())
TENANT = frozenset("name weight held fair cap running waiting gpu_s rho".split())
MY_TENANT = TENANT | {"budget"}
POOL = frozenset("name policy mode releasing decisions".split())
CERTIFICATE = frozenset(
    "feasible work_conserving sharing_incentive envy pareto rho rho_apps throughput optimal_throughput".split()
)
STEP = frozenset("job verb allocation ready phase waits_for".split())
#: Of an event, beside its sentence.
EVENT = frozenset("seq wall_s kind job pool name owner tenant".split())
#: Of the numbers behind a cause.
NUMBERS = frozenset(
    "code guard wanted for_s kind cap asked_s left_s waits_for losses again_in_s since_s gpu_type gpus at_most_s "
    "jobs rank ranked weight tenant_apps phase phases believed_for_s held owed from to most smallest free "
    "in_s priority precedence from_s to_s fits_s".split()
)

#: What a policy's reason says, by its code.
REASONS = {
    "granted": "it got GPUs",
    "kept": "it keeps what it holds",
    "grew": "it got more GPUs",
    "shrank": "it gave GPUs to others",
    "moved": "it was moved",
    "preempted": "its GPUs went to others",
    "waits-capacity": "not enough GPUs are free behind those ahead of it",
    "waits-gang": "GPUs are free, but no place holds its smallest gang",
    "waits-turn": "others are ahead by the policy's order",
    "waits-cap": "its tenant's limit is reached",
    "waits-away": "the nodes that it would take go away before it ends",
    "waits-lease": "the GPUs it would take are under others' leases",
    "infeasible": "no set of healthy nodes could hold its smallest gang",
    "no-gain": "more would not make it faster",
    "unknown-speed": "its speed here is not known",
    "lost-sweep": "its app's scheduler ended it",
    "finished": "it has no work left",
}
#: Of one that holds nothing yet, the same codes say what it is to have.
GIVEN = frozenset({"granted", "kept", "grew", "shrank", "moved"})
TO_COME = "it is to get GPUs"
_DECIDED = "the policy decided so"
#: What a cause says to strangers, by its kind.
CAUSES = {
    "app": "it is one of the jobs of its app",
    "guard": "a guard holds a change back",
    "blocked": "the cluster does not let it run",
    "hold": "it is held",
    "cancel": "it is being ended",
    "plan": "a change is under way",
    "backoff": "it was ended by the cluster or requeued several times in a row; it waits for its next try",
    "mode": "its pool is not acted in",
    "cluster": "the cluster shows something of it that is its owner's",
    "end": "it is over",
    "limit": "the site limits what its tenant holds",
    "aside": "it is left out of decisions",
    "probe": "its speed is being measured",
    "size": "others hold GPUs that it could use",
    "type": "it runs on another GPU type than it prefers",
    "gang": "its policy gives it GPUs of one type",
    "shrank": "it gave GPUs to others",
    "share": "what its tenant holds and is owed",
    "start": "when enough GPUs come free for it",
    "advice": "what would be done with it, were its pool acted in",
    "checkpoint": "its owner can say more of its checkpoints",
    "budget": "its tenant's budget of GPU time is used up",
    "away": "nodes go away",
    "unused": "its owner can say more of how its GPUs are used",
}
ALERTS = {
    "stalled": "nothing is done for now",
    "journal": "the journal could not be written",
    "disk": "the arbiter's disk is nearly full: what runs goes on, what needs room waits",
    "cluster": "the cluster cannot be read",
    "unread": "what is kept of a job cannot be read: it is left as it is",
    "policy": "the policy did not decide",
    "bug": "the arbiter failed",
    "budget": "a tenant's budget of GPU time is used up",
}
ASK = "ask an operator"


def only(data: Data, keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key in keys}


def job(data: Data) -> dict[str, Any]:
    """One job, and its explanation where `data` holds one."""
    shown = only(data, JOB)
    if "why" in data:
        otherwise = UNDECIDED if data["why"] == UNDECIDED else ""
        held = sum(data.get("allocation", {}).values())
        shown["why"] = "" if data.get("ended") else _reason(data.get("code"), held, otherwise)
    if "causes" in data:
        shown["causes"] = causes(data["causes"])
        held = sum(data.get("allocation", {}).values())
        first = shown["causes"][0]["text"] if shown["causes"] else "its owner can say more"
        holds = f"{held} GPU{'' if held == 1 else 's'}" if held else "no GPUs"
        shown["headline"] = f"job {job_number(data['id'])} is {data['state']} and holds {holds}: {first}"
    return shown


def _reason(code: object, held: float, otherwise: str) -> str:
    """A policy's reason about a job that holds so many GPUs."""
    return TO_COME if code in GIVEN and not held else REASONS.get(str(code), otherwise)


def causes(found: Iterable[Data]) -> list[dict[str, Any]]:
    out = []
    for cause in found:
        what, numbers = str(cause["what"]), only(cause.get("numbers", {}), NUMBERS)
        words = CAUSES if what != "policy" else {what: _reason(numbers.get("code"), numbers.get("held", 1), _DECIDED)}
        text = words.get(what)
        if text is not None:
            out.append({"what": what, "text": text, "numbers": numbers, "change": ""})
    return out


def app(data: Data) -> dict[str, Any]:
    return {**only(data, APP), "trials": [only(trial, TRIAL) for trial in data["trials"]]}


def about(data: Data) -> dict[str, Any]:
    """`stalled` and `stood_down` are there and say only that it is so."""
    shown = only(data, ABOUT)
    for key, words in (("stalled", ALERTS["stalled"]), ("stood_down", "another arbiter has the cluster")):
        if key in data:
            shown[key] = words if data[key] else None
    return {**shown, "notes": []}


def status(data: Data, tenants: Collection[str]) -> dict[str, Any]:
    """All but the jobs. `tenants`: the caller's own, whose budgets are his to know."""
    return {
        **only(data, frozenset({"cluster", "now_s"})),
        "nodes": [only(node, NODE) for node in data["nodes"]],
        "tenants": [only(row, MY_TENANT if row["name"] in tenants else TENANT) for row in data["tenants"]],
        "pools": [_pool(pool) for pool in data["pools"]],
        "alerts": [_alert(alert) for alert in data["alerts"]],
    }


def _pool(data: Data) -> dict[str, Any]:
    shown, decided = only(data, POOL), data.get("decided", {})
    if "maintenance" in data:
        shown["maintenance"] = "maintenance" if data["maintenance"] else data["maintenance"]
    told = {key: decided[key] for key in ("policy", "took_s") if key in decided}
    if "certificate" in decided:
        told["certificate"] = only(decided["certificate"], CERTIFICATE)
    if decided.get("fallback"):
        told["fallback"] = ALERTS["policy"]
    return {**shown, "decided": told, "advised": [only(step, STEP) for step in data.get("advised", ())]}


def _alert(data: Data) -> dict[str, Any]:
    kind = str(data["what"]).partition(":")[0]
    return {
        "what": data["what"],
        "text": ALERTS.get(kind, f"something is wrong: {kind}"),
        "remedy": ASK,
        **_since(data),
    }


def _since(data: Data) -> dict[str, Any]:
    return {"since_s": data["since_s"]} if "since_s" in data else {}


# --- events ------------------------------------------------------------------------------------------------


def event(data: Data) -> dict[str, Any]:
    """An event without its data, and with a sentence made of what is public of it."""
    kind = str(data.get("kind", ""))
    try:
        text = EVENTS[kind](data.get("data", {}))
    except ODD:  # of a row that is damaged, or of a kind that is not named here
        text = kind
    return {**only(data, EVENT), "text": text}


def _seen(data: Data) -> str:
    held = f" on {gpus(data['allocation'])}" if data.get("allocation") else ""
    start = f", start {data['epoch']}" if data.get("epoch") else ""
    code = f" with exit code {data['exit_code']}" if data.get("exit_code") not in (None, 0, 86) else ""
    return f"{data['state']}{held}{start}{code}"


def _measured(data: Data) -> str:
    of = f" of {data['total']:g}" if data.get("total") else ""
    return f"step {data.get('done', 0):g}{of}"


def _intent(data: Data) -> str:
    if data["verb"] in ("start", "reshape"):
        return f"start {data.get('epoch')} on {gpus(data['allocation'])}"
    return f"{_VERBS.get(data['verb'], 'something')} is asked of the cluster"


_VERBS = {
    "submit": "handing in",
    "checkpoint_and_stop": "checkpointing and leaving",
    "cancel": "ending",
    "release": "handing back",
    "start": "a start",
    "reshape": "a resize",
}


def _outcome(data: Data) -> str:
    verb = _VERBS.get(data["verb"], "something")
    return f"the cluster took the request: {verb}" if data.get("error") is None else f"{verb} failed"


def _decided(data: Data) -> str:
    if data.get("fallback"):
        return "the previous allocation stands"
    targets = data.get("targets", {})
    moved = ", ".join(f"{job}: {sum(target.values())}" for job, target in targets.items())
    return f"{data.get('policy', 'the policy')} decided: {f'GPUs by job {moved}' if moved else 'nothing is to change'}"


def _by(words: str) -> Callable[[Data], str]:
    return lambda data: f"{words} {data['by']}"


def _always(words: str) -> Callable[[Data], str]:
    return lambda data: words


EVENTS: dict[str, Callable[[Data], str]] = {
    "opened": _always("an arbiter took up the journal"),
    "claimed": _always("claims the cluster"),
    "stood-down": _always("another arbiter claimed the cluster"),
    "recovered": _always("rebuilt from what the cluster shows"),
    "alert": _always("something is wrong, an operator is told"),
    "cleared": _always("what was wrong is over"),
    "clock-stepped": _always("the clock jumped"),
    "checkpoint": _always("the journal was compacted"),
    "submitted": lambda d: f"handed in by {d['owner']} for tenant {d['tenant']}",
    "cancel-asked": _by("to be ended, says"),
    "held": _by("held by"),
    "unheld": _by("no longer held, says"),
    "priority": _by("put elsewhere in line by"),
    "mode": lambda d: f"mode {d['mode']}, says {d['by']}",
    "maintenance": lambda d: f"maintenance {'begins' if d['on'] else 'is over'}, says {d['by']}",
    "agent": lambda d: (
        f"an agent of {d['by']} bids for an app" if d["by"] else "nobody's agent bids for an app any more"
    ),
    "bid": lambda d: f"app {d['app']} bids",
    "bid-refused": lambda d: f"a bid of app {d['app']} is refused",
    "reopened": _always("it is not over"),
    "ordered": lambda d: f"the order of {len(d['jobs'])} waiting jobs is set",
    "offered": lambda d: f"offer {d['number']}, {gpus(d['gpus'])}, goes to {', '.join(d['asked'])}",
    "settled": lambda d: f"offer {d['number']} is settled",
    "adopted": _always("found in the cluster"),
    "respecified": _always("its owner changed it in the cluster"),
    "seen": _seen,
    "missing": _always("the cluster does not show it"),
    "measured": _measured,
    "capped": lambda d: f"the site lets {'it' if d.get('alone') else 'tenant ' + d['tenant']} hold {d['cap']} GPUs",
    "avoided": lambda d: f"{d['gpus']} GPUs of {d['node']} are left alone for now",
    "decided": _decided,
    "guarded": lambda d: CAUSES["guard"] if d.get("guard") is not None else "no guard holds it back any more",
    "unused": _always("how its GPUs are used is its owner's to know"),
    "aside": _always("decided about without it for now"),
    "probed": lambda d: "its probe is over" if "over" in d else f"its speed on {d['gpus']} {d['gpu_type']} is measured",
    "advised": lambda d: f"{len(d['steps'])} steps would be taken",
    "intent": _intent,
    "outcome": _outcome,
    "ended": lambda d: str(d["state"]),
    "forgotten": lambda d: f"{len(d['jobs'])} jobs that ended long ago were forgotten",
}
