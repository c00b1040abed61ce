"""Where a lab's demonstration trains: shapes that fit any lab."""

from __future__ import annotations

import pytest

from horae.lab import LabRequest, parse_gpus
from horae.lab.trainer import shapes
from policy.model import Node


@pytest.mark.parametrize(("count", "gpus"), [(1, "v100:1"), (1, "v100:4"), (2, "v100:2,k80:1"), (8, "v100:4,k80:4")])
def test_every_shape_fits_the_nodes(count: int, gpus: str) -> None:
    kinds = LabRequest("lab", nodes=count, gpus=parse_gpus(gpus)).node_kinds()
    nodes = [Node(name=name, gpu_type=kind, gpus=number) for name, kind, number in kinds]
    has = {node.name: node.gpus for node in nodes}
    made = shapes(nodes)
    assert len(made) == 4
    assert all(0 < taken <= has[name] for shape in made for name, taken in shape.items())


def test_a_usual_lab_sees_growth_a_move_and_shrinking() -> None:
    nodes = [Node(name=f"n{index}", gpu_type="v100", gpus=4) for index in (1, 2, 3)]
    assert shapes(nodes) == [{"n1": 1}, {"n1": 2, "n2": 2}, {"n3": 4}, {"n1": 1}]
