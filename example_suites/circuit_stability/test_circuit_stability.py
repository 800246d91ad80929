"""Stability of sums as claims; the whole study with its figures is study.py."""

import pytest
from hypothesis import given, settings
from sums import Sums

from hypothesis_circuittest import subtask_pairs

SUMS = Sums(operands=(3, 4, 5))


@pytest.fixture(scope="session")
def lab(make_lab):
    """Sums of sizes that the model was trained on."""
    return make_lab("zoo:mha", SUMS, discover=900, evaluate=900)


def test_circuits_are_more_alike_within_a_decade_than_across(lab):
    """Nine subtasks, three of each decade; all other features do not matter so much."""
    assert lab.stability_difference("operands * decade", by="decade", n=150, replicates=40) > 0


def test_the_order_of_the_numbers_does_not_matter(lab):
    assert lab.stability("larger", n=600, replicates=40) > 0.7


@pytest.mark.xfail(strict=True, reason="different decades of the sum run through different circuits")
@settings(deadline=None, max_examples=20, derandomize=True, database=None)
@given(pair=subtask_pairs(SUMS, min_size=200, max_features=1, count=1800))
def test_every_pair_of_subtasks_is_alike(lab, pair):
    """Found and shrunk to the simplest pair: decade == 0 vs decade == 1."""
    assert lab.stability(pair, n=200, replicates=40) > 0.5
