"""Tables that go to a file row by row: the same bytes as `save`, little memory, nothing left behind by a failure."""

from __future__ import annotations

import logging
import tracemalloc
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from circuittest.errors import InterventionError, TableError
from circuittest.measure import attribution
from circuittest.measure.attribution import attribute
from circuittest.measure.edges import edges
from circuittest.measure.rows import StreamedRows
from circuittest.models.loaded import LoadedModel
from circuittest.tables import ScoreTable
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.items import random_items


@lru_cache
def model_of(layers: int) -> LoadedModel:
    return tiny.build_loaded("llama", num_hidden_layers=layers)


@pytest.mark.parametrize(
    "choices", [{"level": "edges"}, {"method": "eap-ig", "steps": 2}, {"method": "exact"}]
)
def test_a_streamed_table_is_the_table(tmp_path: Path, choices: dict[str, object]) -> None:
    items = random_items(7)
    held = attribute(model_of(3), items, metric="log_prob", batch_size=2, **choices)  # type: ignore[arg-type]
    path = tmp_path / "scores.safetensors"
    streamed = attribute(model_of(3), items, metric="log_prob", batch_size=2, out=path, **choices)  # type: ignore[arg-type]
    for table in (streamed, ScoreTable.load(path), ScoreTable.load(path, mapped=True)):
        np.testing.assert_array_equal(table.values, held.values)
        assert (table.members, table.examples) == (held.members, held.examples)
        assert dict(table.choices) == dict(held.choices)
    assert list(tmp_path.iterdir()) == [path]


def test_rows_are_not_held_in_memory(tmp_path: Path) -> None:
    model, items = model_of(8), random_items(250, (4,))
    members = edges(model.layout)[0]  # known before, and kept
    whole = 4 * len(items) * len(members)
    tracemalloc.start()
    table = attribute(
        model, items, metric="log_prob", level="edges", batch_size=25, out=tmp_path / "scores.safetensors"
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(table.values, np.memmap)
    assert peak < whole
    assert table.columns(members[:3]).values.shape == (250, 3)


def test_large_tables_go_to_a_file_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attribution.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(attribution, "TABLE_BYTES", 100)
    items = random_items(3)
    with caplog.at_level(logging.WARNING, logger="circuittest"):
        table = attribute(model_of(3), items, metric="log_prob")
    assert isinstance(table.values, np.memmap)
    assert str(next(tmp_path.iterdir())) in caplog.text


def test_a_failure_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> object:
        raise InterventionError("no")

    monkeypatch.setattr(attribution, "trace", fail)
    with pytest.raises(InterventionError):
        attribute(model_of(3), random_items(3), metric="log_prob", out=tmp_path / "scores.safetensors")
    assert not list(tmp_path.iterdir())


def test_halved_batches_fit_into_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = attribution.trace

    def greedy(model: object, batch: object, *args: object, **choices: object) -> object:
        if len(batch.rows) > 1:  # type: ignore[attr-defined]
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return plain(model, batch, *args, **choices)  # type: ignore[arg-type]

    monkeypatch.setattr(attribution, "trace", greedy)
    path = tmp_path / "scores.safetensors"
    attribute(model_of(3), random_items(9), metric="log_prob", out=path)
    table = ScoreTable.load(path)
    assert table.choices["batches"] == [[1, 6]] * 5 + [[1, 9]] * 4
    assert table.choices["halved"] == [[5, 6], [4, 9]]


def test_a_table_with_missing_rows_is_no_table(tmp_path: Path) -> None:
    rows = StreamedRows(tmp_path / "t", [Unit("mlp", 0)], [4, 5], {"a": 1})
    rows.put([1], np.ones((1, 1), dtype=np.float32))
    with pytest.raises(TableError, match="was not completed"):
        rows.finish({"a": 1})
    rows.drop()
