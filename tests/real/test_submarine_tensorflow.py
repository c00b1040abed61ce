"""Commands of Submarine with real TensorFlow: real supervisors at a gate, the cluster that TF_CONFIG names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.horae.elastic.exec_job import until
from tests.real.frameworks import Framework, or_skip, with_tensorflow
from tests.yarn_bridge.on_node.yard import Yard
from yarn_bridge.submarine import translate

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("frameworks")]
PATIENCE_S = 720.0

COLLECTIVE = """
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
total = strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)
print("sum", float(total), "of", strategy.num_replicas_in_sync, flush=True)
raise SystemExit(86)
"""

SERVED = """
import sys
import numpy
import tensorflow as tf


def model(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", shape=[], initializer=tf.compat.v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(weight * features["x"] - labels))
    step = tf.compat.v1.train.get_or_create_global_step()
    train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def batches():
    x = numpy.ones(8, "float32")
    return tf.data.Dataset.from_tensor_slices(({"x": x}, 3.0 * x)).repeat().batch(8)


config = tf.estimator.RunConfig(model_dir=sys.argv[1], save_checkpoints_steps=20)
print("cluster", sorted(config.cluster_spec.jobs), config.task_type, config.num_ps_replicas, flush=True)
estimator = tf.estimator.Estimator(model, config=config)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(batches, max_steps=60),
    tf.estimator.EvalSpec(batches, steps=1),
)
if config.is_chief:
    print("weight %.2f" % estimator.get_variable_value("weight"), flush=True)
"""

SHOWN = """
import sys, time
import tensorflow as tf

with tf.summary.create_file_writer(sys.argv[1] + "/day").as_default():
    for step in range(5):
        tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
print("written", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def tensorflow() -> Framework:
    return or_skip(with_tensorflow)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.say({"state": "closed"})
    for worker in made.workers.values():
        worker.wait(90)


def submarine(yard: Yard, framework: Framework, source: str, workers: list[str], *more: str) -> None:
    """Start the workers of a Submarine command whose roles all run `source`."""
    script = yard.path / "train.py"
    script.write_text(source)
    command = f"{framework.python} {script} %checkpoint_path%"
    job = translate(
        [
            "--name", "j", "--num_workers", str(len(workers)), "--input_path", "none",
            "--worker_resources", "memory=1G,vcores=1,gpu=1", "--worker_launch_cmd", command,
            "--checkpoint_path", str(yard.path / "model"), *more,
            *(["--ps_launch_cmd", command] if "--num_ps" in more else []),
        ],
        "ann",
    ).job  # fmt: skip
    for name in workers:
        yard.supervise(name, job["command"], **{**framework.variables(), **job["env"]})


def test_collectives_span_each_shape_of_the_gang(yard: Yard, tensorflow: Framework) -> None:
    submarine(yard, tensorflow, COLLECTIVE, ["w-a", "w-b", "w-c"])
    yard.open(1, "w-b", "w-a")
    for name in ("w-a", "w-b"):
        until(f"{name} has summed", lambda name=name: "sum 2.0 of 2" in yard.log(name), PATIENCE_S)  # type: ignore[misc]
        yard.ack(name, 1, PATIENCE_S)
    yard.open(2, "w-c", "w-b", "w-a")
    for name in ("w-a", "w-b", "w-c"):
        until(f"{name} has summed", lambda name=name: "sum 3.0 of 3" in yard.log(name), PATIENCE_S)  # type: ignore[misc]
    assert "sum 2.0 of 2" not in yard.log("w-c"), "it came to the second gang alone"


def test_an_estimator_with_a_parameter_server_trains_to_its_end(yard: Yard, tensorflow: Framework) -> None:
    submarine(
        yard, tensorflow, SERVED, ["w-a", "w-b"], "--num_ps", "1", "--ps_resources", "memory=1G,vcores=1",
        "--env", f"HOME={os.environ.get('HOME', '/')}",
    )  # fmt: skip
    yard.open(1, "w-a", "w-b")
    for name in ("w-a", "w-b"):
        code = yard.workers[name].wait(PATIENCE_S)
        assert code == 0, yard.log(name)[-2000:]
        assert yard.ack(name, 1, PATIENCE_S)["state"] == "completed"
    assert "cluster ['chief', 'ps', 'worker'] chief 1" in yard.log("w-a")
    assert "ps-0: cluster ['chief', 'ps', 'worker'] ps 1" in yard.log("w-a")
    assert "cluster ['chief', 'ps', 'worker'] worker 1" in yard.log("w-b")
    assert "weight 3.00" in yard.log("w-a")


def test_tensorboard_serves_what_the_workers_write(yard: Yard, tensorflow: Framework) -> None:
    """Beside the first worker, at the address that stands in the job's output; it ends with the job."""
    path = f"{Path(tensorflow.python).parent}:{os.environ['PATH']}"
    more = ("--tensorboard", "--tensorboard_resources", "memory=1G,vcores=1", "--env", f"PATH={path}")
    submarine(yard, tensorflow, SHOWN, ["w-a", "w-b"], *more)
    yard.open(1, "w-a", "w-b")
    until("its address is told", lambda: re.search(r"TensorBoard \S+ at (http://\S+)", yard.log("w-a")), PATIENCE_S)
    found = re.search(r"TensorBoard \S+ at http://[^:/\s]+:(\d+)", yard.log("w-a"))
    assert found is not None
    until("both have written", lambda: all("written" in yard.log(name) for name in ("w-a", "w-b")), PATIENCE_S)
    here = f"http://127.0.0.1:{found[1]}"
    assert "TensorBoard" in requests.get(here, timeout=60).text

    def served() -> list[float]:
        query = {"tag": "loss", "run": "day"}
        answer = requests.get(f"{here}/data/plugin/scalars/scalars", params=query, timeout=60)
        return [point[2] for point in answer.json()] if answer.ok else []

    until("the curve is served", lambda: len(served()) >= 5, PATIENCE_S)
    assert "TensorBoard" not in yard.log("w-b"), "one is enough"
    yard.say({"epoch": 1, "state": "closed"})
    for worker in yard.workers.values():
        worker.wait(PATIENCE_S)
    with pytest.raises(requests.ConnectionError):
        requests.get(here, timeout=60)
