"""Trainings on one GPU that print as their frameworks do, each a process of its own: `_gpu_programs.py NAME FILE`.

What is printed is the log to be read; FILE gets what was true, noted by the program itself at each step of its
optimiser: {"ends": [s, ...], "losses": [...]}, and what more it knows (`Truth.said`). Nothing here knows Horae.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WORDS = 512  #: of the made-up language: the next word is a fixed function of this one, most of the time


class Truth:
    """What a log is held against."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.ends: list[float] = []
        self.losses: list[Any] = []
        self.said: dict[str, Any] = {}

    def step(self, loss: Any = None) -> None:
        """One step of the optimiser has ended; `loss` may still be on the GPU."""
        self.ends.append(time.perf_counter())
        self.losses.append(None if loss is None else getattr(loss, "detach", lambda: loss)())

    def write(self) -> None:
        losses = [None if loss is None else float(loss) for loss in self.losses]
        self.path.write_text(json.dumps({"ends": self.ends, "losses": losses, **self.said}))


def main() -> None:
    name, path = sys.argv[1:]
    truth = Truth(path)
    PROGRAMS[name](truth)
    if truth.ends or truth.said:
        truth.write()


def sentences(count: int, length: int = 128, seed: int = 0) -> Any:
    import torch

    made = torch.Generator().manual_seed(seed)
    words = torch.empty(count, length, dtype=torch.long)
    words[:, 0] = torch.randint(WORDS, (count,), generator=made)
    for i in range(1, length):
        words[:, i] = (words[:, i - 1] * 7 + 3) % WORDS
    noise = torch.rand(count, length, generator=made) < 0.1
    words[noise] = torch.randint(WORDS, (int(noise.sum()),), generator=made)
    return words


def pictures(count: int, side: int, classes: int = 10, seed: int = 0) -> Any:
    import torch

    made = torch.Generator().manual_seed(seed)
    kinds = torch.randint(classes, (count,), generator=made)
    base = torch.randn(classes, 3, side, side, generator=torch.Generator().manual_seed(99))
    return base[kinds] + torch.randn(count, 3, side, side, generator=made), kinds


def gpt2(layers: int = 6, width: int = 512) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=256, n_embd=width, n_layer=layers, n_head=8,
                                      bos_token_id=0, eos_token_id=1, loss_type="ForCausalLMLoss"))  # fmt: skip


class Items:
    """A data set of dictionaries, as language models want it."""

    def __init__(self, words: Any) -> None:
        self.words = words

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.words[index], "labels": self.words[index]}


def _hf(truth: Truth, resume: str | None = None, **options: Any) -> Any:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Noting(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            truth.step()

    where = str(truth.path.with_suffix(".out"))
    usual = {"output_dir": where, "per_device_train_batch_size": 16, "logging_steps": 10, "save_strategy": "no",
             "report_to": "none", "bf16": True, "learning_rate": 1e-3}  # fmt: skip
    arguments = TrainingArguments(**{**usual, **options})
    trainer = Trainer(model=gpt2(), args=arguments, train_dataset=Items(sentences(1600)),
                      eval_dataset=Items(sentences(160, seed=1)), callbacks=[Noting()])  # fmt: skip
    trainer.train(resume_from_checkpoint=resume)
    truth.said["history"] = trainer.state.log_history
    truth.said["steps"] = trainer.state.max_steps
    return trainer


def hf_bar(truth: Truth) -> None:
    """Hugging Face's Trainer as most people run it: the bar, its dictionaries, an evaluation every fifty steps."""
    _hf(truth, max_steps=200, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=50)


def hf_lines(truth: Truth) -> None:
    """The same without a bar, to whole epochs, each evaluated."""
    _hf(truth, num_train_epochs=3, disable_tqdm=True, eval_strategy="epoch")


def hf_resumed(truth: Truth) -> None:
    """Stopped at step 60 of 150 and resumed from its own checkpoint, both in one log."""
    _hf(truth, max_steps=60, save_strategy="steps", save_steps=60)
    first = list(truth.ends)
    where = str(truth.path.with_suffix(".out") / "checkpoint-60")
    truth.ends.clear()
    _hf(truth, resume=where, max_steps=150)
    truth.said["first_ends"] = first


def hf_out_of_memory(truth: Truth) -> None:
    """A batch that no card holds: auto_find_batch_size tries smaller ones until one fits."""
    _hf(truth, max_steps=60, per_device_train_batch_size=1600 * 8, auto_find_batch_size=True)


def hf_two(truth: Truth) -> None:
    """Two trainings one after the other by one program, as a search over learning rates does."""
    _hf(truth, max_steps=80, learning_rate=1e-3)
    first, history = list(truth.ends), truth.said["history"]
    truth.ends.clear()
    _hf(truth, max_steps=120, learning_rate=1e-4, per_device_train_batch_size=64)
    truth.said.update(first_ends=first, first_history=history)


def _lightning(truth: Truth, logger: Any = False, **options: Any) -> None:
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            import torchvision

            self.net = torchvision.models.resnet18(num_classes=10)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            out = self.net(batch[0])
            self.log("val_loss", torch.nn.functional.cross_entropy(out, batch[1]), prog_bar=True)
            self.log("val_acc", (out.argmax(1) == batch[1]).float().mean(), prog_bar=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)

    train = DataLoader(TensorDataset(*pictures(9600, 64)), batch_size=64, shuffle=True, num_workers=2)
    held = DataLoader(TensorDataset(*pictures(1280, 64, seed=1)), batch_size=64, num_workers=2)
    usual = {
        "max_epochs": 3,
        "accelerator": "gpu",
        "devices": 1,
        "enable_checkpointing": False,
        "callbacks": _noting(truth),
    }
    lightning.Trainer(**{**usual, **options}, logger=logger).fit(Module(), train, held)


def lightning_bar(truth: Truth) -> None:
    """Lightning's default bar, three epochs with validation."""
    _lightning(truth)


def lightning_rich(truth: Truth) -> None:
    """Its bar of rich, on a pipe."""
    from lightning.pytorch.callbacks import RichProgressBar

    _lightning(truth, callbacks=[*_noting(truth), RichProgressBar(leave=True)])


def _noting(truth: Truth) -> list[Any]:
    import lightning

    class Noting(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            truth.step(outputs["loss"])

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            found = {key: float(value) for key, value in trainer.callback_metrics.items()}
            truth.said.setdefault("validations", []).append([trainer.global_step, found])

    return [Noting()]


def lightning_csv(truth: Truth) -> None:
    """No bar: what its CSV logger writes is the log."""
    from lightning.pytorch.loggers import CSVLogger

    folder = truth.path.with_suffix(".csv")
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 10}
    _lightning(truth, logger=CSVLogger(str(folder)), **quiet)
    print(next(folder.rglob("metrics.csv")).read_text(), end="")


def accelerate_loop(truth: Truth) -> None:
    """Accelerate as in Hugging Face's *_no_trainer scripts: a bar of optimiser steps, four micro-batches each."""
    import torch
    from accelerate import Accelerator
    from accelerate.logging import get_logger
    from torch.utils.data import DataLoader
    from tqdm.auto import tqdm

    accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="bf16")
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S",
                        level=logging.INFO)  # fmt: skip
    logger = get_logger("run_clm_no_trainer")
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train = DataLoader(Items(sentences(1600)), batch_size=8, shuffle=True)
    held = DataLoader(Items(sentences(160, seed=1)), batch_size=8)
    model, optimizer, train, held = accelerator.prepare(model, optimizer, train, held)
    total = 3 * math.ceil(len(train) / 4)
    logger.info("***** Running training *****")
    logger.info(f"  Num examples = {len(train.dataset)}")
    logger.info("  Num Epochs = 3")
    logger.info("  Instantaneous batch size per device = 8")
    logger.info("  Total train batch size (w. parallel, distributed & accumulation) = 32")
    logger.info("  Gradient Accumulation steps = 4")
    logger.info(f"  Total optimization steps = {total}")
    bar = tqdm(range(total), disable=not accelerator.is_local_main_process)
    for epoch in range(3):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                bar.update(1)
                truth.step(loss)
        model.eval()
        losses = []
        for batch in held:
            with torch.no_grad():
                losses.append(accelerator.gather_for_metrics(model(**batch).loss.repeat(8)))
        mean = torch.mean(torch.cat(losses)).item()
        logger.info(f"epoch {epoch}: perplexity: {math.exp(mean)} eval_loss: {mean}")
        truth.said.setdefault("validations", []).append([len(truth.ends), mean])


def _resnet(batch: int, count: int) -> Any:
    import torch
    import torchvision
    from torch.utils.data import DataLoader, TensorDataset

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(num_classes=10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(TensorDataset(*pictures(count, 64)), batch_size=batch, shuffle=True, num_workers=4,
                        pin_memory=True)  # fmt: skip
    return model, optimizer, loader


class Meter:
    """As in PyTorch's ImageNet example."""

    def __init__(self, name: str, fmt: str) -> None:
        self.name, self.fmt, self.val, self.sum, self.count = name, fmt, 0.0, 0.0, 0

    def update(self, value: float, n: int = 1) -> None:
        self.val, self.sum, self.count = value, self.sum + value * n, self.count + n

    def __str__(self) -> str:
        return f"{self.name} {self.val:{self.fmt}} ({self.sum / max(self.count, 1):{self.fmt}})"


def imagenet_example(truth: Truth) -> None:
    """PyTorch's ImageNet example: averages of this epoch in brackets, a validation that prints alike."""
    import torch

    model, optimizer, loader = _resnet(128, 6400)
    held = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*pictures(1280, 64, seed=1)), batch_size=128)
    for epoch in range(4):
        model.train()
        meters = [Meter("Time", "6.3f"), Meter("Data", "6.3f"), Meter("Loss", ".4e"), Meter("Acc@1", "6.2f")]
        end = time.time()
        for i, (x, y) in enumerate(loader):
            meters[1].update(time.time() - end)
            kinds = y.cuda(non_blocking=True)
            out = model(x.cuda(non_blocking=True))
            loss = torch.nn.functional.cross_entropy(out, kinds)
            meters[2].update(loss.item(), len(x))
            meters[3].update((out.argmax(1) == kinds).float().mean().item() * 100, len(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meters[0].update(time.time() - end)
            end = time.time()
            truth.step(loss)
            if i % 10 == 0:
                print("\t".join([f"Epoch: [{epoch}][{i + 1:2d}/{len(loader)}]", *map(str, meters)]))
        model.eval()
        meters = [Meter("Time", "6.3f"), Meter("Loss", ".4e"), Meter("Acc@1", "6.2f")]
        with torch.no_grad():
            end = time.time()
            for i, (x, y) in enumerate(held):
                out = model(x.cuda())
                meters[1].update(torch.nn.functional.cross_entropy(out, y.cuda()).item(), len(x))
                meters[2].update((out.argmax(1) == y.cuda()).float().mean().item() * 100, len(x))
                meters[0].update(time.time() - end)
                end = time.time()
                if i % 5 == 0:
                    print("\t".join([f"Test: [{i + 1:2d}/{len(held)}]", *map(str, meters)]))
        print(f" *   Acc@1 {meters[2].sum / meters[2].count:.3f}")
        truth.said.setdefault("validations", []).append([len(truth.ends), meters[1].sum / meters[1].count])


def nano(truth: Truth) -> None:
    """nanoGPT's loop: a time in milliseconds that its .item() waits for, and estimates of both losses now and then."""
    import torch

    words = sentences(4000)
    model = gpt2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    print("number of parameters: %.2fM" % (sum(p.numel() for p in model.parameters()) / 1e6))
    began, mfu = time.time(), -1.0
    for i in range(301):
        if i % 100 == 0:
            model.eval()
            means = []
            with torch.no_grad():
                for seed in (0, 1):
                    rows = sentences(64, seed=seed).cuda()
                    means.append(sum(model(input_ids=rows, labels=rows).loss.item() for _ in range(20)) / 20)
            print(f"step {i}: train loss {means[0]:.4f}, val loss {means[1]:.4f}")
            truth.said.setdefault("validations", []).append([i, means[1]])
            model.train()
        rows = words[torch.randint(len(words), (32,))].cuda()
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        now = time.time()
        took, began = now - began, now
        if i % 10 == 0:
            shown = loss.item()
            mfu = 0.0123 if mfu < 0 else 0.9 * mfu + 0.1 * 0.0123
            print(f"iter {i}: loss {shown:.4f}, time {took * 1000:.2f}ms, mfu {mfu * 100:.2f}%")
        truth.step(loss)


def timm_lines(truth: Truth) -> None:
    """timm's train.py: samples a second, of this step and on average, times of a step."""
    import torch

    model, optimizer, loader = _resnet(128, 12800)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    log = logging.getLogger("train")
    for epoch in range(2):
        took, data, losses = Meter("", "g"), Meter("", "g"), Meter("", "g")
        end = time.time()
        for i, (x, y) in enumerate(loader):
            data.update(time.time() - end)
            loss = torch.nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            took.update(time.time() - end)
            losses.update(loss.item(), 128)
            if i % 10 == 0 or i == len(loader) - 1:
                mean = took.sum / took.count
                log.info(
                    f"Train: {epoch} [{i:>4d}/{len(loader)} ({100.0 * i / (len(loader) - 1):>3.0f}%)]  "
                    f"Loss: {losses.val:#.3g} ({losses.sum / losses.count:#.3g})  "
                    f"Time: {took.val:.3f}s, {128 / took.val:>7.2f}/s  ({mean:.3f}s, {128 / mean:>7.2f}/s)  "
                    f"LR: 2.000e-02  Data: {data.val:.3f} ({data.sum / data.count:.3f})"
                )
            truth.step(loss)
            end = time.time()


def jax_absl(truth: Truth) -> None:
    """JAX with optax: absl's prefix, steps a second over each window."""
    import jax
    import jax.numpy as jnp
    import optax
    from absl import logging as absl

    absl.set_verbosity(absl.INFO)
    keys = jax.random.split(jax.random.key(0), 5)
    sizes = [784, 4096, 4096, 10]
    params = [jax.random.normal(k, (a, b)) / a**0.5 for k, a, b in zip(keys, sizes, sizes[1:], strict=False)]
    x = jax.random.normal(keys[3], (32768, 784))
    y = jnp.argmax(x[:, :10], axis=1)
    optimizer = optax.adamw(1e-3)
    state = optimizer.init(params)

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        for weight in params[:-1]:
            x = jax.nn.relu(x @ weight)
        return optax.softmax_cross_entropy_with_integer_labels(x @ params[-1], y).mean()

    @jax.jit
    def update(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(params, x, y)
        changes, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, changes), state, loss

    last, at = 0, time.perf_counter()
    for step in range(1, 2001):
        rows = (step * 4096) % 32768
        params, state, loss = update(params, state, x[rows : rows + 4096], y[rows : rows + 4096])
        if step % 100 == 0:
            loss = float(loss)
            now = time.perf_counter()
            absl.info("[%d] loss=%.5f, steps_per_sec=%.4f", step, loss, (step - last) / (now - at))
            last, at = step, now
        truth.step(loss)


def graphs(truth: Truth) -> None:
    """PyTorch Geometric's GCN example: an epoch is one step over the whole graph."""
    import torch
    from torch_geometric.nn import GCNConv

    torch.manual_seed(0)
    x = torch.randn(20000, 128).cuda()
    y = x[:, :7].argmax(1)
    edges = torch.randint(20000, (2, 200000)).cuda()
    first, second = GCNConv(128, 64).cuda(), GCNConv(64, 7).cuda()
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    rows = torch.arange(20000).cuda() % 10
    best = 0.0
    times = []
    for epoch in range(1, 201):
        start = time.time()
        optimizer.zero_grad()
        out = second(first(x, edges).relu(), edges)
        loss = torch.nn.functional.cross_entropy(out[rows < 6], y[rows < 6])
        loss.backward()
        optimizer.step()
        shown = float(loss)
        hit = (out.argmax(1) == y).float()
        train, val, test = (float(hit[part].mean()) for part in (rows < 6, rows == 7, rows == 8))
        best = max(best, val)
        print(f"Epoch: {epoch:03d}, Loss: {shown:.4f}, Train: {train:.4f}, Val: {best:.4f}, Test: {test:.4f}")
        times.append(time.time() - start)
        truth.step(shown)
    print(f"Median time per epoch: {torch.tensor(times).median():.4f}s")


def gaussian(truth: Truth) -> None:
    """GPyTorch's regression tutorial."""
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 2000).cuda()
    y = torch.sin(x * 2 * math.pi) + torch.randn(2000).cuda() * 0.2
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(x, y, likelihood).cuda().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for i in range(60):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        kernel, noise = model.covar_module.base_kernel, likelihood.noise
        said = f"lengthscale: {kernel.lengthscale.item():.3f}   noise: {noise.item():.3f}"
        print(f"Iter {i + 1}/60 - Loss: {loss.item():.3f}   {said}")
        optimizer.step()
        truth.step(loss)


def mnist_example(truth: Truth) -> None:
    """PyTorch's MNIST example: samples seen, no time at all."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(),
                              torch.nn.MaxPool2d(2), torch.nn.Flatten(1), torch.nn.Linear(9216, 10)).cuda()  # fmt: skip
    optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
    train = DataLoader(TensorDataset(*pictures(6400, 28)), batch_size=64, shuffle=True, num_workers=1)
    held = DataLoader(TensorDataset(*pictures(1000, 28, seed=1)), batch_size=1000)
    for epoch in range(1, 4):
        for i, (x, y) in enumerate(train):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            if i % 10 == 0:
                seen, share = i * len(x), 100.0 * i / len(train)
                print(f"Train Epoch: {epoch} [{seen}/{len(train.dataset)} ({share:.0f}%)]\tLoss: {loss.item():.6f}")
            truth.step(loss)
        with torch.no_grad():
            ((x, y),) = held
            out = net(x.cuda())
            mean = torch.nn.functional.cross_entropy(out, y.cuda()).item()
            right = int((out.argmax(1) == y.cuda()).sum())
        print(f"\nTest set: Average loss: {mean:.4f}, Accuracy: {right}/1000 ({right / 10:.0f}%)\n")
        truth.said.setdefault("validations", []).append([len(truth.ends), mean])


def nested_bars(truth: Truth) -> None:
    """Plain PyTorch under tqdm: a bar of epochs, in it one of batches and one of the validation, both swept away."""
    import torch
    from tqdm import tqdm, trange

    model, optimizer, loader = _resnet(64, 3200)
    held = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*pictures(640, 64, seed=1)), batch_size=64)
    epochs = trange(4, desc="Epochs")
    for epoch in epochs:
        model.train()
        bar = tqdm(loader, desc=f"Train {epoch}", leave=False)
        for x, y in bar:
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.set_postfix(loss=f"{loss.item():.4f}")
            truth.step(loss)
        model.eval()
        total = 0.0
        with torch.no_grad():
            for x, y in tqdm(held, desc="Valid", leave=False):
                total += torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).item()
        epochs.set_postfix(val_loss=f"{total / len(held):.4f}")
        truth.said.setdefault("validations", []).append([len(truth.ends), total / len(held)])


RANK = """
import os, sys, time, json
import torch, torch.distributed as dist
sys.path.insert(0, os.environ["HERE"])
from _gpu_programs import Truth, pictures
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
torch.cuda.set_device(0)
import torchvision
net = torch.nn.parallel.DistributedDataParallel(torchvision.models.resnet18(num_classes=10).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
x, y = pictures(2048, 64, seed=rank)
truth = Truth(os.environ["TRUTH"])
for epoch in range(2):
    start = time.time()
    for i in range(60):
        rows = torch.randint(2048, (64,))
        loss = torch.nn.functional.cross_entropy(net(x[rows].cuda()), y[rows].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        truth.step(loss)
        if i % 10 == 9:
            now = time.time()
            print(f"[rank {rank}] epoch {epoch} batch {i + 1}/60 loss {loss.item():.4f} "
                  f"{(now - start) / (i + 1) * 1000:.1f} ms/batch", flush=True)
if rank == 0:
    truth.write()
dist.destroy_process_group()
"""


def torchrun_ranks(truth: Truth) -> None:
    """Two ranks on the one card under torchrun, which puts each rank's name before each line."""
    script = truth.path.with_suffix(".rank.py")
    script.write_text(RANK)
    env = {**os.environ, "HERE": str(Path(__file__).parent), "TRUTH": str(truth.path), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--tee", "3",
             "--log-dir", str(truth.path.with_suffix(".ranks")), str(script)]  # fmt: skip
    subprocess.run(words, env=env, check=True)


def json_lines(truth: Truth) -> None:
    """A line of JSON each twenty steps, with seconds since the start and tokens a second."""
    import torch

    words = sentences(4000)
    model = torch.compile(gpt2().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = last = time.time()
    for step in range(1, 241):
        rows = words[torch.randint(len(words), (32,))].cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            shown, now = loss.item(), time.time()
            told = {"step": step, "train/loss": round(shown, 5), "train/ppl": round(math.exp(shown), 3),
                    "perf/tokens_per_second": round(20 * 32 * 128 / (now - last), 1),
                    "perf/max_memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 3),
                    "elapsed": round(now - start, 3)}  # fmt: skip
            print(json.dumps(told), flush=True)
            last = now
        truth.step(loss)


def scale_batch(truth: Truth) -> None:
    """Lightning's tuner looks for the largest batch, then it trains."""
    import lightning
    import torch
    from lightning.pytorch.tuner import Tuner
    from torch.utils.data import DataLoader, TensorDataset

    x = torch.randn(6400, 512)
    y = x[:, :10].argmax(1)

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.batch_size = 8
            self.net = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10))

        def train_dataloader(self) -> Any:
            return DataLoader(TensorDataset(x, y), batch_size=self.batch_size, shuffle=True)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-4)

    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="gpu",
        devices=1,
        logger=False,
        callbacks=_noting(truth),
        enable_checkpointing=False,
    )
    module = Module()
    Tuner(trainer).scale_batch_size(module, max_trials=3, steps_per_trial=5)
    truth.ends.clear()
    truth.losses.clear()
    trainer.fit(module)


def early_stop(truth: Truth) -> None:
    """A loop that prints a line an epoch with its seconds, stops early, and ends with a summary of its best."""
    import torch

    model, optimizer, loader = _resnet(64, 3200)
    (x_held, y_held) = pictures(640, 64, seed=1)
    best, waited = math.inf, 0
    for epoch in range(1, 31):
        start, total = time.time(), 0.0
        model.train()
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            truth.step(loss)
        model.eval()
        with torch.no_grad():
            held = torch.nn.functional.cross_entropy(model(x_held.cuda()), y_held.cuda()).item()
        truth.said.setdefault("epochs", []).append([total / len(loader), held, time.time() - start])
        print(f"Epoch {epoch:>2}/30 | train loss {total / len(loader):.4f} | val loss {held:.4f} | "
              f"time {time.time() - start:.1f}s | lr 0.02")  # fmt: skip
        waited = 0 if held < best - 0.02 else waited + 1
        best = min(best, held)
        if waited >= 3:
            print(f"Early stopping at epoch {epoch}: no improvement for 3 epochs")
            break
    print(f"Best val loss: {best:.4f}")


PROGRAMS = {
    each.__name__: each
    for each in (
        hf_bar, hf_lines, hf_resumed, hf_out_of_memory, hf_two, lightning_bar, lightning_rich, lightning_csv,
        accelerate_loop, imagenet_example, nano, timm_lines, jax_absl, graphs, gaussian, mnist_example, nested_bars,
        torchrun_ranks, json_lines, scale_batch, early_stop,
    )
}  # fmt: skip

if __name__ == "__main__":
    main()
