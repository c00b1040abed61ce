"""Work that makes many values and no cycles, without the interpreter's search for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """No search for garbage meanwhile: what is made here is all in use, and looking at it again and again costs as
    much as making it. Garbage that is no cycle goes at once as always; cycles wait until this is over."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
