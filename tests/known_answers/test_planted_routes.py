"""The claim `path` on models whose paths are known on paper (tests/helpers/planted.py).

The answer's class travels embed → L1.H2 → L4.H5 → logits, at values and nowhere else. With a second reader, L5.H1, half
of it takes another way: with one of the two on the foil the residual at the last token is q + o_a + o_b, whose logit
difference is 0, and 16/√5 with none.
"""

from __future__ import annotations

import math

import pytest
import torch

from circuittest.lab import Lab
from circuittest.stats import InvalidClaim
from tests.helpers import planted
from tests.helpers.planted import Planted
from tests.known_answers.test_kept import lab

FROM, READ, OTHER = "L1.H2", "L4.H5", "L5.H1"


@pytest.fixture(scope="module")
def plain() -> Lab:
    return lab(planted.build(dtype=torch.float64))


@pytest.fixture(scope="module")
def backed() -> Lab:
    return lab(planted.build(backup=True, dtype=torch.float64))


@pytest.fixture(scope="module")
def translated() -> Lab:
    return lab(planted.build(mlp=True, dtype=torch.float64))


@pytest.mark.parametrize(
    ("sender", "receiver", "share"),
    [
        (FROM, f"{READ}.v", 1),
        (FROM, READ, 1),
        (FROM, f"{READ}.q", 0),
        (FROM, f"{READ}.k", 0),
        (FROM, f"{OTHER}.v", 0),
        (FROM, "logits", 0),
        (READ, "logits", 1),
        ("embed", f"{FROM}.v", 1),
        ("embed", f"{READ}.v", 0),
    ],
)
def test_one_way(plain: Lab, sender: str, receiver: str, share: float) -> None:
    found = plain.path(sender, receiver)
    assert found.invalid == ""
    assert found.value == pytest.approx(share, abs=1e-6)
    assert found.details["effect_whole"]["value"] == pytest.approx(-8 * math.sqrt(2), abs=1e-6)


def test_a_supported_and_a_refuted_claim(plain: Lab) -> None:
    assert plain.path(FROM, READ, slot="v") >= 0.7
    assert not plain.path(FROM, READ, slot="q") >= 0.3


def test_two_ways_of_equal_weight(backed: Lab) -> None:
    whole = -32 / math.sqrt(5)
    for receiver in (f"{READ}.v", f"{OTHER}.v"):
        half = backed.path(FROM, receiver)
        assert half.value == pytest.approx(0.5, abs=1e-6)
        assert half.details["effect_whole"]["value"] == pytest.approx(whole, abs=1e-6)
        assert half.details["effect_path"]["value"] == pytest.approx(whole / 2, abs=1e-5)
    assert backed.path(FROM, [f"{READ}.v", f"{OTHER}.v"]).value == pytest.approx(1, abs=1e-6)
    assert backed.path(FROM, f"{READ}.v", share_of="received").value == pytest.approx(1, abs=1e-6)


def test_the_share_of_what_arrives_at_the_logits(backed: Lab) -> None:
    assert backed.path(READ, "logits", share_of="received").value == pytest.approx(0.5, abs=1e-6)
    assert backed.path([READ, OTHER], "logits", share_of="received").value == pytest.approx(1, abs=1e-6)
    assert backed.path([READ, "L3.H3"], "logits", share_of="received").value == pytest.approx(0.5, abs=1e-6)
    idle = backed.path("L3.H3", "logits", share_of="received")
    assert idle.value == pytest.approx(0, abs=1e-6)


def test_an_mlp_on_the_way_is_part_of_the_path_only_where_it_is_recomputed(translated: Lab) -> None:
    """L4.H5 writes what only L5.MLP reads."""
    assert translated.path(READ, "L5.MLP").value == pytest.approx(1, abs=1e-6)
    assert translated.path(READ, "logits").value == pytest.approx(0, abs=1e-6)
    assert translated.path(READ, "logits", mlps="recomputed").value == pytest.approx(1, abs=1e-6)
    assert translated.path(FROM, "logits", mlps="recomputed").value == pytest.approx(0, abs=1e-6)
    assert translated.path("L5.MLP", "logits").value == pytest.approx(1, abs=1e-6)


def test_two_families_each_along_a_way_of_its_own() -> None:
    there = lab(planted.build(families=2, dtype=torch.float64))
    first, second = (there.path(unit, f"{READ}.v") for unit in (FROM, "L2.H6"))
    assert (first.value, second.value) == (pytest.approx(1, abs=1e-6), pytest.approx(1, abs=1e-9))
    # of what the reader's values receive each brings half, on its own half of the examples
    received = there.path(FROM, f"{READ}.v", share_of="received")
    classes = [planted.Y.index(item.answer_ids[0]) for item in there.data.evaluate]
    expected = sum(c < planted.CLASSES // 2 for c in classes) / len(classes)
    assert received.value == pytest.approx(expected, abs=1e-6)


def test_a_head_that_does_nothing_has_no_effect_to_take_a_share_of(plain: Lab) -> None:
    idle = plain.path("L0.H3", "logits")
    assert "which is rounding" in idle.invalid
    with pytest.raises(InvalidClaim):
        bool(idle >= 0.5)


def test_the_model_is_the_planted_one(plain: Lab) -> None:
    """The reference of this file: what the module says of the model."""
    found: Planted = planted.build(dtype=torch.float64)
    assert [str(unit) for unit in found.circuit] == [FROM, READ]
    assert plain.path(FROM, f"{READ}.v").details["m"] == pytest.approx(4 * math.sqrt(2), abs=1e-6)
