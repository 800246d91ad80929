"""The tokens that are shown beside a verdict are those of the run that was judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from circuittest.measure.ablation import ablate
from circuittest.measure.tokens import top_tokens
from circuittest.measure.values import VALUES
from circuittest.units import Unit
from tests.helpers import tiny
from tests.helpers.items import random_items

ITEMS = random_items(5)
CALIBRATION = [replace(item, index=item.index + 100) for item in random_items(5, seed=3)]
SETS = [(), (Unit("head", 0, 1), Unit("mlp", 1)), (Unit("kv", 1, 0),)]


@pytest.fixture(scope="module")
def model():
    return tiny.build_loaded("llama", dtype=torch.float64)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("positions", ["all", "not-first"])
def test_probabilities_are_those_of_the_ablation(model, value, positions):
    how = {"value": value, "positions": positions, "calibration": CALIBRATION}
    table = ablate(model, ITEMS, SETS, **how)
    rows = [4, 1, 2]  # other examples than the first, so that draws and means must be those of all
    found = top_tokens(model, ITEMS, rows, SETS, count=tiny.VOCAB, **how)
    for s in range(len(SETS)):
        for place, row in enumerate(rows):
            shares = dict(found[s][place])
            assert len(shares) == tiny.VOCAB
            assert sum(shares.values()) == pytest.approx(1.0)
            answers = sum(shares[i] for i in set(ITEMS[row].answer_ids))
            assert np.log(answers) == pytest.approx(table.columns["log_prob"][s, row], abs=1e-9)
            best = found[s][place][0][0]
            assert float(best in ITEMS[row].answer_ids) == table.columns["argmax"][s, row]


def test_the_likeliest_come_first_and_only_as_many_as_asked(model):
    (rows,) = top_tokens(model, ITEMS, [0, 3], [()], count=4)
    for shares in rows:
        assert len(shares) == 4
        assert [share for _, share in shares] == sorted((share for _, share in shares), reverse=True)
