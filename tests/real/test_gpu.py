"""Real CUDA on a real GPU: resizes that the model does not see, memory that is given back, endings told in words.

Collected where `nvidia-smi` shows a GPU (conftest.py), and needs one alone. The trainers run under HORAE_GPU_PYTHON,
the Python whose PyTorch has CUDA; left out: the one that runs this. Several ranks share GPU 0, over gloo, so that one
GPU is enough.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from horae import machine_gpus
from horae.local import connect
from horae.port import ClusterPort, JobState, Observation, TryLater, attend
from horae.spec import JobSpec
from horae.views.endings import cause
from policy.model import GpuRange
from tests.horae.elastic.exec_job import ROOT, ExecJob, until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("gpu")]

PYTHON = os.environ.get("HORAE_GPU_PYTHON", sys.executable)
#: A start's own losses, to the last bit: `step=N` is in the SDK's line too, `bits` are not.
TRAINER = """
    import os, sys
    os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", CUDA_VISIBLE_DEVICES="0")
    import torch
    from horae.elastic.frameworks.torch_ddp import TorchTraining
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    x = torch.randn(4096, 64)
    y = x[:, :10].argmax(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), {dropout}, torch.nn.Linear(256, 10))
    if {compiled}:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, {steps})
    scaler = torch.amp.GradScaler("cuda", growth_interval=40)
    training = TorchTraining(model, optimizer, scheduler, device="cuda:0", backend="gloo", scaler=scaler, seed=5,
                             steps={steps}, global_batch=96, samples=len(x), max_micro_batch=32, log_every_s=0.0)
    x, y = x.cuda(), y.cuda()
    for step in training:
        total = torch.zeros((), device="cuda")
        for part in training.parts(step):
            rows = torch.as_tensor(part.indices, device="cuda")
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(training.model(x[rows]), y[rows])
            scaler.scale(loss * part.weight).backward()
            total += loss.detach() * part.fraction
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scheduler.step()
        if training.world > 1:
            torch.distributed.all_reduce(total)
        if training.rank == 0:
            print("bits", step.number, total.item().hex(), scaler.get_scale(), flush=True)
        step.report(total)
"""
HOLDER = "import torch, time; held = torch.ones(1 << 28, device='cuda'); print('holds', flush=True); time.sleep(600)"


def trainer(steps: int, dropout: bool = False, compiled: bool = False) -> str:
    layer = "torch.nn.Dropout(0.2)" if dropout else "torch.nn.Identity()"
    return TRAINER.format(steps=steps, dropout=layer, compiled=compiled)


@pytest.fixture
def exec_job(tmp_path: Path) -> Iterator[Callable[..., ExecJob]]:
    made: list[ExecJob] = []

    def make(name: str, source: str) -> ExecJob:
        command = [PYTHON, str(tmp_path / name / "trainer.py")]
        made.append(ExecJob(tmp_path / name, source, command=command))
        return made[-1]

    yield make
    for job in made:
        job.end()


def run(job: ExecJob, sizes: list[int], steps: int) -> ExecJob:
    """To the end over these sizes, stopped after roughly equal parts; after each nothing of it is on a GPU."""
    for i, size in enumerate(sizes, start=1):
        job.start(gpus=size)
        if i < len(sizes):
            mark = f"step={steps * i // len(sizes)}/"
            until(f"{mark} in {job.log[-3000:]}", lambda mark=mark: mark in job.log or job.process.poll() is not None)
            computing = job.processes() & holders()
            job.stop(grace_s=60.0)
        assert job.wait() == (0 if i == len(sizes) else 86), job.log[-5000:]
        if i < len(sizes):
            assert computing, "nvidia-smi showed none of its processes while it ran"
            assert not computing & holders()
    return job


def holders() -> set[int]:
    """Every process on a GPU."""
    asked = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return {int(word) for word in told.split() if word.isdigit()}


def memory() -> int:
    """MiB of GPU 0 that are taken."""
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def bits(job: ExecJob) -> list[tuple[int, str, str]]:
    return [(int(n), loss, scale) for n, loss, scale in re.findall(r"bits (\d+) (\S+) (\S+)", job.log)]


def test_a_run_that_was_stopped_twice_is_to_the_last_bit_one_that_never_was(
    exec_job: Callable[..., ExecJob],
) -> None:
    """With dropout, mixed precision, a scale that grows, and a schedule."""
    before = memory()
    still = bits(run(exec_job("still", trainer(300, dropout=True)), [1], 300))
    moved = bits(run(exec_job("moved", trainer(300, dropout=True)), [1, 1, 1], 300))
    assert [step for step, _, _ in moved] == list(range(300)), "a step was left out, or taken twice"
    assert moved == still
    assert len({scale for _, _, scale in still}) > 1, "the scale never changed: nothing was tried"
    assert abs(memory() - before) < 64


@pytest.mark.parametrize(("compiled", "sizes"), [(False, [1, 2, 4, 1]), (True, [2, 1])])
def test_a_gang_on_one_gpu_grows_and_shrinks_and_the_losses_are_those_of_one_rank(
    exec_job: Callable[..., ExecJob], compiled: bool, sizes: list[int]
) -> None:
    still = bits(run(exec_job("still", trainer(120, compiled=compiled)), [1], 120))
    moved = bits(run(exec_job("moved", trainer(120, compiled=compiled)), sizes, 120))
    assert [step for step, _, _ in moved] == list(range(120))
    assert [scale for _, _, scale in moved] == [scale for _, _, scale in still]
    losses = [[float.fromhex(loss) for _, loss, _ in each] for each in (moved, still)]
    assert losses[0] == pytest.approx(losses[1], abs=5e-3), "16-bit sums in another order"
    assert losses[1][-1] < losses[1][0]


JAX_TRAINER = """
    import os
    os.environ.update(CUDA_VISIBLE_DEVICES="0", XLA_PYTHON_CLIENT_PREALLOCATE="false",
                      XLA_FLAGS="--xla_gpu_deterministic_ops=true")
    import time
    import jax, jax.numpy as jnp, numpy as np, optax
    from horae import elastic
    from horae.elastic.frameworks import jax_
    optimizer = optax.adamw(optax.cosine_decay_schedule(3e-3, 240))
    keys = jax.random.split(jax.random.key(0), 3)
    params = [jax.random.normal(keys[0], (64, 256)) / 8, jax.random.normal(keys[1], (256, 10)) / 16]
    state = jax_.Tree(params=params, optimizer=optimizer.init(params), key=keys[2])
    x = np.asarray(jax.random.normal(jax.random.key(1), (4096, 64)))
    y = x[:, :10].argmax(1)
    training = elastic.Training(steps=240, global_batch=96, samples=4096, seed=5, save=state.save, load=state.load,
                                log_every_s=0.0)

    @jax.jit
    def update(params, optimizer_state, key, x, y):
        key, dropout = jax.random.split(key)
        def loss_of(params):
            hidden = jax.nn.gelu(x @ params[0])
            hidden = hidden * jax.random.bernoulli(dropout, 0.8, hidden.shape) / 0.8
            return optax.softmax_cross_entropy_with_integer_labels(hidden @ params[1], y).mean()
        loss, gradient = jax.value_and_grad(loss_of)(params)
        changes, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return optax.apply_updates(params, changes), optimizer_state, key, loss

    print("on", jax.devices()[0].platform, flush=True)
    for step in training:
        time.sleep(0.03)
        (part,) = step.micro_batches()
        rows = np.asarray(part.indices)
        state.params, state.optimizer, state.key, loss = update(
            state.params, state.optimizer, state.key, x[rows], y[rows])
        print("bits", step.number, float(loss).hex(), "1", flush=True)
        step.report(float(loss))
"""
LIGHTNING_TRAINER = """
    import os, time
    os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", CUDA_VISIBLE_DEVICES="0")
    import lightning, torch
    from horae.elastic.frameworks import lightning_
    torch.manual_seed(0)
    x = torch.randn(4096, 64)
    y = x[:, :10].argmax(1)

    class Layers(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
        def training_step(self, batch, index):
            time.sleep(0.03)
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            print("bits", self.trainer.global_step, loss.item().hex(), self.device.type, flush=True)
            return loss
        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 240)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    elastic_ = lightning_.callback(steps=240, global_batch=96, samples=len(x), seed=5, log_every_s=0.0)
    trainer = lightning.Trainer(max_steps=240, max_epochs=-1, callbacks=[elastic_], enable_checkpointing=False,
                                logger=False, accelerator="gpu", precision="16-mixed", deterministic=True,
                                enable_progress_bar=False, enable_model_summary=False,
                                use_distributed_sampler=False, **elastic_.arguments())
    data = torch.utils.data.TensorDataset(x, y)
    trainer.fit(Layers(), torch.utils.data.DataLoader(data, batch_sampler=elastic_.batches()),
                ckpt_path=elastic_.resume())
"""
TRANSFORMERS_TRAINER = """
    import os, time
    os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", CUDA_VISIBLE_DEVICES="0")
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    from horae.elastic.frameworks import transformers_
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    words = torch.randint(64, (4096, 32))
    words[:, 1::2] = (words[:, ::2] * 7 + 3) % 64
    data = [{"input_ids": row, "labels": row} for row in words]

    class Bits(TrainerCallback):
        def on_step_begin(self, args, state, control, **parts):
            time.sleep(0.03)
        def on_log(self, args, state, control, logs=None, **parts):
            if "loss" in logs:
                print("bits", state.global_step, float(logs["loss"]).hex(), float(logs["grad_norm"]).hex(), flush=True)

    elastic_ = transformers_.callback(global_batch=32, log_every_s=0.0)
    args = TrainingArguments("out", max_steps=120, save_strategy="no", report_to=[], fp16=True, logging_steps=1,
                             learning_rate=1e-3, disable_tqdm=True, **elastic_.arguments())
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=64, n_embd=64, n_layer=2, n_head=2))
    trainer = Trainer(model, args, train_dataset=data, callbacks=[elastic_, Bits()])
    trainer.train(resume_from_checkpoint=elastic_.resume())
"""


@pytest.mark.parametrize(
    ("source", "steps", "first", "on"),
    [(JAX_TRAINER, 240, 0, "on gpu"), (LIGHTNING_TRAINER, 240, 0, " cuda"), (TRANSFORMERS_TRAINER, 120, 1, "bits")],
    ids=["jax", "lightning", "transformers"],
)
def test_a_framework_that_was_stopped_twice_prints_the_losses_of_one_that_never_was(
    exec_job: Callable[..., ExecJob], source: str, steps: int, first: int, on: str
) -> None:
    """To the last bit, with what its adapter keeps: JAX's own keys (dropout), 16-bit floats' scale, schedules."""
    still = bits(run(exec_job("still", source), [1], steps))
    moved = run(exec_job("moved", source), [1, 1, 1], steps)
    assert on in moved.log
    told = bits(moved)
    # The Trainer of transformers prints no loss of the step at which it leaves.
    assert len(still) - len(told) in ([0] if first == 0 else [0, 1, 2])
    assert [step for step, _, _ in still] == list(range(first, steps + first))
    assert set(told) <= set(still) and len(set(told)) == len(told)


@pytest.mark.parametrize(
    ("source", "means", "line"),
    [
        ("k = [torch.ones(1 << 31, device='cuda') for _ in range(1000)]", "it ran out of memory", "CUDA out of memory"),
        (
            "torch.nn.Embedding(9, 4).cuda()(torch.tensor([11], device='cuda')).sum().item()",
            "a check inside a CUDA kernel failed",
            "Assertion `srcIndex < srcSelectDimSize` failed",
        ),
        (
            "raise SystemExit('Loss is %s, stopping training' % (torch.zeros((), device='cuda') / 0).item())",
            "its loss was no number any more",
            "Loss is nan",
        ),
        ("torch.ones(1, device='cuda:99')", "its program raised", "invalid device ordinal"),
    ],
)
def test_an_ending_is_told_in_words(exec_job: Callable[..., ExecJob], source: str, means: str, line: str) -> None:
    job = exec_job(
        "ends",
        f"""
        import torch
        {source}
    """,
    )
    job.start()
    code = job.wait()
    found = cause(job.log.encode(), job.state["exit_code"])
    assert code == 1 and found is not None
    assert means in found.text and line in found.text, (found, job.log[-3000:])
    assert not job.processes() & holders()


def test_killed_amid_a_kernel_it_leaves_the_gpu_free(exec_job: Callable[..., ExecJob]) -> None:
    before = memory()
    source = """
        import torch
        held = torch.ones(1 << 30, device="cuda")
        torch.cuda._sleep(10**13)
        print("asked", flush=True)
        torch.cuda.synchronize()
    """
    job = exec_job("hangs", source)
    job.start()
    job.until_log("asked")
    time.sleep(1.0)
    assert memory() - before > 3000
    job.stop(grace_s=1.0)  # it does not listen
    began = time.monotonic()
    job.wait()
    took = time.monotonic() - began
    assert abs(memory() - before) < 64
    assert took < 20, "its patience and a second or two for the driver"


class Machine:
    """The local cluster as it finds this machine."""

    def __init__(self, folder: Path) -> None:
        self.port: ClusterPort = connect({"state": folder / "state", "nodes": "auto"})
        self.port.claim("tests")
        self.folder = folder
        (self.node,) = {node.name for node in self.look().nodes if node.gpus} or {""}

    def look(self) -> Observation:
        return attend(self.port)

    def submit(self, name: str, source: str) -> None:
        (self.folder / f"{name}.py").write_text(source)
        command = (PYTHON, str(self.folder / f"{name}.py"))
        self.port.submit(
            name, JobSpec(name=name, command=command, gpus=GpuRange(1, 1, 1), cwd=str(self.folder), retries=0,
                          env={"PYTHONPATH": str(ROOT)}, elastic=False)
        )  # fmt: skip

    def start(self, name: str) -> None:
        def started() -> bool:
            try:
                self.port.start(name, {self.node: 1}, 1)
            except TryLater as error:
                assert "nvidia-smi is being asked" in error.text, error.text
                return False
            return True

        until("nvidia-smi answers", started)

    def job(self, name: str) -> Any:
        return next(job for job in self.look().jobs if job.id == name)

    def foreign(self) -> int:
        return sum(node.foreign for node in self.look().nodes)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(machine_gpus, "EVERY_S", 1.0)
    made = Machine(tmp_path)
    yield made
    for job in made.look().jobs:
        made.port.cancel(job.id)
    until("all have left", lambda: not any(job.state.holds for job in made.look().jobs))
    made.port.close()


def test_the_local_cluster_finds_the_gpu_by_itself(machine: Machine) -> None:
    (found,) = [node for node, _ in machine_gpus.this_machine()]
    machine.submit("one", "import os, torch; print(os.environ['CUDA_VISIBLE_DEVICES'], torch.cuda.device_count(), "
                          "torch.cuda.get_device_name(0)); x = torch.ones(1 << 28, device='cuda')\n"
                          "while True: x.mul_(1.0001)")  # fmt: skip
    machine.start("one")
    until("it computes", lambda: max(machine.job("one").gpu_use.values(), default=0.0) > 0.5)
    assert machine.foreign() == 0, "its own job is no stranger"
    log = machine.port.read_log("one", 0).data.decode()
    assert f"0 1 {torch_name()}" in log and machine_gpus.type_of(torch_name()) == found.gpu_type


def torch_name() -> str:
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "-i", "0"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def test_a_gpu_that_a_stranger_computes_on_is_granted_to_nobody_until_he_ends(machine: Machine) -> None:
    stranger = subprocess.Popen([PYTHON, "-c", HOLDER], stdout=subprocess.PIPE)
    assert stranger.stdout is not None
    stranger.stdout.readline()
    try:
        machine.submit("two", "print('ran')")
        until("the stranger is seen", lambda: machine.foreign() == 1)
        assert any(f"process {stranger.pid}" in note for note in machine.look().notes)
        with pytest.raises(TryLater, match="0 GPUs free"):
            machine.port.start("two", {machine.node: 1}, 1)
    finally:
        stranger.kill()
        stranger.wait()
        stranger.stdout.close()
    assert machine.foreign() == 0, "at once, not at nvidia-smi's next look"
    machine.start("two")
    until("it ran", lambda: machine.job("two").state is JobState.COMPLETED)
