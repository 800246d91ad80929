"""Rows of parquet files, which many published data sets are. Needs pyarrow (``pip install "circuittest[parquet]"``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from circuittest.errors import TaskError

#: Rows held as Python objects at a time.
BATCH = 1000


def parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, columns by name) of a file, a batch at a time.

    Raises
    ------
    TaskError
        Without pyarrow, and for a file that it cannot read.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TaskError(
            f"{path.name} is a parquet file, and pyarrow is not installed",
            "",
            'pip install "circuittest[parquet]", or convert it to JSON lines',
        ) from error
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskError(f"{path.name} cannot be read as parquet", str(error), "download it again") from error
