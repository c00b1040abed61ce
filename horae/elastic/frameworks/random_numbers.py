"""Where the random numbers of Python, NumPy and PyTorch stand: dropout and augmentation go on where they stopped."""

from typing import Any, Dict


def kept(of_all_gpus: bool = False) -> Dict[str, Any]:
    """As Hugging Face's Trainer keeps it. `of_all_gpus`: a list of each GPU's, else of the one in use."""
    import random

    import numpy
    import torch

    state = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        if of_all_gpus:
            state["cuda"] = torch.cuda.random.get_rng_state_all()
        else:
            state["cuda"] = torch.cuda.random.get_rng_state()
    return state


def plain(state: Dict[str, Any]) -> Dict[str, Any]:
    """The same of numbers and tensors alone, which PyTorch reads without running what a file says."""
    kind, key, *rest = state["numpy"]
    return dict(state, numpy=[kind, [int(each) for each in key], *rest])


def restore(state: Dict[str, Any]) -> None:
    """From `kept` or `plain`, of one GPU; what it holds of a GPU is left where there is none."""
    import random

    import numpy
    import torch

    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    numpy.random.set_state(tuple(state["numpy"]))
    torch.random.set_rng_state(state["cpu"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.random.set_rng_state(state["cuda"].cpu())
