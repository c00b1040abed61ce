"""The fit of a scaling curve is the optimum that scipy's non-negative least squares finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from profiler.estimates.scaling import non_negative

number = st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3))


@given(st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(number, min_size=n, max_size=n), min_size=2, max_size=6)))
def test_it_is_as_near_as_any_other(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    wanted = np.ones(len(rows))
    found = non_negative(matrix, wanted)
    assert (found >= 0).all()
    _, misfit = nnls(matrix, wanted)
    assert np.linalg.norm(matrix @ found - wanted) <= misfit + 1e-6
