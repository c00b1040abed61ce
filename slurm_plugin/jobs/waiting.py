"""What a job waits for, as Slurm shows it: who holds it, from when on it may start, who waits for its end. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_plugin.comment import parse_tag
from slurm_plugin.jobs.holdings import HOLDING
from slurm_plugin.jobs.record import Memo
from slurm_plugin.jobs.specification import keeps_shape
from slurm_plugin.options import Options
from slurm_plugin.records import JobRow

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
#: a begin time so far ahead is the module's: such a job waits for us as a held one does
_PARKED_S = 180 * 24 * 3600.0
#: the module's own is 366 days after the submission, also of a job that has waited for most of them
_FAR_S = 365 * 24 * 3600.0


def held_by_others(row: JobRow, memo: Memo) -> bool:
    """Whether its owner or an administrator holds it: it came to us unheld, and we have not held it since. An elastic
    one that has run is held by Slurm too, for its exit code; before that its begin time shows that it was parked."""
    if not row.held or row.state not in WAITING or memo.held_s or _arrived_held(row):
        return False
    return keeps_shape(row) or (row.eligible_s or 0.0) > (row.submit_s or 0.0) + _PARKED_S


def _arrived_held(row: JobRow) -> bool:
    tag = parse_tag(row.admin_comment)
    return tag is not None and tag.held


def parked(row: JobRow, now_s: float) -> bool:
    """Whether it waits for the begin time that the module gave it: Slurm cannot start it by itself."""
    return row.state == "PENDING" and row.eligible_s is not None and row.eligible_s > now_s + _PARKED_S


def begins_s(row: JobRow, now_s: float) -> float | None:
    """From when on a job that never ran may start, as its user said at submission, or an administrator since (another
    begin time than the module's); None: at once."""
    tag = parse_tag(row.admin_comment)
    ours = parked(row, now_s) or (row.eligible_s or 0.0) > (row.submit_s or 0.0) + _FAR_S
    said = row.eligible_s if row.restarts == 0 and not ours else None
    said = said or (tag.begin_s if tag else None)  # of one whose begin time is not known, what its user said
    return said if said and said > now_s else None


def is_ours(row: JobRow, memo: Memo, options: Options) -> bool:
    """Whether it is not over, and neither handed back."""
    ours = options.hold and parse_tag(row.admin_comment) is not None and not memo.released
    return ours and (row.state in WAITING or row.state in HOLDING)


def waits_for_us(row: JobRow, memo: Memo, options: Options) -> bool:
    """Whether Slurm would never start it without us."""
    return is_ours(row, memo, options) and row.state in WAITING


def awaited(rows: Sequence[JobRow]) -> frozenset[int]:
    """Jobs (arrays as a whole) whose exit code 86 would start another: that one waits for their failure."""
    found: set[int] = set()
    for row in rows:
        if row.dependency and "afternotok" in row.dependency:
            for ids in re.findall(r"afternotok:([\d_*:]+)", row.dependency):
                found |= {int(part.split("_")[0]) for part in ids.split(":") if part[:1].isdigit()}
    return frozenset(found)


def is_awaited(row: JobRow, awaited_ids: frozenset[int]) -> bool:
    array = re.match(r"\d+", row.id)
    return row.slurm_id in awaited_ids or (array is not None and int(array[0]) in awaited_ids)
