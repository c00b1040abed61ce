"""`horae-exec`: the parent of every trainer, on every cluster.

It spawns the gang, mirrors its output into the spool, passes the request to checkpoint on, kills what does not
leave in time, and writes down truthfully how it ended. It has one thread and one loop; it outlives the arbiter, and
nothing of the job outlives it (`processes.keep`).

    horae-exec --job FOLDER [--daemon] [--lock FD]     one start of a job folder, shape in its state.json
    horae-exec [options] -- COMMAND ...                under another cluster (`horae-exec --help`)
"""

import os
import re
import select
import signal
import time
from typing import Any, Dict, Optional, Sequence

from .. import protocol
from ..files import write_atomic
from ..protocol import State
from ..stores.checkpoints import newest_mark
from ..stores.store import Store, open_store
from .gang import Gang
from .jobfolder import JobFolder
from .processes import become_subreaper, kill_below, reap
from .run import Run, checkpoint_url, described
from .spool import Lines, Spool
from .typed import first_line
from .verdict import RETRY, End, Ending, judge

_LOOK_S = 0.5  #: how often the job folder is looked at; signals come at once
_MARK_S = 2.0  #: how often a cheap store is asked for the newest checkpoint
_MARK_PATIENCE_S = 10.0  #: how long another one may take to show what a trainer says that it saved
_READ = 1 << 18
_KILL_WAIT_S = 2.0  #: between TERM and KILL
_RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0)  #: pauses before a failed gang is run again
#: What the SDK says of a checkpoint that failed; the others of a gang only say that one of them did.
_UNWRITTEN = re.compile(rb"\[horae\] (?:checkpoint at step \d+|the final checkpoint) could not be written[^:\n]*: (.+)")
_LONGEST_WHY = 300
STOP_SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Runs one start to its end. `folder`'s lock is held by the caller. `last` False: the spool stays open."""

    def __init__(self, run: Run, folder: JobFolder, spool: Spool, last: bool = True) -> None:
        self.job = run
        self.folder = folder
        self.spool = spool
        self._last = last
        before = folder.state() or {}
        self._failures = int(before.get("failures") or 0)
        self._ran_before_s = float(before.get("ran_s") or 0.0)
        self.mark: Optional[Dict[str, Any]] = before.get("checkpoint")
        self.state = State.STARTING
        self._since_s = time.time()
        self.native = ""
        self._code: Optional[int] = None
        self._unwritten = False  #: the last account did not reach the disk
        self._news = False  #: it does not say all, and nobody waits for that
        self._told_dropped = 0  #: bytes of output that it said were dropped
        self._trouble = ""  #: why the newest checkpoint could not be written
        self._began = time.monotonic()
        self._store = self._open_store()
        self._tried = False  #: whether checkpoints can be written here
        self._next_look = self._next_mark = 0.0
        # What is asked of the job, and how far the asking has gone.
        self._stop_at: Optional[float] = None
        self._grace_s = run.grace_s
        self._cancel_at: Optional[float] = None
        self._out_of_time = False
        self._terminated_at: Optional[float] = None
        self._overdue = False  #: it was still there when its grace was over
        self._killed = False
        self._over = False
        self.dismissed = False  #: told to go, not only to stop, since its gang was over
        self._signalled = False
        # Servers of the ranks (`tasks`).
        self._all_done = False
        self._next_asked = 0.0
        self._dismissed_at: Optional[float] = None
        self._wake_read = self._wake_write = -1

    def run(self) -> int:
        """Returns the exit code for the cluster: 86 stopped, 0 completed, else the trainer's own."""
        self._listen()
        become_subreaper()
        self.folder.reserve_room()
        self._account(State.STARTING)
        attempt = 0
        while True:
            verdict = self._one_gang()
            if verdict.failure:
                self._failures += 1
            if verdict.state != RETRY:
                break
            pause = _RETRY_S[min(attempt, len(_RETRY_S) - 1)]
            attempt += 1
            self.say("%s; failure %d of %d, again in %g s" % (verdict.text, self._failures, self.job.retries, pause))
            self.native = verdict.text
            self._account(State.STARTING)
            if self._wait_to_retry(pause):
                cancelled = self._cancel_at is not None
                verdict = Ending(State.CANCELLED if cancelled else State.STOPPED, verdict.text)
                break
        return self._finish(verdict)

    @property
    def exit_code(self) -> Optional[int]:
        """The gang's own, once it has ended; `run` returns the supervisor's."""
        return self._code

    def say(self, text: str) -> None:
        self.spool.write(("[horae-exec] %s\n" % text).encode(errors="replace"))

    # --- one gang -----------------------------------------------------------------------------------------

    def _one_gang(self) -> Ending:
        gang = Gang([])
        lines: Dict[int, Lines] = {}
        try:
            gang = Gang(self.job.members())
            for member in gang.members[:1]:
                self.say(first_line(member))
            self._try_store()
            gang.spawn()
        except OSError as error:
            self.say("cannot start: %s" % error)
            kill_below()
            self._code = 126
            return judge(self._end(126))
        for member in gang.members:
            lines[gang.outputs[member.rank]] = Lines(self.spool, member.label)
        self._account(State.RUNNING)
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        for fd in lines:
            poll.register(fd, select.POLLIN)
        self._signalled = False
        self._terminated_at, self._killed = None, False
        self._all_done, self._next_asked, self._dismissed_at = False, 0.0, None
        watch = self.job.watch() if self.job.watch is not None else None
        if watch is not None:
            watch.start()  # after the fork: until here the supervisor has one thread
        while gang.alive or self._waits(gang):
            ready = poll.poll(self._patience_ms())
            for fd, _event in ready:
                if fd == self._wake_read:
                    self._drain_wakeups()
                elif not self._pass_on(fd, lines):
                    poll.unregister(fd)
            gang.ended(reap())
            self._look(gang)
            self._press(gang)
            if gang.alive and gang.ranks_over and not self._waits(gang):
                self._dismiss(gang)
        if watch is not None:
            watch.end()
        left = kill_below()
        for fd in list(lines):
            while fd in lines and self._pass_on(fd, lines):
                pass
        if left:
            self.say("killed %d process%s that the trainer left behind" % (left, "es" if left > 1 else ""))
        self._code = self.job.translate(gang.result())
        self._read_last_mark(self._code)
        return judge(self._end(self._code))

    def _waits(self, gang: Gang) -> bool:
        """Whether all ranks here have finished and those of other members have not."""
        well = gang.ranks_over and not gang.failed and not gang.stopping
        if not well or self.job.all_done is None or self._stop_at is not None or self._cancel_at is not None:
            return False
        if not self._all_done and time.monotonic() >= self._next_asked:
            self._all_done = self.job.all_done()
            self._next_asked = time.monotonic() + _LOOK_S
        return not self._all_done

    def _dismiss(self, gang: Gang) -> None:
        """End the servers of ranks that are over."""
        now = time.monotonic()
        if self._dismissed_at is None:
            self._dismissed_at = now
            gang.dismiss(signal.SIGTERM)
        elif now >= self._dismissed_at + _KILL_WAIT_S:
            gang.dismiss(signal.SIGKILL)

    def _pass_on(self, fd: int, lines: Dict[int, Lines]) -> bool:
        """Move one piece of output on; False at its end."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            # Only met after the gang: somebody outside our reach still holds the pipe.
            data = b""
        if data:
            lines[fd].feed(data)
            told = _UNWRITTEN.findall(data)
            if told and self._store is not None:
                self._no_checkpoint(told[-1].decode(errors="replace").strip())
            return True
        lines.pop(fd).end()
        os.close(fd)
        return False

    def _end(self, code: int) -> End:
        return End(
            code=code,
            cancel=self._cancel_at is not None and self._terminated_at is not None,
            stop=self._stop_at is not None,
            killed=self._overdue,
            out_of_time=self._out_of_time,
            complete=self.mark is not None or self.job.self_checkpointing,
            own_checkpoints=self.job.self_checkpointing,
            resumable=self.job.checkpoint is not None or self.job.self_checkpointing,
            failures=self._failures,
            retries=self.job.retries,
            lost=self._trouble,
        )

    # --- requests -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # what came since `keep`

    def _on_signal(self, number: int, _frame: object) -> None:
        self.dismissed = self.dismissed or (self._over and number != signal.SIGUSR1)
        self._next_look = 0.0
        if not self.folder.cancelled():
            self._ask_to_stop(None)

    def _ask_to_stop(self, grace_s: Optional[float]) -> None:
        if self._stop_at is None:
            self._stop_at = time.monotonic()
        if grace_s is not None and grace_s >= 0:
            self._grace_s = grace_s

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            return

    def _look(self, gang: Optional[Gang]) -> None:
        """Read the job folder's requests, when it is time to."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        if self._cancel_at is None and self.folder.cancelled():
            self._cancel_at = now
        grace = self.folder.stop_request(self.job.epoch)
        if grace is not None:
            self._ask_to_stop(grace)
        limit = self.job.time_limit_s
        if limit is not None and not self._out_of_time and self._ran_s() >= limit:
            self._out_of_time = True
            self.say("time limit of %g s reached: asked to checkpoint and leave" % limit)
            self._ask_to_stop(None)
        if gang is not None and now >= self._next_mark and self._store is not None and self._store.cheap:
            self._next_mark = now + _MARK_S
            self._read_mark()
        if self._unwritten:
            self._account(self.state)
        elif self._news or self.spool.dropped != self._told_dropped:
            self._account(self.state, only_news=True)

    def _press(self, gang: Gang) -> None:
        """Signal the gang as far as the requests have come: ask, then TERM, then KILL."""
        now = time.monotonic()
        if not gang.alive:
            return
        if (
            gang.stopping and not gang.failed
        ):  # asked by somebody else (a person's kill -USR1): its other ranks have as long as ever
            self._ask_to_stop(None)
        if self._stop_at is not None and not self._signalled:
            self._signalled = True
            self._leave_stop_file()
            gang.signal(self.job.stop_signal)
            self._account(State.STOPPING)
        overdue = self._stop_at is not None and now >= self._stop_at + self._grace_s
        if self._terminated_at is None and (self._cancel_at is not None or overdue or gang.failed):
            if overdue and self._cancel_at is None and not gang.failed:
                self._overdue = True
                who = ", ".join(str(rank) for rank in gang.ranks_alive)
                self.say("still there after %g s of grace: rank %s" % (self._grace_s, who))
            self._terminated_at = now
            gang.signal(signal.SIGTERM)
            if self._cancel_at is not None:
                self._account(State.STOPPING)
        if self._terminated_at is not None and now >= self._terminated_at + _KILL_WAIT_S and not self._killed:
            self._killed = True
            gang.signal(signal.SIGKILL)

    def _leave_stop_file(self) -> None:
        """Pass a request that came by signal on by file too: a rank's handler may not be there yet."""
        if self.folder.stop_request(self.job.epoch) is None:
            try:
                self.folder.request_stop(self.job.epoch, self._grace_s)
            except OSError as error:
                self.say("cannot write the stop file (%s); the signal has to do" % error.strerror)

    def _patience_ms(self) -> int:
        now = time.monotonic()
        times = [self._next_look]
        if self._stop_at is not None and self._terminated_at is None:
            times.append(self._stop_at + self._grace_s)
        if self._terminated_at is not None and not self._killed:
            times.append(self._terminated_at + _KILL_WAIT_S)
        return max(1, int(1000 * (min(times) - now)) + 1)

    def _wait_to_retry(self, pause: float) -> bool:
        """True when a request came meanwhile: then there is no next attempt."""
        until = time.monotonic() + pause
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while time.monotonic() < until:
            if poll.poll(int(1000 * min(_LOOK_S, max(0.001, until - time.monotonic())))):
                self._drain_wakeups()
            self._look(None)
            if self._stop_at is not None or self._cancel_at is not None:
                return True
        return False

    # --- the account --------------------------------------------------------------------------------------

    def _ran_s(self) -> float:
        return self._ran_before_s + time.monotonic() - self._began

    def _open_store(self) -> Optional[Store]:
        if self.job.checkpoint is None or self.job.self_checkpointing:
            return None
        try:
            return open_store(self.job.checkpoint)
        except ValueError as error:
            self.say(str(error))
            return None

    def _try_store(self) -> None:
        """Whether the job's user can write its checkpoints here: said before it has trained for hours."""
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
            self.say("its checkpoint folder cannot be written: %s" % error)
            self._no_checkpoint(str(error))

    def _no_checkpoint(self, why: str) -> None:
        if why[:_LONGEST_WHY] != self._trouble:
            self._trouble, self._news = why[:_LONGEST_WHY], True

    def _read_mark(self) -> None:
        if self._store is None:
            return
        try:
            found = newest_mark(self._store)
        except OSError as error:
            self.say("cannot look for checkpoints: %s" % error)
            return
        mark = None
        if found is not None:
            mark = {"epoch": found[0].epoch, "step": found[0].step, "time_s": found[1]}
        if mark != self.mark:
            self.mark, self._news = mark, True
            self._trouble = ""

    def _read_last_mark(self, code: int) -> None:
        """After the gang. One that says that it checkpointed failed if there is no checkpoint: looked for again."""
        self._read_mark()
        until = time.monotonic() + _MARK_PATIENCE_S
        while code == protocol.EXIT_STOPPED and self.mark is None and self._store is not None:
            if self._store.cheap or time.monotonic() >= until:
                return
            time.sleep(_MARK_S)
            self._read_mark()

    def _account(self, state: str, only_news: bool = False) -> bool:
        """Write `state.json`; False when it could not be written, and then it is tried again later.

        Never written over by a start that is not the newest any more. `only_news`: not worth the room that was set
        aside for what must be told.
        """
        if state != self.state:
            self._since_s = time.time()
        self.state = state
        if self.folder.epoch() > self.job.epoch:
            return True
        final = state in State.FINAL
        value = {
            "epoch": self.job.epoch,
            "state": state,
            "pid": os.getpid(),
            "allocation": {} if final else self.job.allocation,
            "slots": {} if final else self.job.slots,
            "since_s": self._since_s,
            "exit_code": self._code if final else None,
            "checkpoint": self.mark,
            "failures": self._failures,
            "ran_s": round(self._ran_s(), 3),
            "dropped_bytes": self.spool.dropped,
            "native": protocol.CHECKPOINTS_FAIL + self._trouble if self._trouble and not final else self.native,
        }
        try:
            # A machine that loses power loses the job too: only its end must be on the disk.
            self.folder.write_state(value, sync=final, reserve=not only_news)
        except OSError as error:
            if only_news:
                return False
            if not self._unwritten:
                self.say("cannot write %s: %s; trying again" % (protocol.STATE_FILE, error))
            self._unwritten = True
            return False
        self._unwritten = self._news = False
        self._told_dropped = self.spool.dropped
        return True

    def _finish(self, verdict: Ending) -> int:
        """Write the end down, however long that takes: until then the lock is held and nobody is told otherwise."""
        self._over = True
        self.native = verdict.text
        if verdict.failure or verdict.state in (State.FAILED, State.CANCELLED) or self._terminated_at is not None:
            self.say(verdict.text)
        while not self._account(verdict.state):
            time.sleep(1.0)
        self.folder.free_reserve()
        signal.set_wakeup_fd(-1)
        os.close(self._wake_read)
        os.close(self._wake_write)
        if self._last:
            self.spool.close()
        if verdict.state == State.STOPPED:
            return protocol.EXIT_STOPPED
        return self._code if self._code is not None else 1


def write_loss(folder: JobFolder, document: Optional[bytes]) -> None:
    """The account of a start whose supervisor was killed: lost, with the newest checkpoint. Raises OSError, ValueError.

    An end that it still wrote stays.
    """
    spec, start, _limits = described(folder, document)
    state = folder.state() or {}
    if state.get("epoch") == start["epoch"] and state.get("state") in State.FINAL:
        return
    mark = state.get("checkpoint")
    url = spec.get("checkpoint")
    if url is not None:
        found = newest_mark(open_store(checkpoint_url(str(url), str(spec.get("cwd") or ""))))
        if found is not None:
            mark = {"epoch": found[0].epoch, "step": found[0].step, "time_s": found[1]}
    folder.write_state(
        dict(
            state,
            epoch=start["epoch"],
            state=State.LOST,
            pid=None,
            allocation={},
            slots={},
            since_s=time.time(),
            exit_code=None,
            native="its supervisor died",
            checkpoint=mark,
        )
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    from .command import main as command

    return command(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
