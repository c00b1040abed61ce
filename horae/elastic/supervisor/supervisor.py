"""`horae-exec`: the parent of every trainer, on every cluster.

It spawns the gang, mirrors its output into the spool, passes the request to checkpoint on, kills what does not
leave in time, and writes down truthfully how it ended. It has one thread and one loop; it outlives the arbiter, and
nothing of the job outlives it (`processes.keep`).

    horae-exec --job FOLDER [--daemon] [--lock FD]     one start of a job folder, shape in its state.json
    horae-exec [options] -- COMMAND ...                under another cluster (`horae-exec --help`)
"""

import os
import select
import signal
import time
from typing import Dict, Optional, Sequence

from .. import protocol
from ..protocol import State
from ..stores.marks import Marks, mark_in
from ..stores.store import open_store
from .departure import KILL_WAIT_S, Departure, Pressure
from .gang import Gang
from .jobfolder import JobFolder
from .processes import become_subreaper, kill_below, reap
from .run import Run, checkpoint_url, described
from .spool import Lines, Spool
from .typed import first_line
from .verdict import RETRY, End, Ending, judge

_LOOK_S = 0.5  #: how often the job folder is looked at; signals come at once
_READ = 1 << 18
_RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0)  #: pauses before a failed gang is run again
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
        self._unbegun = 0
        self._ran_before_s = float(before.get("ran_s") or 0.0)
        own = run.self_checkpointing
        self.marks = Marks(None if own else run.checkpoint, before.get("checkpoint"), self.say)
        self.state = State.STARTING
        self._since_s = time.time()
        self.native = ""
        self._code: Optional[int] = None
        self._unwritten = False  #: the last account did not reach the disk
        self._told_dropped = 0  #: bytes of output that it said were dropped
        self._began = time.monotonic()
        self._next_look = 0.0
        self._departure = Departure(run.grace_s)
        self._over = False
        self.dismissed = False  #: told to go, not only to stop, since its gang was over
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
            counted = "; failure %d of %d" % (self._failures, self.job.retries) if verdict.failure else ""
            self.say("%s%s, again in %g s" % (verdict.text, counted, pause))
            self.native = verdict.text
            self._account(State.STARTING)
            if self._wait_to_retry(pause):
                verdict = Ending(State.CANCELLED if self._departure.cancel else State.STOPPED, verdict.text)
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
            self.marks.try_store()
            self.marks.unformed = False
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
        self._departure.next_gang()
        self._all_done, self._next_asked, self._dismissed_at = False, 0.0, None
        watch = self.job.watch() if self.job.watch is not None else None
        if watch is not None:
            watch.start()  # after the fork: until here the supervisor has one thread
        self._until_over(gang, lines, poll)
        if watch is not None:
            watch.end()
        self._sweep(lines)
        self._code = self.job.translate(gang.result())
        self.marks.look_last(self._code)
        return judge(self._end(self._code))

    def _until_over(self, gang: Gang, lines: Dict[int, Lines], poll: "select.poll") -> None:
        """Pass on what it prints and what it is asked, until all ranks here and elsewhere have ended."""
        while gang.alive or self._waits(gang):
            for fd, _event in poll.poll(self._patience_ms()):
                if fd == self._wake_read:
                    self._drain_wakeups()
                elif not self._pass_on(fd, lines):
                    poll.unregister(fd)
            gang.ended(reap())
            self._look(gang)
            self._press(gang)
            if gang.alive and gang.ranks_over and not self._waits(gang):
                self._dismiss(gang)

    def _sweep(self, lines: Dict[int, Lines]) -> None:
        """End what the trainer left behind, and pass on the last that was printed."""
        left = kill_below()
        for fd in list(lines):
            while fd in lines and self._pass_on(fd, lines):
                pass
        if left:
            self.say("killed %d process%s that the trainer left behind" % (left, "es" if left > 1 else ""))

    def _waits(self, gang: Gang) -> bool:
        """Whether all ranks here have finished and those of other members have not."""
        well = gang.ranks_over and not gang.failed and not gang.stopping
        if not well or self.job.all_done is None or self._departure.asked:
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
        elif now >= self._dismissed_at + KILL_WAIT_S:
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
            self.marks.hear(data)
            return True
        lines.pop(fd).end()
        os.close(fd)
        return False

    def _end(self, code: int) -> End:
        unbegun = not self.job.begun()
        self._unbegun += unbegun
        return End(
            code=code,
            unbegun=self._unbegun if unbegun else 0,
            cancel=self._departure.cancel and self._departure.terminated,
            stop=self._departure.stop_at is not None,
            killed=self._departure.overdue,
            out_of_time=self._departure.out_of_time,
            complete=self.marks.newest is not None or self.job.self_checkpointing,
            own_checkpoints=self.job.self_checkpointing,
            unformed=self.marks.unformed,
            resumable=self.job.checkpoint is not None or self.job.self_checkpointing,
            failures=self._failures,
            retries=self.job.retries,
            lost=self.marks.trouble,
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
            self._departure.ask(time.monotonic())

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
        self._departure.cancel = self._departure.cancel or self.folder.cancelled()
        grace = self.folder.stop_request(self.job.epoch)
        if grace is not None:
            self._departure.ask(now, grace)
        limit = self.job.time_limit_s
        if limit is not None and self._ran_s() >= limit and self._departure.time_over(now):
            self.say("time limit of %g s reached: asked to checkpoint and leave" % limit)
        if gang is not None:
            self.marks.look(now)
        if self._unwritten:
            self._account(self.state)
        elif self.marks.news or self.spool.dropped != self._told_dropped:
            self._account(self.state, only_news=True)

    def _press(self, gang: Gang) -> None:
        """Signal the gang as far as the requests have come: ask, then TERM, then KILL."""
        if not gang.alive:
            return
        now, departure = time.monotonic(), self._departure
        if gang.stopping and not gang.failed:
            # Asked by somebody else (a person's kill -USR1): its other ranks have as long as ever.
            departure.ask(now)
        late = departure.overdue
        for step in departure.press(now, gang.failed):
            if step == Pressure.ASKED:
                self._leave_stop_file()
                gang.signal(self.job.stop_signal)
                self._account(State.STOPPING)
            elif step == Pressure.TERMINATED:
                if departure.overdue and not late:
                    who = ", ".join(str(rank) for rank in gang.ranks_alive)
                    self.say("still there after %g s of grace: rank %s" % (departure.grace_s, who))
                gang.signal(signal.SIGTERM)
                if departure.cancel:
                    self._account(State.STOPPING)
            else:
                gang.signal(signal.SIGKILL)

    def _leave_stop_file(self) -> None:
        """Pass a request that came by signal on by file too: a rank's handler may not be there yet."""
        if self.folder.stop_request(self.job.epoch) is None:
            try:
                self.folder.request_stop(self.job.epoch, self._departure.grace_s)
            except OSError as error:
                self.say("cannot write the stop file (%s); the signal has to do" % error.strerror)

    def _patience_ms(self) -> int:
        due = self._departure.due()
        until = self._next_look if due is None else min(self._next_look, due)
        return max(1, int(1000 * (until - time.monotonic())) + 1)

    def _wait_to_retry(self, pause: float) -> bool:
        """True when a request came meanwhile: then there is no next attempt."""
        until = time.monotonic() + pause
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while time.monotonic() < until:
            if poll.poll(int(1000 * min(_LOOK_S, max(0.001, until - time.monotonic())))):
                self._drain_wakeups()
            self._look(None)
            if self._departure.asked:
                return True
        return False

    # --- the account --------------------------------------------------------------------------------------

    def _ran_s(self) -> float:
        return self._ran_before_s + time.monotonic() - self._began

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
        final, trouble = state in State.FINAL, self.marks.trouble or self.marks.unseen
        value = {
            "epoch": self.job.epoch,
            "state": state,
            "pid": os.getpid(),
            "allocation": {} if final else self.job.allocation,
            "slots": {} if final else self.job.slots,
            "since_s": self._since_s,
            "exit_code": self._code if final else None,
            "checkpoint": self.marks.newest,
            "failures": self._failures,
            "ran_s": round(self._ran_s(), 3),
            "dropped_bytes": self.spool.dropped,
            "native": protocol.CHECKPOINTS_FAIL + trouble if trouble and not final else self.native,
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
        self._unwritten = self.marks.news = False
        self._told_dropped = self.spool.dropped
        return True

    def _finish(self, verdict: Ending) -> int:
        """Write the end down, however long that takes: until then the lock is held and nobody is told otherwise."""
        self._over = True
        self.native = verdict.text
        if verdict.failure or verdict.state in (State.FAILED, State.CANCELLED) or self._departure.terminated:
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
        store = open_store(checkpoint_url(str(url), str(spec.get("cwd") or folder.path)))
        mark = mark_in(store) or mark
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
