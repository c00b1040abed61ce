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
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import checkpoints, documents, protocol
from .batches import MicroBatch, Sampler, derived_seed, micro_batches
from .checkpoints import Superseded
from .environment import Environment
from .progress import Progress, say
from .ranks import connect
from .stopping import StopRequest, ignore_from_now_on
from .stores import Store, open_store

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
        self._save, self._load = save, load
        self._every_s, self._every_steps, self._keep = checkpoint_every_s, checkpoint_every_steps, keep
        self._store = self._open_store(checkpoint or self.environment.checkpoint)
        self._sampler = None if samples is None else Sampler(samples, seed, shuffle)
        self.group = group if group is not None else connect(self.environment)
        self.rank: int = self.group.rank
        self.world: int = self.group.world
        self.step = 0  #: steps done
        self.position = 0  #: samples consumed since the beginning of training
        self._progress = Progress(steps, global_batch, self.world, self.environment.epoch, log_every_s)
        self._trained_before_s = 0.0
        self._resumed_at = self._saved_at = self._agreed_at = time.monotonic()
        self._agreed_step = 0
        self._next_fence = 0.0
        self._saved_step: Optional[int] = None
        self._next_agreement = 1
        self._resumed = False

    # --- the loop -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Step]:
        self.resume()
        while self.steps is None or self.step < self.steps:
            batch = [] if self._sampler is None else self._sampler.batch(self.position, self.global_batch)
            step = Step(self, self.step, batch)
            yield step
            self.step_done(step.loss)
        self.finish()

    def resume(self) -> None:
        """Load the newest complete checkpoint, on every rank the same. The loop calls it, if nobody did."""
        if self._resumed:
            return
        self._resumed = True
        chosen, folder = self._choose() if self.rank == 0 else ("", "")
        chosen = self.group.broadcast(chosen.encode()).decode()
        if chosen:
            self._load_from(chosen, folder)
        self._saved_step = self.step if chosen else None
        self._next_agreement = self.step + 1
        self._resumed_at = self._saved_at = self._agreed_at = time.monotonic()
        self._agreed_step = self.step
        self._progress.begin(self.step)
        if self.rank == 0:
            place = " checkpoint=%s" % chosen if chosen else ""
            say("start step=%d world=%d epoch=%d%s" % (self.step, self.world, self.environment.epoch, place))

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
        if self.rank == 0 and self._saved_step != self.step:
            try:
                self.checkpoint()
            except OSError as error:
                say("the final checkpoint could not be written: %s" % error)
                raise
        self.group.barrier()
        self.group.close()

    def ignore_requests(self) -> None:
        """Train to the end whatever is asked; the cluster will kill the job when its patience is over."""
        ignore_from_now_on()
        self._request = StopRequest(None, install=False)

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
        code = protocol.EXIT_STOPPED
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
        return self._fence() > self.environment.epoch

    def _fence(self) -> int:
        """The newest epoch handed out, as far as can be seen; 0 where there is no fence."""
        if self.environment.fence_file is None:
            return 0
        try:
            text = (documents.get(self.environment.fence_file) or b"").strip()
        except OSError:
            return 0  # cannot be seen now; it is read again before anything is published
        return int(text) if text.isdigit() else 0

    # --- checkpoints --------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write a complete checkpoint of this state now (on rank 0). Raises OSError, Superseded."""
        if self._store is None or self._save is None:
            return
        checkpoints.write(
            self._store,
            self.step,
            self.environment.epoch,
            self._account(),
            self._save,
            self._last_check,
        )
        self._saved_step, self._saved_at = self.step, time.monotonic()
        checkpoints.prune(self._store, self._keep)

    def _account(self) -> Dict[str, Any]:
        return {
            "job": self.environment.job,
            "position": self.position,
            "seed": self.seed,
            "global_batch": self.global_batch,
            "world": self.world,
            "trained_s": self.trained_s,
        }

    def _last_check(self) -> None:
        if self._fence() > self.environment.epoch:
            raise Superseded("epoch %d is not the newest" % self.environment.epoch)

    def _checkpoint_in_passing(self) -> None:
        if self.rank:
            return
        self._saved_at = time.monotonic()  # also after a failure: try again after the usual time, not at once
        try:
            self.checkpoint()
        except Superseded:
            self._leave(protocol.EXIT_SUPERSEDED, "a newer start of this job exists: leaving without a checkpoint")
        except OSError as error:
            say("checkpoint at step %d could not be written, training goes on: %s" % (self.step, error))

    def _last_checkpoint(self) -> int:
        """The checkpoint before leaving, and the exit code. A full disk is worth an older checkpoint's room."""
        if self._store is None or self._save is None:
            return protocol.EXIT_STOPPED
        for attempt in (1, 2):
            try:
                if self._saved_step != self.step:
                    self.checkpoint()
                return protocol.EXIT_STOPPED
            except Superseded:
                say("a newer start of this job exists: leaving without a checkpoint")
                return protocol.EXIT_SUPERSEDED
            except OSError as error:
                say("checkpoint at step %d could not be written: %s" % (self.step, error))
                if attempt == 1 and not checkpoints.prune(self._store, 1):
                    break
        return protocol.EXIT_NO_CHECKPOINT

    def _open_store(self, url: Optional[str]) -> Optional[Store]:
        return None if url is None or self._save is None else open_store(url)

    def _choose(self) -> "Tuple[str, str]":
        """Rank 0: sweep what a broken writer left; name and folder of the newest complete checkpoint."""
        if self._store is None:
            return "", ""
        swept = self._store.sweep()
        if swept:
            say("removed %d half-written checkpoint%s" % (len(swept), "s" if len(swept) > 1 else ""))
        for mark, _account, folder in checkpoints.complete(self._store, say):
            return mark.name, folder
        if checkpoints.marks(self._store):
            say("no complete checkpoint is left: starting from the beginning")
        return "", ""

    def _load_from(self, name: str, folder: str) -> None:
        """Rank 0 has verified its `folder`; other ranks fetch their own (a shared folder is the same bytes)."""
        if self._store is None or self._load is None:
            raise ValueError("rank 0 resumes from %s, and this rank has no checkpoint folder or load function" % name)
        account = checkpoints.manifest(self._store, name)
        try:
            if not folder:
                folder = self._store.fetch(name)
                if not self._store.cheap:
                    checkpoints.verify_files(folder, account)
            self._load(folder)
        finally:
            self._store.done(folder)
        self.step = int(account["step"])
        self.position = int(account.get("position", self.step * self.global_batch))
        self._trained_before_s = float(account.get("trained_s", 0.0))
        if self.rank == 0 and account.get("global_batch") not in (None, self.global_batch):
            say("the global batch was %s and is now %d" % (account["global_batch"], self.global_batch))
