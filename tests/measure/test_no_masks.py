"""No measurement hands a model an attention mask or asks for attention weights, so that no mask can have holes.

Batches hold prompts of one length (`circuittest.measure.batches`); with nothing masked, every kernel of attention is
right, and sdpa's silence about weights that it does not return costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from circuittest.measure.ablation import ablate
from circuittest.measure.attribution import attribute
from circuittest.measure.patching import patch
from circuittest.models.hooks import hooks
from circuittest.models.loaded import LoadedModel
from circuittest.units import Edge
from tests.helpers import tiny
from tests.helpers.items import random_items

MODEL = tiny.build_loaded("llama")
ITEMS, HELD_OUT = random_items(5), random_items(4, seed=7)
EDGE = Edge.parse("L0.H1->L1.H2.q")


def attributed(**how: Any) -> Callable[[LoadedModel], object]:
    return lambda model: attribute(model, ITEMS, metric="logit_diff", **how)


def ablated(**how: Any) -> Callable[[LoadedModel], object]:
    return lambda model: ablate(model, ITEMS, [(), model.layout.units(("head",))[:3]], **how)


@pytest.mark.parametrize(
    "measure",
    [
        attributed(),
        attributed(level="edges"),
        attributed(method="eap-ig", steps=2),
        attributed(method="exact", kinds=("head",)),
        attributed(baseline="mean", calibration=HELD_OUT),
        ablated(),
        *(
            ablated(value=value, calibration=HELD_OUT)
            for value in ("mean", "mean-positions", "counterfactual", "resample")
        ),
        lambda model: patch(model, ITEMS, [(), (EDGE,)], keep=False),
        lambda model: patch(model, ITEMS, [(), (EDGE,)], keep=True),
    ],
)
def test_nothing_is_masked(measure: Callable[[LoadedModel], object]) -> None:
    calls: list[dict[str, Any]] = []
    seen = lambda _, args, given: calls.append({"inputs": args, **given})
    parts = (MODEL.module, MODEL.trunk)
    with hooks(*(part.register_forward_pre_hook(seen, with_kwargs=True) for part in parts)):
        measure(MODEL)
    assert calls
    for call in calls:
        assert call.get("attention_mask") is None
        assert not call.get("output_attentions")
