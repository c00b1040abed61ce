"""One open scontrol: commands to its input, answers from its outputs, in 2-3 ms each (a process of its own: 10-16 ms).

Where an answer ends is told by marks. `show hostnames MARK`, which needs no controller, ends one on the output. Where
many commands are said at once each is followed by a MARK alone: a word that scontrol does not know, and it says so on
its error output, after all that it had to say about the command before. It is started anew after any fault and every
few minutes, so that it follows slurm.conf.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from horae.port import FixConfiguration, PortError, TryLater
from slurm_plugin.transport import Conversation, Transport

_AGE_S = 300.0


class Scontrol:
    """Thread-safe: one conversation at a time."""

    def __init__(self, transport: Transport, program: str, timeout_s: float) -> None:
        self._transport, self._program, self._timeout_s = transport, program, timeout_s
        self._open: Conversation | None = None
        self._opened_s = 0.0
        self._marks = 0
        self._lock = threading.Lock()

    def ask(self, line: str) -> tuple[str, str]:
        """One command; (output, error output). Raises TryLater when no answer comes."""
        _one_line(line)
        with self._lock:
            said = ["", ""]
            self._exchange(f"{line}\n", said)
            return _unprompted(said[0], line), said[1]

    def ask_each(self, lines: Sequence[str]) -> list[str | TryLater]:
        """Many commands, said before the first answer is waited for: the error output of each, or that it is not
        known what became of it."""
        for line in lines:
            _one_line(line)
        with self._lock:
            first, self._marks = self._marks + 1, self._marks + len(lines)
            marks = [f"horaemark{first + at}" for at in range(len(lines))]
            said = ["", ""]
            lost: TryLater | None = None
            try:
                self._exchange("".join(f"{line}\n{mark}\n" for line, mark in zip(lines, marks, strict=True)), said)
            except TryLater as error:
                lost = error
        answers: list[str | TryLater] = []
        left = said[1]
        for mark in marks:
            text, found, left = left.partition(f"invalid keyword: {mark}\n")
            if not found:
                why = lost or TryLater("scontrol did not say what became of it")
                return [*answers, *[why] * (len(lines) - len(answers))]
            answers.append(text)
        return answers

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def _exchange(self, text: str, said: list[str]) -> None:
        """Say it, and put what comes back into `said` (output, error output) as it comes: up to the mark."""
        now = time.monotonic()
        if self._open is not None and now - self._opened_s > _AGE_S:
            self._hang_up()
        if self._open is None:
            self._open, self._opened_s = self._transport.open([self._program]), now
        self._marks += 1
        mark = f"horaemark{self._marks}"
        end = re.compile(rf"^{mark}\r?$", re.MULTILINE)
        try:
            self._open.send(f"{text}show hostnames {mark}\n")
            while not (found := end.search(said[0])):
                left_s = now + self._timeout_s - time.monotonic()
                if left_s <= 0:
                    raise TryLater(f"scontrol gave no answer for {self._timeout_s:.0f} s", retry_after_s=5.0)
                out, err = self._open.receive(left_s)
                said[0], said[1] = said[0] + out, said[1] + err
            with suppress(TryLater):  # what it wrote to its error output before the mark is in the pipe by now
                said[1] += self._open.receive(0.0)[1]
        except PortError:
            self._hang_up()
            raise
        said[0] = said[0][: found.start()]

    def _hang_up(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _one_line(line: str) -> None:
    if any(char in line for char in "\n\r\0"):
        raise FixConfiguration(f"a line break in a scontrol command: {line!r}", "report this as a bug")


def _unprompted(text: str, line: str) -> str:
    """scontrol's output without its prompts and the echo of what it was told."""
    kept = (row.replace("scontrol: ", "", 1) if row.startswith("scontrol: ") else row for row in text.splitlines())
    return "\n".join(row for row in kept if row not in {line, ""} and not row.startswith("show hostnames horaemark"))
