"""Attention and role scores of a lab: measured once, and kept in its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuittest.errors import UsageError
from circuittest.find.roles.kinds import ROLES
from circuittest.lab import Lab
from circuittest.measure.attention import attention_rows


def test_attention_is_that_of_the_examples_of_a_split() -> None:
    lab = Lab("zoo:gqa", "induction", discover=3, evaluate=5)
    table = lab.attention("discover")
    np.testing.assert_array_equal(table.rows, attention_rows(lab.model, lab.data.discover).rows)
    assert table.examples == tuple(item.index for item in lab.data.discover)
    assert lab.attention(query=[1] * 5).queries == (1,) * 5
    with pytest.raises(UsageError, match="unknown split 'test'"):
        lab.attention("test")  # type: ignore[arg-type]


def test_scores_come_from_the_store_and_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task: dict[str, Any] = {"discover": 8, "evaluate": 12, "store": tmp_path}
    first = Lab("zoo:mha", "induction", **task)
    tables = first.roles()
    near = first.roles(["induction"], positions="answer")["induction"]
    group = first.with_role("induction", least=0.4)
    claimed = first.role(group, kind="induction")

    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a model ran")

    monkeypatch.setattr(torch.nn.Module, "__call__", refused)
    second = Lab("zoo:mha", "induction", **task)
    again = second.roles()
    assert tuple(again) == ROLES
    for kind, table in tables.items():
        np.testing.assert_array_equal(again[kind].values, table.values)
        assert (again[kind].heads, again[kind].examples) == (table.heads, table.examples)
        assert (again[kind].undefined, dict(again[kind].choices)) == (table.undefined, dict(table.choices))
    other = second.roles(["induction"], positions="answer")["induction"]
    np.testing.assert_array_equal(other.values, near.values)
    assert not np.array_equal(other.values, again["induction"].values)
    assert second.with_role("induction", least=0.4) == group
    assert second.role(group, kind="induction").value == claimed.value
    assert second.store is not None
    assert second.store.computed == 0
