"""The IOI algorithm's heads on models where they are known on paper (tests/helpers/planted_ioi.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from circuittest.errors import UsageError
from circuittest.find import ioi_heads as module
from circuittest.find.ioi_heads import IOIHeads, ioi_heads, values_of
from circuittest.measure.ablation import ablate
from circuittest.models.loading import from_module
from circuittest.units import Layout, Unit
from tests.helpers import planted_ioi, tiny
from tests.helpers.items import random_items
from tests.helpers.planted_ioi import CARRIERS, DUPLICATE, MOVERS, SUPPRESSOR

TOKEN, POSITION = CARRIERS["token"], CARRIERS["position"]
ITEMS = planted_ioi.items(16)


def signals(found: IOIHeads) -> dict[Unit, tuple[float, float]]:
    return {head: (one["token"].value, one["position"].value) for head, one in found.signals.items()}


def test_the_planted_model_does_the_task() -> None:
    for how in ({}, {"signals": ("position",)}, {"signals": ("token", "position"), "movers": 2}):
        table = ablate(planted_ioi.build(**how), ITEMS, [(), [MOVERS[0]]])
        assert (table.columns["argmax"][0] == 1).all()
    alone = ablate(planted_ioi.build(), ITEMS, [[MOVERS[0]]])
    assert (alone.columns["logit_diff"] == 0).all()


def test_one_head_of_each_kind_and_the_token_signal() -> None:
    found = ioi_heads(planted_ioi.build(), ITEMS)
    assert found.name_movers == (MOVERS[0],)
    assert found.s_inhibition == (TOKEN,)
    assert found.duplicate_token == found.repeats == (DUPLICATE,)
    assert found.induction == ()
    assert found.missing == {}
    assert found.effects["logits"][MOVERS[0]] == pytest.approx(-1, abs=1e-6)
    assert found.effects["name_movers.q"][TOKEN] == pytest.approx(-1, abs=1e-6)
    assert found.effects["s_inhibition.v"][DUPLICATE] == pytest.approx(-1, abs=1e-6)
    for stage, head in (("logits", MOVERS[0]), ("name_movers.q", TOKEN), ("s_inhibition.v", DUPLICATE)):
        assert all(abs(value) < 1e-6 for unit, value in found.effects[stage].items() if unit != head)
    assert signals(found)[TOKEN] == pytest.approx((-1, 0), abs=1e-6)
    assert found.signals[TOKEN]["token"].carried
    assert not found.signals[TOKEN]["position"].carried
    assert found.scores["copy"][MOVERS[0]] == 1.0
    assert found.scores["duplicate-token"][DUPLICATE] == pytest.approx(1, abs=1e-6)


def test_the_position_signal() -> None:
    found = ioi_heads(planted_ioi.build(signals=("position",)), ITEMS)
    assert found.s_inhibition == (POSITION,)
    assert signals(found)[POSITION] == pytest.approx((0, -1), abs=1e-6)
    assert found.duplicate_token == (DUPLICATE,)


def test_both_signals_and_two_name_movers() -> None:
    found = ioi_heads(planted_ioi.build(signals=("token", "position"), movers=2), ITEMS)
    assert found.name_movers == MOVERS
    assert found.s_inhibition == (TOKEN, POSITION)
    for mover in MOVERS:
        assert found.effects["logits"][mover] == pytest.approx(-0.5, abs=1e-6)
    assert signals(found)[TOKEN] == pytest.approx((-0.5, 0), abs=1e-6)
    assert signals(found)[POSITION] == pytest.approx((0, -0.5), abs=1e-6)


def test_a_head_that_looks_at_the_subject_is_no_name_mover() -> None:
    found = ioi_heads(planted_ioi.build(suppressor=True), ITEMS)
    assert found.name_movers == (MOVERS[0],)
    assert found.effects["logits"][SUPPRESSOR] == pytest.approx(-0.5, abs=1e-6)
    assert found.effects["logits"][MOVERS[0]] == pytest.approx(-0.5, abs=1e-6)


def test_a_head_that_looks_more_at_the_foil_is_no_name_mover(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = module._scores

    def exchanged(*arguments: Any) -> dict[str, Any]:
        found = scores(*arguments)
        return found | {"answer-token": found["foil-token"], "foil-token": found["answer-token"]}

    monkeypatch.setattr(module, "_scores", exchanged)
    assert ioi_heads(planted_ioi.build(), ITEMS).name_movers == ()


@pytest.mark.slow
def test_with_mlps_recomputed_it_is_the_same_where_mlps_do_nothing() -> None:
    model = planted_ioi.build()
    frozen, recomputed = (ioi_heads(model, ITEMS[:6], mlps=mlps) for mlps in ("frozen", "recomputed"))
    assert frozen.name_movers == recomputed.name_movers
    assert recomputed.repeats == (DUPLICATE,)
    assert recomputed.choices["mlps"] == "recomputed"


def test_what_is_not_there_is_said() -> None:
    found = ioi_heads(planted_ioi.build(), ITEMS, copies=1.0)
    assert found.name_movers == found.s_inhibition == found.repeats == ()
    assert list(found.missing) == ["name_movers"]
    assert (
        "1 heads have an effect below -0.001 on the logits, and none copies names"
        in (found.missing["name_movers"])
    )
    assert found.effects["name_movers.q"] == {}
    large = ioi_heads(planted_ioi.build(signals=("token", "position")), ITEMS, least=0.7)
    assert list(large.missing) == ["s_inhibition"]
    assert "carries a token or a position signal" in large.missing["s_inhibition"]


def test_a_model_without_the_behaviour_has_none_of_the_heads() -> None:
    module = planted_ioi.build().module
    module.lm_head.weight.zero_()
    model = from_module(module, name="blind")
    found = ioi_heads(model, ITEMS)
    assert found.name_movers == found.s_inhibition == found.repeats == ()
    assert found.effects["logits"] == {}
    assert "the model does not do the task" in found.missing["name_movers"]
    assert "by 0 [" in found.missing["name_movers"]


@pytest.mark.parametrize(
    "change",
    [
        {"answer_ids": (planted_ioi.BOS,)},
        {"foil_ids": (planted_ioi.END,)},
        {"answer_ids": (5, 6)},
        {"counterfactual_ids": ITEMS[0].prompt_ids},
    ],
)
def test_other_prompts_are_refused(change: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(UsageError, match="example 0 is no IOI prompt"):
        ioi_heads(planted_ioi.build(), [replace(ITEMS[0], **change), *ITEMS[1:]])


def test_random_prompts_are_refused() -> None:
    with pytest.raises(UsageError, match="no IOI prompt"):
        ioi_heads(tiny.build_loaded("llama", dtype=torch.float64), random_items(3))


def test_values_are_those_of_kv_groups() -> None:
    layout = Layout(n_layers=3, n_heads=4, n_kv_heads=2)
    assert values_of(layout, [Unit("head", 1, 0), Unit("head", 1, 1), Unit("head", 0, 3)]) == [
        "L0.KV1.v",
        "L1.KV0.v",
    ]
