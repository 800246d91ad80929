"""EAP-IG and exact patching on the planted circuit: what is known on paper, and what first order misses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from circuittest.measure.attribution import attribute
from circuittest.units import Unit
from tests.helpers import planted
from tests.helpers.planted import CARRIER, READER

CHANGE = -8 * math.sqrt(2)  # from 4√2 for the right class to 4√2 for the foil
KINDS = ("embed", "head", "mlp")


def test_exact_patching_swaps_the_answer() -> None:
    model = planted.build()
    table = attribute(model.model, model.items(6), metric="logit_diff", method="exact")
    expected = [CHANGE if unit in (CARRIER, READER) else 0.0 for unit in table.members]
    np.testing.assert_allclose(table.values, np.tile(expected, (6, 1)), rtol=0, atol=1e-4)


def test_the_path_adds_up_to_the_swap() -> None:
    """Every stage of the one chain, embedding, carrier and reader, passes on the whole change."""
    model = planted.build()
    items = model.items(4)
    by = lambda steps: attribute(
        model.model, items, metric="logit_diff", method="eap-ig", steps=steps, unit_score="node", kinds=KINDS
    )
    table = by(100)
    embed = table.values[:, table.members.index(Unit("embed"))]
    np.testing.assert_allclose(embed, CHANGE, rtol=0.02)
    for column, unit in enumerate(table.members):
        if unit not in (Unit("embed"), CARRIER, READER):
            np.testing.assert_allclose(table.values[:, column], 0, atol=1e-3)
    one = attribute(model.model, items, metric="logit_diff", unit_score="node", kinds=KINDS)
    plain = one.values[:, one.members.index(Unit("embed"))]
    assert abs(plain[0] - CHANGE) > 0.2 * abs(CHANGE)  # which the gradient at the clean run alone is not


@pytest.mark.parametrize("steps", [1, 5])
def test_each_example_has_its_circuit(steps: int) -> None:
    model = planted.build(families=2)
    items = model.items(8)
    table = attribute(model.model, items, metric="logit_diff", method="eap-ig", steps=steps)
    for row, item in enumerate(items):
        top = np.argsort(-table.values[row])[:2]
        assert {table.members[i] for i in top} == set(model.circuit_of(item))
