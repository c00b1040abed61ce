"""`memory=4G,vcores=2,gpu=1` -> numbers.

    resources = ["["] pair {"," pair} ["]"]     pair = key "=" digits [" "] [unit]     unit = M | m | G | g

`memory` and `memory-mb` are megabytes after their unit (1 G = 1024 M); everything else is a count and has no unit.
`gpu` is `yarn.io/gpu`, `fpga` is `yarn.io/fpga`. The original read `memory=2048` as 2048 bytes, hence as nothing: that
is refused here, and so are units on counts, which it dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from yarn_bridge.clients.records import GPU, gpus_in
from yarn_bridge.submarine.given import Given

FPGA = "yarn.io/fpga"
_SHORT = {"gpu": GPU, "fpga": FPGA}
_PAIR = re.compile(r"(?P<key>[^=\s]+)=(?P<number>[0-9]+)\s?(?P<unit>[A-Za-z]*)")
_EXAMPLE = "write memory=4G,vcores=2,gpu=1"
_MOST = 2**31 - 1  #: what YARN's own fields hold


@dataclass(frozen=True, slots=True)
class Resources:
    memory_mb: int
    vcores: int
    gpus: int = 0
    others: dict[str, int] = field(default_factory=dict)  #: resource name of YARN -> count

    @property
    def text(self) -> str:
        """The same in its shortest form."""
        parts = [f"memory={self.memory_mb}M", f"vcores={self.vcores}"]
        parts += [f"gpu={self.gpus}"] if self.gpus else []
        return ",".join(parts + [f"{name}={count}" for name, count in sorted(self.others.items())])


def parse(given: Given) -> Resources:
    """Raises BadInput that names the pair which is wrong."""
    text = given.value.strip()
    if text.startswith("[") != text.endswith("]"):
        raise given.bad(f"{text!r}: one bracket without the other", _EXAMPLE)
    if text.startswith("["):
        text = text[1:-1]
    found: dict[str, int] = {}
    for pair in text.split(","):
        key, value = _pair(given, pair.strip())
        if key in found:
            raise given.bad(f"{key} stands twice", "keep one of them")
        found[key] = value
    for key in ("memory", "vcores"):
        if not found.get(key):
            raise given.bad(f"says no {key}", f"add {'memory=4G' if key == 'memory' else 'vcores=1'}")
    gpus = found.pop(GPU, 0)
    if uncounted := sorted(name for name in found if gpus_in({name: 1})):
        raise given.bad(f"{uncounted[0]} is a GPU that nobody would count", "write gpu=1, and --gpu_type for its type")
    return Resources(found.pop("memory"), found.pop("vcores"), gpus, found)


def _pair(given: Given, pair: str) -> tuple[str, int]:
    match = _PAIR.fullmatch(pair)
    if match is None:
        raise given.bad(f"{pair!r} is no KEY=AMOUNT", _EXAMPLE)
    key, number, unit = match["key"], int(match["number"]), match["unit"].upper()
    if unit not in ("", "M", "G"):
        raise given.bad(f"{pair!r}: the units are M and G", _EXAMPLE)
    if key.lower() in ("memory", "memory-mb"):
        if key.lower() == "memory" and not unit:
            raise given.bad(
                f"{pair!r} has no unit: Submarine read it as bytes, that is as no memory", f"write {pair}M or {pair}G"
            )
        key, number = "memory", number * (1024 if unit == "G" else 1)
    elif unit:
        raise given.bad(f"{pair!r}: a count has no unit; Submarine dropped it", f"write {key}={number}")
    else:
        key = "vcores" if key.lower() == "vcores" else _SHORT.get(key.lower(), key)
    if number > _MOST:
        raise given.bad(f"{pair!r} is more than YARN can count", f"at most {_MOST}")
    return key, number
