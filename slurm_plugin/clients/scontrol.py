"""One open scontrol: commands to its input, answers from its outputs, in 2-3 ms each (a process of its own: 10-16 ms).

Where an answer ends is told by marks. `show hostnames MARK`, which needs no controller, ends one on the output; a MARK
alone, a word that scontrol does not know, ends one on the error output, where it says so. An answer is whole when both
have come: what carries the two here (docker exec, sshd) keeps the order in each, not between them. It is started anew
after any fault and every few minutes, so that it follows slurm.conf.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Sequence

from horae.port import FixConfiguration, PortError, TryLater
from slurm_plugin.files.transport import Conversation, Transport

_AGE_S = 300.0


class Scontrol:
    """Thread-safe: one conversation at a time."""

    def __init__(self, transport: Transport, program: str, timeout_s: float) -> None:
        self._transport, self._program, self._timeout_s = transport, program, timeout_s
        self._open: Conversation | None = None
        self._opened_s = 0.0
        self._secret = ""
        self._lock = threading.Lock()

    def ask(self, line: str) -> tuple[str, str]:
        """One command; (output, error output). Raises TryLater when no answer comes."""
        _one_line(line)
        with self._lock:
            said = ["", ""]
            self._exchange([line], said)
            return _unprompted(said[0], line), said[1].partition(_unknown(self._mark(0)))[0]

    def ask_each(self, lines: Sequence[str]) -> list[str | TryLater]:
        """Many commands, said before the first answer is waited for: the error output of each, or that it is not
        known what became of it."""
        for line in lines:
            _one_line(line)
        if not lines:
            return []
        answers: list[str | TryLater] = []
        lost = TryLater("scontrol did not say what became of it")
        with self._lock:
            said = ["", ""]
            try:
                self._exchange(lines, said)
            except TryLater as error:
                lost = error
            left = said[1]
            for at in range(len(lines)):
                text, found, left = left.partition(_unknown(self._mark(at)))
                if not found:
                    return [*answers, *[lost] * (len(lines) - len(answers))]
                answers.append(text)
        return answers

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def _exchange(self, lines: Sequence[str], said: list[str]) -> None:
        """Say them, and put what comes back into `said` (output, error output) as it comes: up to the last mark."""
        now = time.monotonic()
        if self._open is not None and now - self._opened_s > _AGE_S:
            self._hang_up()
        if self._open is None:
            self._open, self._opened_s = self._transport.open([self._program]), now
        self._secret = secrets.token_hex(8)
        last = self._mark(len(lines) - 1)
        end = re.compile(rf"^{last}\r?$", re.MULTILINE)
        try:
            text = "".join(f"{line}\n{self._mark(at)}\n" for at, line in enumerate(lines))
            self._open.send(f"{text}show hostnames {last}\n")
            while not (found := end.search(said[0])) or _unknown(last) not in said[1]:
                left_s = now + self._timeout_s - time.monotonic()
                if left_s <= 0:
                    raise TryLater(f"scontrol gave no answer for {self._timeout_s:.0f} s", retry_after_s=5.0)
                out, err = self._open.receive(left_s)
                said[0], said[1] = said[0] + out, said[1] + err
        except PortError:
            self._hang_up()
            raise
        said[0] = said[0][: found.start()]

    def _mark(self, at: int) -> str:
        """Of one line of this exchange: users' words in an answer cannot hold it."""
        return f"horaemark{self._secret}x{at}"

    def _hang_up(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _unknown(mark: str) -> str:
    """What scontrol says of a mark alone."""
    return f"invalid keyword: {mark}\n"


def _one_line(line: str) -> None:
    if any(char in line for char in "\n\r\0"):
        raise FixConfiguration(f"a line break in a scontrol command: {line!r}", "report this as a bug")


def _unprompted(text: str, line: str) -> str:
    """scontrol's output without its prompts and the echo of what it was told."""
    kept = (row.replace("scontrol: ", "", 1) if row.startswith("scontrol: ") else row for row in text.splitlines())
    marks = ("horaemark", "show hostnames horaemark")
    return "\n".join(row for row in kept if row not in {line, ""} and not row.startswith(marks))
