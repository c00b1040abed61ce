"""The options of a local cluster, read without looking at this machine's GPUs: what `horae config check` asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horae.local.options import parse


def check(options: Mapping[str, Any]) -> None:
    """Raises BadInput. With `nodes: auto` the file is right whatever machine it is read on; `horae doctor` looks."""
    virtual = {"nodes": "any:1"} if options.get("nodes", "auto") == "auto" else {}
    parse({**options, **virtual})
