"""What makes a resize invisible to the model: the same global batch, in the same order, whatever the gang's size.

The samples of a run are one endless sequence: a permutation of the data set after another, each fixed by the seed
and its number. A step takes the next `global_batch` of it; ranks share that out, and each takes its share in pieces
that fit its memory. Nothing in the sequence depends on the number of ranks.
"""

import random
from array import array
from typing import Iterator, List, NamedTuple, Optional, Sequence


class MicroBatch(NamedTuple):
    """What a rank passes through the model at once."""

    indices: Sequence[int]  #: into the data set
    #: Multiply the mean loss of this micro-batch by this. Summed over a rank's micro-batches, and then *averaged
    #: over ranks* (as DistributedDataParallel does), the gradient is exactly that of the global batch's mean loss.
    weight: float
    #: Multiply the mean loss by this instead where gradients are *summed* over ranks.
    fraction: float


def share_of(global_batch: int, rank: int, world: int) -> range:
    """Positions within the global batch that fall to `rank`: equal shares, the first ranks take one more."""
    small, more = divmod(global_batch, world)
    begin = rank * small + min(rank, more)
    return range(begin, begin + small + (1 if rank < more else 0))


def micro_batches(batch: Sequence[int], rank: int, world: int, largest: Optional[int] = None) -> "List[MicroBatch]":
    """One rank's part of a global batch, in pieces of at most `largest` samples.

    Raises ValueError when the batch is smaller than the gang: a rank without samples cannot take part.
    """
    total = len(batch)
    if total < world:
        raise ValueError(
            "a global batch of %d cannot be shared by %d ranks (set gpus.max to at most %d)" % (total, world, total)
        )
    share = share_of(total, rank, world)
    pieces = 1 if largest is None else -(-len(share) // largest)
    found = []
    for i in range(pieces):
        part = share_of(len(share), i, pieces)
        indices = batch[share.start + part.start : share.start + part.stop]
        found.append(MicroBatch(indices, len(indices) * world / float(total), len(indices) / float(total)))
    return found


class Sampler:
    """The endless sequence of sample indices. `shuffle` False: the data set's own order, over and over."""

    def __init__(self, samples: int, seed: int = 0, shuffle: bool = True) -> None:
        if samples < 1:
            raise ValueError("a data set of %d samples cannot be sampled" % samples)
        self.samples = samples
        self.seed = seed
        self.shuffle = shuffle
        self._pass = -1
        self._order: Sequence[int] = ()

    def batch(self, position: int, size: int) -> "List[int]":
        """`size` indices from `position` (samples since the beginning of training) on."""
        found: List[int] = []
        while len(found) < size:
            number, offset = divmod(position + len(found), self.samples)
            found.extend(self.order(number)[offset : offset + size - len(found)])
        return found

    def order(self, number: int) -> Sequence[int]:
        """The permutation of pass `number` (0 is the first) over the data set."""
        if not self.shuffle:
            return range(self.samples)
        if number != self._pass:
            order = array("l", range(self.samples))
            # Mersenne Twister by a string seed gives the same order on every Python since 3.2.
            random.Random("%d/%d" % (self.seed, number)).shuffle(order)
            self._pass, self._order = number, order
        return self._order

    def iterate(self, position: int, size: int) -> "Iterator[List[int]]":
        while True:
            yield self.batch(position, size)
            position += size


def derived_seed(seed: int, *parts: int) -> int:
    """A seed for one purpose (a step, a sample) that does not depend on the gang's size; 0 <= seed < 2**32."""
    return random.Random("/".join(str(part) for part in (seed,) + parts)).getrandbits(32)
