"""The newest checkpoint of a job as its supervisor knows it, and why a newer one could not be written."""

import os
import re
import time
from typing import Any, Callable, Dict, Optional

from .. import protocol
from ..files import write_atomic
from .checkpoints import newest_mark
from .store import Store, open_store

_LOOK_S = 2.0  #: how often a cheap store is asked
_PATIENCE_S = 10.0  #: how long another one may take to show what a trainer says that it saved
#: What the SDK says of a checkpoint that failed; the others of a gang only say that one of them did.
_UNWRITTEN = re.compile(rb"\[horae\] (?:checkpoint at step \d+|the final checkpoint) could not be written[^:\n]*: (.+)")
#: What it says of the next one that did not.
_WRITTEN = re.compile(rb"\[horae\] checkpoint at step \d+ could be written again")
#: What it says when it left before its ranks had found each other: there is nothing to be saved.
UNFORMED = "asked to leave before all ranks had come"
_UNFORMED = b"[horae] " + UNFORMED.encode()
_LONGEST_WHY = 300


class Marks:
    """`url`: where the job's checkpoints are, None where nobody but its trainer knows. `say`: a line for its log."""

    def __init__(self, url: Optional[str], before: Optional[Dict[str, Any]], say: Callable[[str], None]) -> None:
        self.newest = before  #: as in `state.json`
        self.trouble = ""  #: why the newest checkpoint could not be written
        self.unseen = ""  #: why nobody can look from here: whether there is a checkpoint, nobody would know
        self.news = False  #: since it was last reset
        self.unformed = False  #: the gang left before it had begun
        self._say = say
        self._next_look = 0.0
        self._tried = False
        self._store: Optional[Store] = None
        if url is not None:
            try:
                self._store = open_store(url)
            except ValueError as error:
                self.unseen = str(error)[:_LONGEST_WHY]
                say(str(error))

    def try_store(self) -> None:
        """Whether the job's user can write its checkpoints here: said before it has trained for hours, once."""
        if self._tried or self._store is None or not self._store.cheap:
            return
        self._tried = True
        try:
            folder = self._store.begin("trial")
            try:
                write_atomic(os.path.join(folder, "trial"), b"checkpoints can be written here\n")
            finally:
                self._store.abandon(folder)
        except OSError as error:
            self._say("its checkpoint folder cannot be written: %s" % error)
            self._no_checkpoint(str(error))

    def hear(self, output: bytes) -> None:
        """What the trainer itself says: of a checkpoint that failed, of the next one that did not, of none to be."""
        self.unformed = self.unformed or _UNFORMED in output
        failed = list(_UNWRITTEN.finditer(output))
        written = list(_WRITTEN.finditer(output))
        if failed and self._store is not None:
            self._no_checkpoint(failed[-1][1].decode(errors="replace").strip())
        if written and self.trouble and (not failed or written[-1].start() > failed[-1].start()):
            self.trouble, self.news = "", True

    def _no_checkpoint(self, why: str) -> None:
        if why[:_LONGEST_WHY] != self.trouble:
            self.trouble, self.news = why[:_LONGEST_WHY], True

    def look(self, now: float) -> None:
        """While it trains: now and then, and only where that costs nothing."""
        if self._store is not None and self._store.cheap and now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._read()

    def look_last(self, code: int) -> None:
        """After the gang. One that says that it checkpointed failed if there is no checkpoint: looked for again."""
        self._read()
        until = time.monotonic() + _PATIENCE_S
        while code == protocol.EXIT_STOPPED and self.newest is None and self._store is not None and not self.unformed:
            if self._store.cheap or time.monotonic() >= until:
                return
            time.sleep(_LOOK_S)
            self._read()

    def _read(self) -> None:
        if self._store is None:
            return
        try:
            mark = mark_in(self._store)
        except OSError as error:
            self._say("cannot look for checkpoints: %s" % error)
            return
        if mark != self.newest:
            self.newest, self.news = mark, True
            self.trouble = ""


def mark_in(store: Store) -> Optional[Dict[str, Any]]:
    """The newest complete checkpoint as `state.json` tells it. Raises OSError."""
    found = newest_mark(store)
    return None if found is None else {"epoch": found[0].epoch, "step": found[0].step, "time_s": found[1]}
