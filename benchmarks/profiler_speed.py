"""How fast are logs read, by format, against `grep -c` on the same text in the same run?

Each text is made here, in the form one program prints, with other numbers on every line. Three readings:

- throughput: the whole text in pieces of 256 KiB, CPU time of this process, beside `grep -c loss` (its CPU time) on
  the same file; the texts take turns, several rounds, and the median of a text's rounds counts;
- incremental: lines fed one by one to a reader that has read a tenth of the text, CPU microseconds a line;
- extremes: a line of 100 MB, and a file of 10 GB that is nearly all a hole;
- memory: the peak of a process of its own that reads the text N times over (`--long MB`), against the same process
  before it reads.

    python benchmarks/profiler_speed.py [--mb 8] [--rounds 5] [--long 300]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _record import record

from profiler.estimates.summary import summarise
from profiler.rules.book import load
from profiler.runs.reader import LogReader

PIECE = 1 << 18
COMMON = (
    "keras-bar", "tqdm", "hf-dict", "imagenet-meter", "megatron", "mmcv-json", "mxnet", "detectron2", "lightning",
    "torchtitan", "generic",
)  # fmt: skip


def forms(dice: random.Random) -> dict[str, Callable[[int], str]]:
    """One line (or epoch) number i, as each program prints it."""

    def u(most: float = 1.0) -> float:
        return dice.random() * most

    words = ["".join(dice.choice("abcdefghijklmnoprstu") for _ in range(dice.randint(2, 9))) for _ in range(3000)]

    def prose(n: int) -> str:
        return " ".join(dice.choice(words) for _ in range(n))

    def keras_bar(i: int) -> str:
        at = i % 100
        head = f"Epoch {i // 100 + 1}/9000\n" if at == 0 else ""
        bar = "=" * (at // 4) + ">" + "." * (29 - at // 4)
        tail = "\n" if at == 99 else ""
        return f"{head}\r{at + 1:3d}/100 [{bar}] - ETA: {100 - at}s - loss: {2 - at / 100:.4f} - acc: {u():.4f}{tail}"

    def tqdm(i: int) -> str:
        at = i % 1000
        bar = "█" * (at // 100) + " " * (10 - at // 100)
        head = f"\rEpoch {i // 1000}: {at // 10:3d}%|{bar}| {at}/1000"
        return f"{head} [{at // 60:02d}:{at % 60:02d}<10:00, {u(9):.2f}it/s, loss={u():.3f}]" + "\n" * (at == 999)

    def clock(i: int) -> str:
        return f"{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}"

    return {
        "keras-bar": keras_bar,
        "keras-epochs": lambda i: (
            f"Epoch {i + 1}/900000\n1875/1875 [==============================] - 6s 3ms/step - loss: {u():.4f} "
            f"- accuracy: 0.9356 - val_loss: {u():.4f} - val_accuracy: 0.9\n"
        ),
        "tqdm": tqdm,
        "lightning": lambda i: (
            f"\rEpoch {i // 1000}:  {i % 1000 // 10}%|██        | {i % 1000}/1000 [00:{i % 60:02d}<03:10,  "
            f"{u(9):.2f}it/s, v_num=7, train_loss_step={u():.3f}, val_loss=0.512, train_loss_epoch=0.61]"
            + "\n"
            * (i % 1000 == 999)
        ),
        "hf-dict": lambda i: (
            f"{{'loss': {u(9):.4f}, 'grad_norm': {u():.14f}, 'learning_rate': {u():.16e}, 'epoch': {i / 100:.2f}}}\n"
        ),
        "imagenet-meter": lambda i: (
            f"Epoch: [{i // 5000}][{i % 5000}/5000]\tTime {u():.3f} ({u():.3f})\tData 0.005 (0.161)\tLoss {u(7):.4f} "
            f"(6.9034)\tAcc@1 0.464 (0.305)\tAcc@5 1.855 (1.106)\n"
        ),
        "megatron": lambda i: (
            f" iteration {i:8d}/ 9000000 | consumed samples: {i * 4:12d} | elapsed time per iteration (ms): "
            f"{u(1000):.1f} | learning rate: 1.471E-04 | global batch size:     4 | lm loss: {u(8):.6E} | loss scale: "
            f"16384.0 | grad norm: {u():.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        ),
        "mmcv-json": lambda i: (
            f'{{"mode": "train", "epoch": 1, "iter": {i}, "lr": 0.0, "memory": 12989, "data_time": 0.00696, '
            f'"decode.loss_seg": {u():.5f}, "decode.acc_seg": 0.4376, "loss": {u():.5f}, "time": 0.5144}}\n'
        ),
        "detectron2": lambda i: (
            f"[03/11 {clock(i)} d2.utils.events]:  eta: 10:41:02  iter: {i}  total_loss: {u():.3f}  loss_cls: 0.201  "
            f"loss_box_reg: 0.121  loss_mask: 0.301  time: {u():.4f}  data_time: 0.0102  lr: 0.02  max_mem: 3200M\n"
        ),
        "mxnet": lambda i: (
            f"INFO:root:Epoch[{i // 1000}] Batch [{i % 1000}]\tSpeed: {u(1e4):.2f} samples/sec\taccuracy={u():.6f}\n"
        ),
        "torchtitan": lambda i: (
            f"[rank0]:[titan] 2024-11-01 {clock(i)},123 - root - INFO - \x1b[31mstep: {i:2d}  \x1b[32mloss: {u(9):7.4f}"
            f"  \x1b[33mmemory: 28.47GiB(29.96%)  \x1b[34mtps: {i % 9000 + 1000:,}  \x1b[35mmfu: 27.00%\x1b[39m\n"
        ),
        "llm.c": lambda i: f"s:{i} trl:{u(9):.4f} lr:0.000001 norm:15.37\n",
        "csv": lambda i: ("epoch,train_loss,val_loss\n" if i == 0 else "") + f"{i},{u():.9f},{u():.9f}\n",
        "generic": lambda i: (
            f"2024-05-01 {clock(i)} my trainer it {i} of 90000 loss {u():.4f} lr 0.001 speed {u(100):.1f} samples/s\n"
        ),
        "mllog": lambda i: (
            f":::MLPv0.5.0 resnet 1541670088.{i % 1000000:06d} (/workspace/{dice.choice(words)}.py:49) "
            f'model_hp_batch_norm: {{"scale": true, "training": true, "momentum": 0.9, "shape": [64, 112.0, 112.0]}}\n'
        ),
        "other-text": lambda i: prose(14) + "\n",
        "other-text-with-numbers": lambda i: (
            f"2024-05-01 {clock(i)},{i % 1000:03d} DEBUG worker {i % 8} {prose(6)} {dice.getrandbits(40):x} "
            f"took {u():.3f}\n"
        ),
    }


def text_of(line: Callable[[int], str], size: int) -> bytes:
    parts, length, i = [], 0, 0
    while length < size:
        part = line(i).encode()
        parts.append(part)
        length += len(part)
        i += 1
    return b"".join(parts)


def read(data: bytes) -> tuple[LogReader, float]:
    reader = LogReader(BOOK)
    started = time.process_time()
    for at in range(0, len(data), PIECE):
        reader.feed(data[at : at + PIECE])
    return reader, time.process_time() - started


def grep(path: Path) -> float:
    """CPU seconds of `grep -c loss`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["grep", "-c", "loss", str(path)], stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def one_by_one(data: bytes) -> float:
    """CPU microseconds a state (a line, or a redrawing of one) when they come one at a time."""
    pieces = re.findall(rb"[^\r\n]*[\r\n]+", data)
    start = len(pieces) // 10
    reader = LogReader(BOOK)
    reader.feed(b"".join(pieces[:start]))
    rest = pieces[start : start + 20000]
    started = time.process_time()
    for piece in rest:
        reader.feed(piece)
    return (time.process_time() - started) / len(rest) * 1e6


_CHILD = """
import sys
import time
from profiler.rules.book import load
from profiler.runs.reader import LogReader
from profiler.estimates.summary import summarise

def now(what):
    return next(int(l.split()[1]) / 1024 for l in open("/proc/self/status") if l.startswith(what))

book = load()
before = now("VmRSS")
reader = LogReader(book)
for _ in range(int(sys.argv[2])):
    with open(sys.argv[1], "rb") as file:
        while piece := file.read(1 << 18):
            reader.feed(piece)
reading = now("VmHWM")
runs = [summarise(run) for run in reader.runs()]
print(before, reading, now("VmHWM"), len(runs), time.process_time())
"""


def memory(path: Path, times: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), str(times)], capture_output=True, text=True, check=True
    )
    before, reading, answered, runs, seconds = (float(x) for x in done.stdout.split())
    told = {"before": before, "reading": reading, "answered": answered, "runs": runs, "cpu_s": seconds}
    return {name: round(value, 1) for name, value in told.items()}


def extremes(folder: Path, text: bytes) -> dict[str, dict[str, float]]:
    """A log with a line of 100 MB in its middle, and one of 10 GB, nearly all of it a hole."""
    line, hole = folder / "line.log", folder / "hole.log"
    with line.open("wb") as file:
        file.write(text)
        for _ in range(100):
            file.write(b"x 1.5 loss " * 90_910)
        file.write(b"\n" + text)
    with hole.open("wb") as file:
        file.write(text)
        file.seek(10_000_000_000)
        file.write(b"\n" + text)
    found = {"line-100-mb": memory(line, 1), "sparse-10-gb": memory(hole, 1)}
    line.unlink()
    hole.unlink()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--long", type=float, default=300, help="MB read by the process whose memory is told")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        texts = {
            name: text_of(line, int(options.mb * 1e6))
            for name, line in forms(random.Random(7)).items()
            if not options.only or name in options.only
        }
        paths = {name: Path(folder) / f"{name}.log" for name in texts}
        for name, data in texts.items():
            paths[name].write_bytes(data)
        seconds: dict[str, list[float]] = {name: [] for name in texts}
        grepped: dict[str, list[float]] = {name: [] for name in texts}
        rows: dict[str, dict[str, object]] = {}
        for turn in range(options.rounds):
            for name, data in texts.items():
                reader, took = read(data)
                seconds[name].append(took)
                grepped[name].append(grep(paths[name]))
                if turn == 0:
                    started = time.process_time()
                    runs = [summarise(run) for run in reader.runs()]
                    answer = (time.process_time() - started) * 1e3
                    rows[name] = {
                        "read_by": next((run.format for run in runs), None),
                        "runs": len(runs),
                        "answer_ms": round(answer, 1),
                    }
        for name, data in texts.items():
            ours = statistics.median(seconds[name])
            theirs = statistics.median(grepped[name])
            rows[name] = {
                "mb_per_s": round(len(data) / ours / 1e6, 1),
                "spread": [round(len(data) / s / 1e6, 1) for s in (max(seconds[name]), min(seconds[name]))],
                "grep_mb_per_s": round(len(data) / max(theirs, 1e-4) / 1e6),
                "us_per_state": round(ours / max(len(re.split(rb"[\r\n]+", data)), 1) * 1e6, 2),
                "incremental_us_per_state": round(one_by_one(data), 1),
                **rows[name],
            }
            print(f"{name:24s}", json.dumps(rows[name]))
        times = max(int(options.long / options.mb), 1)
        peaks = {name: memory(paths[name], times) for name in ("keras-bar", "megatron", "other-text") if name in texts}
        odd = extremes(Path(folder), texts["megatron"][:1_000_000]) if "megatron" in texts else {}
    common = [float(str(rows[name]["mb_per_s"])) for name in COMMON if name in rows]
    result = {
        "what": "MB/s of CPU time by form; grep -c on the same files; memory in MiB",
        "text_mb": options.mb,
        "rounds": options.rounds,
        "median_of_common_forms_mb_per_s": statistics.median(common) if common else None,
        "slowest_of_common_forms_mb_per_s": min(common, default=None),
        "forms": rows,
        "memory_mib": {"mb_read": times * options.mb, **peaks},
        "extremes": odd,
    }
    print(json.dumps(result["memory_mib"]), json.dumps(odd))
    if not options.only:
        record(Path(__file__), result, ("numpy", "PyYAML"))


BOOK = load()

if __name__ == "__main__":
    main()
