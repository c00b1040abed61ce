"""What the end of a job's own output says about why it failed."""

from __future__ import annotations

import pytest

from horae.views.endings import cause

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'


@pytest.mark.parametrize(
    ("log", "code", "words"),
    [
        (TRACE + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", 1,
         ("ran out of memory", "CUDA out of memory. Tried")),
        ("/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectSmallIndex: block: [0,0,0], thread: [0,0,0] "
         "Assertion `srcIndex < srcSelectDimSize` failed.\n" + TRACE
         + "torch.AcceleratorError: CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in", 1,
         ("a check inside a CUDA kernel failed", "Assertion `srcIndex < srcSelectDimSize` failed")),
        (TRACE + "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils."
         "cpp:93, invalid usage\nLast error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 60", 1,
         ("two of its ranks use the same GPU", "rank 0 and rank 1")),
        ("E1126 22:39:53.986771    1937 cuda_executor.cc:1365] [0] Failed to allocate device memory of 104.85GiB "
         "(112583507968 bytes): RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n" + TRACE
         + "KeyError: 'lr'", 1, ("its program raised: KeyError: 'lr'",)),  # JAX took less and went on
        (TRACE + "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 256.02GiB "
         "with allocator GPU_0_bfc on device 0.", 1, ("ran out of memory: jax.errors",)),
        (TRACE + "OSError: [Errno 28] No space left on device: 'ck'", 1, ("disk or a quota was full", "Errno 28")),
        (TRACE + "RuntimeError: DataLoader worker (pid 10678) is killed by signal: Killed. ", 1,
         ("which reads its data, died", "DataLoader worker (pid 10678)")),
        (TRACE + "RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly\n1: NCCL error: remote", 1,
         ("which reads its data, died", "(pid(s) 12, 13)")),
        (TRACE + "RuntimeError: One of the subprocesses has abruptly died during map operation.", 1,
         ("which reads its data, died", "abruptly died")),
        ("ERROR: Unexpected bus error encountered in worker. It might be caused by insufficient shared memory (shm).\n"
         + TRACE + "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
         "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.", 1,
         ("(/dev/shm) was full", "insufficient shared memory")),
        (TRACE + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local address."
         " port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", 1,
         ("a port that it would listen on is taken", "29500")),
        ("tensorboard: Address already in use\n" + TRACE + "ValueError: wrong", 1, ("its program raised", "wrong")),
        ("[horae-exec] cannot run python3 /a/t.py --lr 1: [Errno 2] No such file or directory: "
         "b'/bin/python3 /a/t.py --lr 1'", 127, ("whole command is one word, 'python3 /a/t.py --lr 1'",)),
        ("[horae-exec] cannot run FOO=1 python3 t.py: [Errno 2] No such file or directory: b'/bin/FOO=1'", 127,
         ("FOO=1 sets a variable, as a shell does",)),
        ("0: [rank1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", 134,
         ("lost each other (NCCL)", "Watchdog caught")),
        (TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'data.bin'", 1,
         ("its program raised", "FileNotFoundError: [Errno 2]")),
        ("  File \"t.py\", line 1\n    x = = 1\nTraceback (most recent call last):\nSyntaxError: invalid syntax", 1,
         ("its program raised", "SyntaxError: invalid syntax")),
        ("[horae-exec] cannot start: [Errno 2] No such file or directory: 'pyhton'", 126,
         ("there is no program pyhton in its PATH",)),
        ("[horae-exec] cannot run pyhton x.py: [Errno 2] No such file or directory: b'/bin/pyhton'", 127,
         ("there is no program pyhton in its PATH",)),
        ("[horae-exec] cannot run /opt/x/train 5: [Errno 2] No such file or directory: '/opt/x/train'", 127,
         ("could not be started: No such file or directory: /opt/x/train",)),
        ("[horae-exec] cannot run /opt/x/train: [Errno 13] Permission denied: '/opt/x/train'", 126,
         ("could not be started: Permission denied: /opt/x/train",)),
        ("[horae-exec] cannot run ./s.sh: [Errno 8] Exec format error: './s.sh'", 126,
         ("could not be started: Exec format error: ./s.sh",)),
        ("[horae-exec] runs /h/crlf.sh by /bin/sh\\r in /h\n"
         "[horae-exec] cannot run ./crlf.sh: [Errno 2] No such file or directory: './crlf.sh'", 127, ("(CR LF)",)),
        ("/usr/bin/env: ‘python3\\r’: No such file or directory", 127, ("(CR LF)",)),
        ("t.sh: line 2: $'\\r': command not found", 127, ("(CR LF)",)),
        ("[horae-exec] finds a folder, and no program, at /h/src; folder /h\n"
         "[horae-exec] cannot run src/: [Errno 13] Permission denied: 'src/'", 126,
         ("its program is a folder: /h/src",)),
        ("[horae-exec] cannot run module load cuda: [Errno 2] No such file or directory: 'module'", 127,
         ("module is no program: a shell has it",)),
        ("python: can't open file '/home/ann/nope.py': [Errno 2] No such file or directory", 2,
         ("its script cannot be read: No such file or directory: /home/ann/nope.py",)),
        ('  File "<string>", line 1\n    if:\nSyntaxError: invalid syntax\n[horae-exec] failed with exit code 1', 1,
         ("its script is not valid Python: SyntaxError: invalid syntax",)),
        (TRACE + '    raise OutOfMemoryError("CUDA out of memory. Tried")\n'
         "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1,
         ("ran out of memory: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to",)),
        ("CUDA out of memory: half the batch\n[horae] step=10/20 loss=1\n" + TRACE + "KeyError: 'lr'", 1,
         ("its program raised: KeyError: 'lr'",)),
        ("CUDA out of memory. Tried to allocate 2 GiB\n[horae] step=10/20 loss=1\nvalidation: 0.3\n", 1,
         ("ran out of memory",)),
        ("[horae-exec] cannot run python x.py: [Errno 2] No such file or directory: '/gone/folder'", 127,
         ("could not be started: No such file or directory: /gone/folder",)),
        ("[horae-exec] cannot run true: [Errno 2] its working folder cannot be entered (No such file or directory): "
         "'/nope'", 127, ("its working folder cannot be entered (No such file or directory): /nope",)),
        ("[horae-exec] cannot run python x.py: prlimit: not allowed", 127, ("python x.py: prlimit: not allowed",)),
        ("sh: 1: modul: not found", 127, ("program was not found", "modul: not found")),
        ("[horae] step=10/20 loss=1\n", 137, ("killed (SIGKILL), not by Horae", "out of memory")),
        ("hello\n", 139, ("crashed (SIGSEGV)",)),
        ("hello\n", 143, ("ended by SIGTERM, not by Horae",)),
        ("[horae-exec] cannot run python: [Errno 2] No such file or directory: b'/bin/python'\nwrong\n"
         "[horae-exec] failed with exit code 3", 3, ("the last that it printed: wrong",)),
        ("hello\nthe data are wrong\n[horae-exec] failed with exit code 3", 3,
         ("the last that it printed: the data are wrong",)),
        ("[horae-exec] runs /bin/sh in /home\n[horae-exec] failed with exit code 3", 3, ("it printed nothing",)),
    ],
)  # fmt: skip
def test_the_line_that_tells_most(log: str, code: int, words: tuple[str, ...]) -> None:
    found = cause(log.encode(), code)
    assert found is not None and found.what == "log"
    for word in words:
        assert word in found.text


@pytest.mark.parametrize(
    ("log", "code", "helps"),
    [
        ("[horae-exec] cannot run ./s.sh: [Errno 13] Permission denied: './s.sh'", 126, "`chmod +x` for the file"),
        (
            "[horae-exec] cannot run ./s.sh: [Errno 8] Exec format error: './s.sh'",
            126,
            "a first line such as `#!/bin/sh`",
        ),
        ("python: can't open file 'nope.py': [Errno 2] No such file or directory", 2, "`--cwd`"),
        ("hello", 137, "--memory"),
    ],
)
def test_what_helps_is_what_would_help(log: str, code: int, helps: str) -> None:
    found = cause(log.encode(), code)
    assert found is not None and helps in found.change


def test_only_the_last_attempt_counts() -> None:
    first = "CUDA out of memory\n[horae-exec] failed with exit code 1; failure 1 of 3, again in 1 s\n"
    found = cause((first + TRACE + "KeyError: 'lr'\n").encode(), 1)
    assert found is not None and found.text == "its program raised: KeyError: 'lr'"


def test_without_a_log_there_is_nothing_to_say() -> None:
    assert cause(b"", 1) is None and cause(b"\n\n", 137) is None


def test_what_to_type_names_the_job() -> None:
    found = cause((TRACE + "ValueError: no").encode(), 1, "17")
    assert found is not None
    assert found.change == "`horae logs 17` shows the traceback"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("parent out\n[horae-exec] killed 2 processes that the trainer left behind\n", "2 of its processes still ran"),
        ("0: [horae] step=30/30 loss=0.03\n0: [horae] the final checkpoint could not be written, all steps are done: "
         "[Errno 28] No space left on device\n0: after the loop\n", "its last checkpoint is not written: [horae] the"),
        ("step 1 loss 1.0\nTraceback (most recent call last):\nValueError: survived\ndone\n", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_of_a_job_that_completed_what_may_be_missing_is_said(log: str, words: str) -> None:
    found = cause(log.encode(), 0)
    assert (found is not None) == bool(words)
    assert found is None or (words in found.text and found.change)
