"""What of a cluster's free GPUs can be used by us: beside others' memory and cores, within the queue's limits, and
where gangs did form. Pure.

A GPU that is free and cannot be had is told as foreign, so that no policy gives it to anybody: a grant forms, or it
was right by what could be known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace

from horae.port import JobId, backoff_s
from horae.spec import JobSpec
from policy.model import EMPTY, BadInput, Gpus, Health, JobName, Node, Quota
from yarn_bridge.clients.queues import CORES, GPUS, MEMORY, Amounts, Queue, Queues
from yarn_bridge.jobs.partitions import lets_in
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.shapes import queue_of, tag_of, worker_size
from yarn_bridge.options import BY_QUEUE, Options

#: how long a GPU that a gang did not get is not offered, for the first time; twice as long each next time
PAUSE_S = 60.0
LONGEST_S = 1800.0
#: and how long a tenant is offered no more than would come of what it was granted: until that is decided anew
ANEW_S = 30.0
WORDS = {GPUS: "GPUs", MEMORY: "MB of memory", CORES: "virtual cores"}
_ONE = {GPUS: 1}


@dataclass(frozen=True, slots=True)
class Held:
    """What our jobs hold of a node, or may come to hold."""

    gpus: int = 0
    cpus: int = 0
    memory_mib: int = 0


def held_by(
    jobs: Sequence[tuple[Record, JobSpec]],
    options: Options,
    least_mib: int,
    holds: Mapping[JobId, Mapping[str, Gpus]] = EMPTY,
) -> dict[str, Held]:
    """By node. `least_mib`: YARN gives memory in multiples of it; 0: not known. `holds`: of these jobs, what they have
    instead of what they claim."""
    found: dict[str, Held] = {}
    for record, spec in jobs:
        if record.phase is Phase.IDLE:
            continue
        size = worker_of(spec, options, least_mib)
        for name, gpus in holds.get(record.job, record.claims).items():
            at = found.get(name, Held())
            workers = gpus // record.each
            cpus = at.cpus + workers * size.cpus
            memory_mib = at.memory_mib + workers * size.memory_mib
            found[name] = Held(at.gpus + gpus, cpus, memory_mib)
    return found


def standing(records: Iterable[Record], holds: Mapping[JobId, Mapping[str, Gpus]]) -> dict[tuple[str, str], int]:
    """By node and tag, the most workers that these jobs have there. `holds`: as in `held_by`."""
    found: dict[tuple[str, str], int] = {}
    for record in records:
        for node, gpus in holds.get(record.job, record.held).items():
            at = (node, tag_of(record, node))
            found[at] = found.get(at, 0) + gpus // record.each
    return found


def worker_of(spec: JobSpec, options: Options, least_mib: int) -> Held:
    """What YARN gives one worker."""
    cpus, memory_mib = worker_size(spec, options)
    return Held(spec.gpus_a_worker, cpus, given(memory_mib, least_mib))


def given(memory_mib: int, least_mib: int) -> int:
    """What YARN makes of a container's memory."""
    return -(-memory_mib // least_mib) * least_mib if least_mib > 0 else memory_mib


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that our jobs may hold in all, and who says so."""

    most: int
    text: str


#: limits of queues: the path, and of which resource
Limits = AbstractSet[tuple[str, str]]
_NO_LIMITS: Limits = frozenset()


def ceilings(
    queues: Queues, name: str, ours: Amounts, label: str = "", quotas: Limits = _NO_LIMITS
) -> dict[str, Ceiling]:
    """By resource: of a queue and all above it, in the partition of this label; what others use there is not ours to
    use. What has no limit of theirs is left out, and what is told as one of these `quotas`."""
    found: dict[str, Ceiling] = {}
    for queue in queues.above(queues.find(name).path):
        limits = queue.limits.get(label, EMPTY)
        for what, most in limits.items():
            if (queue.path, what) in quotas:
                continue
            others = max(queue.usage.get(label, EMPTY).get(what, 0) - ours.get(what, 0), 0)
            left = max(most - others, 0)
            if what not in found or left < found[what].most:
                beside = f", and others use {others} of them" if others else ""
                found[what] = Ceiling(left, f"{_share(queue, label, what)}{beside}")
    return found


def _share(queue: Queue, label: str, what: str) -> str:
    where = f" in partition {label}" if label else ""
    return f"queue {queue.path} may hold {queue.limits[label][what]} {WORDS[what]} at most{where}"


@dataclass(frozen=True, slots=True)
class Holding:
    """What one job of ours holds, or may come to hold, and for whom."""

    owner: str
    tenant: str
    queue: str
    gpus: Gpus
    size: Amounts = field(default_factory=lambda: _ONE)  #: of each GPU with its memory and cores; {}: it holds no more
    at: Mapping[str, Gpus] = field(default_factory=lambda: EMPTY)  #: of them, by node
    grows: Gpus = 0  #: the fewest that it would take more; 0: none

    def on(self, nodes: Collection[str]) -> Holding:
        """What of it is on these nodes."""
        return replace(self, gpus=sum(gpus for node, gpus in self.at.items() if node in nodes))


def holdings(jobs: Sequence[tuple[Record, JobSpec]], options: Options, least_mib: int = 0) -> tuple[Holding, ...]:
    """Of all jobs, those too that hold nothing."""
    return tuple(_holding(record, spec, options, least_mib) for record, spec in jobs)


def _holding(record: Record, spec: JobSpec, options: Options, least_mib: int) -> Holding:
    idle = record.phase is Phase.IDLE
    over = idle and record.outcome.ended
    at = EMPTY if idle else record.claims
    gpus = sum(at.values())
    larger = None if record.outcome.ended else spec.gpus.above(gpus)
    return Holding(
        record.owner,
        spec.tenant or record.owner,
        queue_of(spec, options),
        gpus,
        {} if over else _size(record, spec, options, least_mib),
        at,
        0 if larger is None else larger - gpus,
    )


def _size(record: Record, spec: JobSpec, options: Options, least_mib: int) -> Amounts:
    size = worker_of(spec, options, least_mib)
    each = record.each or 1
    return {GPUS: 1, MEMORY: -(-size.memory_mib // each), CORES: -(-size.cpus // each)}


#: the partitions whose shares bind workers -> their nodes
Partitions = Mapping[str, Collection[str]]
_DEFAULT: Partitions = {"": ()}


def caps(
    queues: Queues,
    held: Sequence[Holding],
    options: Options,
    now: Sequence[Holding] = (),
    partitions: Partitions = _DEFAULT,
) -> dict[str, Gpus]:
    """The most GPUs that each tenant may hold; those without a limit of their own are left out.

    A queue as tenant: the least of the maxima up to the managed queue, less what others use there, and not more than
    its users may have together. A user as tenant: the queue's limit for one user. Limits of memory and cores count as
    so many GPUs as the tenant's largest job could have within them. Of several partitions it may hold all the shares.
    `held`: when the queues were asked; `now`: jobs of whose sizes are to count as well.
    """
    managed = queues.find(options.queue)
    known = (*held, *now)
    if options.tenants == BY_QUEUE:
        limits = {leaf.path: _of_leaf(queues, managed, leaf, held, known, partitions) for leaf in managed.leaves()}
    else:
        own = {each.owner for each in held if each.tenant == each.owner and each.queue == options.queue}
        limits = {one: _fitting(managed.per_user, [each for each in known if each.owner == one]) for one in sorted(own)}
    return {tenant: min(found) for tenant, found in limits.items() if found}


def _of_leaf(
    queues: Queues,
    managed: Queue,
    leaf: Queue,
    held: Sequence[Holding],
    known: Sequence[Holding],
    partitions: Partitions,
) -> list[Gpus]:
    mine = [each for each in known if each.queue == leaf.path]
    below = [each for each in queues.above(leaf.path) if len(each.path) > len(managed.path)]
    found = _of_users(leaf, mine)
    for queue in below:
        left = _in_all(queue, held, partitions)
        found += _fitting(left, mine)
    return found


def _in_all(queue: Queue, held: Sequence[Holding], partitions: Partitions) -> Amounts:
    """What our jobs below it may hold in all of these; what it has no limit of in one of them has none."""
    if len(partitions) < 2:
        return left_of(queue, held, *partitions)
    found = list[Amounts]()
    for label, nodes in partitions.items():
        there = [each.on(nodes) for each in held]
        found.append(left_of(queue, there, label))
    limited = [what for what in WORDS if all(what in left for left in found)]
    return {what: sum(left[what] for left in found) for what in limited}


def _of_users(leaf: Queue, mine: Sequence[Holding]) -> list[Gpus]:
    """What all of its users may have together, whose jobs have not ended."""
    users = {each.owner for each in mine if each.size}
    found = [_fitting(leaf.per_user, [each for each in mine if each.owner == user]) for user in users]
    return [sum(min(each) for each in found)] if found and all(found) else []


def left_of(queue: Queue, held: Sequence[Holding], label: str = "") -> Amounts:
    """What our jobs below it may hold, by its own limits alone, in the partition of this label."""
    there = [each for each in held if is_below(each, queue)]
    limits = queue.limits.get(label, EMPTY)
    used = queue.usage.get(label, EMPTY)
    ours = {what: sum(each.gpus * each.size.get(what, 0) for each in there) for what in limits}
    return {what: most - max(used.get(what, 0) - ours[what], 0) for what, most in limits.items()}


def of_some(queues: Queues, name: str, held: Collection[Holding]) -> Limits:
    """Those limits of this queue, and of those above, that bind some of these jobs and not the others, and that are so
    many GPUs exactly: what goes with a GPU is the same for all whom they bind."""
    there = paths(queues, {each.queue for each in held})
    living = [placed_in(there, each) for each in held if each.size]
    found = set[tuple[str, str]]()
    for queue in queues.above(queues.find(name).path):
        bound = [each for each in living if is_below(each, queue)]
        if len(bound) == len(living):
            continue
        for what in WORDS:
            sizes = {each.size.get(what, 0) for each in bound}
            if len(sizes) < 2:
                found.add((queue.path, what))
    return found


def own_queues(
    queues: Queues,
    jobs: Mapping[JobName, Holding],
    at_home: Collection[JobName],
    quotas: Limits,
    held: Sequence[Holding],
    begin: AbstractSet[JobName],
    master: Amounts,
    partitions: Mapping[str, Collection[str]],
) -> tuple[Quota, ...]:
    """What these jobs may hold by the limits of the queues that they name, and of those above, and by those of one
    user. Nothing is taken by it from who holds more. Those `at_home` are in Horae's queue: its limits, and of those
    above, bind them by the nodes that they are offered, but for these `quotas`.

    Any of them may come to any partition, so that the limit in each binds all that they hold: exact where workers get
    to one, and less than there is where they get to several. `held`: by all our jobs, when the queues were asked;
    `begin`: jobs that are to have an application `master` beside their workers; `partitions`: of those whose limits
    bind workers, the nodes.
    """
    names = {each.queue for each in (*held, *jobs.values())}
    whole = paths(queues, names)
    known = [placed_in(whole, each) for each in held]
    placed = {job: placed_in(whole, each) for job, each in jobs.items()}
    named = {each.queue: each for each in placed.values()}
    ours = [queue for queue in queues.root.walk() if any(is_below(each, queue) for each in named.values())]
    found = list[Quota]()
    for label, nodes in sorted(partitions.items()):
        there = [each.on(nodes) for each in known]
        first = _begin_in(queues, label, placed, begin)
        for queue in ours:
            bound = _bound(queue, placed, at_home, quotas)
            if _is_out(queue, label):
                continue
            for what, most in left_of(queue, there, label).items():
                begins = not first.isdisjoint(bound[what])
                spared = master.get(what, 0) if begins else 0
                found += _within(_share(queue, label, what), what, most - spared, bound[what])
            its_own = queue.label == label
            found += _users(queue, label, bound[GPUS], begin, master if its_own else EMPTY)
    return tuple(found)


def too_many(
    queues: Queues, label: str, wanted: Holding, others: Sequence[Holding], held: Sequence[Holding]
) -> Iterator[tuple[Gpus, str]]:
    """(GPUs that would not come, why), by each limit in the partition of this label. `wanted`: what a job is to have
    there; `others`: what our other jobs have; `held`: what ours had when the queues were asked."""
    if not wanted.gpus:
        return
    for queue in queues.above(wanted.queue):
        if _is_out(queue, label):
            continue
        beside = [each for each in others if is_below(each, queue)]
        for what, most in left_of(queue, held, label).items():
            yield _over(most, what, wanted, beside), _share(queue, label, what)
        if queue.children:
            continue
        limits = queue.per_user
        if queue.per_user_in:
            limits = queue.per_user_in.get(label, EMPTY)
        his = [each for each in beside if each.owner == wanted.owner]
        for what, most in limits.items():
            text = f"{wanted.owner} may hold {most} {WORDS[what]} at most in queue {queue.path}"
            yield _over(most, what, wanted, his), f"{text}, partition {label}" if label else text


def _over(most: int, what: str, wanted: Holding, others: Iterable[Holding]) -> Gpus:
    each = wanted.size.get(what, 0)
    if not each:
        return 0
    taken = sum(other.gpus * other.size.get(what, 0) for other in others)
    fit = max(most - taken, 0) // each
    return max(wanted.gpus - fit, 0)


def _bound(
    queue: Queue, jobs: Mapping[JobName, Holding], at_home: Collection[JobName], quotas: Limits
) -> dict[str, dict[JobName, Holding]]:
    """By resource, the jobs that a queue's limit of it binds as a quota."""
    whole = {job: each for job, each in jobs.items() if is_below(each, queue)}
    away = {job: each for job, each in whole.items() if job not in at_home}
    return {what: whole if (queue.path, what) in quotas else away for what in WORDS}


def _is_out(queue: Queue, label: str) -> bool:
    """Whether jobs in it are started nowhere in this partition, so that its share there, of nothing, binds nobody. (Of
    the root no labels are told.)"""
    if label in ("", queue.label) or queue.path == "root":
        return False
    return not lets_in(queue, label)


def _begin_in(
    queues: Queues,
    label: str,
    jobs: Mapping[JobName, Holding],
    begin: AbstractSet[JobName],
) -> set[JobName]:
    """Those of these jobs whose application masters come to this partition: their queues' default one."""
    homes = {leaf.path: leaf.label for leaf in queues.root.leaves()}
    return {job for job, each in jobs.items() if job in begin and homes.get(each.queue, "") == label}


def paths(queues: Queues, names: Collection[str]) -> dict[str, str]:
    """Of queues, by what they are called; of those alone that are there: another may be made by what is submitted."""
    found = {}
    for name in names:
        with suppress(BadInput):
            found[name] = queues.find(name).path
    return found


def placed_in(there: Mapping[str, str], holding: Holding) -> Holding:
    """With the path of its queue."""
    path = there.get(holding.queue, holding.queue)
    return holding if path == holding.queue else replace(holding, queue=path)


def is_below(holding: Holding, queue: Queue) -> bool:
    return f"{holding.queue}.".startswith(f"{queue.path}.")


def _users(
    queue: Queue,
    label: str,
    jobs: Mapping[JobName, Holding],
    begin: AbstractSet[JobName],
    master: Amounts,
) -> Iterator[Quota]:
    """What each user of these jobs may hold in this partition; of that, his application masters have their part."""
    owners = {each.owner for each in jobs.values()}
    shares = queue.per_user_in
    limits = shares.get(label, EMPTY) if shares else queue.per_user
    where = f", partition {label}" if label else ""
    for owner in sorted(owners):
        his = {job: each for job, each in jobs.items() if each.owner == owner}
        living = {job for job, each in his.items() if each.size}
        masters = len(living - begin)
        masters += int(not begin.isdisjoint(living))
        for what, stated in limits.items():
            text = f"{owner} may hold {stated} {WORDS[what]} at most in queue {queue.path}{where}"
            most = stated - masters * master.get(what, 0)
            yield from _within(text, what, most, his)


def _within(text: str, what: str, most: int, jobs: Mapping[JobName, Holding]) -> Iterator[Quota]:
    """By size of worker: those who take so much with a GPU, or more, hold so many GPUs at most.

    Exact where all are of one size. No one's large workers lower a limit of who has smaller ones; where both grow at
    once, all may come to more than there is, and the gang that does not form teaches it.
    """
    sizes = {each.size.get(what, 0) for each in jobs.values()}
    for size in sorted(sizes - {0}):
        bound = {job: each for job, each in jobs.items() if each.size.get(what, 0) >= size}
        holds = sum(each.gpus for each in bound.values())
        gpus = max(most // size, holds)
        whose = "" if what == GPUS else f", {size} or more with each GPU"
        yield Quota(f"{text}{whose}", tuple(bound), gpus)


def of_users(
    leaf: Queue, jobs: Mapping[JobName, Holding], begin: AbstractSet[JobName], master: Amounts
) -> tuple[Quota, ...]:
    """What each user may hold of a leaf queue that several share, in all partitions: as a tenant of its own it has a
    cap of what all of them may."""
    living = {job: each for job, each in jobs.items() if each.queue == leaf.path and each.size}
    if len({each.owner for each in living.values()}) < 2:
        return ()
    return tuple(_users(replace(leaf, per_user_in=EMPTY), "", living, begin, master))


def largest(held: Sequence[Holding]) -> Amounts:
    """What goes with a GPU of whichever job wants most of each."""
    found: dict[str, int] = {}
    for each in held:
        for what, most in each.size.items():
            found[what] = max(found.get(what, 0), most)
    return found


def _fitting(amounts: Amounts, held: Sequence[Holding]) -> list[Gpus]:
    """By each of these limits, how many GPUs of the largest of these jobs."""
    size = {**_ONE, **largest(held)}
    found = list[Gpus]()
    for what, most in amounts.items():
        if size.get(what):
            fit = max(most, 0) // size[what]
            found.append(fit)
    return found


def limited(
    nodes: Sequence[Node], held: Mapping[str, Held], what: str, most: int, size: Amounts, within: Collection[str]
) -> tuple[Node, ...]:
    """The nodes with so much of this resource taken out of what is free that it and ours are `most`, `within` these.

    The limit is on a sum and policies know of nodes alone, so memory and cores are shared out: first to each node what
    its free GPUs need for jobs of this `size` (with each GPU), the node with the most of them first, then the rest.
    """
    if what == GPUS:
        return below(nodes, held, most, within)
    about = sorted(
        (each for each in nodes if each.name in within), key=lambda node: (-free_gpus(node, held), node.name)
    )
    ours = {each.name: amount(held.get(each.name, Held()), what) for each in about}
    spare = {each.name: max(there(each, what) - ours[each.name], 0) for each in about}
    left = max(most - sum(ours.values()), 0)
    kept = dict.fromkeys(spare, 0)
    for wanted in ({each.name: free_gpus(each, held) * size.get(what, 0) for each in about}, spare):
        for name in kept:
            more = min(max(min(spare[name], wanted[name]) - kept[name], 0), left)
            kept[name] += more
            left -= more
    return tuple(
        at_most(each, what, ours[each.name] + kept[each.name]) if each.name in kept else each for each in nodes
    )


def amount(held: Held, what: str) -> int:
    """Of memory (MiB) or cores."""
    return held.memory_mib if what == MEMORY else held.cpus


def there(node: Node, what: str) -> int:
    """Of memory (MiB) or cores, beside foreign applications."""
    return int(node.cpus or 0) if what == CORES else (node.memory or 0) >> 20


def at_most(node: Node, what: str, amount: int) -> Node:
    """With at most so much."""
    if amount >= there(node, what):
        return node
    return replace(node, cpus=float(amount)) if what == CORES else replace(node, memory=amount << 20)


def below(nodes: Sequence[Node], held: Mapping[str, Held], most: Gpus, within: Collection[str]) -> tuple[Node, ...]:
    """The nodes with so many free GPUs taken out that ours and the free ones are `most`; whole nodes are kept.
    `within`: the nodes that the limit is about."""
    about = [each for each in nodes if each.name in within]
    free = {each.name: free_gpus(each, held) for each in about}
    ours = sum(min(at.gpus, each.gpus) for each in about if (at := held.get(each.name)) is not None)
    surplus = ours + sum(free.values()) - most
    taken: dict[str, Gpus] = {}
    for name in sorted(free, key=lambda name: (free[name], name)):
        if surplus <= 0:
            break
        taken[name] = min(free[name], surplus)
        surplus -= taken[name]
    return tuple(without(each, taken.get(each.name, 0), held) for each in nodes)


def free_gpus(node: Node, held: Mapping[str, Held]) -> Gpus:
    if node.health is not Health.UP:
        return 0
    return max(node.gpus - node.foreign - held.get(node.name, Held()).gpus, 0)


def shut(nodes: Sequence[Node], held: Mapping[str, Held], out: Collection[str]) -> tuple[Node, ...]:
    """Without the free GPUs of the nodes `out`: nothing new gets there."""
    return tuple(without(each, each.gpus, held) if each.name in out else each for each in nodes)


def without(node: Node, gpus: Gpus, held: Mapping[str, Held]) -> Node:
    """With so many free GPUs fewer; what we hold stays ours."""
    if not gpus:
        return node
    taken = min(gpus, free_gpus(node, held))
    return replace(node, foreign=node.foreign + taken)


@dataclass(frozen=True, slots=True)
class Lesson:
    gpus: Gpus
    until_s: float
    times: int
    left: Held | None = None  #: the most memory and cores that are free there beside ours


class Lessons:
    """Where gangs came short: these GPUs are not offered again for a while, longer each time it happens there.

    Nor memory and cores for one worker more than came: on a node with more free GPUs than memory for them, GPUs alone
    would teach nothing, and the same gang would be granted again.
    """

    def __init__(self) -> None:
        self._of: dict[str, Lesson] = {}
        self._caps: dict[str, Lesson] = {}

    def learn(self, missing: Mapping[str, Gpus], now_s: float, left: Mapping[str, Held] = EMPTY) -> str:
        """`missing`: by node, what was granted and did not come; `left`: as in `Lesson`. What follows, for people; ""
        for nothing."""
        told = []
        for name, gpus in sorted(missing.items()):
            if gpus <= 0:
                continue
            self._of[name] = lesson = replace(next_lesson(self._of.get(name), gpus, now_s), left=left.get(name))
            told.append(f"{gpus} on {name} for {pause_s(lesson.times):.0f} s")
        return f"not offered again: {', '.join(told)}" if told else ""

    def learn_cap(self, tenant: str, gpus: Gpus, now_s: float) -> str:
        """It was the queue that gave no more than `gpus` to this tenant in all, wherever they are."""
        self._caps[tenant] = lesson = next_lesson(self._caps.get(tenant), gpus, now_s)
        return f"{tenant} is offered {gpus} GPUs in all for {pause_s(lesson.times):.0f} s"

    def hold_to(self, tenant: str, gpus: Gpus, now_s: float) -> str:
        """A grant was refused that its queue would not have let come: no gang came short, and it is not for longer each
        time. A lesson that stands is kept."""
        known = self._caps.get(tenant)
        if known is None or now_s >= known.until_s or gpus < known.gpus:
            self._caps[tenant] = Lesson(gpus, now_s + ANEW_S, 1)
        return f"{tenant} is offered {gpus} GPUs in all for {ANEW_S:.0f} s"

    def caps(self, now_s: float) -> dict[str, Gpus]:
        return {tenant: each.gpus for tenant, each in self._caps.items() if now_s < each.until_s}

    def heeded(self, nodes: Sequence[Node], held: Mapping[str, Held], now_s: float) -> tuple[Node, ...]:
        live = {name: each for name, each in self._of.items() if now_s < each.until_s}
        return tuple(_heeded(each, live[each.name], held) if each.name in live else each for each in nodes)

    def notes(self, now_s: float) -> list[str]:
        told = []
        for name, each in sorted(self._of.items()):
            left_s = each.until_s - now_s
            if left_s > 0:
                what = f"{each.gpus} free GPUs of {name} are not offered for {left_s:.0f} s"
                told.append(f"{what}: a gang did not get them")
        return told


def _heeded(node: Node, lesson: Lesson, held: Mapping[str, Held]) -> Node:
    node = without(node, lesson.gpus, held)
    if lesson.left is None:
        return node
    ours = held.get(node.name, Held())
    for what in (MEMORY, CORES):
        node = at_most(node, what, amount(ours, what) + amount(lesson.left, what))
    return node


def no_more_than(workers: int, size: Held) -> Held:
    """The most of a node's memory and cores that has room for so many workers of this size and for no further one."""
    return Held(0, (workers + 1) * size.cpus - 1, (workers + 1) * size.memory_mib - 1)


def next_lesson(before: Lesson | None, gpus: Gpus, now_s: float) -> Lesson:
    """The one that follows `before`: longer, where that was not long ago."""
    again = before is not None and now_s < before.until_s + 2 * pause_s(before.times)
    times = before.times + 1 if again and before is not None else 1
    return Lesson(gpus, now_s + pause_s(times), times)


def pause_s(times: int) -> float:
    return backoff_s(times - 1, PAUSE_S, LONGEST_S)
