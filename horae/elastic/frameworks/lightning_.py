"""Lightning (`lightning` or `pytorch_lightning`) under the SDK.

    elastic_ = lightning_.callback(steps=4000, global_batch=256, samples=len(data), seed=7)
    trainer = Trainer(max_steps=4000, max_epochs=-1, callbacks=[elastic_], enable_checkpointing=False,
                      use_distributed_sampler=False, **elastic_.arguments())
    trainer.fit(module, DataLoader(data, batch_sampler=elastic_.batches()), ckpt_path=elastic_.resume())

Lightning does not know where in an epoch a resumed loader stands; the SDK's batches do, so the whole run is one
epoch of theirs. A job of one rank goes on with the random numbers of its dropout. A request to leave ends `fit` by
`Stopped` at the same step on every rank. Every rank takes part in a checkpoint, as Lightning wants it, so it must be in
a folder that all ranks share.
"""

import os
from typing import Any, Dict, Iterator, List, Optional

from ..sdk.training import Training
from . import random_numbers

_FILE = "lightning.ckpt"


def callback(global_batch: int, **options: Any) -> Any:
    """A Callback with `batch_size()` and `resume()`. `options` are those of `Training`."""
    base: Any = _base()

    class ElasticCallback(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._trainer: Any = None
            self._folder: Optional[str] = None
            self._seen = 0
            self._random: Optional[Dict[str, Any]] = None
            options.setdefault("collective", True)
            options["keep_fetched"] = True
            self.training = Training(global_batch=global_batch, save=self._save, load=self._load, **options)

        def arguments(self) -> Dict[str, int]:
            """For `Trainer(**...)`: the gang as Lightning counts it. Raises ValueError for unequal nodes."""
            nodes = self.training.environment.nodes or {"": self.training.world}
            if len(set(nodes.values())) > 1:
                raise ValueError("Lightning wants the same number of GPUs on every node, not %s" % nodes)
            return {"num_nodes": len(nodes), "devices": max(nodes.values())}

        def batches(self) -> "Batches":
            """For `DataLoader(batch_sampler=...)`: this rank's share of each global batch. Raises ValueError."""
            return Batches(self.training)

        def resume(self) -> Optional[str]:
            """For `fit(ckpt_path=...)`."""
            self.training.resume()
            return None if self._folder is None else os.path.join(self._folder, _FILE)

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self._trainer = trainer
            self.training.resume()
            self._seen = trainer.global_step
            if self.training.steps is None and trainer.max_steps > 0:
                self.training.set_steps(trainer.max_steps)

        def state_dict(self) -> Dict[str, Any]:
            """Lightning keeps no random numbers. Of several ranks each has its own, and their number changes."""
            return {"random": random_numbers.plain(random_numbers.kept())} if self.training.world == 1 else {}

        def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
            self._random = state_dict.get("random")

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            if self._random is not None:  # only now: a loader that begins draws some, too
                random_numbers.restore(self._random)
                self._random = None

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            if trainer.global_step == self._seen:  # accumulating
                return
            self._seen = trainer.global_step
            # As it is: a number made of it for every step would make every step wait for its GPU.
            self.training.step_done(outputs.get("loss") if isinstance(outputs, dict) else outputs)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.training.finish()

        def _save(self, folder: str) -> None:
            self._trainer.save_checkpoint(os.path.join(folder, _FILE))

        def _load(self, folder: str) -> None:
            self._folder = folder  # Lightning itself loads it

    return ElasticCallback()


class Batches:
    """Indices of this rank, a list for each step still to come. Its length is that of the whole run."""

    def __init__(self, training: Training) -> None:
        if training.sampler is None or training.steps is None:
            raise ValueError("batches need `samples` and `steps`")
        if training.global_batch % training.world:
            raise ValueError(
                "Lightning averages over ranks, so they need equal shares: a global batch of %d over %d ranks has none"
                % (training.global_batch, training.world)
            )
        self._training = training
        self._sampler = training.sampler
        self._steps = training.steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> "Iterator[List[int]]":
        training = self._training
        start = training.position  # the loader runs ahead of the training
        for i in range(self._steps - training.step):
            position = start + i * training.global_batch
            yield list(training.share(self._sampler.batch(position, training.global_batch)))


def _base() -> Any:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback
    return Callback
