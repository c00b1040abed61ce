"""A policy whose import takes its time, and leaves a mark when it is done."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.horae.arbiter.misbehaving import well

time.sleep(0.5)
Path(os.environ["SLOW_TO_IMPORT_MARK"]).touch()
__all__ = ["well"]
