"""Real Keras and tf.estimator trainings that print as TensorFlow programs usually do and record what they really did.

`--record FILE`: {"seconds": [..], "epochs": [[seconds, loss], ..]} as the process itself measured them.
"""

import argparse
import json
import os
import time

import numpy as np
import tensorflow as tf

WINDOW = 20


class Recorder(tf.keras.callbacks.Callback):
    """Paces the steps, so that a busy machine does not drown what is measured, and writes down every one."""

    def __init__(self, pace):
        super().__init__()
        self.pace, self.seconds, self.epochs = pace, [], []
        self.began = self.epoch_began = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self.began = self.epoch_began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.pace)
        now = time.perf_counter()
        self.seconds.append(now - self.began)
        self.began = now

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append([time.perf_counter() - self.epoch_began, float((logs or {})["loss"])])


def data(samples):
    chance = np.random.default_rng(0)
    x = chance.normal(size=(samples, 16)).astype("float32")
    return x, (x @ chance.normal(size=(16, 4))).argmax(1)


def fit(options, verbose):
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(4)])
    model.compile(
        "adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], jit_compile=False
    )
    recorder = Recorder(options.pace)
    x, y = data(options.steps * 32)
    model.fit(
        x,
        y,
        batch_size=32,
        epochs=options.epochs,
        verbose=verbose,
        validation_data=data(32),
        callbacks=[recorder],
    )
    return {"seconds": recorder.seconds, "epochs": recorder.epochs}


class Paced(tf.compat.v1.train.SessionRunHook):
    def __init__(self, pace):
        self.pace, self.seconds = pace, []
        self.began = None

    def after_run(self, run_context, run_values):
        time.sleep(self.pace)
        now = time.perf_counter()
        if self.began is not None:
            self.seconds.append(now - self.began)
        self.began = now


def estimator(options):
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    x, y = data(256)

    def inputs():
        return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat().batch(32)

    def model(features, labels, mode):
        logits = tf.compat.v1.layers.dense(features["x"], 4)
        loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
        step = tf.compat.v1.train.get_or_create_global_step()
        train = tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    paced = Paced(options.pace)
    config = tf.estimator.RunConfig(log_step_count_steps=WINDOW, tf_random_seed=0)
    tf.estimator.Estimator(model, config=config).train(inputs, hooks=[paced], steps=options.steps * options.epochs)
    # The log tells of the mean of so many steps each time: on a busy machine their median is another.
    means = [sum(paced.seconds[i : i + WINDOW]) / WINDOW for i in range(0, len(paced.seconds) - WINDOW + 1, WINDOW)]
    return {"seconds": means, "epochs": []}


def loop(options):
    """The TensorFlow 1 tutorials' line: "step 10, loss = 1.23 (412.3 examples/sec; 0.078 sec/batch)"."""
    x, y = data(options.steps * 32)
    weights = tf.Variable(tf.zeros([16, 4]))
    seconds = []
    began = time.perf_counter()
    for k in range(options.steps * options.epochs):
        at = (k % options.steps) * 32
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(y[at : at + 32], x[at : at + 32] @ weights)
            )
        weights.assign_sub(0.5 * tape.gradient(loss, weights))
        time.sleep(options.pace)
        now = time.perf_counter()
        seconds.append(now - began)
        began = now
        if k % 10 == 0:
            print(
                f"step {k}, loss = {float(loss):.2f} ({32 / seconds[-1]:.1f} examples/sec; "
                f"{seconds[-1]:.3f} sec/batch)",
                flush=True,
            )
    return {"seconds": seconds[::10], "epochs": []}  # of those that the log tells of: on a busy machine others differ


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--style", choices=["bar", "lines", "estimator", "loop"], required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pace", type=float, default=0.08)
    options = parser.parse_args()
    styles = {
        "bar": lambda: fit(options, 1),
        "lines": lambda: fit(options, 2),
        "estimator": lambda: estimator(options),
        "loop": lambda: loop(options),
    }
    recorded = styles[options.style]()
    with open(options.record + ".new", "w") as f:
        json.dump(recorded, f)
    os.rename(options.record + ".new", options.record)  # noqa: PTH104


main()
