"""Lightning (`lightning` or `pytorch_lightning`) under the SDK.

    elastic_ = lightning_.callback(global_batch=256)
    trainer = Trainer(max_steps=4000, callbacks=[elastic_], enable_checkpointing=False, logger=False,
                      use_distributed_sampler=True)
    trainer.fit(module, DataLoader(data, batch_size=elastic_.batch_size()), ckpt_path=elastic_.resume())

A request to leave ends `fit` by `Stopped` at the same step on every rank. Every rank takes part in a checkpoint,
as Lightning wants it, so it must be in a folder that all ranks share.
"""

import os
from typing import Any, Optional

from ..training import Training
from .transformers_ import shape

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
            options.setdefault("collective", True)
            options["keep_fetched"] = True
            self.training = Training(global_batch=global_batch, save=self._save, load=self._load, **options)

        def batch_size(self) -> int:
            """This rank's share of the global batch, for its DataLoader. Raises ValueError for uneven shares."""
            return shape(global_batch, self.training.world, None)["per_device_train_batch_size"]

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

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            if trainer.global_step == self._seen:  # accumulating
                return
            self._seen = trainer.global_step
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self.training.step_done(None if loss is None else float(loss))

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.training.finish()

        def _save(self, folder: str) -> None:
            self._trainer.save_checkpoint(os.path.join(folder, _FILE))

        def _load(self, folder: str) -> None:
            self._folder = folder  # Lightning itself loads it

    return ElasticCallback()


def _base() -> Any:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback
    return Callback
