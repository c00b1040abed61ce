"""This machine's real GPUs, as `nvidia-smi` shows them, how much of their time they compute, and who holds them."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, Thread

from horae.elastic.supervisor import processes
from policy.model import Node, NodeName

#: Words of a product name that do not tell GPU types apart.
_NOISE = re.compile(r"\b(nvidia|tesla|geforce|quadro|graphics|device)\b|\d+\s*gb\b", re.IGNORECASE)
_PATIENCE_S = 20.0
#: `nvidia-smi` is asked this often, and an answer about the use of GPUs is believed so long.
EVERY_S, STALE_S = 10.0, 45.0
#: Root's, that hold every GPU for as long as the machine is up and compute for others, who are listed themselves.
_SERVERS = frozenset({"nvidia-cuda-mps"})
#: Indices of GPUs by node, and processes by node and index.
Slots = Mapping[NodeName, Sequence[int]]
Strangers = Mapping[NodeName, Mapping[int, Sequence[int]]]


def this_machine() -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """One node with this machine's GPUs and their indices; none where `nvidia-smi` is missing or shows nothing.

    A machine with several GPU types becomes one node a type (`host`, `host-2`, ...): a node has one type.
    """
    return nodes_from(_asked("gpu=index,name"), platform.node() or "localhost")


def _asked(what: str) -> str:
    """A line a GPU, or process; "" where `nvidia-smi` is missing, fails, or is late."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        answer = subprocess.run(
            [program, f"--query-{what}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


def use_from(listing: str) -> dict[int, float]:
    """By index the part of its time that it computes, from lines of `index, uuid, per cent`. What tells no number (a
    GPU in parts, say) is left out."""
    rows = map(_words, listing.splitlines())
    return {int(i): min(int(percent), 100) / 100 for i, _, percent in rows if i.isdigit() and percent.isdigit()}


def holders_from(listing: str, computing: str) -> dict[int, set[int]]:
    """By index the processes that hold memory there to compute, from such lines and those of `uuid, pid`. Their names
    are not asked for: users choose those, line ends and all."""
    index_of = {uuid: int(index) for index, uuid, _ in map(_words, listing.splitlines()) if index.isdigit()}
    found: dict[int, set[int]] = {}
    for uuid, pid, _ in map(_words, computing.splitlines()):
        if uuid in index_of and pid.isdigit():
            found.setdefault(index_of[uuid], set()).add(int(pid))
    return found


def _words(line: str) -> list[str]:
    return [word.strip() for word in f"{line},,".split(",")[:3]]


class Use:
    """The newest look at this machine's GPUs. Asking never waits: another thread asks `nvidia-smi`."""

    def __init__(self, ask: Callable[[str], str] = _asked) -> None:
        self._ask, self._lock = ask, Lock()
        self._found: Mapping[int, float] = {}
        self._held: Mapping[int, Mapping[int, int]] = {}  #: by index, when each process began
        self._at_s = self._asked_s = self._looked_s = float("-inf")
        self._asking: Thread | None = None

    def newest(self) -> Mapping[int, float]:
        """The part of its time that each computes, by index; empty where no number is newer than `STALE_S`."""
        self.refresh()
        with self._lock:
            return self._found if time.monotonic() - self._at_s <= STALE_S else {}

    def refresh(self) -> bool:
        """Begin a look where none is younger than `EVERY_S`. Whether the newest is young enough to start jobs by."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._asked_s >= EVERY_S and (self._asking is None or not self._asking.is_alive()):
                self._asked_s, self._asking = now_s, Thread(target=self._look, name="nvidia-smi", daemon=True)
                self._asking.start()
            return now_s - self._looked_s <= 2 * EVERY_S

    def used(self, slots: Slots) -> dict[str, float]:
        """`newest`, of these."""
        newest = self.newest()
        return {f"{node}:{i}": newest[i] for node, held in slots.items() for i in newest.keys() & set(held)}

    def strangers(self, slots: Slots, held: Mapping[NodeName, Collection[int]]) -> Strangers:
        """Who computes on those of `slots` that are not `held`: somebody who did not ask, or a job of another GPU's.
        As the newest look showed it, less those who have ended since."""
        with self._lock:
            seen = self._held
        living = {index: [pid for pid, since in on.items() if _began(pid) == since > 0] for index, on in seen.items()}
        found: dict[NodeName, dict[int, list[int]]] = {}
        for node, indices in slots.items():
            for index in sorted(living.keys() & set(indices) - set(held.get(node, ()))):
                if living[index]:
                    found.setdefault(node, {})[index] = living[index]
        return found

    def _look(self) -> None:
        listing = self._ask("gpu=index,uuid,utilization.gpu")
        found = use_from(listing)
        holders = holders_from(listing, self._ask("compute-apps=gpu_uuid,pid"))
        with self._lock:
            self._looked_s = time.monotonic()
            self._held = {}
            for index, pids in holders.items():
                self._held[index] = {pid: _began(pid) for pid in pids}
            if found:
                self._found, self._at_s = found, time.monotonic()


def told(strangers: Strangers) -> Iterator[str]:
    for node, taken in strangers.items():
        for index, pids in taken.items():
            which = ", ".join(map(str, pids))
            yield f"GPU {index} of {node} is used by process {which}, of no job that holds it: it is granted to nobody"


def _began(pid: int) -> int:
    """When it was started; 0 of one that is over, that cannot be seen, or that only serves others."""
    try:
        serves = _name(pid) in _SERVERS and Path(f"/proc/{pid}").stat().st_uid == 0
        return 0 if serves else processes.began(pid)
    except OSError:
        return 0


def _name(pid: int) -> str:
    """As the kernel keeps it, 15 letters of it; anybody may choose his own."""
    return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()


def nodes_from(listing: str, host: str) -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """Nodes from lines of `index, name`, each with the indices of its GPUs."""
    by_type: dict[str, list[int]] = {}
    for line in listing.splitlines():
        index, comma, name = line.partition(",")
        if comma and index.strip().isdigit():
            by_type.setdefault(type_of(name), []).append(int(index))
    return tuple(
        (Node(name=host if i == 0 else f"{host}-{i + 1}", gpu_type=gpu_type, gpus=len(indices)), tuple(indices))
        for i, (gpu_type, indices) in enumerate(by_type.items())
    )


def type_of(product: str) -> str:
    """`NVIDIA A100-SXM4-80GB` -> `a100-sxm4`: a short name, the same for the same product."""
    words = re.split(r"[^a-z0-9]+", _NOISE.sub(" ", product.lower()))
    return "-".join(word for word in words if word and not re.fullmatch(r"\d+gb", word)) or "gpu"
