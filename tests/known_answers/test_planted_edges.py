"""Patching edges of a model whose circuit is known on paper (tests/helpers/planted.py), also through a lab.

Of the prompt only X_a differs from the counterfactual's X_b, so that only the edges on which the class travels matter:
with all three the logit difference is 4√2; without any of them the reader gets b, and it is −4√2.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from circuittest.circuit import Circuit
from circuittest.errors import CircuitError, UsageError
from circuittest.find.sizes import areas, edge_circuits, faithfulness
from circuittest.lab import Lab
from circuittest.measure.patching import patch
from circuittest.tasks import Example, Item, TaskData
from circuittest.units import Edge, Layout
from tests.helpers import planted
from tests.helpers.planted import Planted

FULL = 4 * math.sqrt(2)
PATH = tuple(Edge.parse(text) for text in ("embed->L1.KV2.v", "L1.H2->L4.KV5.v", "L4.H5->logits"))


@pytest.fixture(scope="module")
def model() -> Planted:
    found = planted.build(dtype=torch.float64)
    # Its saturated heads attend nowhere on the preflight's random tokens, and so do not depend on their keys.
    found.model.__dict__["checks"] = ()
    return found


def lab_of(model: Planted) -> Lab:
    items = [
        Item(
            index=item.index,
            prompt_ids=item.prompt_ids,
            counterfactual_ids=item.counterfactual_ids,
            answer_ids=item.answer_ids,
            foil_ids=item.foil_ids,
            counterfactual_answer_ids=item.foil_ids,
            features={},
            group="",
            example=Example("", ("",), ("",), "", ("",)),
        )
        for item in model.items(12, seed=1)
    ]
    data = TaskData(
        task="planted",
        seed=0,
        prefix=(planted.BOS,),
        prefix_name="bos",
        discover=tuple(items[:6]),
        evaluate=tuple(items[6:]),
        dropped={},
        chance=0.0,
        accuracy="argmax",
        metric="logit_diff",
    )
    return Lab(model.model, data)


def test_the_class_travels_along_three_edges(model: Planted) -> None:
    layout = model.model.layout
    rest = [edge for edge in layout.edges() if edge not in PATH]
    circuits = [PATH, (), *([edge for edge in PATH if edge != lost] for lost in PATH)]
    kept = patch(model.model, model.items(8, noise=(1, 2)), circuits, keep=True)
    for row, sign in enumerate((1, -1, -1, -1, -1)):
        np.testing.assert_allclose(kept.columns["logit_diff"][row], sign * FULL, atol=1e-6)
        assert (kept.columns["argmax"][row] == (sign == 1)).all()
    out = patch(model.model, model.items(8), [rest, PATH, *([edge] for edge in PATH)], keep=False)
    for row, sign in enumerate((1, -1, -1, -1, -1)):
        np.testing.assert_allclose(out.columns["logit_diff"][row], sign * FULL, atol=1e-6)


def test_zeros_take_away_the_flags_that_heads_look_for_too(model: Planted) -> None:
    """With zeros outside, no key or query is left: the carrier and the reader attend everywhere alike."""
    kept = patch(model.model, model.items(4), [PATH], keep=True, value="zero").columns["logit_diff"][0]
    assert (kept > 0).all()
    assert (np.abs(kept - FULL) > 0.1).all()


def test_cpr_and_cmd_of_a_planted_circuit(model: Planted) -> None:
    lab = lab_of(model)
    table = lab.scores(level="edges", universe="all")
    total = len(table.members)
    circuits = edge_circuits(table, [2, 3, total // 2, total], layout=lab.layout)
    assert circuits[1].edges == tuple(sorted(PATH))
    assert len(circuits[0]) == 0  # two of the three are no path
    kept = lab.patched([(), *circuits], keep=True).measure("logit_diff")
    values = faithfulness(kept[1:], kept[-1], kept[0])
    np.testing.assert_allclose(values, [0, 1, 1, 1], atol=1e-6)
    found = areas([2 / total, 3 / total, 0.5, 1.0], values)
    assert found.cmd == pytest.approx(2.5 / total, abs=1e-6)
    assert found.cpr == pytest.approx(1 - 2.5 / total, abs=1e-6)


def test_a_lab_remembers_what_it_patched(model: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of(model)
    first = lab.patched([PATH, ()], keep=True, value="mean")
    assert first.examples == tuple(item.index for item in lab.data.evaluate)
    with monkeypatch.context() as broken:
        broken.setattr("circuittest.measure.patching.patch", None)
        assert lab.patched([Circuit(edges=PATH), Circuit()], keep=True, value="mean") is first
    assert lab.patched([PATH, ()], keep=False, value="mean") is not first
    units = lab.patched([model.circuit], keep=True, level="units")
    np.testing.assert_allclose(units.measure("logit_diff"), FULL, atol=1e-6)


def test_what_a_lab_refuses(model: Planted) -> None:
    lab = lab_of(model)
    with pytest.raises(UsageError, match="unknown split 'test'"):
        lab.patched([PATH], keep=True, split="test")
    with pytest.raises(UsageError, match="without calibration examples"):
        lab.patched([PATH], keep=True, value="mean", split="discover")
    with pytest.raises(CircuitError, match="belongs to another architecture"):
        lab.patched([Circuit(edges=PATH, layout=Layout(6, 8, 8))], keep=True)
