"""Of a job that could use more GPUs than it holds: who has them, when it shrank, its tenant's share, when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from horae import job_number
from horae.arbiter.modes import mode_of
from horae.config import Config, Mode
from horae.journal.ledger import JobRecord, Ledger
from horae.port import JobId
from horae.spec import ENDS_STAY, STAYS
from horae.views import size
from horae.views.cause import Cause
from horae.views.size import Holder, Rest, Seen
from horae.views.starts import StartEstimate, waits_for_a_limit
from policy import catalogue
from policy.model import Code, Gpus, Seconds

#: GPUs off its share that nobody would call a difference.
_EVEN = 0.5
#: A share that the solvers' rounding alone keeps from 1.
_WHOLE = 1.0 - 1e-6


def causes(
    ledger: Ledger,
    config: Config,
    record: JobRecord,
    now_s: Seconds,
    seen: Seen,
    starts: Mapping[JobId, StartEstimate],
    *,
    capped: bool = False,
) -> list[Cause]:
    """`capped`: its tenant holds what it may."""
    pool = config.pool(record.pool)
    # Where the policy fails, its next decision is no remedy; nor is anybody's leaving where a limit is in the way.
    fails = f"policy:{record.pool}" in ledger.alerts
    enforced = pool is not None and mode_of(ledger, pool) is Mode.ENFORCE
    limited = capped or waits_for_a_limit(record) or (record.reason or {}).get("code") == Code.WAITS_AWAY
    ways = _Ways(enforced, enforced and not fails, enforced or record.shown, limited)
    found = [
        *_one_type(config, record, seen),
        *_size(ledger, record, _where(config, record, seen), ways),
        *_type(ledger, record, seen),
        *_shrank(ledger, record, now_s),
        *_share(ledger, config, record, seen),
    ]
    if not record.allocation and record.hold_why is None:
        found += _start(ledger, record, starts.get(record.id))
    return found


@dataclass(frozen=True, slots=True)
class _Ways:
    """By whom a job may become larger."""

    shrinking: bool  #: others, by the policy
    free: bool  #: itself, by the policy, on what is free
    leaving: bool  #: itself, when others end: by us, or by the cluster that knows it
    limited: bool  #: in none of these: a limit is in the way, or the nodes go away


def gpus(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"


def _where(config: Config, record: JobRecord, seen: Seen) -> Seen:
    """Where it could become larger: on GPUs of the type that it holds, where its policy gives a gang one type only."""
    pool = config.pool(record.pool)
    entry = None if pool is None else catalogue.known(pool.policy)
    held = {node.gpu_type for node in seen.nodes if record.allocation.get(node.name)}
    return seen.of(held) if held and entry is not None and entry.one_type else seen


def _one_type(config: Config, record: JobRecord, seen: Seen) -> list[Cause]:
    """Where that keeps it from its largest size."""
    held, most, there = sum(record.allocation.values()), size.most(record, seen), _where(config, record, seen)
    if held >= most or size.most(record, there) == most:
        return []
    named, pool = " and ".join(sorted(there.present())), config.pool(record.pool)
    policy = "its policy" if pool is None else f"policy {pool.policy}"
    text = (
        f"it could use {most} GPUs; {policy} gives a gang GPUs of one type, and of {named} there are {there.usable()}"
    )
    return [Cause("gang", text, {"most": most, "gpus": held})]


def _size(ledger: Ledger, record: JobRecord, seen: Seen, ways: _Ways) -> list[Cause]:
    """Who holds what it could use."""
    held, most, spec = sum(record.allocation.values()), size.most(record, seen), record.spec
    types = [t for t in spec.gpu_types or sorted(seen.present()) if spec.runs_on(t)]
    if spec.type_choice is not None and seen.present().isdisjoint(types):
        return [_absent(record, seen)]
    if held >= most or (held and size.is_stuck(record)):
        return _stuck(record, held, most)
    found = size.rest(ledger, record, seen)
    numbers = {"gpus": held, "most": most, "smallest": record.spec.gpus.min, "free": found.free}
    of = f" of {', '.join(types)}" if spec.gpu_types or spec.forbid_types else ""
    needs = record.spec.gpus.min
    begin = f"it needs {gpus(needs)}{of}"
    begin = f"it could use {most} GPUs{of} and holds {held}" if held else begin
    change = "" if ways.limited else _grows(ledger, record, found, ways)
    return [Cause("size", f"{begin}: {found.words}{_counted(ledger, record, found)}", numbers, change)]


def _grows(ledger: Ledger, record: JobRecord, found: Rest, ways: _Ways) -> str:
    """What lets it have more."""
    held = sum(record.allocation.values())
    # Nobody is in the way of who could become larger on what lies free: that is the policy's word.
    larger = record.spec.gpus.above(held) or held
    lacks = larger - held - found.free
    change = _frees(ledger, found.holders, ways, lacks) if lacks > 0 else ""
    own = bool((record.reason or {}).get("change"))  # what the policy itself says would change it
    return "the policy's next decision" if not change and ways.free and not own else change


def _counted(ledger: Ledger, record: JobRecord, found: Rest) -> str:
    """Where the policy's reason counts more as free: GPUs that it took from somebody who keeps them for now."""
    counted = (record.reason or {}).get("numbers", {}).get("free")
    if record.allocation or not isinstance(counted, int) or counted <= found.free:
        return ""
    kept = [h.job for h in found.holders if ledger.jobs[h.job].guard is not None]
    return (
        f" (the policy counts {counted}: {jobs(kept)} would give up some, and a guard keeps that back)" if kept else ""
    )


def _absent(record: JobRecord, seen: Seen) -> Cause:
    """No node has a type that it may run on."""
    spec, here = record.spec, ", ".join(sorted(seen.present())) or "none"
    of = f"of the type {' or '.join(spec.gpu_types)}" if spec.gpu_types else "that it may run on"
    but = f" (never on {', '.join(spec.forbid_types)})" if spec.forbid_types else ""
    text = f"no node of pool {record.pool} has GPUs {of}{but}; there are: {here}"
    return Cause("size", text, {"gpus": 0}, "handing it in anew with a type that is there, or with none")


def _type(ledger: Ledger, record: JobRecord, seen: Seen) -> list[Cause]:
    """Where it runs on another type than it prefers."""
    wanted = record.spec.prefer_types
    holds = sorted({node.gpu_type for node in seen.nodes if record.allocation.get(node.name)} - set(wanted))
    if not wanted or not holds:
        return []
    free = size.free(ledger, record.pool, seen, wanted)
    named, there = " or ".join(wanted), not seen.present().isdisjoint(wanted)
    now = f"{free} of those {'is' if free == 1 else 'are'} free now" if there else "no node of its pool has those"
    text = f"it prefers GPUs of {named} and runs on {' and '.join(holds)}: {now}"
    change = f"handing it in with --gpu-type {wanted[0]}, which makes it wait for those alone"
    return [Cause("type", text, {"free": free}, change if there else "")]


def _stuck(record: JobRecord, held: int, most: int) -> list[Cause]:
    if held >= most or record.spec.gpus.max == record.spec.gpus.min:
        return []
    if record.checkpoint_trouble:
        what, change = "its checkpoints cannot be written", f"a folder that can be written: {record.spec.checkpoint}"
    elif record.spec.checkpoint is None:
        what, change = "it has no checkpoint folder", "`horae submit --checkpoint FOLDER` the next time"
    else:
        what = record.spec.extra.get(STAYS, "it was handed in as --rigid")
        change = record.spec.extra.get(ENDS_STAY, "handing it in without --rigid")
    text = f"it keeps the {gpus(held)} that it was started with, of {most} that it could use: {what}"
    return [Cause("size", text, {"gpus": held, "most": most}, change)]


def _frees(ledger: Ledger, holders: tuple[Holder, ...], by: _Ways, lacks: Gpus) -> str:
    """What takes the GPUs that it `lacks` from those who have them: their end, or their shrinking, where they can;
    "": nobody has any, or that would not help it."""
    if not (by.leaving and holders):
        return ""
    named = [h.job for h in holders[: size.NAMED]]
    stuck = [job for job in named if size.is_stuck(ledger.jobs[job])]
    others = [job for job in named if job not in stuck]
    ways = []
    if others:
        shrinking = ", or shrinking by the policy's word" if by.shrinking else ""
        ways.append(f"{jobs(others)} ending{shrinking}")
    if stuck:
        ways.append(f"{jobs(stuck)} ending: {'they' if len(stuck) > 1 else 'it'} cannot be resized")
    return f"{gpus(lacks)} more that come free: {'; or '.join(ways)}"


def jobs(ids: list[JobId]) -> str:
    return f"job{'s' if len(ids) > 1 else ''} {', '.join(ids)}"


def _shrank(ledger: Ledger, record: JobRecord, now_s: Seconds) -> list[Cause]:
    """Told until it holds as much again."""
    found = record.shrunk
    if found is None or sum(record.allocation.values()) >= found.before:
        return []
    others = [ledger.jobs[job] for job in found.gained if job in ledger.jobs]
    named = ", ".join(map(_called, others[: size.NAMED]))
    for_whom = f", when {named} got more" if named else ""
    into = f"from {found.before} to {found.to} GPUs" if found.to else f"its {found.before} GPUs"
    verb = "it shrank" if found.to else "it gave up"
    text = f"{verb} {into} {size.ago(now_s - found.at_s)} ago{for_whom}: policy {found.policy} decided so"
    return [Cause("shrank", text, {"from": found.before, "to": found.to, "at_s": found.wall_s})]


def _called(record: JobRecord) -> str:
    return f"job {job_number(record.id)} {record.spec.name} ({record.tenant})"


def _share(ledger: Ledger, config: Config, record: JobRecord, seen: Seen) -> list[Cause]:
    found = size.share(ledger, config, record, seen)
    if not found.owed:
        return []
    if found.off > _EVEN:
        how = f"{found.off:.3g} more than"
    elif found.off < -_EVEN:
        how = f"{-found.off:.3g} fewer than"
    else:
        how = "about"
    others = found.tenants - 1
    beside = f" (weight {found.weight:g}, beside {others} other tenant{'s' if others != 1 else ''} with jobs)"
    text = f"its tenant {record.tenant} holds {gpus(found.held)}, {how} the {found.owed:.3g} it is owed now{beside}"
    # Of one type a count is all there is: who has its part by weight may be owed some of what others cannot use.
    if found.held and how != "about" and len(seen.present()) > 1 and _all_have_their_part(ledger, record):
        text += (
            ", GPUs of all types counted alike; by what jobs are known to train on them, the newest decision leaves "
            "no tenant below its part by weight of each type"
        )
    return [Cause("share", text, {"held": found.held, "owed": found.owed, "weight": found.weight})]


def _all_have_their_part(ledger: Ledger, record: JobRecord) -> bool:
    """Whether the newest certificate says so, which weighs GPUs by their speeds and does not count them."""
    found = ledger.pool(record.pool).decided.get("certificate", {}).get("sharing_incentive", {})
    return found.get("worst") is not None and found["worst"] >= _WHOLE


def _start(ledger: Ledger, record: JobRecord, start: StartEstimate | None) -> list[Cause]:
    if start is None:
        return []
    if not start.after:
        return []
    ahead = [job for job in start.after[-size.NAMED :] if job in ledger.jobs]
    names = ", ".join(f"{job} {ledger.jobs[job].spec.name}" for job in ahead)
    text = f"enough GPUs come free in about {size.ago(start.in_s)}, by the limits and the progress of jobs {names}"
    return [Cause("start", text, {"in_s": start.in_s})]
