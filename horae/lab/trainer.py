"""What the mini-clusters train in their demonstrations, and on which GPUs: a loop of sleeps with a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from policy.model import Allocation, Node

TRAINER = """import time
from horae import elastic
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
for step in elastic.Training(steps=100000, global_batch=64, save=save, load=load, checkpoint_every_steps=50):
    time.sleep(0.02)
    done[0] += 1
    step.report(2.0 / done[0] ** 0.5)
"""


def shapes(nodes: Sequence[Node]) -> list[Allocation]:
    """Where it trains, one after another: one GPU, grown over two nodes, moved to the last node, and shrunk."""
    first, second, last = nodes[0], nodes[min(1, len(nodes) - 1)], nodes[-1]
    wide = {each.name: min(2, each.gpus) for each in (first, second)}
    return [{first.name: 1}, wide, {last.name: min(4, last.gpus)}, {first.name: 1}]
