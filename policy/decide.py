"""Run one policy once: options resolved, its proposal checked, every job given a reason, the decision certified.

`decide` is the whole of it; `propose` stops before reasons and certificate (the simulator's inner loop). A policy
that raises or proposes what cannot be becomes `PolicyFailed`, which never carries a half-made decision.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from operator import itemgetter, le
from pathlib import Path
from typing import Any

from policy import away, beyond, catalogue, certificate, line, never
from policy.certificate.feasible import wishes
from policy.certificate.holdings import Holdings
from policy.contract import Context, Entry
from policy.idle import SENTENCES, Idle, why
from policy.model import (
    EMPTY,
    BadInput,
    Decision,
    JobName,
    NodeName,
    Proposal,
    Seconds,
    Snapshot,
    TenantShare,
)
from policy.parts import carrying, quotas, reasons
from policy.parts.newest import on_newest
from policy.parts.sweeps import losers, resting
from policy.places.filling import fill
from policy.places.shapes import settle
from policy.text.plain import not_plain, plain, surely_plain
from policy.text.textform import name_of
from policy.throughput import Throughput

#: Said of a decision behind which is a program that its own limits would have let go on.
CLOCK = "the clock ended a program before its own limits did: another machine may decide otherwise"

_NUMBER = re.compile("([0-9]+)")

#: Whom a decision gives GPUs changes who has a part in a limit: it is made again with that, so often.
MOST_AGAIN = 4


class PolicyFailed(Exception):
    """A policy raised, or proposed what cannot be. `text` is one line for people; `detail` is for its author."""

    def __init__(self, policy: str, text: str, detail: str = "") -> None:
        self.policy, self.text, self.detail = policy, text, detail
        super().__init__(f"policy {policy}: {text}")


def decide(
    snapshot: Snapshot,
    policy: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_limit_s: Seconds | None = None,
    solver: str | None = None,
) -> Decision:
    """The decision of `policy` (default: the snapshot's own) on `snapshot`.

    `options` go over the snapshot's, which count only for the policy that it names. Raises BadInput for a policy or
    option that does not exist, PolicyFailed for a policy that fails.
    """
    entry, resolved = choose(snapshot, policy, options)
    return judged(snapshot, entry, resolved, Context(Throughput(snapshot.cluster), seed, time_limit_s, solver))


def judged(snapshot: Snapshot, entry: Entry, options: Mapping[str, Any], context: Context) -> Decision:
    """The decision of a policy with all its options: within the site's limits, in line by priority. Raises
    PolicyFailed; BadInput passes through."""
    snapshot = away.prepared(line.lined_up(_in_order(its_own(snapshot, entry))))
    proposal, asked = None, None
    for _ in range(MOST_AGAIN):
        paid, unpaid = beyond.divided(snapshot, proposal)
        within, barred, narrowed = quotas.divided(paid, proposal)
        if proposal is not None and within == asked:
            break
        asked, (able, unable) = within, never.divided(within, context.speeds)
        proposal = _proposed(able, entry, options, context)
    assert proposal is not None
    decision = finish(able, entry.name, options, carrying.kept(snapshot, proposal), context, possible=True)
    decision = quotas.told(never.told(decision, within, unable, context.speeds), paid, barred, narrowed)
    return away.told(line.told(beyond.told(decision, snapshot, unpaid), snapshot), snapshot)


def choose(
    snapshot: Snapshot, policy: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[Entry, dict[str, Any]]:
    """The policy to run and all its options. Raises BadInput."""
    own = snapshot.policy
    if policy is None and own is None:
        raise BadInput("no policy is named", field="policy", remedy=f"name one of {', '.join(catalogue.entries())}")
    name = policy if policy is not None else own.name if own is not None else ""
    entry = catalogue.find(name)
    given = dict(own.options) if own is not None and own.name == name else {}
    return entry, entry.resolve({**given, **(options or {})})


def its_own(snapshot: Snapshot, entry: Entry) -> Snapshot:
    """The snapshot without what another policy remembers. Two may call different things alike, and a round that one
    began is none of the other's: asked with it, it would leave everything as it stands."""
    told = snapshot.policy
    if told is None or told.name == entry.name:
        return snapshot
    return replace(snapshot, policy=None, state=EMPTY)


def _in_order(snapshot: Snapshot) -> Snapshot:
    """The snapshot with its nodes in the order of their names, numbers in them by what they are; the same object where
    they are. Ties go by it: in which order a cluster lists its nodes says nothing, and may be another one each time."""
    nodes = snapshot.cluster.nodes
    places = [_place(node.name) for node in nodes]
    if all(map(le, places, islice(places, 1, None))):
        return snapshot
    ordered = tuple(node for _, node in sorted(zip(places, nodes, strict=True), key=itemgetter(0)))
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=ordered))


@lru_cache(maxsize=1 << 16)
def _place(name: NodeName) -> tuple[list[str | tuple[int, str]], NodeName]:
    parts: list[str | tuple[int, str]] = []
    for i, part in enumerate(_NUMBER.split(name)):
        digits = part.lstrip("0")
        parts.append((len(digits), digits) if i % 2 else part)
    return parts, name


def propose(snapshot: Snapshot, entry: Entry, options: Mapping[str, Any], context: Context) -> Proposal:
    """What the policy proposes, checked to be possible. Raises PolicyFailed; BadInput passes through."""
    able, _ = never.divided(away.prepared(line.lined_up(_in_order(snapshot))), context.speeds)
    return carrying.kept(able, _proposed(able, entry, options, context))


def _proposed(snapshot: Snapshot, entry: Entry, options: Mapping[str, Any], context: Context) -> Proposal:
    """What apps' schedulers say goes first, under every policy: losers end, and jobs that are ahead of their phase rest
    (a policy that takes bids values phases itself). The policy never sees them; what it leaves idle is theirs.
    """
    snapshot, actual = carrying.seen(snapshot), snapshot
    lost = losers(snapshot)
    phases = {} if entry.bids is not None else resting(_without(snapshot, lost))
    rest = {**phases, **beyond.resting(_without(snapshot, lost))}
    proposal = _asked(snapshot, lost, rest, entry, options, context)
    wrong = _nonsense(actual, proposal)
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise PolicyFailed(entry.name, f"proposes what cannot be: {wrong[0]}{more}", "\n".join(wrong))
    proposal = carrying.told(actual, snapshot, proposal, context.speeds)
    rest = {name: reason for name, reason in rest.items() if not proposal.allocation.get(name)}
    if lost or rest:
        ahead = sum(name in phases for name in rest)
        notes = (f"{ahead} jobs rest until their app's phase is over",) if ahead else ()
        proposal = replace(
            proposal,
            cancel=(*proposal.cancel, *lost),
            reasons={**proposal.reasons, **lost, **rest},
            notes=(*proposal.notes, *notes),
        )
    return proposal


def _asked(
    snapshot: Snapshot,
    lost: Collection[JobName],
    rest: Collection[JobName],
    entry: Entry,
    options: Mapping[str, Any],
    context: Context,
) -> Proposal:
    """What the policy says of the jobs that neither end nor rest; who rests runs on what is idle even so. Raises
    PolicyFailed; BadInput passes through."""
    proposal = _answered(_without(snapshot, {*lost, *rest}), entry, options, context)
    if not isinstance(proposal, Proposal):
        raise PolicyFailed(entry.name, f"returned {type(proposal).__name__}, not a Proposal")
    proposal = _in_shape(snapshot, proposal, context)
    if not rest or not _possible(snapshot, proposal):
        return proposal
    placer = reasons.left_over(snapshot, proposal.allocation, context.speeds)
    resting_jobs = sorted((j for j in snapshot.jobs if j.name in rest), key=lambda j: j.order)
    for job in resting_jobs:  # what they hold stays while it is idle: else the sizes would go to and fro
        if job.work.left != 0 and (stay := placer.keep(job)):
            placer.take(job, stay)
    fill(placer, resting_jobs)
    more = {name: placer.taken[name] for name in rest if placer.taken.get(name)}
    return replace(proposal, allocation={**proposal.allocation, **more}) if more else proposal


def _answered(snapshot: Snapshot, entry: Entry, options: Mapping[str, Any], context: Context) -> Any:
    try:
        return catalogue.load(entry)(snapshot, options, context)
    except BadInput:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        if snapshot.state and _begins(snapshot, entry, options, context):
            remedy = f"as an earlier answer of {entry.name} returned it, or none"
            raise BadInput(f"is none that {entry.name} goes on from ({what})", field="state", remedy=remedy) from error
        raise PolicyFailed(entry.name, f"raised {what}{_where(entry, error)}", traceback.format_exc()) from error


def _begins(snapshot: Snapshot, entry: Entry, options: Mapping[str, Any], context: Context) -> bool:
    """Whether it answers where it remembers nothing."""
    try:
        catalogue.load(entry)(replace(snapshot, state=EMPTY), options, context)
    except Exception:  # noqa: BLE001  (then its state is not what it raised over)
        return False
    return True


def _where(entry: Entry, error: Exception) -> str:
    """The last line of its author's own that was being run, where it is not Horae's: " at FILE:LINE"."""
    if catalogue.is_own(entry):
        return ""
    module = sys.modules.get(entry.call.partition(":")[0])
    home = entry.name if module is None or module.__file__ is None else str(Path(module.__file__).parent)
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(home)]
    return f" at {lines[-1].filename}:{lines[-1].lineno}" if lines else f" in {entry.call}"


def _possible(snapshot: Snapshot, proposal: Proposal) -> bool:
    return set(proposal.allocation) <= {j.name for j in snapshot.jobs} and not any(
        certificate.violations(snapshot, proposal.allocation)
    )


def _in_shape(snapshot: Snapshot, proposal: Proposal, context: Context) -> Proposal:
    """Jobs that keep a shape of their own have it, also where a policy hands out GPUs by the count; those of unknown
    speed have GPUs of the type that they hold, or of the newest."""
    known = {job.name for job in snapshot.jobs}
    if not set(proposal.allocation) <= known:
        return proposal  # nonsense, which is told by the checks
    proposal = settle(snapshot, proposal, context.speeds)
    unknown = any(not job.throughput and proposal.allocation.get(job.name) for job in snapshot.jobs)
    if not unknown or len(context.speeds.present) < 2 or not _possible(snapshot, proposal):
        return proposal
    newest = on_newest(snapshot, proposal, context.speeds)
    if newest is proposal:
        return proposal
    # What they leave may be of use to somebody: then they stay.
    wish, now = (_wishing(snapshot, p, context.speeds) for p in (newest, proposal))
    return newest if wish <= now else proposal


def _wishing(snapshot: Snapshot, proposal: Proposal, speeds: Throughput) -> set[JobName]:
    """Who could run on what is idle, or faster."""
    return {name for name, _ in wishes(snapshot, proposal.allocation, speeds)}


def _without(snapshot: Snapshot, names: Collection[JobName]) -> Snapshot:
    return replace(snapshot, jobs=tuple(j for j in snapshot.jobs if j.name not in names)) if names else snapshot


def _nonsense(snapshot: Snapshot, proposal: Proposal) -> list[str]:
    jobs = {j.name for j in snapshot.jobs}
    mappings: dict[str, Mapping[str, Any]] = {
        "allocation": proposal.allocation,
        "leases": proposal.leases,
        "reasons": proposal.reasons,
        "shares": proposal.shares or EMPTY,
    }
    wrong = [f"{what} of {j}, which is no job" for what, by in mappings.items() for j in by if j not in jobs]
    wrong += [f"cancels {j}, which is no job" for j in proposal.cancel if j not in jobs]
    if wrong:
        return wrong
    wrong = list(certificate.violations(snapshot, proposal.allocation))
    for job, nodes in proposal.leases.items():
        for node, times in nodes.items():
            if len(times) != proposal.allocation.get(job, EMPTY).get(node, 0):
                wrong.append(f"{job}: {len(times)} leases on {node}, where it gets another number of GPUs")
    return [*wrong, *_without_text(proposal)]


def _without_text(proposal: Proposal) -> Iterator[str]:
    """What no text form could give back."""
    if not surely_plain(proposal.state):
        yield from _unwritable("state", proposal.state)
    told = {id(reason): (job, reason.numbers) for job, reason in proposal.reasons.items()}  # many share one
    if surely_plain([numbers for _, numbers in told.values()]):
        return
    for job, numbers in told.values():
        if not surely_plain(numbers):
            yield from _unwritable(f"reason of {job}", numbers)


def _unwritable(what: str, value: Any) -> Iterator[str]:
    for place, trouble in not_plain(plain(value)):
        yield f"{what}: {name_of(place)} {trouble}"


def finish(
    snapshot: Snapshot,
    name: str,
    options: Mapping[str, Any],
    proposal: Proposal,
    context: Context,
    *,
    possible: bool = False,
) -> Decision:
    """The decision of a checked proposal: reasons for every job, tenants' totals, the certificate. `possible`: it was
    checked on this very snapshot."""
    speeds = context.speeds
    proposed = proposal.allocation
    allocation = {j.name: dict(now) if (now := proposed.get(j.name)) else {} for j in snapshot.jobs}
    staying = _without(snapshot, proposal.cancel)  # who ends now wants nothing any more
    holdings = Holdings(snapshot.jobs, allocation, proposal.shares, speeds)
    # A share of who has no work left is told, and counts in no measure.
    measures = staying is snapshot and (proposal.shares is None or all(j.work.left != 0 for j in snapshot.jobs))
    measured = certificate.certify(
        staying,
        allocation if staying is snapshot else {j.name: allocation[j.name] for j in staying.jobs},
        proposal.shares,
        speeds,
        time_limit_s=context.time_limit_s,
        notes=proposal.notes,
        possible=possible and staying is snapshot,
        holdings=holdings if measures else None,
    )
    if not measured.work_conserving:
        allowed = tuple(Idle(r) for r in catalogue.find(name).idle)
        reason = why(staying, allocation, allowed, options, speeds)
        if reason is not None:
            measured = replace(measured, notes=(*measured.notes, f"left idle ({reason}): {SENTENCES[reason]}"))
    if proposal.solver is not None and proposal.solver.clock:
        measured = replace(measured, notes=(*measured.notes, CLOCK))
    return Decision(
        policy=name,
        options=dict(options),
        seed=context.seed,
        allocation=allocation,
        reasons=reasons.fill(snapshot, allocation, proposal.reasons, speeds),
        certificate=measured,
        shares=proposal.shares,
        tenants=_tenants(snapshot, holdings),
        leases=proposal.leases,
        cancel=tuple(proposal.cancel),
        solver=proposal.solver,
        state=proposal.state,
    )


def _tenants(snapshot: Snapshot, holdings: Holdings) -> dict[str, TenantShare]:
    order = snapshot.cluster.gpu_types
    out = {}
    for name in dict.fromkeys([*[t.name for t in snapshot.tenants], *holdings.bundles]):
        by_type = holdings.bundles.get(name, EMPTY)
        total = {t: float(by_type[t]) for t in order if t in by_type}
        out[name] = TenantShare(total, holdings.values.get(name, 0.0))
    return out
