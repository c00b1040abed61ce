"""Hugging Face Trainer under the SDK.

    elastic_ = transformers_.callback(global_batch=256, max_per_device=8)
    args = TrainingArguments(output_dir, max_steps=4000, save_strategy="no", **elastic_.arguments())
    trainer = Trainer(model, args, train_dataset=data, callbacks=[elastic_])
    trainer.train(resume_from_checkpoint=elastic_.resume())

A request to leave ends `train` by `Stopped` at the same step on every rank. The checkpoint is a folder in the
Trainer's own format, made complete by the SDK: the Trainer reads it as if it had written it.
"""

import os
from typing import Any, Dict, List, Optional

from ..sdk.batches import share_of
from ..sdk.training import Training
from . import random_numbers


def callback(global_batch: int, max_per_device: Optional[int] = None, **options: Any) -> Any:
    """A TrainerCallback with `arguments()` and `resume()`. `options` are those of `Training`."""
    from transformers import TrainerCallback

    class ElasticCallback(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self._folder: Optional[str] = None
            self._parts: Dict[str, Any] = {}
            self._loss: Optional[_Logged] = None
            self.training = Training(
                global_batch=global_batch, save=self._save, load=self._load, keep_fetched=True, **options
            )
            self._arguments = shape(global_batch, self.training.world, max_per_device)

        def arguments(self) -> Dict[str, Any]:
            """For TrainingArguments: the same global batch whatever the gang's size."""
            return dict(self._arguments)

        def resume(self) -> Optional[str]:
            """For `train(resume_from_checkpoint=...)`: the newest complete checkpoint's folder, None at the start."""
            self.training.resume()
            return self._folder

        def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            self._keep(args, state, parts)
            self._loss = newest_loss(state.log_history, None)
            if self._loss is not None:
                self._loss.told = True  # by the start that wrote the checkpoint
            self.training.resume()
            if self.training.steps is None:
                self.training.set_steps(state.max_steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            self._keep(args, state, parts)
            # What the Trainer logs of this step comes behind this call: with the next one.
            self._loss = newest_loss(state.log_history, self._loss)
            self.training.step_done(None if self._loss is None or self._loss.told else self._loss)

        def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            self._keep(args, state, parts)
            self.training.finish()

        def _keep(self, args: Any, state: Any, parts: Dict[str, Any]) -> None:
            self._parts = dict(parts, args=args, state=state)

        def _save(self, folder: str) -> None:
            import torch

            model = self._parts["model"]
            optimizer = self._parts["optimizer"]
            model = getattr(model, "module", model)
            model.save_pretrained(folder)
            torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
            if getattr(optimizer, "scaler", None) is not None:  # of 16-bit floats
                torch.save(optimizer.scaler.state_dict(), os.path.join(folder, "scaler.pt"))
            if self.training.world == 1:  # of several ranks each would have its own, and their number changes
                torch.save(_random_numbers(self._parts["args"]), os.path.join(folder, "rng_state.pth"))
            torch.save(self._parts["lr_scheduler"].state_dict(), os.path.join(folder, "scheduler.pt"))
            torch.save(self._parts["args"], os.path.join(folder, "training_args.bin"))
            self._parts["state"].save_to_json(os.path.join(folder, "trainer_state.json"))

        def _load(self, folder: str) -> None:
            self._folder = folder  # the Trainer itself loads it

    return ElasticCallback()


class _Logged:
    """A loss that the Trainer logged: it is told once, by the next line of progress that is printed."""

    def __init__(self, step: int, value: float) -> None:
        self.step = step
        self.told = False
        self._value = value

    def detach(self) -> float:
        """Called as it is printed, as a tensor's is."""
        self.told = True
        return self._value


def newest_loss(history: List[Dict[str, Any]], known: Optional[_Logged]) -> Optional[_Logged]:
    """The newest loss of a Trainer's log, which is `known` where no other came since."""
    newest = next((each for each in reversed(history) if "loss" in each), None)
    if newest is None or (known is not None and known.step == newest["step"]):
        return known
    return _Logged(newest["step"], newest["loss"])


def _random_numbers(args: Any) -> Dict[str, Any]:
    """As the Trainer's reader wants them: of all GPUs where it is a rank, be it of one alone."""
    return random_numbers.kept(of_all_gpus=getattr(args.parallel_mode, "value", "") == "distributed")


def shape(global_batch: int, world: int, max_per_device: Optional[int]) -> Dict[str, int]:
    """Batch per device and accumulation steps whose product over `world` ranks is exactly `global_batch`.

    Raises ValueError with the sizes that work: the Trainer cannot give ranks shares of different size.
    """
    if global_batch % world:
        sizes = [n for n in range(1, global_batch + 1) if global_batch % n == 0]
        raise ValueError(
            "a global batch of %d cannot be shared evenly by %d ranks; set gpus.allowed to some of %s"
            % (global_batch, world, sizes)
        )
    share = len(share_of(global_batch, 0, world))
    largest = min(share, max_per_device or share)
    per_device = max(n for n in range(1, largest + 1) if share % n == 0)
    return {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": share // per_device}
