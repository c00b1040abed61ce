"""A training run's checkpoints: found at its start, written while it runs, under the fence."""

import json
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..stores import checkpoints, documents
from ..stores.beside import Beside
from ..stores.checkpoints import Superseded
from ..stores.store import Store
from .environment import Environment
from .progress import say

_HOLDS = b"holds"  #: rank 0's word on what all have read


class Saver:
    """Saving and loading for one rank. `collective`: every rank's `save` runs, all with the same folder."""

    def __init__(
        self,
        store: Store,
        save: Callable[[str], None],
        load: Callable[[str], None],
        environment: Environment,
        group: Any,
        keep: int,
        collective: bool = False,
        keep_fetched: bool = False,
    ) -> None:
        self._store = store
        self._save = save
        self._load = load
        self._environment = environment
        self._group = group
        self._keep = keep
        self._collective = collective
        self._keep_fetched = keep_fetched
        self._pruning: Optional[Beside] = None
        self.saved_step: Optional[int] = None  #: step of the last checkpoint written or loaded

    @property
    def takes_part(self) -> bool:
        """Whether this rank has anything to do when a checkpoint is written."""
        return self._group.rank == 0 or self._collective

    # --- finding ------------------------------------------------------------------------------------------

    def resume(self) -> "Tuple[str, Dict[str, Any]]":
        """Load the newest complete checkpoint, the same on every rank: its name and account; ('', {}) for none."""
        offers = self._offers() if self._group.rank == 0 else iter(())
        while True:
            name, account, folder, check = next(offers, ("", {}, "", None))
            name = self._group.broadcast(name.encode()).decode()
            if not name:
                return "", {}
            if not account:  # rank 0 has read it
                account = checkpoints.manifest(self._store, name)
            trouble = self._read(name, account, folder)
            holds = check is None or check()
            if self._group.broadcast(_HOLDS if holds else b"") != _HOLDS:
                continue  # whatever was made of it, the next is read over it
            if trouble is not None:
                raise trouble
            self.saved_step = int(account["step"])
            if self._group.rank == 0:
                self._pruning = Beside(lambda: self.prune(self._keep))  # what the start before left for us to do
            return name, account

    def _read(self, name: str, account: Dict[str, Any], folder: str) -> Optional[Exception]:
        """Load it; what was raised, which nobody hears if it turns out to be damaged."""
        try:
            if not folder:  # rank 0 verifies its own; a shared folder is the same bytes
                folder = self._store.fetch(name)
                if not self._store.cheap:
                    checkpoints.verify_files(folder, account)
            self._load(folder)
        except Exception as error:  # noqa: BLE001  (raised by `resume`)
            return error
        finally:
            if folder and not self._keep_fetched:
                self._store.done(folder)
        return None

    def _offers(self) -> "Iterator[Tuple[str, Dict[str, Any], str, Optional[Callable[[], bool]]]]":
        """Rank 0: sweep what a broken writer left; then name, account and folder of checkpoints, newest first.

        Verified; or, where nobody can have touched it, with what waits for its verification, which goes on beside.
        """
        swept = self._store.sweep()
        if swept:
            say("removed %d half-written checkpoint%s" % (len(swept), "s" if len(swept) > 1 else ""))
        for mark, account, folder in checkpoints.readable(self._store, say):
            if checkpoints.untouched(folder, account):
                yield mark.name, account, folder, self._verified_beside(folder, account)
            elif checkpoints.whole(folder, account, say):
                yield mark.name, account, folder, None
            else:
                self._store.done(folder)
        if checkpoints.marks(self._store):
            say("no complete checkpoint is left: starting from the beginning")

    def _verified_beside(self, folder: str, account: Dict[str, Any]) -> "Callable[[], bool]":
        found: List[bool] = []
        check = Beside(lambda: found.append(checkpoints.whole(folder, account, say)))

        def holds() -> bool:
            check.over()
            return found == [True]

        return holds

    # --- writing ------------------------------------------------------------------------------------------

    def write(self, step: int, account: Dict[str, Any], leaving: bool = False) -> None:
        """Make a complete checkpoint of this state. Raises OSError or Superseded, on every rank that takes part.

        `leaving`: the next start removes old ones, while it trains: nobody waits for that.
        """
        if self._pruning is not None:
            self._pruning.over()
        if self._collective:
            self._write_together(step, account)
        else:
            self._write(step, account, self._save)
        self.saved_step = step
        if self._group.rank == 0 and not leaving:
            self.prune(self._keep)

    def prune(self, keep: int) -> None:
        try:
            checkpoints.prune(self._store, keep)
        except OSError as error:
            say("old checkpoints could not be removed: %s" % error)

    def _write(self, step: int, account: Dict[str, Any], fill: Callable[[str], None]) -> None:
        checkpoints.write(self._store, step, self._environment.epoch, account, fill, self._last_check)

    def _write_together(self, step: int, account: Dict[str, Any]) -> None:
        """Each rank: hear of the folder, write, agree that all have; then agree on how it ended as a whole."""
        trouble: Optional[Exception] = None
        try:
            if self._group.rank == 0:
                self._lead(step, account)
            else:
                folder = self._group.broadcast(b"").decode()
                if folder:
                    self._write_part(folder)
        except (OSError, Superseded) as error:
            trouble = error
        (worst,) = self._group.all_max([0.0 if trouble is None else 2.0 if isinstance(trouble, Superseded) else 1.0])
        if trouble is not None:
            raise trouble
        if worst:
            raise Superseded("a newer start exists") if worst > 1 else OSError("another rank could not write its part")

    def _lead(self, step: int, account: Dict[str, Any]) -> None:
        told: List[str] = []

        def fill(folder: str) -> None:
            told.append(folder)
            self._group.broadcast(folder.encode())
            self._write_part(folder)

        try:
            self._write(step, account, fill)
        finally:
            if not told:  # written before, or no folder to write into: the others must not wait for one
                self._group.broadcast(b"")

    def _write_part(self, folder: str) -> None:
        trouble: Optional[OSError] = None
        try:
            self._save(folder)
        except OSError as error:
            trouble = error
        (failed,) = self._group.all_max([0.0 if trouble is None else 1.0])
        if failed:
            raise trouble or OSError("another rank could not write its part")

    # --- the fence ----------------------------------------------------------------------------------------

    def _last_check(self) -> None:
        if fence(self._environment) > self._environment.epoch:
            raise Superseded("epoch %d is not the newest" % self._environment.epoch)


def fence(environment: Environment) -> int:
    """The newest epoch handed out, as far as can be seen; 0 where there is no fence, or it cannot be seen now."""
    if environment.fence_file is None:
        return 0
    try:
        text = (documents.get(environment.fence_file) or b"").strip()
        found = json.loads(text.decode() or "0")
    except (OSError, ValueError):  # out of reach, or being replaced
        return 0
    epoch = found.get("epoch") if isinstance(found, dict) else found  # a gate, or the epoch alone
    return epoch if isinstance(epoch, int) else 0
