"""Asking a policy, and not believing it: the answer comes in time and well-formed, or the reason why not does.

A policy runs in a process of its own (`policy_worker.py`), which is killed at the deadline: it may loop for ever,
allocate without end or crash its solver, and the arbiter goes on with the previous allocation. `Inline` asks in the
caller's thread; tests and `horae decide` use it.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from horae.arbiter.decide import apart, aside, pickling, powerless, replies, validation
from horae.arbiter.decide.replies import Reply
from horae.arbiter.decide.validation import problems
from horae.journal.codec import Plain, is_plain
from policy.decide import PolicyFailed
from policy.model import EMPTY, BadInput, Decision, JobName, Seconds, Snapshot

#: `policy.decide.decide`: snapshot, policy, options, seed, time limit -> decision
Decide = Callable[[Snapshot, str, Mapping[str, Any], int, Seconds], Decision]

#: "module:function" of the one that policies are asked through.
DECIDE = "policy.decide:decide"
#: What a policy may take beyond the time limit that it is told, for building its answer.
SLACK_S = 2.0
#: What its process may take to start, imports and all, before the time limit begins to count.
START_S = 60.0
#: What one try has of the time limit, and at least, where a policy that ends its process or is late is tried with some
#: of the jobs. A job is blamed where the policy is late for it alone, which is a matter of milliseconds else.
A_TRY, LEAST_TRY_S = 1 / 20, 0.5
#: After a search that found nobody the next one waits so long.
SEARCH_AGAIN_S = 600.0
#: The process's first word.
READY = b"ready\n"
#: Where an upgrade came between the arbiter and the process that its policies run in.
ANEW = "Horae was installed anew since this arbiter started, and policies run as the new one: restart `horae serve`"
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True, slots=True)
class Question:
    pool: str
    snapshot: Snapshot
    policy: str
    options: Mapping[str, Any]
    seed: int
    limit_s: Seconds
    #: only find the jobs that it cannot take, each try in a process of its own: it ended its own, or did not answer
    search: bool = False
    source: bytes = b""  #: of the file that the policy is in, where it is in one, as it was when we began
    unfit: Mapping[JobName, str] = field(default_factory=lambda: EMPTY)  #: jobs that no picture can be made of: why


@dataclass(frozen=True, slots=True)
class Answer:
    """`decision` can be carried out on the question's snapshot, or is None and `why_not` says what happened.

    `aside`: jobs that the policy raised for, or died of, and how; the decision is about the others."""

    decision: Decision | None
    why_not: str = ""
    took_s: Seconds = 0.0
    aside: Mapping[JobName, str] = field(default_factory=lambda: EMPTY)


class PolicyRunner(Protocol):
    def ask(self, question: Question) -> Answer: ...

    def close(self) -> None: ...


class Inline:
    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    def ask(self, question: Question) -> Answer:
        started = time.perf_counter()
        found, why_not, left_out = asked(self._decide, question)
        return checked(question, found, why_not, left_out, time.perf_counter() - started)

    def close(self) -> None:
        """Nothing is held open."""


def asked(decide: Decide, question: Question) -> Reply:
    """What the policy answers; where it raises, what it answers without the jobs that it raises for."""
    until = time.monotonic() + question.limit_s

    def tried(snapshot: Snapshot) -> object:
        left_s = max(until - time.monotonic(), 0.1)
        return decide(snapshot, question.policy, question.options, question.seed, left_s)

    if question.search:
        each = apart.apart(tried, max(question.limit_s * A_TRY, LEAST_TRY_S))
        return None, "", aside.culprits(each, question.snapshot, until)
    found, why_not = _asked(decide, question)
    if not why_not:
        return found, "", {}
    culprits = aside.culprits(tried, question.snapshot, until)
    if not culprits:
        return None, why_not, {}
    rest = replace(question, snapshot=aside.without(question.snapshot, culprits))
    return (*_asked(decide, rest), culprits)


def _asked(decide: Decide, question: Question) -> tuple[object, str]:
    """(what it answered, "") or (None, what it raised). What it remembers may be of another version, or broken, and
    would be so in every round: then it begins anew, and its certificate says so."""
    try:
        return decide(question.snapshot, question.policy, question.options, question.seed, question.limit_s), ""
    except BadInput as error:
        why = f"policy {question.policy}: {error}"
        if not error.field.startswith("state") or not question.snapshot.state:
            return None, why
        found, why_not = _asked(decide, replace(question, snapshot=replace(question.snapshot, state=EMPTY)))
        return _noted(found, f"what {question.policy} remembered is left out: {error.message}"), why_not
    except PolicyFailed as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001  (a policy is code of any origin; whatever it raises is its answer)
        return None, f"policy {question.policy} raised {type(error).__name__}: {error}"


def _noted(found: object, note: str) -> object:
    if not isinstance(found, Decision):
        return found
    return replace(found, certificate=replace(found.certificate, notes=(note, *found.certificate.notes)))


def checked(
    question: Question, found: object, why_not: str, left_out: Mapping[JobName, str], took_s: Seconds
) -> Answer:
    if why_not:
        return Answer(None, why_not, took_s, left_out)
    if isinstance(found, Decision) and type(found.state) is dict and is_plain(found.state):
        found = replace(found, state=Plain(found.state))  # looked through once: the record takes it as it is
    wrong = problems(aside.without(question.snapshot, left_out), found)
    if wrong:
        return Answer(None, f"policy {question.policy} answered nonsense: {'; '.join(wrong)}", took_s, left_out)
    assert isinstance(found, Decision)
    return Answer(found, "", took_s, left_out)


class Worker:
    """One process that answers one question after the other; a fresh one after each that had to be killed."""

    def __init__(self, decide: str = DECIDE, *, rights: bool = False) -> None:
        """`rights`: it has ours, also where we are root (otherwise: `powerless.py`)."""
        self._decide, self._installed = decide, _files()
        self._account, self._kept = (None, None) if rights else powerless.account()
        self._fruitless: dict[tuple[str, str], float] = {}  #: pool and policy -> when a search found nobody
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: Question) -> Answer:
        """Within three times the time limit, where the policy ends its process or is late: once for that, once for
        finding the jobs that it is so with, once without them."""
        answer = self._asked(question)
        if (answer.why_not or answer.aside) and _files() != self._installed:  # it is nobody's fault then
            return Answer(None, f"{ANEW} (it said: {answer.why_not or 'jobs are in its way'})", answer.took_s)
        return answer

    def _asked(self, question: Question) -> Answer:
        started = time.monotonic()
        answer = self._once(question)
        if not isinstance(answer, str):
            return checked(question, *answer, time.monotonic() - started)
        culprits = self._culprits(question)
        if culprits:
            rest = self._once(replace(question, snapshot=aside.without(question.snapshot, culprits)))
            if not isinstance(rest, str):
                found, why_not, more = rest
                return checked(question, found, why_not, {**culprits, **more}, time.monotonic() - started)
            answer = rest
        return Answer(None, answer, time.monotonic() - started, culprits)

    def _culprits(self, question: Question) -> Mapping[JobName, str]:
        """Jobs that the policy ends its process or is late with."""
        key, now_s = (question.pool, question.policy), time.monotonic()
        if now_s - self._fruitless.get(key, -SEARCH_AGAIN_S) < SEARCH_AGAIN_S:
            return {}
        answer = self._once(replace(question, search=True))
        culprits = {} if isinstance(answer, str) else answer[2]
        if not culprits:
            self._fruitless[key] = now_s
        return culprits

    def _once(self, question: Question) -> Reply | str:
        """What its process replies; or why there is no reply, and then the process is gone."""
        if why_not := powerless.barred(question.policy, self._kept):
            return why_not
        try:
            process = self._running()
            deadline = time.monotonic() + question.limit_s + SLACK_S
            assert process.stdin is not None and process.stdout is not None
            _write(process.stdin.fileno(), packed(pickling.dumps(question)), deadline)
            most = replies.most_bytes(question.snapshot)
            reply = replies.loads(_read(process.stdout.fileno(), deadline, most))
        except TimeoutError:
            self.close()
            return f"policy {question.policy} did not answer within {question.limit_s:g} s and was ended"
        except (OSError, EOFError, ValueError) as error:
            process_ = self._process  # `close` may come from another thread
            code = process_.poll() if process_ is not None else None
            self.close()
            ended = f"its process ended with code {code}" if code is not None else f"{type(error).__name__}: {error}"
            return f"policy {question.policy} gave no answer: {ended}"
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            # Our own modules' places, and no other: not the folder that we were started in, which may be anybody's.
            path = os.pathsep.join(p for p in sys.path if Path(p).is_absolute())
            who = {} if self._account is None else powerless.popen(self._account)
            env = {**who.pop("env", os.environ), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "horae.arbiter.decide.policy_worker", self._decide, str(os.getpid())],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=env,
                start_new_session=True,  # Ctrl-C at a terminal is the arbiter's to handle
                **who,
            )
            assert self._process.stdout is not None
            try:
                _exactly(self._process.stdout.fileno(), len(READY), time.monotonic() + START_S)
            except TimeoutError:
                raise ChildProcessError(f"it did not start within {START_S:g} s") from None
        return self._process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.send_signal(signal.SIGKILL)
        process.wait()


def _files() -> list[tuple[int, int] | None]:
    """Of Horae as it is installed now, as much as an upgrade changes."""
    found: list[tuple[int, int] | None] = []
    for module in (apart, replies, validation):
        try:
            seen = Path(str(module.__file__)).stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((seen.st_ino, seen.st_mtime_ns))
    return found


# --- the wire: a length, then a question's pickle one way, a reply's JSON the other -----------------------


def packed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _write(fd: int, data: bytes, deadline: float) -> None:
    os.set_blocking(fd, False)
    rest = memoryview(data)
    while rest:
        _wait(fd, select.POLLOUT, deadline)
        try:
            rest = rest[os.write(fd, rest[: 1 << 20]) :]
        except BlockingIOError:
            continue


def _read(fd: int, deadline: float, most: int) -> bytes:
    os.set_blocking(fd, False)
    (length,) = _LENGTH.unpack(_exactly(fd, _LENGTH.size, deadline))
    if length > most:
        raise ValueError(f"it says {length} bytes, and {most} are the most")
    return _exactly(fd, length, deadline)


def _exactly(fd: int, length: int, deadline: float) -> bytes:
    parts, left = [], length
    while left:
        _wait(fd, select.POLLIN, deadline)
        try:
            part = os.read(fd, min(left, 1 << 20))
        except BlockingIOError:
            continue
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _wait(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
        raise TimeoutError
