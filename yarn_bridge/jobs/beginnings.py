"""How many applications more a queue lets begin: a job that has none is granted nothing beyond that. Pure.

The capacity scheduler takes in so many at a time (`max-parallel-apps`, `maximum-applications`, of each queue up to the
root), and gives the application masters of a queue, and of each user in it, a share (`maximum-am-resource-percent`): a
tenth where nobody says otherwise. What waits for either has no container, and no gang of its forms, however many GPUs
are free. A job that is suspended keeps its application master, and its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from policy.model import BadInput, JobName, Quota
from yarn_bridge.clients.queues import MEMORY, Amounts, Queue, Queues

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Beginner:
    """A job that has no application, and is to get one."""

    job: JobName
    owner: str
    queue: str


def quotas(queues: Queues, beginners: Sequence[Beginner], master: Amounts, since: int) -> tuple[Quota, ...]:
    """Limits that bind these jobs. `master`: what YARN gives to an application beside its workers; `since`: how many
    applications more of ours there are than when the queues were asked."""
    found: dict[str, Quota] = {}
    for name in sorted({each.queue for each in beginners}):
        mine = [each for each in beginners if each.queue == name]
        try:
            queue = queues.find(name)
        except BadInput:
            continue  # said elsewhere: nothing can be started in it
        for text, owner, more in _limits(queues, queue, {each.owner for each in mine}, master):
            whom = tuple(each.job for each in mine if owner in ("", each.owner))
            most = max(more - since, 0)
            if most < len(whom):
                found[text] = Quota(f"{text}: {most} more may begin", whom, None, most)
    return tuple(found.values())


def _limits(queues: Queues, queue: Queue, owners: set[str], master: Amounts) -> Iterator[tuple[str, str, int]]:
    """(the limit in words, the user that it binds alone, how many may begin within it)."""
    for each in queues.above(queue.path):
        if each.most_apps is not None:
            text = f"queue {each.path} takes in {each.most_apps} applications at a time"
            yield text, "", each.most_apps - each.apps
    share = queue.masters.get(queue.label)
    least = 0 if queue.active_apps else 1  # the first one begins, whatever its size
    for owner in ("", *sorted(owners)) if share is not None else ():
        used, most = share.of(owner)
        if any(most.values()):
            more = _fitting(used, most, master, queues.whole) - (queue.apps - queue.active_apps)
            whose = f"application masters of {owner}" if owner else "application masters"
            yield f"{whose} in queue {queue.path} may have {most[MEMORY]} MB", owner, max(more, least)


def _fitting(used: Amounts, most: Amounts, each: Amounts, whole: Amounts) -> int:
    """YARN compares by the resource of which that is the largest share of all there is."""
    limit = max((amount / whole[what] for what, amount in most.items() if whole.get(what)), default=0.0)
    room = {what: limit * whole[what] - used.get(what, 0) for what, size in each.items() if size and whole.get(what)}
    return min(int(left / each[what] + _ROUNDING) for what, left in room.items())
