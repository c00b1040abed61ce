"""Something that is done while something else is: a disk and a checksum wait for nothing of each other."""

import threading
from typing import Callable, Optional


class Beside(threading.Thread):
    """`what` in a thread of its own, begun at once. A program that ends waits for it."""

    def __init__(self, what: Callable[[], object]) -> None:
        super().__init__(name="horae-beside")
        self._what = what
        self._trouble: Optional[BaseException] = None
        self.start()

    def run(self) -> None:
        try:
            self._what()
        except BaseException as error:  # noqa: BLE001  (told where it is waited for)
            self._trouble = error

    def over(self) -> None:
        """Wait for it. Raises what it raised."""
        self.join()
        if self._trouble is not None:
            raise self._trouble
