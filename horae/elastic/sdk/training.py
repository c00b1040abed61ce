"""The training loop's companion: resume, agree, checkpoint, leave.

    from horae import elastic

    training = elastic.Training(steps=4000, global_batch=256, samples=len(x), seed=7, save=save, load=load)
    for step in training:
        for part in step.micro_batches():          # this rank's share, in pieces that fit
            loss = model.loss(x[part.indices], y[part.indices])
            ...                                    # accumulate gradients, weighted by part.weight
        step.report(loss)
    ...                                            # only reached when all steps are done

`save(folder)` writes the model's state into a folder, `load(folder)` reads it back; the SDK adds its own position,
makes the folder a complete checkpoint, and finds the newest complete one at the next start. When the cluster asks
the job to leave, all ranks agree on the step, rank 0 checkpoints, and the loop raises `Stopped`, a `SystemExit`
with code 86: what comes after the loop runs only at the real end.
"""

import time
from typing import Any, Callable, Iterator, List, Optional, Sequence

from .. import protocol
from ..stores.checkpoints import Superseded
from ..stores.marks import UNFORMED
from ..stores.store import open_store
from .batches import MicroBatch, Sampler, derived_seed, micro_batches, share_of
from .environment import Environment
from .progress import Progress, say
from .ranks import NotFormed, connect
from .saving import Saver, fence
from .stopping import StopRequest, ignore_from_now_on

#: Ranks agree this often; each agreement is one small all-reduce.
_AGREE_S = 0.05
#: A fence that is no local file costs a round trip.
_REMOTE_FENCE_S = 30.0


class Stopped(SystemExit):
    """The job was asked to leave and has checkpointed (or must leave without: see the code)."""


class Step:
    """One optimiser step over one global batch."""

    def __init__(self, training: "Training", number: int, batch: Sequence[int]) -> None:
        self.number = number  #: steps done before this one
        self.batch = batch  #: all indices of the global batch; empty where the SDK does not sample
        self.loss: Optional[Any] = None
        self._training = training

    def micro_batches(self) -> "List[MicroBatch]":
        """This rank's share of the global batch."""
        training = self._training
        return micro_batches(self.batch, training.rank, training.world, training.max_micro_batch)

    @property
    def seed(self) -> int:
        """The same on every rank and for every size of the gang."""
        return derived_seed(self._training.seed, self.number)

    def sample_seed(self, index: int) -> int:
        """For augmentation: belongs to the sample and the step, not to the rank that happens to hold it."""
        return derived_seed(self._training.seed, self.number, index)

    def report(self, loss: Any) -> None:
        """The global batch's mean loss, as far as this rank knows it. Only rank 0's is printed."""
        self.loss = loss


class Training:
    """Iterate over it once. Arguments beyond the first three have defaults that suit most jobs.

    steps: all steps of the run, None if unknown. global_batch: samples a step, over all ranks and resizes.
    samples: size of the data set; None: the trainer samples by itself, from `position`.
    checkpoint: folder or URL, default $HORAE_CHECKPOINT; None: nothing is saved or resumed.
    checkpoint_every_s, checkpoint_every_steps: periodic checkpoints; a full disk then only costs the checkpoint.
    collective: `save` runs on every rank, all with the same folder (shards, or frameworks that insist); it must then
    be a shared folder, and its name is complete only when every rank has returned.
    keep_fetched: the folder given to `load` stays, for who reads it later (a remote store's copy is else removed).
    group: who agrees; default: the SDK's own connection between the ranks (`ranks.connect`).
    Raises ValueError for arguments or an environment that cannot be.
    """

    def __init__(
        self,
        steps: Optional[int] = None,
        global_batch: int = 1,
        samples: Optional[int] = None,
        save: Optional[Callable[[str], None]] = None,
        load: Optional[Callable[[str], None]] = None,
        seed: int = 0,
        shuffle: bool = True,
        max_micro_batch: Optional[int] = None,
        checkpoint: Optional[str] = None,
        checkpoint_every_s: Optional[float] = 600.0,
        checkpoint_every_steps: Optional[int] = None,
        keep: int = 2,
        log_every_s: float = 1.0,
        collective: bool = False,
        keep_fetched: bool = False,
        group: Any = None,
        environment: Optional[Environment] = None,
    ) -> None:
        self.environment = environment or Environment()
        self._request = StopRequest(self.environment.stop_file, self.environment.epoch)
        self.steps = steps
        self.global_batch = global_batch
        self.seed = seed
        self.max_micro_batch = max_micro_batch
        if (save is None) != (load is None):
            raise ValueError("give both save and load, or neither")
        if global_batch < self.environment.world:
            # The same words as for a batch at run time, before any rank waits for another.
            micro_batches(range(global_batch), 0, self.environment.world)
        self._every_s, self._every_steps = checkpoint_every_s, checkpoint_every_steps
        self.sampler = None if samples is None else Sampler(samples, seed, shuffle)
        self.group = group if group is not None else self._gang()
        self._saver: Optional[Saver] = None
        place = checkpoint or self.environment.checkpoint
        if place is not None and save is not None and load is not None:
            self._saver = Saver(
                open_store(place), save, load, self.environment, self.group, keep, collective, keep_fetched
            )
        self.rank: int = self.group.rank
        self.world: int = self.group.world
        self.step = 0  #: steps done
        self.position = 0  #: samples consumed since the beginning of training
        self._progress = Progress(steps, global_batch, self.world, self.environment.epoch, log_every_s)
        self._trained_before_s = 0.0
        self._resumed_at = self._saved_at = self._agreed_at = time.monotonic()
        self._agreed_step = 0
        self._next_fence = 0.0
        self._next_agreement = 1
        self._resumed = False
        self._failing = False  #: the newest checkpoint in passing could not be written

    def _gang(self) -> Any:
        """Raises Stopped when the job is to leave before its ranks have found each other."""
        try:
            return connect(self.environment, self._request.asked)
        except NotFormed:
            ignore_from_now_on()
            say(UNFORMED)
            raise Stopped(protocol.EXIT_STOPPED) from None

    # --- the loop -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Step]:
        self.resume()
        while self.steps is None or self.step < self.steps:
            batch = [] if self.sampler is None else self.sampler.batch(self.position, self.global_batch)
            step = Step(self, self.step, batch)
            yield step
            self.step_done(step.loss)
        self.finish()

    def resume(self) -> None:
        """Load the newest complete checkpoint, on every rank the same. The loop calls it, if nobody did.

        Raises Stopped when the job is to leave before it has begun.
        """
        if self._resumed:
            return
        self._resumed = True
        chosen = self._load()
        self._next_agreement = self.step + 1
        self._resumed_at = self._saved_at = self._agreed_at = time.monotonic()
        self._agreed_step = self.step
        self._progress.begin(self.step)
        if self.rank == 0:
            place = " checkpoint=%s" % chosen if chosen else ""
            say("start step=%d world=%d epoch=%d%s" % (self.step, self.world, self.environment.epoch, place))
        (asked,) = self.group.all_max([1.0 if self._request.asked(fresh=True) else 0.0])
        if asked:  # already: do not begin a step that may take longer than the grace
            self._stop(None)

    def step_done(self, loss: Optional[Any] = None) -> None:
        """One more step is done. May checkpoint; raises Stopped when the gang has agreed to leave.

        For loops that are not ours (a framework's callback) this is the only call a step.
        """
        self.step += 1
        self.position += self.global_batch
        last = self.steps is not None and self.step >= self.steps
        if self.rank == 0:
            self._progress.step_done(self.step, loss, self.trained_s, last)
        due = self._every_steps is not None and self.step % self._every_steps == 0 and not last
        if self.step >= self._next_agreement and not last:
            due = self._agree(loss) or due
        if due:
            self._checkpoint_in_passing()

    def finish(self) -> None:
        """All steps are done: the final state becomes a checkpoint, and no request can hurt any more."""
        ignore_from_now_on()
        if self._unsaved:
            try:
                self.checkpoint()
            except Superseded:
                self._leave(protocol.EXIT_SUPERSEDED, "a newer start of this job exists: leaving without a checkpoint")
            except OSError as error:
                # The work is done: what the program does after the loop (its own save) must come, and no start again.
                say("the final checkpoint could not be written, all steps are done: %s" % error)
        self.group.barrier()
        self.group.close()

    def ignore_requests(self) -> None:
        """Train to the end whatever is asked; the cluster will kill the job when its patience is over."""
        ignore_from_now_on()
        self._request = StopRequest(None, install=False)

    def set_steps(self, steps: int) -> None:
        """For frameworks that know the run's length only once it has begun."""
        self.steps = steps
        self._progress.total = steps

    def share(self, batch: Sequence[int]) -> Sequence[int]:
        """This rank's part of a global batch."""
        part = share_of(len(batch), self.rank, self.world)
        return batch[part.start : part.stop]

    @property
    def trained_s(self) -> float:
        """Seconds trained, over all starts that led to this state."""
        return self._trained_before_s + time.monotonic() - self._resumed_at

    # --- agreement ----------------------------------------------------------------------------------------

    def _agree(self, loss: Optional[Any]) -> bool:
        """One all-reduce: leave? checkpoint? True if a periodic checkpoint is due. Raises Stopped."""
        now = time.monotonic()
        per_step = (now - self._agreed_at) / (self.step - self._agreed_step)
        self._agreed_at, self._agreed_step = now, self.step
        time_due = self._every_s is not None and now - self._saved_at >= self._every_s
        wants = [
            1.0 if self._request.asked() else 0.0,
            1.0 if self._newer_start() else 0.0,
            1.0 if time_due and self.rank == 0 else 0.0,
            per_step,
        ]
        stop, superseded, checkpoint_due, slowest = self.group.all_max(wants)
        steps = int(_AGREE_S / slowest) if slowest > 0 else 1000
        self._next_agreement = self.step + (1 if self.world == 1 else max(1, min(1000, steps)))
        if superseded:
            self._leave(protocol.EXIT_SUPERSEDED, "a newer start of this job exists: leaving without a checkpoint")
        if stop:
            self._stop(loss)
        return bool(checkpoint_due)

    def _stop(self, loss: Optional[Any]) -> None:
        if self.rank == 0:
            self._progress.step_done(self.step, loss, self.trained_s, last=True)
        code = self._last_checkpoint()
        self._leave(code, "stopped at step %d" % self.step if code == protocol.EXIT_STOPPED else "")

    def _leave(self, code: int, text: str) -> None:
        ignore_from_now_on()
        if text and self.rank == 0:
            say(text)
        self.group.close()
        raise Stopped(code)

    def _newer_start(self) -> bool:
        """Rank 0 looks now and then; what counts is the look right before something is published."""
        now = time.monotonic()
        if self.rank or now < self._next_fence:
            return False
        self._next_fence = now + (_REMOTE_FENCE_S if "://" in (self.environment.fence_file or "") else _AGREE_S)
        return fence(self.environment) > self.environment.epoch

    # --- checkpoints --------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write a complete checkpoint of this state now; every rank calls it. Raises OSError or Superseded."""
        self._checkpoint()

    def _checkpoint(self, leaving: bool = False) -> None:
        if self._saver is None or not self._saver.takes_part:
            return
        account = {
            "job": self.environment.job,
            "position": self.position,
            "seed": self.seed,
            "global_batch": self.global_batch,
            "world": self.world,
            "trained_s": self.trained_s,
        }
        self._saver.write(self.step, account, leaving)
        self._saved_at = time.monotonic()
        if self._failing:
            self._failing = False
            say("checkpoint at step %d could be written again" % self.step)

    @property
    def _unsaved(self) -> bool:
        saver = self._saver
        return saver is not None and saver.takes_part and saver.saved_step != self.step

    def _checkpoint_in_passing(self) -> None:
        self._saved_at = time.monotonic()  # also after a failure: try again after the usual time, not at once
        try:
            self.checkpoint()
        except Superseded:
            self._leave(protocol.EXIT_SUPERSEDED, "a newer start of this job exists: leaving without a checkpoint")
        except OSError as error:
            self._failing = True
            say("checkpoint at step %d could not be written, training goes on: %s" % (self.step, error))

    def _last_checkpoint(self) -> int:
        """The checkpoint before leaving, and the exit code. A full disk is worth an older checkpoint's room."""
        if self._saver is None:
            return protocol.EXIT_STOPPED
        for attempt in (1, 2):
            try:
                if attempt == 2 and self.rank == 0:
                    self._saver.prune(1)
                if self._unsaved:
                    self._checkpoint(leaving=True)
                return protocol.EXIT_STOPPED
            except Superseded:
                say("a newer start of this job exists: leaving without a checkpoint")
                return protocol.EXIT_SUPERSEDED
            except OSError as error:
                say("checkpoint at step %d could not be written: %s" % (self.step, error))
        return protocol.EXIT_NO_CHECKPOINT

    def _load(self) -> str:
        """Resume; the name of the checkpoint, '' for none."""
        if self._saver is None:
            return ""
        name, account = self._saver.resume()
        if name:
            self.step = int(account["step"])
            self.position = int(account.get("position", self.step * self.global_batch))
            self._trained_before_s = float(account.get("trained_s", 0.0))
            if self.rank == 0 and account.get("global_batch") not in (None, self.global_batch):
                say("the global batch was %s and is now %d" % (account["global_batch"], self.global_batch))
        return name
