"""One thing that bears on a job, as an explanation tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.model import EMPTY


@dataclass(frozen=True, slots=True)
class Cause:
    """The strongest first in an explanation."""

    #: `policy`, `app`, `guard`, `blocked`, `hold`, `cancel`, `plan`, `backoff`, `mode`, `advice`, `cluster`, `end`,
    #: `log`, `away`, `unused`, `limit`, `probe`, `profile`, `aside`, `size`, `type`, `gang`, `shrank`, `share`,
    #: `start`, `budget` or `checkpoint`
    what: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    change: str = ""  #: what would change it
