"""Where a run begins and ends, whose the failure is, and what several ranks are."""

from __future__ import annotations

from itertools import pairwise

import pytest

from profiler.model import FailureKind, Run
from profiler.rules.book import load
from profiler.runs.reader import LogReader

BOOK = load()


def read(log: str) -> list[Run]:
    reader = LogReader(BOOK)
    reader.feed(log.encode())
    return reader.runs()


def steps(first: int, last: int, by: int = 10, more: str = "") -> str:
    return "".join(f"{more}step {i} loss {5 - i / 1000:.4f}\n" for i in range(first, last + 1, by))


def spans(runs: list[Run]) -> list[tuple[float | None, float | None]]:
    return [(r.first_iteration, r.last_iteration) for r in runs]


TIME_LIMIT = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n"


def test_trained_twice() -> None:
    """A counter that starts again is another run."""
    assert spans(read(steps(10, 100) + steps(10, 60))) == [(10, 100), (10, 60)]


def test_resumed_with_overlap() -> None:
    """A job that was requeued goes on behind where it was killed: two runs, the first with its failure."""
    runs = read("world_size: 8\n" + steps(10, 500) + TIME_LIMIT + "world_size: 8\n" + steps(410, 600))
    assert spans(runs) == [(10, 500), (410, 600)]
    assert runs[0].failure is not None and runs[0].failure.kind is FailureKind.TIME_LIMIT
    assert runs[1].failure is None


def test_restarted_exactly_where_it_ended_at_another_size() -> None:
    """A restart is seen by the new world size, though the counter only goes on."""
    log = "using world size: 8\n" + steps(10, 100) + TIME_LIMIT + "using world size: 4\n" + steps(110, 200)
    runs = read(log)
    assert spans(runs) == [(10, 100), (110, 200)]
    assert [r.ranks for r in runs] == [8, 4]


def test_starts_that_die_before_their_first_step() -> None:
    """A start without a point is a run of its own when it says why it died."""
    death = 'Namespace(lr=0.1)\nTraceback (most recent call last):\n  File "a.py", line 1\nImportError: no x\n'
    runs = read(death + death + "Namespace(lr=0.1)\n" + steps(10, 50))
    assert [bool(r.points) for r in runs] == [False, False, True]
    assert [r.failure.kind if r.failure else None for r in runs] == [FailureKind.TRACEBACK, FailureKind.TRACEBACK, None]


def test_failure_that_training_survives() -> None:
    """A traceback after which the counter just goes on did not end the run."""
    runs = read(steps(10, 50) + "Traceback (most recent call last):\n  worker\nOSError: x\n" + steps(60, 90))
    assert spans(runs) == [(10, 90)]
    assert runs[0].failure is None


def test_the_telling_failure_is_kept() -> None:
    """Out of memory in a traceback is out of memory."""
    log = steps(10, 50) + "Traceback (most recent call last):\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried\n"
    (run,) = read(log)
    assert run.failure is not None
    assert (run.failure.kind, run.failure.line) == (FailureKind.OUT_OF_MEMORY, 7)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.76 GiB total)", "out-of-memory"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried",
            "out-of-memory",
        ),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes",
            "out-of-memory",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
            "out-of-memory",
        ),
        ("OSError: [Errno 28] No space left on device", "no-space"),
        ("OSError: [Errno 122] Disk quota exceeded: 'ckpt'", "no-space"),
        (TIME_LIMIT.strip(), "time-limit"),
        (
            "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO NODE FAILURE ***",
            "node-failure",
        ),
        ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2024-05-01T10:00:00 ***", "killed"),
        ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO PREEMPTION ***", "killed"),
        ("/var/spool/job/slurm_script: line 12:  4711 Killed                  python train.py", "killed"),
        ("srun: error: n1: task 3: Killed", "killed"),
        ("mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).", "killed"),
        ("Segmentation fault (core dumped)", "killed"),
        ("Traceback (most recent call last):", "traceback"),
    ],
)
def test_failures(line: str, kind: str) -> None:
    """What schedulers, systems and frameworks print when a run ends."""
    (run,) = read(steps(10, 50) + line + "\n")
    assert run.failure is not None
    assert (run.failure.kind.value, run.failure.line) == (kind, 6)
    (dead,) = read(line + "\n")
    assert dead.failure is not None and not dead.points


@pytest.mark.parametrize(
    "line",
    [
        "out-of-memory (OOM) error is avoided by a smaller batch",
        "We will use 90% of the memory on device 0 and 10% for the buffer to avoid OOM.",
        "Did not save the model",
        "2020-07-10 08:43:17.1: I tensorflow/x.cc:831] failed to allocate 2.8G from device: CUDA_ERROR_OUT_OF_MEMORY",
        "time limit of the search: 30 s",
        "Loading tokenizer killed_words.txt",
    ],
)
def test_what_is_no_failure(line: str) -> None:
    """Advice and warnings end nothing."""
    (run,) = read(steps(10, 50) + line + "\n")
    assert run.failure is None


def test_nan_loss() -> None:
    """A loss that stays nan is a failure at its first line; one that recovers is none."""
    (run,) = read(steps(10, 50) + "step 60 loss nan\nstep 70 loss nan\n")
    assert run.failure is not None and (run.failure.kind, run.failure.line) == (FailureKind.NAN_LOSS, 6)
    (run,) = read(steps(10, 50) + "step 60 loss nan\nstep 70 loss 4.1\n")
    assert run.failure is None


@pytest.mark.parametrize(
    "tag", ["[1,{r}]<stderr>:", "{r}: ", "[rank{r}]: ", "[{r}]<stdout>:", "[Rank {r}] ", "[default{r}]:"]
)
def test_ranks_by_tag(tag: str) -> None:
    """Eight ranks that print the same steps out of order are one run of eight ranks."""
    log = "".join(
        f"{tag.format(r=r)}Epoch 0 step {s - (r % 3 == 0)} loss {s}.{r}\n"
        for s in range(2, 40)
        for r in (3, 0, 7, 1, 5, 2, 6, 4)
    )
    (run,) = read(log)
    assert run.ranks == 8
    assert (run.first_iteration, run.last_iteration) == (2, 39) or run.first_iteration == 1


def test_ranks_above_a_hundred() -> None:
    """mpirun's tag of rank 140 does not read as a number with a thousand."""
    (run,) = read("".join(f"[1,{r}]<stderr>:step {s} loss 0.5\n" for s in range(1, 9) for r in (9, 140, 143)))
    assert run.ranks == 3


def test_ranks_without_a_tag_do_not_split() -> None:
    """Late lines of other ranks are neither runs nor positions."""
    order = [1, 1, 2, 1, 2, 2, 3, 1, 3, 2, 3, 3, 4, 4, 3, 4, 5, 4, 5, 5]
    (run,) = read("world_size: 4\n" + "".join(f"step {s} loss 0.{s}\n" for s in order))
    assert run.positions == 5


def test_epochs_that_count_again() -> None:
    """A counter that starts again with each epoch is no new run, and says so."""
    log = "".join(f"Epoch {e} step {s}/100 loss 0.5\n" for e in (1, 2, 3) for s in range(10, 101, 10))
    (run,) = read(log)
    assert (run.scope, run.last_iteration, run.last_epoch, run.iterations_per_epoch) == ("epoch", 100, 3, 100)


def test_counter_that_runs_through_epochs() -> None:
    """A counter that goes on as the epoch rises counts the run."""
    log = "".join(f"epoch {i // 30} step {i} loss 0.5\n" for i in range(10, 100, 10))
    (run,) = read(log)
    assert (run.scope, run.last_iteration) == ("run", 90)


def test_bars_of_other_things() -> None:
    """Downloads, maps, validation and checkpoints have bars that are no training."""
    log = (
        "Downloading data: 100%|##########| 500/500 [00:10<00:00, 50.0MB/s]\n"
        "Map: 100%|##########| 900/900 [00:01<00:00, 900.0 examples/s]\n"
        "Loading checkpoint shards: 100%|##########| 2/2 [00:07<00:00,  3.6s/it]\n"
        "Validating: 100%|##########| 20/20 [00:01<00:00, 20.0it/s, loss=0.5]\n"
    )
    assert [r for r in read(log) if r.train] == []


def test_text_without_training() -> None:
    """Prose, configuration and tables of layers hold no run."""
    log = (
        "epochs: 100\nlr: 0.001\nbatch_size: 32\nloss_weight = 0.5\n"
        "conv2d_1 (Conv2D)            (None, 148, 148, 32)      896\n"
        "We trained for 10 epochs with batch size 32. The loss was 0.5 at step 100.\n"
        "See section 3.2 of 10 for the loss.\n"
    )
    assert read(log) == []


def test_too_long_a_run_is_thinned() -> None:
    """Many positions keep an even sample, the exact count, the first and the last."""
    reader = LogReader(BOOK, limit=100)
    for i in range(1, 5001):
        reader.feed(b"step %d loss %.4f\n" % (i, 1 / i))
    (run,) = reader.runs()
    kept = [p.iteration for p in run.train]
    assert run.positions == 5000
    assert run.thinned > 1
    assert len(kept) <= 110
    assert (kept[0], kept[-1]) == (1, 5000)


def test_many_sorts_of_lines_share_the_room() -> None:
    """A log of forty counters keeps no more rows than one of four."""
    reader = LogReader(BOOK, limit=200)
    names = [f"{a}{b}" for a in "abcdefg" for b in "vwxyz"]
    for i in range(1, 600):
        reader.feed("".join(f"{name} part: step {i} loss {1 / i:.4f}\n" for name in names).encode())
    held = reader.runs_read.bounds.open.series.values()
    assert len(held) > 20
    assert sum(len(s.rows) for s in held) <= 4 * 200 + len(held)


def test_midnight_without_a_date() -> None:
    """Stamps of the day alone go on over midnight, also twice."""
    log = "".join(f"[{h:02d}:00:00] step {i} loss 1.5\n" for i, h in enumerate([22, 23, 0, 1, 12, 23, 0, 2]))
    (run,) = read(log)
    times = [p.time_s for p in run.train]
    assert all(t is not None for t in times)
    assert [(b - a) / 3600 for a, b in pairwise(times)] == [1, 1, 1, 11, 11, 1, 2]  # type: ignore[operator]


def test_clock_that_steps_back() -> None:
    """A clock set back an hour is not midnight."""
    (run,) = read("[12:00:00] step 1 loss 1.5\n[12:01:00] step 2 loss 1.5\n[11:02:00] step 3 loss 1.5\n")
    assert [p.time_s for p in run.train] == [43200, 43260, 39720]


@pytest.mark.parametrize(
    "stamp",
    [
        "2024-05-01 10:00:{s:02d},123 ",
        "2024-05-01T10:00:{s:02d}.123456789Z ",
        "[2024/05/01 10:00:{s:02d}] ",
        "05/01/2024 10:00:{s:02d} - INFO - root -   ",
        "[05/01 10:00:{s:02d} d2.utils.events]: ",
        "I0501 10:00:{s:02d}.123456 1402 a.py:115] ",
        "Wed May  1 10:00:{s:02d} 2024 ",
        "May  1 10:00:{s:02d} host job[12]: ",
        "[10:00:{s:02d}] ",
        "20240501 10:00:{s:02d} ",
        "2024-05-01 10:00:{s:02d} AM ",
        "[2024-05-01 10:00:{s:02d},123] [INFO] [a.py:1:f] ",
    ],
)
def test_stamps(stamp: str) -> None:
    """The forms in which loggers write the time."""
    (run,) = read("".join(f"{stamp.format(s=s)}step {s} loss 1.{s}\n" for s in range(1, 30, 2)))
    times = [p.time_s for p in run.train]
    assert len(times) == 15
    assert [b - a for a, b in pairwise(times)] == pytest.approx([2.0] * 14)  # type: ignore[operator]


def test_many_sorts_of_lines_stay_bounded() -> None:
    """Lines whose words always differ do not make endless series."""
    log = "".join(
        f"Processing {chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}x step {i} loss 0.5\n"
        for i in range(2000)
    )
    reader = LogReader(BOOK)
    reader.feed(log.encode())
    assert len(reader.runs_read.bounds.open.series) <= 70


def epochs(count: int, form: str = "Epoch {e}/9 loss {y:.3f}\n") -> str:
    return "".join(form.format(e=e, y=3 - e / 10) for e in range(1, count + 1))


@pytest.mark.parametrize(
    "head",
    [
        "Trial {t}: lr=0.{t}\n",
        "===== Fold {t}/4 =====\n",
        "Running configuration {t} of 4: hidden=64\n",
        "2024-03-04 10:15:02,364 - agent - INFO - Starting run with config:\n",
        "hyperparameters: lr=0.{t} wd=0.01\n",
        "--- seed {t} ---\n",
    ],
)
def test_each_of_several_trainings_is_a_run(head: str) -> None:
    """Of one epoch too, at which the counter stands where it stood; and where only a step back of one tells it."""
    log = "".join(head.format(t=t) + epochs(count) for t, count in enumerate((4, 1, 1, 2)))
    assert [run.last_epoch for run in read(log)] == [4, 1, 1, 2]


def test_what_is_said_behind_a_training_parts_it_too() -> None:
    log = "".join(epochs(n) + f"[I 2024-03-04 10:15:02,364] Trial {n} pruned.\n" for n in (3, 1, 1))
    assert [run.last_epoch for run in read(log)] == [3, 1, 1]


def test_a_name_of_a_trial_within_a_training_parts_nothing() -> None:
    log = epochs(3) + "Fold 1 best so far: 2.7\n" + "".join(f"Epoch {e}/9 loss 2.1\n" for e in range(4, 7))
    assert [(run.last_epoch, len(run.points)) for run in read(log)] == [(6, 6)]


def test_a_line_that_names_its_trial_and_a_loss_is_read() -> None:
    log = "".join(f"[trial {t}] epoch {e} loss {3 - e / 10:.2f}\n" for t in (1, 2) for e in range(1, 5))
    assert [run.last_epoch for run in read(log)] == [4, 4]


def test_an_index_that_is_always_0_is_no_counter() -> None:
    log = "".join(f"Starting epoch {e} / 9\n( 0 , 0 ): loss:  {9 - e} , count:  483142\n" for e in range(1, 6))
    (run,) = read(log)
    assert (run.last_iteration, run.last_epoch, len(run.points)) == (None, 5, 5)
