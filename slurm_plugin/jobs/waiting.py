"""Jobs that wait, as Slurm shows them: who holds one, from when on it may start, who waits for its end, and since when,
finer than by Slurm's stamps. Pure but for a memory of the last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from horae.port import Blocked, BlockKind, JobId, ObservedJob
from policy.model import Seconds
from slurm_plugin.comment import Tag, parse_tag
from slurm_plugin.jobs.holdings import HOLDING
from slurm_plugin.jobs.record import Grant, Memo
from slurm_plugin.jobs.specification import keeps_shape, said_tasks
from slurm_plugin.options import Options
from slurm_plugin.records import JobRow
from slurm_plugin.writes import Change, Write, hold, update

WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "EXPEDITING"}
)
#: a begin time so far ahead is the module's: such a job waits for us as a held one does
_PARKED_S = 180 * 24 * 3600.0
#: the module's own is 366 days after the submission, also of a job that has waited for most of them
_FAR_S = 365 * 24 * 3600.0
_AHEAD_S = _FAR_S + 24 * 3600.0
#: a requeue's own is two minutes after it, or as long as the site's credentials last (cred_expire)
_REQUEUED_S = 600.0
#: a start of several writes has a time of its own for a while (`shapes.py`): what is so long after it is another's
_OWN_START_S = 120.0
#: reasons that squeue gives for a hold, of `scontrol hold` (ours are such, too) and `scontrol requeuehold`
_BY_ADMIN, _REQUEUED_HELD = "JobHeldAdmin", "job requeued in held state"
_BARRED = frozenset({"InvalidQOS", "InvalidAccount"})
_LONGEST_PAUSE = 6  #: as a power of two, in seconds
_EXCUSED = 2  #: grants in a row that were taken back while others were before it
_TOGETHER_S = 3.0  #: jobs that are granted so soon after each other are tried together
_WIDER_S = 5.0  #: where none of those that may be tried is granted, twice as many may be so much later
_NEXT_S = 1e-5  #: from one job to the next of the same second: as small as lasts through sums of times


def others_of(row: JobRow) -> tuple[str, ...]:
    """Of its list of partitions those that are Slurm's own."""
    tag = parse_tag(row.admin_comment)
    return tag.beside if tag is not None else ()


def is_beside(row: JobRow) -> bool:
    """Whether it waits in those of its partitions that are Slurm's own, as anybody does there, and not in ours yet."""
    others = others_of(row)
    return bool(others) and row.state == "PENDING" and set(others) == set(row.partition.split(","))


def came_to(row: JobRow) -> frozenset[str]:
    """The managed partitions that it came to; none of one that an older module tagged."""
    tag = parse_tag(row.admin_comment)
    return frozenset() if tag is None else frozenset({*tag.partitions, tag.partition}) - {*tag.beside, ""}


def relisted(row: JobRow, ours: frozenset[str]) -> bool:
    """Whether an administrator has named others beside ours since: it waits for us, and so in none of them."""
    now = row.partition.split(",")
    return row.state == "PENDING" and not ours.isdisjoint(now) and not ours.issuperset({*now} - {*others_of(row)})


def restarts_itself(row: JobRow) -> bool:
    """Whether Slurm starts it again, before all others and on nodes that it keeps for it (`--requeue=expedite`). One
    that has nodes still is leaving them, and may have come to its end."""
    return row.state == "EXPEDITING" and not row.nodes and keeps_shape(row)


def barred(row: JobRow) -> bool:
    """Whether Slurm bars it for an account or a QOS that is gone, until it is given another. It looks once: whatever is
    written to such a job lifts the bar, and it would run without either."""
    return row.state == "PENDING" and row.reason in _BARRED


def not_to_start(row: JobRow, now_s: float) -> bool:
    """Whether Slurm starts it in ours by itself neither now nor later, or as its user asked."""
    return row.held or is_beside(row) or parked(row, now_s) or restarts_itself(row) or barred(row)


def let_go_by_nobody(row: JobRow, now_s: float) -> bool:
    """Whether a start that we asked for does not show, or not any more."""
    return row.held or is_beside(row) or barred(row) or (parked(row, now_s) and not keeps_shape(row))


def taken_back(row: JobRow, now_s: float) -> Write:
    """Keeps Slurm from starting it in ours; the others of its list stay as they are. Where an update has to say the
    tasks it waits for our begin time again: a hold is an update that cannot."""
    tag, tasks = parse_tag(row.admin_comment), said_tasks(row)
    if tag is not None and tag.beside and set(tag.partitions) == set(row.partition.split(",")):
        return update(row.id, Change(partitions=tag.beside, tasks=tasks))
    if tasks and tag is not None and not tag.held:
        return update(row.id, Change(start_s=now_s + _AHEAD_S, tasks=tasks))
    return hold(row.id)


def held_by_others(row: JobRow, memo: Memo) -> bool:
    """Whether its owner or an administrator holds it: it came to us unheld, and we have not held it since. Of an
    elastic one that never ran its begin time shows that it was parked."""
    if is_beside(row):  # there we hold nobody
        return row.held
    if barred(row):
        return True
    if not row.held or row.state not in WAITING or memo.held_s:
        return False
    if _held_while_granted(row, memo):
        return True
    if _arrived_held(row):
        return False
    parked_once = (row.eligible_s or 0.0) > (row.submit_s or 0.0) + _PARKED_S
    return keeps_shape(row) or parked_once or _held_by_hand(row, memo)


def _held_while_granted(row: JobRow, memo: Memo) -> bool:
    """Whether it was held after we let it go, and before it ran. Where Slurm itself holds it (it can never run so) the
    reason is another."""
    last = memo.grant
    if last is None or not last.let_go or last.started:
        return False
    return last.restarts == row.restarts and str(row.reason).startswith("JobHeld")


def _held_by_hand(row: JobRow, memo: Memo) -> bool:
    """Of an elastic one that has run, which Slurm holds for its exit code, and for a requeue that we ask for: whether
    that is not all. With our memory lost any hold may be ours."""
    if row.restarts == 0 or not memo.grants:
        return False
    if row.reason == _REQUEUED_HELD:
        return not memo.requeued
    return row.reason == _BY_ADMIN


def who_holds(row: JobRow) -> str:
    """Of one that others hold, for people."""
    if barred(row):
        change = f"scontrol update jobid={row.id} {str(row.reason).removeprefix('Invalid')}=..."
        return f"Slurm bars it ({row.reason}), and it is left so: `{change}` gives it another"
    slurm = row.state == "SPECIAL_EXIT" and row.reason != _BY_ADMIN
    who = "Slurm, for its exit code (RequeueExitHold)," if slurm else "another than Horae"
    return f"{who} holds it, and it is left so: `scontrol release {row.id}` ends it"


def said_since(row: JobRow, now: JobRow | None, now_s: float) -> str:
    """What has been said of a waiting job since it was read, and its start would undo, or would not fit any more;
    empty: nothing. `now`: as it is; None: Slurm does not tell of it."""
    if now is None:
        return "is not told of by Slurm just now"
    if now.state not in WAITING:
        return f"is {now.state.lower()} by now"
    by_another = now.reason == _BY_ADMIN and row.reason != _BY_ADMIN
    if now.held and (by_another or not row.held):
        return "has just been held by another than Horae"
    if now.eligible_s != row.eligible_s and (now.eligible_s or 0.0) > now_s:
        return "has just been given another begin time"
    if now.limit_s != row.limit_s:
        return "has just been given another time limit"
    return ""


def _in_vain(memo: Memo) -> int:
    """Grants in a row that Slurm did not follow; the first while others were before it are not its own."""
    tries = behind = 0
    for grant in reversed(memo.grants):
        if not grant.withdrawn or grant.recalled:
            break
        behind += grant.behind
        tries += not grant.behind
    return tries + max(behind - _EXCUSED, 0)


def tried_elsewhere(memo: Memo) -> bool:
    """Whether Slurm did not start it on other nodes either: then it may be the job's own, and GPUs are kept from others
    each time that it is granted some."""
    return _in_vain(memo) > 1


def tried_again_s(memo: Memo) -> float:
    """When a job whose place is Slurm's to find is let go again after Slurm did not start it: later each time, for
    until then others have the GPUs that it was expected to take."""
    tries = _in_vain(memo)
    last = memo.grant
    if not tries or last is None:
        return 0.0
    return _taken_s(memo) + _pause_s(tries)


def _taken_s(memo: Memo) -> float:
    """When its last grant was taken back."""
    last = memo.grant
    return max(memo.held_s, last.at_s if last else 0.0)  # one that waits for our begin time again is held by nobody


def _pause_s(tries: int) -> float:
    return 2.0 ** min(tries + 1, _LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class _Likeness:
    """What is asked for, and by whom: of jobs of which that is the same Slurm starts all or none."""

    uid: int
    account: str | None
    qos: str | None
    partition: str
    shape: Tag | None


def one_by_one(
    jobs: Mapping[JobId, ObservedJob],
    rows: Mapping[JobId, JobRow],
    memo_of: Callable[[JobId], Memo],
    now_s: float,
) -> tuple[dict[JobId, Blocked], dict[JobId, int]]:
    """Jobs of a shape of their own whose like, of the same user, Slurm does not start: who of them is granted nothing
    yet, and of all how often it was tried. Each by itself would keep GPUs from others while it is tried, and all that
    Slurm tries after it. Whoever is let past the others may not be granted anything, for reasons of its own: then more
    are."""
    aside: dict[JobId, Blocked] = {}
    tried: dict[JobId, int] = {}
    for names in _stuck(rows, memo_of):
        memos = [memo_of(job) for job in names]
        tries = _tries(memos)
        if not tries:
            continue
        tried |= dict.fromkeys(names, tries)
        refused = [memo for memo in memos if _refused(memo)]
        last = max(refused, key=_taken_s)
        rested_s = now_s - _taken_s(last) - _pause_s(tries)
        waits = _free(names, jobs)
        if rested_s >= 0.0 and not any(memo.outstanding for memo in memos):
            waits = waits[1 << min(int(rested_s / _WIDER_S), _LONGEST_PAUSE * 2) :]
        aside |= dict.fromkeys(waits, _until_tried(last))
    return aside, tried


def _stuck(rows: Mapping[JobId, JobRow], memo_of: Callable[[JobId], Memo]) -> list[list[JobId]]:
    """Jobs alike, where Slurm did not start one of them."""
    own = {job: row for job, row in rows.items() if keeps_shape(row)}
    stuck = [row for job, row in own.items() if _refused(memo_of(job))]
    members: dict[_Likeness, list[JobId]] = {_alike(row): [] for row in stuck}
    whose = {(row.uid, row.partition) for row in stuck}  # soon told: tags are compared of their jobs alone
    for job, row in own.items():
        if (row.uid, row.partition) not in whose:
            continue
        mine = members.get(_alike(row))
        if mine is not None:
            mine.append(job)
    return list(members.values())


def _free(names: Iterable[JobId], jobs: Mapping[JobId, ObservedJob]) -> list[JobId]:
    """Those that nothing else keeps from a start, the first that came first."""
    came: list[tuple[Seconds, JobId]] = []
    for name in names:
        job = jobs.get(name)
        if job is not None and job.state.startable and job.blocked is None:
            came.append((job.submitted_s or 0.0, name))
    came.sort()
    return [name for _, name in came]


def _until_tried(last: Memo) -> Blocked:
    reason = f" ({last.blocked[1]})" if last.blocked else ""
    why = f"Slurm does not start {last.number}{reason}: of jobs that ask for the same one is tried at a time"
    return Blocked(BlockKind.ASIDE, why, alone=True)


def _alike(row: JobRow) -> _Likeness:
    tag = parse_tag(row.admin_comment)
    if tag is not None:
        tag = replace(
            tag,
            nonce="",
            begin_s=None,
            held=False,
            tasks=None,
            mail=0,
        )
    return _Likeness(
        uid=row.uid,
        account=row.account,
        qos=row.qos,
        partition=row.partition,
        shape=tag,
    )


def _refused(memo: Memo) -> bool:
    return any(grant.refused for grant in memo.grants)


def _tries(memos: Sequence[Memo]) -> int:
    """Of jobs alike: how often Slurm was asked for some of them and refused, since it started one."""
    grants = [grant for memo in memos for grant in memo.grants]
    began_s = max((grant.at_s for grant in grants if grant.started), default=0.0)
    tries = 0
    for at_s in sorted(grant.at_s for grant in grants if grant.refused):
        if at_s > began_s:
            tries += 1
            began_s = at_s + _TOGETHER_S
    return tries


def _arrived_held(row: JobRow) -> bool:
    tag = parse_tag(row.admin_comment)
    return tag is not None and tag.held


def parked(row: JobRow, now_s: float) -> bool:
    """Whether it waits for the begin time that the module gave it: Slurm cannot start it by itself."""
    return row.state == "PENDING" and row.eligible_s is not None and row.eligible_s > now_s + _PARKED_S


def begins_s(row: JobRow, now_s: float, grant: Grant | None = None) -> float | None:
    """From when on a job may start, as its user said at submission, or an administrator since (another begin time than
    the module's, or a requeue's); None: at once. `grant`: its last, after which no time is a requeue's."""
    tag = parse_tag(row.admin_comment)
    ours = parked(row, now_s) or (row.eligible_s or 0.0) > (row.submit_s or 0.0) + _FAR_S
    said = None if ours or _requeued_then(row, grant) else row.eligible_s
    said = said or (tag.begin_s if tag else None)  # of one whose begin time is not known, what its user said
    return said if said and said > now_s else None


def _requeued_then(row: JobRow, grant: Grant | None) -> bool:
    """Whether its begin time may be its requeue's."""
    if row.restarts == 0 or (grant is not None and grant.let_go and grant.restarts == row.restarts):
        return False
    return (row.eligible_s or 0.0) < (row.submit_s or 0.0) + _REQUEUED_S


def delayed_to_s(row: JobRow, grant: Grant, now_s: float) -> float | None:
    """From when on a job that is granted may start, by somebody's word since its grant; None: by nobody's."""
    if not grant.let_go and (row.eligible_s or 0.0) <= grant.at_s + _OWN_START_S:
        return None
    return begins_s(row, now_s, grant)


def is_ours(row: JobRow, memo: Memo, options: Options) -> bool:
    """Whether it is not over, and neither handed back."""
    ours = options.hold and parse_tag(row.admin_comment) is not None and not memo.released
    return ours and (row.state in WAITING or row.state in HOLDING)


def waits_for_us(row: JobRow, memo: Memo, options: Options) -> bool:
    """Whether Slurm would never start it without us."""
    return is_ours(row, memo, options) and row.state in WAITING


def awaited(dependencies: Iterable[str]) -> frozenset[int]:
    """Jobs (arrays as a whole) whose exit code 86 would start another: that one waits for their failure."""
    found: set[int] = set()
    for dependency in dependencies:
        for ids in re.findall(r"afternotok:([\d_*:]+)", dependency):
            found |= {int(part.split("_")[0]) for part in ids.split(":") if part[:1].isdigit()}
    return frozenset(found)


def is_awaited(row: JobRow, awaited_ids: frozenset[int]) -> bool:
    array = re.match(r"\d+", row.id)
    return row.slurm_id in awaited_ids or (array is not None and int(array[0]) in awaited_ids)


class Arrivals:
    """When jobs came. Slurm's stamps are whole seconds: within one each job's place is found once, in the look that
    shows it first, by JobId and then by the task's number."""

    def __init__(self) -> None:
        self._came: dict[JobId, tuple[float, Seconds]] = {}  #: (the second, the time in it)
        self._newest: dict[float, Seconds] = {}  #: by second

    def look(self, rows: Mapping[JobId, JobRow]) -> None:
        """Place those that are new, and forget those that are gone."""
        if self._came.keys() - rows.keys():
            self._came = {job: came for job, came in self._came.items() if job in rows}
            self._newest = {}
            for second, time_s in self._came.values():
                self._newest[second] = max(time_s, self._newest.get(second, second))
        told = [(row.submit_s, job, row) for job, row in rows.items() if row.submit_s is not None]
        fresh = [(second, *numbers(row.id), job) for second, job, row in told if job not in self._came]
        for second, _, _, job in sorted(fresh):
            before = self._newest.get(second)
            self._newest[second] = second if before is None else before + _NEXT_S
            self._came[job] = second, self._newest[second]

    def of(self, job: JobId) -> Seconds | None:
        """None where Slurm does not tell."""
        came = self._came.get(job)
        return None if came is None else came[1]


def numbers(job: str) -> tuple[int, int]:
    """Of `161_2`, to order by."""
    array, _, task = job.partition("_")
    return int(array), int(task or 0)
