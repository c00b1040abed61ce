"""The SDK's adapters in real frameworks: stopped and resumed in other sizes, the losses of a run that never was."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.demo.trainers import digits
from tests.horae.elastic.exec_job import ROOT, ExecJob, until
from tests.real import frameworks
from tests.real.frameworks import Framework, or_skip

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("frameworks")]

Make = Callable[..., ExecJob]
PATIENCE_S = 600.0


@pytest.fixture
def exec_job(tmp_path: Path) -> Iterator[Make]:
    made: list[ExecJob] = []

    def make(name: str, framework: Framework, source: str) -> ExecJob:
        job = ExecJob(tmp_path / name, source)
        job.spec["command"] = [framework.python, str(job.path / "trainer.py")]
        paths = [str(job.spec["env"]["PYTHONPATH"]), framework.env.get("PYTHONPATH", "")]  # type: ignore[index]
        job.spec["env"] = {
            **framework.env,
            "PYTHONPATH": ":".join(filter(None, paths)),
            "DIGITS": str(digits.locate()),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        (job.path / "spec.json").write_text(json.dumps(job.spec))
        made.append(job)
        return job

    yield make
    for job in made:
        job.end()


def losses(job: ExecJob) -> dict[int, float]:
    found = re.findall(r"\[horae\] step=(\d+)/\d+ loss=(\S+)", job.log)
    return {int(step): float(loss) for step, loss in found}


def run(job: ExecJob, sizes: list[int], steps: int) -> dict[int, float]:
    """To the end over these sizes, stopped early enough that a busy machine's request comes before the end; the losses
    by step."""
    for i, size in enumerate(sizes, start=1):
        job.start(gpus=size)
        if i < len(sizes):
            mark = f"step={steps * i // (len(sizes) + 1)}/"
            until(f"{mark} in the log", lambda mark=mark: mark in job.log or job.state["state"] == "failed", PATIENCE_S)
            job.stop(grace_s=60.0)
            assert job.wait(PATIENCE_S) == 86, job.log
    assert job.wait(PATIENCE_S) == 0, job.log
    return losses(job)


def assert_same_losses(make: Make, framework: Framework, source: str, sizes: list[int], steps: int) -> None:
    """A run over `sizes` and one that stays at one rank print the same losses (32-bit floats, four decimals)."""
    still = run(make("still", framework, source), [1], steps)
    moved = run(make("moved", framework, source), sizes, steps)
    assert sorted(still) == sorted(moved) == list(range(1, steps + 1))
    assert [moved[step] for step in sorted(moved)] == pytest.approx([still[s] for s in sorted(still)], abs=2e-3)
    assert still[steps] < still[1]


def test_torch_distributed_data_parallel(exec_job: Make) -> None:
    source = """
        import os, sys
        from horae.demo.trainers import torch_mlp
        words = ["--steps", "90", "--global-batch", "50", "--log-every-s", "0", "--sample-ms", "0.4"]
        sys.exit(torch_mlp.main(words + ["--max-micro-batch", "20", "--data", os.environ["DIGITS"]]))
    """
    assert_same_losses(exec_job, or_skip(frameworks.with_torch), source, [2, 1, 3], 90)


def test_torch_optimizer_scheduler_and_scaler_come_back(exec_job: Make) -> None:
    source = """
        import torch
        from horae.elastic.frameworks.torch_ddp import TorchTraining
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        x, y = torch.arange(80.0).reshape(20, 4) / 80, torch.arange(20.0).reshape(20, 1) / 20
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5)
        class Scale:  # in place of a GradScaler, which needs a GPU
            factor = 1.0
            def state_dict(self):
                return vars(self)
            def load_state_dict(self, state):
                vars(self).update(state)
        scaler = Scale()
        training = TorchTraining(model, optimizer, scheduler=scheduler, scaler=scaler, steps=60, global_batch=6,
                                 samples=20, log_every_s=0.0)
        import time
        for step in training:
            time.sleep(0.03)
            for part in training.parts(step):
                loss = ((training.model(x[part.indices]) - y[part.indices]) ** 2).mean()
                (loss * part.weight).backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            scaler.factor *= 0.99
            step.report(scheduler.get_last_lr()[0] + scaler.factor - step.number / 100.0)
    """
    assert_same_losses(exec_job, or_skip(frameworks.with_torch), source, [1, 2], 60)


def test_torch_through_a_data_loader_that_reads_ahead(exec_job: Make) -> None:
    source = """
        import time
        import torch
        from torch.utils.data import TensorDataset
        from horae.elastic.frameworks.torch_ddp import TorchTraining
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        x, y = torch.arange(80.0).reshape(20, 4) / 80, torch.arange(20.0).reshape(20, 1) / 20
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training = TorchTraining(model, optimizer, steps=60, global_batch=7, samples=20, max_micro_batch=3,
                                 log_every_s=0.0)
        for step, parts in training.loaded(TensorDataset(x, y, torch.arange(20)), num_workers=1):
            time.sleep(0.03)
            for part, (inputs, targets, indices) in parts:
                assert indices.tolist() == list(part.indices)
                loss = ((training.model(inputs) - targets) ** 2).mean()
                (loss * part.weight).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                step.report(((training.bare_model(x) - y) ** 2).mean())
    """
    assert_same_losses(exec_job, or_skip(frameworks.with_torch), source, [2, 1], 60)


def test_the_script_of_the_documentation_runs_as_it_stands(exec_job: Make) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/elastic-job.md").read_text()
    (source,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "TorchTraining" in block)
    job = exec_job("documented", or_skip(frameworks.with_torch), source)
    job.start(gpus=2)
    assert job.wait(PATIENCE_S) == 0, job.log
    assert len(re.findall("validation loss", job.log)) == 3, job.log
    assert "step=60/60" in job.log


def test_hugging_face_trainer(exec_job: Make) -> None:
    source = """
        import time, torch
        from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
        from horae.elastic.frameworks import transformers_

        class Line(PreTrainedModel):
            config_class = PretrainedConfig
            def __init__(self, config):
                super().__init__(config)
                self.layer = torch.nn.Linear(4, 1)
            def forward(self, x, labels):
                return {"loss": ((self.layer(x) - labels) ** 2).mean()}

        class Slowly(TrainerCallback):
            def on_step_begin(self, *args, **parts):
                time.sleep(0.02)

        torch.manual_seed(0)
        data = [{"x": torch.arange(4.0) * i / 60, "labels": torch.tensor([i / 20])} for i in range(240)]
        elastic_ = transformers_.callback(global_batch=8, max_per_device=4, log_every_s=0.0)
        args = TrainingArguments("out", max_steps=45, save_strategy="no", report_to=[], use_cpu=True, logging_steps=1,
                                 learning_rate=0.05, disable_tqdm=True, ddp_backend="gloo", **elastic_.arguments())
        trainer = Trainer(Line(PretrainedConfig()), args, train_dataset=data, callbacks=[elastic_, Slowly()])
        trainer.train(resume_from_checkpoint=elastic_.resume())
        print("weights", [round(float(v), 4) for v in trainer.model.layer.weight.flatten()])
    """
    framework = or_skip(frameworks.with_torch_extras)
    still, moved = exec_job("still", framework, source), exec_job("moved", framework, source)
    told = run(still, [1], 45)
    run(moved, [2, 1], 45)
    assert weights(moved) == pytest.approx(weights(still), abs=2e-3)
    assert moved.state["checkpoint"]["step"] == 45
    logged = [float(value) for value in re.findall(r"'loss': '?([0-9.e+-]+)", still.log)]
    assert len(logged) == 45
    assert told == pytest.approx({step: logged[step - 2] for step in range(2, 46)}, abs=1e-4), "each with the next step"


def test_lightning(exec_job: Make) -> None:
    source = """
        import time, torch
        torch.__version__ = "1.13.1"  # Debian's calls itself an alpha of the release it is
        import lightning
        # torch 1.13 cannot import its sharded tensors under Python 3.11; no model here has any.
        lightning.LightningModule._register_sharded_tensor_state_dict_hooks_if_available = lambda self: None
        from horae.elastic.frameworks import lightning_

        class Line(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)
            def training_step(self, batch, index):
                time.sleep(0.06)
                x, y = batch
                return ((self.layer(x) - y) ** 2).mean()
            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters(), lr=0.05)

        torch.manual_seed(0)
        data = [(torch.arange(4.0) * i / 60, torch.tensor([i / 20])) for i in range(360)]
        elastic_ = lightning_.callback(steps=45, global_batch=8, samples=len(data), log_every_s=0.0)
        trainer = lightning.Trainer(max_steps=45, max_epochs=-1, callbacks=[elastic_], enable_checkpointing=False,
                                    logger=False, accelerator="cpu", enable_progress_bar=False,
                                    enable_model_summary=False, use_distributed_sampler=False, **elastic_.arguments())
        loader = torch.utils.data.DataLoader(data, batch_sampler=elastic_.batches())
        model = Line()
        trainer.fit(model, loader, ckpt_path=elastic_.resume())
        print("weights", [round(float(v), 4) for v in model.layer.weight.flatten()])
    """
    framework = or_skip(frameworks.with_torch_extras)
    still, moved = exec_job("still", framework, source), exec_job("moved", framework, source)
    run(still, [1], 45)
    run(moved, [2, 1], 45)
    assert weights(moved) == pytest.approx(weights(still), abs=2e-3)


def test_lightning_goes_on_with_the_random_numbers_of_its_dropout(exec_job: Make) -> None:
    source = """
        import random, time, numpy, torch
        torch.__version__ = "1.13.1"  # Debian's calls itself an alpha of the release it is
        import lightning
        lightning.LightningModule._register_sharded_tensor_state_dict_hooks_if_available = lambda self: None
        from horae.elastic.frameworks import lightning_

        class Line(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
            def training_step(self, batch, index):
                time.sleep(0.06)
                x, y = batch
                return ((self.layer(x) - y) ** 2).mean() + 0.1 * random.random() + 0.1 * numpy.random.rand()
            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters(), lr=0.05)

        torch.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        data = [(torch.arange(4.0) * i / 60, torch.tensor([i / 20])) for i in range(360)]
        elastic_ = lightning_.callback(steps=45, global_batch=8, samples=len(data), log_every_s=0.0)
        trainer = lightning.Trainer(max_steps=45, max_epochs=-1, callbacks=[elastic_], enable_checkpointing=False,
                                    logger=False, accelerator="cpu", enable_progress_bar=False,
                                    enable_model_summary=False, use_distributed_sampler=False, **elastic_.arguments())
        loader = torch.utils.data.DataLoader(data, batch_sampler=elastic_.batches())
        trainer.fit(Line(), loader, ckpt_path=elastic_.resume())
    """
    framework = or_skip(frameworks.with_torch_extras)
    still = run(exec_job("still", framework, source), [1], 45)
    moved = run(exec_job("moved", framework, source), [1, 1, 1], 45)
    assert sorted(moved) == list(range(1, 46))
    assert moved == still


def weights(job: ExecJob) -> Any:
    return json.loads(re.findall(r"weights (\[.*\])", job.log)[-1])


JAX = """
    import os, time
    import jax, jax.numpy as jnp, numpy as np
    from horae import elastic
    from horae.elastic.frameworks import jax_

    state = jax_.Tree(params={{"w": jnp.zeros((4, 1)), "b": jnp.zeros(1)}}, velocity=None)
    state.velocity = jax.tree_util.tree_map(jnp.zeros_like, state.params)
    x = np.arange(400.0).reshape(100, 4) / 400
    y = x @ np.array([[1.0], [2.0], [-1.0], [0.5]]) + 0.3
    training = elastic.Training(steps=60, global_batch=10, samples=100, seed=1, save=state.save, load=state.load,
                                log_every_s=0.0)
    {join}

    def loss_of(params, x, y):
        return ((x @ params["w"] + params["b"] - y) ** 2).mean()

    value_and_gradient = jax.jit(jax.value_and_grad(loss_of))
    for step in training:
        time.sleep(0.02)
        total, loss = np.zeros(5), 0.0
        for part in step.micro_batches():
            value, gradient = value_and_gradient(state.params, x[part.indices], y[part.indices])
            total += part.fraction * np.concatenate([np.ravel(gradient["w"]), np.ravel(gradient["b"])])
            loss += part.fraction * float(value)
        summed = training.group.all_sum(np.append(total, loss))
        gradient = {{"w": summed[:4].reshape(4, 1), "b": summed[4:5]}}
        state.velocity = jax.tree_util.tree_map(lambda v, g: 0.9 * v - 0.05 * g, state.velocity, gradient)
        state.params = jax.tree_util.tree_map(lambda p, v: p + v, state.params, state.velocity)
        step.report(summed[5])
"""


def test_jax(exec_job: Make) -> None:
    assert_same_losses(exec_job, or_skip(frameworks.with_jax), JAX.format(join=""), [2, 3, 1], 60)


def test_jax_trees_of_short_floats_and_of_keys_come_back(tmp_path: Path) -> None:
    source = f"""
import jax, jax.numpy as jnp
from horae.elastic.frameworks import jax_
def trees(factor, seed):
    params = {{"bf16": factor * jnp.arange(6.0, dtype=jnp.bfloat16).reshape(2, 3),
               "f8": factor * jnp.ones(3, jnp.float8_e4m3fn), "f32": factor * jnp.ones(())}}
    return jax_.Tree(params=params, keys=[jax.random.key(seed), jax.random.split(jax.random.key(seed), 3)])
one, other = trees(2, 7), trees(0, 0)
one.save({str(tmp_path)!r})
other.load({str(tmp_path)!r})
for old, new in zip(*map(jax.tree_util.tree_leaves, ([one.params, one.keys], [other.params, other.keys]))):
    assert old.dtype == new.dtype and (old == new).all(), (old, new)
assert (jax.random.uniform(one.keys[0]) == jax.random.uniform(other.keys[0])).all()
"""
    framework = or_skip(frameworks.with_jax)
    paths = {**framework.variables(), "PYTHONPATH": f"{ROOT}:{framework.env.get('PYTHONPATH', '')}"}
    subprocess.run([framework.python, "-c", source], check=True, env={**os.environ, **paths}, timeout=PATIENCE_S)


def test_jax_ranks_join_one_runtime(exec_job: Make) -> None:
    source = """
        from horae import elastic
        from horae.elastic.frameworks import jax_
        environment = elastic.Environment()
        jax_.initialize(environment)
        import jax
        print("runtime", jax.process_index(), jax.process_count(), flush=True)
    """
    job = exec_job("job", or_skip(frameworks.with_jax), source)
    job.start(gpus=2)
    assert job.wait(PATIENCE_S) == 0, job.log
    assert sorted(re.findall(r"runtime (\d) (\d)", job.log)) == [("0", "2"), ("1", "2")]


def test_keras(exec_job: Make) -> None:
    source = """
        import time
        import keras, numpy as np
        from horae.demo.trainers import digits
        from horae.elastic.frameworks import keras_
        import os
        keras.utils.set_random_seed(0)
        x, y = digits.load(os.environ["DIGITS"])
        model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(16, activation="tanh"),
                                  keras.layers.Dense(10)])
        model.compile(optimizer=keras.optimizers.Adam(0.01),
                      loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        training = keras_.training(model, steps=60, global_batch=50, samples=len(y), seed=1, log_every_s=0.0)

        def take(indices):
            time.sleep(0.02)
            return x[list(indices)], y[list(indices)]

        model.fit(keras_.batches(training, take), epochs=1, shuffle=False, verbose=0,
                  callbacks=[keras_.callback(training)])
        print("weights", [round(float(v), 4) for v in model.layers[-1].get_weights()[1]])
    """
    framework = or_skip(frameworks.with_jax)
    still, moved = exec_job("still", framework, source), exec_job("moved", framework, source)
    told = run(still, [1], 60)
    assert run(moved, [1, 1], 60) == pytest.approx(told, abs=2e-3), "each step's own loss, not the mean of a start"
    assert weights(moved) == pytest.approx(weights(still), abs=2e-3)


def test_keras_refuses_ranks_that_nobody_distributed(exec_job: Make) -> None:
    source = """
        import keras
        from horae.elastic.frameworks import keras_
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        keras_.training(model, steps=1, global_batch=2)
    """
    job = exec_job("job", or_skip(frameworks.with_jax), source)
    job.start(gpus=2)
    assert job.wait(PATIENCE_S) == 1
    assert "pass distributed=True, or give the job one GPU" in job.log
