"""Keras: `fit` under the SDK.

    training = keras_.training(model, steps=4000, global_batch=256, samples=len(x), seed=7)
    batches = keras_.batches(training, lambda indices: (x[indices], y[indices]))
    model.fit(batches, epochs=1, callbacks=[keras_.callback(training)], shuffle=False)

The model must be built and compiled. One rank by default; with several, Keras itself must be distributed (its
`keras.distribution`, or a `tf.distribute` strategy around the model), and the caller says so: `distributed=True`.
A request to leave ends `fit` by `Stopped` at the same batch on every rank.
"""

import os
from typing import Any, Callable, Sequence

from ..sdk.training import Training

_WEIGHTS = "model.weights.h5"
_OPTIMIZER = "optimizer.npz"


def training(model: Any, distributed: bool = False, **options: Any) -> Training:
    """A `Training` (same options) whose checkpoints hold the model's weights and its optimizer's variables.

    Raises ValueError for several ranks that nobody has distributed: each would train a model of its own.
    """

    def save(folder: str) -> None:
        import numpy

        sync = getattr(model, "jax_state_sync", None)
        if callable(sync):  # on JAX, `fit` keeps the state to itself until it is asked for
            sync()
        model.save_weights(os.path.join(folder, _WEIGHTS))
        arrays = {"v%d" % i: numpy.asarray(each) for i, each in enumerate(_variables(model.optimizer))}
        with open(os.path.join(folder, _OPTIMIZER), "wb") as file:
            numpy.savez(file, **arrays)  # type: ignore[arg-type]

    def load(folder: str) -> None:
        import numpy

        model.load_weights(os.path.join(folder, _WEIGHTS))
        model.optimizer.build(model.trainable_variables)
        with numpy.load(os.path.join(folder, _OPTIMIZER)) as arrays:
            for i, each in enumerate(_variables(model.optimizer)):
                each.assign(arrays["v%d" % i])

    made = Training(save=save, load=load, **options)
    if made.world > 1 and not distributed:
        raise ValueError(
            "%d ranks and a model that is not distributed: set it up with keras.distribution or tf.distribute and "
            "pass distributed=True, or give the job one GPU" % made.world
        )
    made.resume()
    return made


def callback(training_: Training) -> Any:
    """For `fit(callbacks=[...])`: counts steps, checkpoints, leaves when asked; completes the run at its end."""
    import keras

    class ElasticCallback(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.losses = MeanSoFar()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            mean = (logs or {}).get("loss")
            training_.step_done(None if mean is None else self.losses.now(mean))

        def on_train_end(self, logs: Any = None) -> None:
            if training_.steps is None or training_.step >= training_.steps:
                training_.finish()

    return ElasticCallback()


class MeanSoFar:
    """Keras tells the mean loss over the epoch so far, which is a start's whole run. Told is what the steps since the
    last line had."""

    def __init__(self) -> None:
        self._steps, self._mean = 0, 0.0
        self._told_steps, self._told_sum = 0, 0.0

    def now(self, mean: Any) -> "MeanSoFar":
        """After one more step."""
        self._steps += 1
        self._mean = mean
        return self

    def detach(self) -> float:
        """Called as it is printed, as a tensor's is."""
        total = float(self._mean) * self._steps
        mean = (total - self._told_sum) / (self._steps - self._told_steps)
        self._told_steps, self._told_sum = self._steps, total
        return mean


def batches(training_: Training, take: Callable[[Sequence[int]], Any]) -> Any:
    """This rank's share of every global batch still to come: `take(indices)` gives what `fit` wants.

    Raises ValueError for a training without `samples` or `steps`.
    """
    import keras

    if training_.sampler is None or training_.steps is None:
        raise ValueError("batches need `samples` and `steps`")
    sampler, left, position = training_.sampler, training_.steps - training_.step, training_.position
    kind: Any = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence

    class ElasticBatches(kind):  # type: ignore[misc]
        def __len__(self) -> int:
            return left

        def __getitem__(self, index: int) -> Any:
            batch = sampler.batch(position + index * training_.global_batch, training_.global_batch)
            return take(training_.share(batch))

    return ElasticBatches()


def _variables(optimizer: Any) -> "list[Any]":
    found = optimizer.variables
    return list(found() if callable(found) else found)
