"""What happens when memory runs out: batches are halved, the scores stay, and it is said."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from circuittest.measure import attribution
from circuittest.measure.attribution import attribute
from circuittest.measure.batches import Batch
from circuittest.measure.memory import out_of_memory
from circuittest.measure.trace import trace
from tests.helpers import tiny
from tests.helpers.items import random_items

CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory")


@pytest.mark.parametrize("error", [CPU, torch.cuda.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_batches_are_halved(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, items = tiny.build_loaded("gpt2"), random_items(11, (6, 6, 9))
    expected = attribute(model, items, metric="log_prob")

    def greedy(model: object, batch: Batch, *args: object, **choices: object) -> object:
        if len(batch.rows) > 2:
            raise error
        return trace(model, batch, *args, **choices)  # type: ignore[arg-type]

    monkeypatch.setattr(attribution, "trace", greedy)
    with caplog.at_level(logging.WARNING, logger="circuittest"):
        found = attribute(model, items, metric="log_prob")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-4, atol=1e-6)
    assert found.choices["batches"] == [[2, 6], [2, 6], [2, 6], [2, 6], [1, 9], [2, 9]]
    assert found.choices["halved"] == [[8, 6], [3, 9]]
    assert "halved" not in expected.choices
    assert [record.getMessage() for record in caplog.records] == [
        "memory ran out on 8 examples of 6 tokens; going on with at most 4 at a time",
        "memory ran out on 4 examples of 6 tokens; going on with at most 2 at a time",
    ]


def test_one_example_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> object:
        raise CPU

    monkeypatch.setattr(attribution, "trace", never)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        attribute(tiny.build_loaded("gpt2"), random_items(4), metric="log_prob")


def test_other_errors_are_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not out_of_memory(RuntimeError("shape mismatch"))
    assert not out_of_memory(ValueError("not enough memory"))
