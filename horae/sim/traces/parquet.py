"""Parquet as lines of CSV, so that it is read and judged like any other trace; row n is line n + 1."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, isnan
from pathlib import Path

from horae.sim.traces.malformed import Malformed
from horae.sim.traces.writing import line, plain


def as_lines(path: Path) -> Iterator[str]:
    """The header, then a row a line. Raises ModuleNotFoundError, which names the extra, without pyarrow; Malformed."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
        yield line(list(file.schema_arrow.names)).removesuffix("\n")
        for batch in file.iter_batches(batch_size=4096):
            for row in zip(*batch.to_pydict().values(), strict=True):
                yield line([_cell(value) for value in row]).removesuffix("\n")
    except (pyarrow.ArrowException, OSError) as error:
        raise Malformed(path, 1, "file", "is damaged Parquet", error) from None


def _cell(value: object) -> str:
    if isinstance(value, float):
        return plain(value) if isfinite(value) else ("" if isnan(value) else str(value))  # NaN: a gap
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
