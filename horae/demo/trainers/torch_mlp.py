"""The digits classifier under PyTorch DistributedDataParallel: gloo on CPUs, nccl on GPUs.

python -m horae.demo.trainers.torch_mlp --steps 400 --global-batch 64
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from horae.demo.trainers import digits
from horae.elastic.frameworks.torch_ddp import TorchTraining


def train(options: argparse.Namespace) -> int:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)  # the same initial weights on every rank
    images, labels = digits.load(options.data)
    x, y = torch.from_numpy(images).float(), torch.from_numpy(labels)
    sizes = (digits.FEATURES, options.hidden) if options.hidden else (digits.FEATURES,)
    hidden = [nn.Linear(*sizes), nn.Tanh()] if options.hidden else []
    model = nn.Sequential(*hidden, nn.Linear(sizes[-1], digits.CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)
    training = TorchTraining(
        model,
        optimizer,
        steps=options.steps,
        global_batch=options.global_batch,
        samples=len(y),
        seed=options.seed,
        max_micro_batch=options.max_micro_batch,
        checkpoint_every_s=options.checkpoint_every_s,
        log_every_s=options.log_every_s,
    )
    x, y = x.to(training.device), y.to(training.device)
    criterion = nn.CrossEntropyLoss()
    for step in training:
        began, samples, total = time.monotonic(), 0, torch.zeros((), device=training.device)
        for part in training.parts(step):
            indices = torch.as_tensor(part.indices)
            loss = criterion(training.model(x[indices]), y[indices])
            (loss * part.weight).backward()
            total += loss.detach() * part.fraction
            samples += len(part.indices)
        needed = samples * options.sample_ms / 1e3 / training.environment.speed
        time.sleep(max(0.0, began + needed - time.monotonic()))
        optimizer.step()
        optimizer.zero_grad()
        if training.world > 1:
            torch.distributed.all_reduce(total)
        step.report(float(total))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return train(digits.arguments(__doc__, sample_ms=0.0).parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
