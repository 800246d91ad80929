"""The three shares of the IOI algorithm, on models where they are known on paper (tests/helpers/planted_ioi.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from circuittest.claims.ioi_algorithm import SHARES
from circuittest.errors import TaskError, UsageError
from circuittest.lab import Lab
from circuittest.models.loading import from_module
from circuittest.stats import InvalidClaim
from tests.helpers import planted_ioi
from tests.helpers.planted_ioi import CARRIERS, DUPLICATE, MOVERS


def lab(**how: Any) -> Lab:
    return Lab(planted_ioi.build(**how), planted_ioi.data())


def test_the_whole_algorithm() -> None:
    there = lab(signals=("token", "position"), movers=2)
    found = there.ioi_algorithm()
    assert found.heads.name_movers == MOVERS
    assert found.heads.s_inhibition == tuple(CARRIERS.values())
    assert found.heads.repeats == (DUPLICATE,)
    for name in SHARES:
        assert found.shares[name].value == pytest.approx(1, abs=1e-6), name
        assert found.shares[name] >= 0.7
        assert found.shares[name].examples["evaluate"] == [item.index for item in there.data.evaluate]
    assert found.shares["s_inhibition"].choices["to"] == [f"{mover}.q" for mover in MOVERS]
    assert found.shares["repeats"].choices["to"] == ["L1.KV3.v", "L2.KV4.v"]
    assert found.heads.choices["examples"] == [item.index for item in there.data.discover]


def test_what_is_no_name_mover_takes_its_share() -> None:
    found = lab(suppressor=True).ioi_algorithm()
    assert found.shares["name_movers"].value == pytest.approx(0.5, abs=1e-6)
    assert found.shares["s_inhibition"].value == pytest.approx(1, abs=1e-6)


def test_later_shares_are_undefined_where_earlier_heads_are_not_found() -> None:
    found = lab().ioi_algorithm(copies=1.0)
    for name in SHARES:
        assert found.shares[name].value is None
        assert "no name_movers were found: 1 heads" in found.shares[name].invalid
        with pytest.raises(InvalidClaim):
            bool(found.shares[name] >= 0.5)


def test_a_model_without_the_behaviour_has_no_algorithm() -> None:
    module = planted_ioi.build().module
    module.lm_head.weight.zero_()
    model = from_module(module, name="blind")
    model.__dict__["checks"] = ()
    found = Lab(model, planted_ioi.data()).ioi_algorithm()
    assert "the model does not do the task" in found.shares["name_movers"].invalid


def test_another_task_has_no_such_heads() -> None:
    data = planted_ioi.data()
    swapped = tuple(replace(item, foil_ids=(planted_ioi.END,)) for item in data.discover)
    with pytest.raises(UsageError, match="no IOI prompt"):
        Lab(planted_ioi.build(), replace(data, discover=swapped)).ioi_algorithm()


def test_what_chose_the_heads_does_not_judge_them() -> None:
    """The same prompts in both splits are refused before anything is found."""
    data = planted_ioi.data()
    with pytest.raises(TaskError, match="evaluation prompts are discovery prompts"):
        Lab(planted_ioi.build(), replace(data, evaluate=data.discover)).ioi_algorithm()
