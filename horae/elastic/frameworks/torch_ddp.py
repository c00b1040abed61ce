"""PyTorch, data-parallel, in a loop of your own.

    training = torch_ddp.TorchTraining(model, optimizer, steps=4000, global_batch=256, samples=len(data), seed=7)
    for step in training:
        for part in training.parts(step):
            loss = criterion(training.model(x[part.indices]), y[part.indices])
            (loss * part.weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        step.report(loss)

    for step, parts in training.loaded(dataset, num_workers=4):  # the same through a DataLoader, which reads ahead
        for part, (x, y) in parts:

`training.model` is the model, on this rank's device and wrapped in DistributedDataParallel where there are several
ranks; gradients travel at the last part of a step only. Model, optimizer, scheduler and the scale of a GradScaler
(`scaler=`) are in the checkpoint. The random state is set anew for each step from the seed, so it needs no saving; what
a model draws (dropout) depends on the rank, everything else of a run does not depend on the gang's size.
"""

import os
from contextlib import nullcontext
from itertools import islice
from typing import Any, Iterator, List, Optional, Tuple

from ..sdk.batches import MicroBatch, Sampler, derived_seed, micro_batches
from ..sdk.environment import Environment
from ..sdk.stopping import held
from ..sdk.training import Step, Training

_FILE = "torch.pt"


class TorchTraining(Training):
    """`Training` for a model and its optimizer. `options` are those of `Training`.

    device: default: the GPU LOCAL_RANK if there is one, else the CPU. backend: default nccl or gloo, by the device.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        scheduler: Any = None,
        device: Any = None,
        backend: Optional[str] = None,
        environment: Optional[Environment] = None,
        scaler: Any = None,
        **options: Any,
    ) -> None:
        import torch

        self._torch = torch
        found = environment or Environment()
        if device is None:
            device = torch.device("cuda", found.local_rank) if torch.cuda.is_available() else torch.device("cpu")
        self.device = torch.device(device)
        self.bare_model = model.to(self.device)
        self.optimizer = optimizer
        self.scheduler = scheduler
        parts = {"model": self.bare_model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
        self._stateful = {name: part for name, part in parts.items() if part is not None}
        super().__init__(save=self._write_state, load=self._read_state, environment=found, **options)
        self.model = self._distributed(backend) if found.world > 1 else self.bare_model

    def parts(self, step: Step) -> Iterator[MicroBatch]:
        """This rank's micro-batches; gradients are exchanged in the backward pass of the last."""
        parts = step.micro_batches()
        self._torch.manual_seed(derived_seed(self.seed, step.number, self.rank))
        for i, part in enumerate(parts):
            quiet = self.world > 1 and i + 1 < len(parts)
            with self.model.no_sync() if quiet else nullcontext():
                yield part

    def loaded(self, dataset: Any, **options: Any) -> Iterator[Tuple[Step, Iterator[Tuple[MicroBatch, Any]]]]:
        """Each step with its `parts` and what the DataLoader has for them. `options` are the DataLoader's, but those
        that say which samples. Raises ValueError without `samples`."""
        if self.sampler is None:
            raise ValueError("say samples=len(dataset): which samples a step takes depends on how many there are")
        self.resume()
        loader = iter(self._torch.utils.data.DataLoader(dataset, batch_sampler=self._to_come(), **options))
        for step in self:
            yield step, ((part, next(loader)) for part in self.parts(step))

    def _to_come(self) -> Iterator[List[int]]:
        """Indices of this rank's micro-batches from here on, in the order of the steps."""
        assert self.sampler is not None
        ahead = Sampler(self.sampler.samples, self.sampler.seed, self.sampler.shuffle)  # it is passes ahead of ours
        left = None if self.steps is None else max(self.steps - self.step, 0)
        for batch in islice(ahead.iterate(self.position, self.global_batch), left):
            for part in micro_batches(batch, self.rank, self.world, self.max_micro_batch):
                yield list(part.indices)

    def finish(self) -> None:
        super().finish()
        if self.world > 1:
            self._torch.distributed.destroy_process_group()

    def _distributed(self, backend: Optional[str]) -> Any:
        distributed = self._torch.distributed
        if not distributed.is_initialized():
            with held():
                distributed.init_process_group(backend or ("nccl" if self.device.type == "cuda" else "gloo"))
        wrapper = self._torch.nn.parallel.DistributedDataParallel
        with held():
            return wrapper(self.bare_model, device_ids=[self.device] if self.device.type == "cuda" else None)

    def _write_state(self, folder: str) -> None:
        state = {name: part.state_dict() for name, part in self._stateful.items()}
        self._torch.save(state, os.path.join(folder, _FILE))

    def _read_state(self, folder: str) -> None:
        # To the CPU: each part puts its own where it belongs. Adam's step counts belong to the CPU, and on a GPU every
        # step from then on would wait for each of them.
        state = self._torch.load(os.path.join(folder, _FILE), map_location="cpu")
        for name, part in self._stateful.items():
            part.load_state_dict(state[name])
