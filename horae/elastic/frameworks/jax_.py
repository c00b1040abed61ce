"""JAX: a tree of arrays (parameters, optimizer state) that is saved and resumed.

state = jax_.Tree(params=params, optimizer=optimizer_state)
training = elastic.Training(steps=4000, global_batch=256, samples=len(x), save=state.save, load=state.load)
jax_.initialize(training.environment)          # before any other use of JAX, where there are several ranks
for step in training:
    for part in step.micro_batches():
        ...
    state.params, state.optimizer = update(state.params, state.optimizer, gradient)
"""

import os
from typing import Any

from ..sdk.environment import Environment
from ..sdk.stopping import held

_FILE = "jax.npz"
_TYPE = ".type"  #: behind a leaf's name in the file


def initialize(environment: Environment) -> None:
    """Join this rank to the gang's JAX runtime; does nothing for one rank alone."""
    if environment.world == 1:
        return
    import jax

    with held():
        jax.distributed.initialize(
            coordinator_address="%s:%s" % (environment.address, os.environ.get("MASTER_PORT", "29500")),
            num_processes=environment.world,
            process_id=environment.rank,
            local_device_ids=[environment.local_rank] if os.environ.get("CUDA_VISIBLE_DEVICES") else None,
        )


class Tree:
    """Named trees of arrays, read and written as attributes. Arrays must be whole on rank 0 (replicated)."""

    def __init__(self, **trees: Any) -> None:
        self.__dict__.update(trees)
        self._names = sorted(trees)

    def save(self, folder: str) -> None:
        import jax
        import numpy

        arrays = {}
        for name in self._names:
            for i, leaf in enumerate(jax.tree_util.tree_leaves(getattr(self, name))):
                arrays["%s.%d" % (name, i)] = array = _bits(leaf)
                if array.dtype.kind == "V":  # bfloat16 and its like: NumPy's files forget which
                    arrays["%s.%d%s" % (name, i, _TYPE)] = numpy.array(array.dtype.name)
        with open(os.path.join(folder, _FILE), "wb") as file:
            numpy.savez(file, **arrays)

    def load(self, folder: str) -> None:
        """Raises ValueError when the checkpoint's trees have another shape than these."""
        import jax
        import numpy

        with numpy.load(os.path.join(folder, _FILE)) as arrays:
            for name in self._names:
                leaves, structure = jax.tree_util.tree_flatten(getattr(self, name))
                loaded = []
                for i, old in enumerate(leaves):
                    key = "%s.%d" % (name, i)
                    new = arrays[key]
                    if key + _TYPE in arrays:
                        new = new.view(jax.numpy.dtype(str(arrays[key + _TYPE])))
                    if numpy.shape(_bits(old)) != new.shape:
                        raise ValueError(
                            "%s: leaf %d has shape %s, the checkpoint's %s"
                            % (name, i, numpy.shape(_bits(old)), new.shape)
                        )
                    array = jax.numpy.asarray(new)
                    loaded.append(
                        jax.random.wrap_key_data(array, impl=jax.random.key_impl(old)) if _key(old) else array
                    )
                setattr(self, name, jax.tree_util.tree_unflatten(structure, loaded))


def _bits(leaf: Any) -> Any:
    """A leaf as NumPy's array: of a random key what it is made of."""
    import jax
    import numpy

    return numpy.asarray(jax.random.key_data(leaf) if _key(leaf) else leaf)


def _key(leaf: Any) -> bool:
    """Whether it is a random key of JAX's own type (`jax.random.key`)."""
    return str(getattr(leaf, "dtype", "")).startswith("key<")
