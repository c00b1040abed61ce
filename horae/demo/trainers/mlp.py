"""A NumPy classifier of digits, trained by stochastic gradient descent over as many ranks as it is given.

Every rank computes the gradient of its share of the global batch; the shares are summed over plain TCP, so a run of
one size and a run that is resized on the way follow the same loss curve to rounding. Checkpoints are real.

A laptop's cores do not get faster by numbers, so the time that a GPU would need is slept: `--sample-ms` for each
sample of the rank's share, divided by HORAE_SPEED (the relative speed of the virtual GPU type). `--sample-ms 0`
runs flat out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from horae import elastic
from horae.demo.trainers import digits

Weights = list[Any]  # arrays of float64: for each layer its matrix and its bias


def initial(hidden: int, seed: int) -> Weights:
    """`hidden` 0: softmax regression; else one hidden layer with tanh."""
    generator = np.random.RandomState(seed)
    sizes = [digits.FEATURES, hidden, digits.CLASSES] if hidden else [digits.FEATURES, digits.CLASSES]
    weights: Weights = []
    for inputs, outputs in pairwise(sizes):
        weights += [generator.randn(inputs, outputs) / np.sqrt(inputs), np.zeros(outputs)]
    return weights


def loss_and_gradient(weights: Weights, x: Any, y: Any) -> tuple[float, Weights]:
    """Mean cross-entropy over the rows of `x` (n, 64) with labels `y` (n,), and its gradient."""
    hidden = np.tanh(x @ weights[0] + weights[1]) if len(weights) > 2 else x
    logits = hidden @ weights[-2] + weights[-1]
    logits = logits - logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(probabilities[rows, y]).mean()
    error = probabilities
    error[rows, y] -= 1.0
    error /= len(y)
    gradient = [hidden.T @ error, error.sum(axis=0)]
    if len(weights) > 2:
        back = (error @ weights[-2].T) * (1.0 - hidden**2)
        gradient = [x.T @ back, back.sum(axis=0), *gradient]
    return float(loss), gradient


def accuracy(weights: Weights, x: Any, y: Any) -> float:
    hidden = np.tanh(x @ weights[0] + weights[1]) if len(weights) > 2 else x
    return float(((hidden @ weights[-2] + weights[-1]).argmax(axis=1) == y).mean())


class Momentum:
    """Stochastic gradient descent with momentum; its state is the model's and its own."""

    def __init__(self, weights: Weights, rate: float, momentum: float) -> None:
        self.weights = weights
        self.velocity = [np.zeros_like(each) for each in weights]
        self.rate = rate
        self.momentum = momentum

    def apply(self, gradient: Sequence[Any]) -> None:
        for i, each in enumerate(gradient):
            self.velocity[i] = self.momentum * self.velocity[i] - self.rate * each
            self.weights[i] = self.weights[i] + self.velocity[i]

    def save(self, folder: str) -> None:
        arrays: dict[str, Any] = {f"w{i}": each for i, each in enumerate(self.weights)}
        arrays.update({f"v{i}": each for i, each in enumerate(self.velocity)})
        np.savez(Path(folder) / "model.npz", **arrays)

    def load(self, folder: str) -> None:
        with np.load(Path(folder) / "model.npz") as arrays:
            self.weights = [arrays[f"w{i}"] for i in range(len(self.weights))]
            self.velocity = [arrays[f"v{i}"] for i in range(len(self.velocity))]


def train(options: argparse.Namespace) -> int:
    x, y = digits.load(options.data)
    optimizer = Momentum(initial(options.hidden, options.seed), options.rate, 0.9)
    training = elastic.Training(
        steps=options.steps,
        global_batch=options.global_batch,
        samples=len(y),
        save=optimizer.save,
        load=optimizer.load,
        seed=options.seed,
        max_micro_batch=options.max_micro_batch,
        checkpoint_every_s=options.checkpoint_every_s,
        log_every_s=options.log_every_s,
    )
    slept_until = 0.0  # what comes before the first step is no part of it
    for step in training:
        slept_until = slept_until or time.monotonic()
        total, loss, samples = [np.zeros_like(each) for each in optimizer.weights], 0.0, 0
        for part in step.micro_batches():
            part_loss, gradient = loss_and_gradient(optimizer.weights, x[part.indices], y[part.indices])
            total = [a + part.fraction * b for a, b in zip(total, gradient, strict=True)]
            loss += part.fraction * part_loss
            samples += len(part.indices)
        # What a GPU of this speed would take; computing here counts as part of it.
        slept_until = max(
            time.monotonic(), slept_until + samples * options.sample_ms / 1e3 / training.environment.speed
        )
        time.sleep(max(0.0, slept_until - time.monotonic()))
        flat = training.group.all_sum(np.concatenate([each.ravel() for each in total] + [np.array([loss])]))
        gradient, begin = [], 0
        for each in total:
            gradient.append(flat[begin : begin + each.size].reshape(each.shape))
            begin += each.size
        optimizer.apply(gradient)
        step.report(flat[-1])
        slept_until = max(slept_until, time.monotonic())
    if training.rank == 0:
        print(f"accuracy on the training set: {accuracy(optimizer.weights, x, y):.4f}", flush=True)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return train(digits.arguments(__doc__, sample_ms=1.0).parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
