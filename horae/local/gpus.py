"""Real GPUs: how much of their time those compute that jobs hold, and who holds one without asking Horae.

A GPU that no job holds and where a process computes is a stranger's: it counts as foreign use and is granted to nobody
until that process ends. So is one where a job computes that was given another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from horae.local.records import Record
from horae.machine_gpus import Use
from policy.model import NodeName

#: Processes by node and index of the GPU.
Strangers = Mapping[NodeName, Mapping[int, Sequence[int]]]


class RealGpus:
    def __init__(self, slots: Mapping[NodeName, Sequence[int]]) -> None:
        """`slots`: the indices of each node's GPUs."""
        self._slots, self._seen = slots, Use()

    def use(self, record: Record) -> dict[str, float]:
        """Of the GPUs that a job holds, as far as it shows."""
        if not record.lives:
            return {}
        newest = self._seen.newest()
        held = [(node, index) for node, indices in record.slots.items() for index in indices]
        return {f"{node}:{index}": newest[index] for node, index in held if index in newest}

    def looked(self) -> bool:
        """Whether it is known well enough who is on them for a job to be started there; if not, it is found out."""
        return self._seen.refresh()

    def strangers(self, records: Sequence[Record]) -> Strangers:
        if any(not record.job_state.ended for record in records):
            self._seen.refresh()  # one of them may be started soon
        holders = self._seen.holders()
        held = {(node, index) for record in records for node, indices in record.slots.items() for index in indices}
        found = {
            node: {i: holders[i] for i in indices if i in holders and (node, i) not in held}
            for node, indices in self._slots.items()
        }
        return {node: taken for node, taken in found.items() if taken}


def told(strangers: Strangers) -> Iterator[str]:
    for node, taken in strangers.items():
        for index, pids in taken.items():
            which = f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"
            yield f"GPU {index} of {node} is used by {which} of no job that holds it: it is granted to nobody meanwhile"
