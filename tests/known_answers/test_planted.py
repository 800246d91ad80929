"""Attribution and ablation on models whose answers are known on paper (tests/helpers/planted.py)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from circuittest.measure.ablation import ablate, canary
from circuittest.measure.attribution import attribute
from circuittest.units import Edge, Unit
from tests.helpers import planted
from tests.helpers.planted import CARRIER, READER, SECOND, TRANSLATOR, Planted

ROOT = math.sqrt(2)
EDGES = {"L4.H5->logits": -6 * ROOT, "L1.H2->L4.KV5.v": -5 * ROOT, "embed->L1.KV2.v": -4.5 * ROOT}


@pytest.fixture(scope="module", params=[torch.float32, torch.float64], ids=["float32", "float64"])
def plain(request: pytest.FixtureRequest) -> Planted:
    return planted.build(dtype=request.param)


def tolerance(found: Planted) -> float:
    return 1e-4 if found.model.dtype == torch.float32 else 1e-6  # score tables are float32


def test_edge_scores_are_those_on_paper(plain: Planted) -> None:
    table = attribute(plain.model, plain.items(16, noise=(1, 2)), metric="logit_diff", level="edges")
    expected = np.array([EDGES.get(str(edge), 0.0) for edge in table.members])
    np.testing.assert_allclose(table.values, np.tile(expected, (16, 1)), rtol=0, atol=tolerance(plain))
    assert {Edge.parse(text) for text in EDGES} <= set(table.members)


@pytest.mark.parametrize("unit_score", ["edge-abs-sum", "edge-sum", "node"])
def test_unit_scores_are_those_on_paper(plain: Planted, unit_score: str) -> None:
    table = attribute(
        plain.model,
        plain.items(8),
        metric="logit_diff",
        unit_score=unit_score,
        kinds=("embed", "head", "mlp"),
    )
    known = {Unit("embed"): -4.5 * ROOT, CARRIER: -5 * ROOT, READER: -6 * ROOT}
    sign = -1 if unit_score == "edge-abs-sum" else 1
    expected = np.array([sign * known.get(unit, 0.0) for unit in table.members])
    np.testing.assert_allclose(table.values, np.tile(expected, (8, 1)), rtol=0, atol=tolerance(plain))


def test_outcomes_are_those_on_paper(plain: Planted) -> None:
    items = plain.items(16, noise=(1, 3))
    others = tuple(unit for unit in plain.model.layout.units() if unit not in plain.circuit)
    sets = [(), (CARRIER,), (READER,), plain.circuit, others, others[:10]]
    table = ablate(plain.model, items, sets)
    carried = {0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0, 4: 1.0, 5: 1.0}
    for row, right in carried.items():
        assert (table.columns["argmax"][row] == right).all()
        assert (table.columns["candidates"][row] == right).all()
        np.testing.assert_allclose(table.columns["logit_diff"][row], 4 * ROOT * right, atol=tolerance(plain))
        top, other = (4 * ROOT, 2 * ROOT) if right else (0.0, 4.0)
        others_sum = math.exp(other) + planted.VOCAB - 2
        log_prob = top - math.log(math.exp(top) + others_sum)
        np.testing.assert_allclose(table.columns["log_prob"][row], log_prob, atol=tolerance(plain))
    # Every unit writes something, so that each proof means something. But the reader has nothing without its carrier,
    # and of the last layer only the last position is run.
    assert {text for text in table.choices["unchanged"] if not text.startswith("L5.")} <= {"L4.H5"}


def test_an_mlp_that_is_needed() -> None:
    model = planted.build(mlp=True)
    assert model.circuit == (CARRIER, READER, TRANSLATOR)
    items = model.items(8)
    others = tuple(unit for unit in model.model.layout.units() if unit not in model.circuit)
    table = ablate(model.model, items, [(), *((unit,) for unit in model.circuit), others])
    assert table.columns["argmax"].mean(1).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]
    s = 0.5
    d = (1 + s**2) ** 2 + 2 * s**2
    f = 2 * s**2 / d
    slope = (4 * s * d - 2 * s**2 * (4 * s * (1 + s**2) + 4 * s)) / d**2
    np.testing.assert_allclose(table.columns["logit_diff"][0], 8 * math.sqrt(f), atol=1e-5)
    reader = -4 * s * slope / math.sqrt(f)
    known = {
        READER: reader,
        CARRIER: reader / 2,
        Unit("embed"): reader / 4,
        TRANSLATOR: -8 * math.sqrt(f) * (2 - f),
    }
    kinds = ("embed", "head", "mlp")
    scores = attribute(model.model, items, metric="logit_diff", unit_score="node", kinds=kinds)
    expected = np.array([known.get(unit, 0.0) for unit in scores.members])
    np.testing.assert_allclose(scores.values, np.tile(expected, (8, 1)), rtol=0, atol=1e-4)


def test_two_families_have_carriers_of_their_own() -> None:
    model = planted.build(families=2)
    assert model.circuit == (CARRIER, SECOND, READER)
    items = model.items(12)
    assert {model.circuit_of(item) for item in items} == {(CARRIER, READER), (SECOND, READER)}
    first = np.array([CARRIER in model.circuit_of(item) for item in items])
    assert first.mean() == 0.5
    table = ablate(model.model, items, [(), (CARRIER,), (SECOND,), (READER,)])
    right = table.columns["argmax"]
    assert right[0].all()
    assert np.array_equal(right[1].astype(bool), ~first)
    assert np.array_equal(right[2].astype(bool), first)
    assert not right[3].any()
    scores = attribute(model.model, items, metric="logit_diff")
    for row, item in enumerate(items):
        top = np.argsort(-scores.values[row])[:2]
        assert {scores.members[i] for i in top} == set(model.circuit_of(item))


def test_the_canary_lives_where_heads_matter(plain: Planted) -> None:
    moved, noise = canary(plain.model, plain.items(1)[0], layer=4)
    assert moved > 1
    assert noise == 0.0
