"""Work that makes many values and no cycles, without the interpreter's search for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Values that are made in quiet between two searches through everything, at least: some twenty rounds of 10,000 jobs.
SEARCH_AFTER = 4_000_000


class _Aged:
    """Values made in quiet since everything was searched, and how many lived then: so many lead to the next search."""

    values, lived = 0, 0


@contextmanager
def quiet() -> Iterator[None]:
    """No search for garbage meanwhile: what is made here is all in use, and looking at it again and again costs as
    much as making it. Garbage that is no cycle goes at once as always; cycles wait until this is over, and longer:
    what lives on is old at once, and is searched when as much was made as there is."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            _grow_old()
            gc.enable()


def _grow_old() -> None:
    made, most = gc.get_count()[0], gc.get_threshold()[0]
    if made < most:
        return  # the next search is soon, and goes through little
    _Aged.values += made
    search = _Aged.values >= max(SEARCH_AFTER, _Aged.lived)
    if search:
        gc.collect()
    gc.freeze()  # all generations are put aside, unsearched ...
    if search:
        _Aged.values, _Aged.lived = 0, gc.get_freeze_count()
    gc.unfreeze()  # ... and are the oldest one now
