"""A real DDP training over gloo that prints as PyTorch programs usually do and records what it really did.

Started by torch.distributed.run. Only torch and the standard library; written for torch 1.13.
`--record FILE`: rank 0 leaves {"seconds": [..], "losses": [[position, loss], ..], "world": n} there, the seconds as the
log tells of them: of single steps, or the means of those between two lines. On a busy machine they differ.
"""

import argparse
import json
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Meter:
    def __init__(self):
        self.value, self.sum, self.count = 0.0, 0.0, 0

    def update(self, value):
        self.value = value
        self.sum += value
        self.count += 1

    @property
    def mean(self):
        return self.sum / self.count


def imagenet(epoch, k, n, meters, window):
    t, loss = meters["time"], meters["loss"]
    print(
        f"Epoch: [{epoch}][{k:6d}/{n:6d}]\tTime {t.value:6.3f} ({t.mean:6.3f})\tData  0.000 ( 0.000)\t"
        f"Loss {loss.value:.4e} ({loss.mean:.4e})\tAcc@1  10.00 (  9.87)\tAcc@5  50.00 ( 49.12)",
        flush=True,
    )


def mnist(epoch, k, n, meters, window):
    done, total = k * 64, n * 64
    print(
        f"Train Epoch: {epoch + 1} [{done}/{total} ({100.0 * k / n:.0f}%)]\tLoss: {meters['loss'].value:.6f}",
        flush=True,
    )


def word_lm(epoch, k, n, meters, window):
    if k == 0:
        return
    milliseconds = 1000 * sum(window["seconds"]) / len(window["seconds"])
    loss = sum(window["losses"]) / len(window["losses"])
    print(
        f"| epoch {epoch + 1:3d} | {k:5d}/{n:5d} batches | lr 20.00 | ms/batch {milliseconds:5.2f} | "
        f"loss {loss:5.2f} | ppl {torch.tensor(loss).exp().item():8.2f}",
        flush=True,
    )


def logged(epoch, k, n, meters, window):
    logging.info("step %d/%d loss %.4f lr 0.1", epoch * n + k, window["total"], meters["loss"].value)


def told(style, epoch, k, window):
    """The seconds of a step that this line tells of, itself or by its stamp; [] where it tells of none."""
    if style == "imagenet":
        return window["seconds"][-1:]
    began = k == 0 and (epoch == 0 or style == "word-lm")
    return [] if began else [sum(window["seconds"]) / len(window["seconds"])]


STYLES = {"imagenet": imagenet, "mnist": mnist, "word-lm": word_lm, "logged": logged}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--style", choices=sorted(STYLES), required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--pace", type=float, default=0.08)
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = torch.randn(32, 10)
    everyone = options.style == "word-lm"  # its example has no idea of ranks: each of them prints
    seconds, losses = [], []
    window = {"seconds": [], "losses": [], "total": options.epochs * options.steps}
    for epoch in range(options.epochs):
        meters = {"time": Meter(), "loss": Meter()}
        end = time.perf_counter()
        for k in range(options.steps):
            inputs = torch.randn(64, 32)
            loss = nn.functional.cross_entropy(model(inputs), (inputs @ truth).argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(options.pace * (8 if epoch == 0 and k < 2 else 1))  # the first steps are warm-up
            now = time.perf_counter()
            meters["time"].update(now - end)
            meters["loss"].update(loss.item())
            window["seconds"].append(now - end)
            window["losses"].append(loss.item())
            end = now
            if k % options.every == 0 and (rank == 0 or everyone):
                STYLES[options.style](epoch, k, options.steps, meters, window)
                seconds += told(options.style, epoch, k, window)
                if k or options.style != "word-lm":
                    losses.append([epoch * options.steps + k, loss.item()])
                window["seconds"], window["losses"] = [], []
        if options.style == "imagenet" and rank == 0:
            print("Test: [0/1]\tTime  0.001 ( 0.001)\tLoss 1.0000e+00 (1.0000e+00)", flush=True)
    if rank == 0:
        with open(options.record + ".new", "w") as f:
            json.dump({"seconds": seconds, "losses": losses, "world": dist.get_world_size()}, f)
        os.rename(options.record + ".new", options.record)  # noqa: PTH104
    dist.destroy_process_group()


main()
