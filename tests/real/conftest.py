"""A machine without a GPU, or without a PyTorch to try it by, has no GPU tests, rather than skipped ones."""

from __future__ import annotations

import importlib.util
import os

from horae.machine_gpus import this_machine

PYTORCH = "HORAE_GPU_PYTHON" in os.environ or importlib.util.find_spec("torch") is not None
collect_ignore = [] if PYTORCH and this_machine() else ["test_gpu.py"]
