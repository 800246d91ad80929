"""Scans and greedy orders on heads with known effects, and on the planted model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from circuittest.errors import UsageError
from circuittest.find.scan import curve_sizes, damage, greedy, members_of, scan
from circuittest.lab import Lab
from circuittest.units import Layout, Unit
from tests.helpers import planted
from tests.known_answers.test_planted_edges import FULL, lab_of

LAYOUT = Layout(n_layers=3, n_heads=4, n_kv_heads=2)
HEADS = LAYOUT.units(("head",))
N = 10


class Additive:
    """A metric of 10 that falls by what each ablated head is worth, and by what pairs are worth beyond that."""

    def __init__(self, worth: dict[str, float], pairs: dict[tuple[str, str], float] | None = None) -> None:
        self.worth = {Unit.parse(name): value for name, value in worth.items()}
        self.pairs = {tuple(map(Unit.parse, pair)): value for pair, value in (pairs or {}).items()}
        self.calls: list[int] = []

    def __call__(self, sets: Sequence[tuple[Unit, ...]]) -> np.ndarray:
        self.calls.append(len(sets))
        rows = []
        for units in sets:
            touched = set(LAYOUT.expand(units))
            lost = sum(self.worth.get(unit, 0.0) for unit in touched)
            lost += sum(value for pair, value in self.pairs.items() if touched >= set(pair))
            rows.append(10.0 - lost + 0.1 * np.sin(np.arange(N)))
        return np.array(rows)


def heads(model: Additive, per: str = "head", size: int = 0):
    return scan(model, members_of(LAYOUT, per, size), HEADS)


def test_effects_and_order() -> None:
    found = heads(Additive({"L0.H1": 3.0, "L2.H3": 5.0, "L1.H0": -1.0}))
    named = dict(zip((m.name for m in found.members), found.effects, strict=True))
    assert {name: round(effect, 9) for name, effect in named.items() if abs(effect) > 1e-9} == {
        "L0.H1": 3.0,
        "L2.H3": 5.0,
        "L1.H0": -1.0,
    }
    names = [member.name for member in found.ordered]
    assert names[:3] == ["L2.H3", "L0.H1", "L0.H0"]  # equal effects in canonical order
    assert names[-1] == "L1.H0"
    assert found.reach.mean() == pytest.approx(7.0)
    assert found.lost.shape == (12, N)
    told = found.to_dict()
    assert told["effects"]["L2.H3"]["effect"] == pytest.approx(5.0)
    assert told["all_ablated"] == pytest.approx(3.0, abs=0.1)


def test_members() -> None:
    assert [m.name for m in members_of(LAYOUT, "kv")] == [f"L{i}.KV{j}" for i in range(3) for j in range(2)]
    assert [m.name for m in members_of(LAYOUT, "group", 2)][:2] == ["L0.H0-1", "L0.H2-3"]
    assert [m.name for m in members_of(LAYOUT, "mlp")] == ["L0.MLP", "L1.MLP", "L2.MLP"]
    assert [m.layer for m in members_of(LAYOUT, "attn")] == [0, 1, 2]
    model = Additive({"L1.H2": 2.0, "L1.H3": 2.5})
    assert heads(model, "kv").ordered[0].name == "L1.KV1"
    assert heads(model, "group", 2).effects.max() == pytest.approx(4.5)
    for per, size in (("heads", 0), ("head", 2), ("group", 0), ("group", 3)):
        with pytest.raises(UsageError, match="member|size is"):
            members_of(LAYOUT, per, size)


def test_greedy_finds_the_partner() -> None:
    """L2.H0 and L2.H1 do little alone; L1.H0 comes before H1 in the static order, and adds less than it."""
    model = Additive({"L2.H0": 2.0, "L1.H0": 1.0, "L2.H1": 0.5}, {("L2.H0", "L2.H1"): 6.0})
    found = heads(model)
    assert [member.name for member in found.ordered][:3] == ["L2.H0", "L1.H0", "L2.H1"]
    model.calls.clear()
    order = greedy(model, found, 0.8)
    assert [found.members[i].name for i in order][:3] == ["L2.H0", "L2.H1", "L1.H0"]
    assert sorted(order) == list(range(12))
    assert model.calls == [11]  # 8.5 of 9.5 are done with two


def test_damage_and_where_it_stays() -> None:
    """The second head undoes the first's damage: the first crossing is no crossing that holds."""
    model = Additive(
        {"L0.H0": 9.0, "L0.H1": 5.0, "L0.H2": 3.0}, {("L0.H0", "L0.H1"): -10.0, ("L0.H1", "L0.H2"): 3.0}
    )
    found = heads(model)
    grown = damage(model, found.ordered, HEADS)
    assert grown.sizes == tuple(range(1, 13))
    curve = [grown.curve[k] for k in (1, 2, 3, 12)]
    assert curve == pytest.approx([0.9, 0.4, 1.0, 1.0])
    assert grown.units_to(0.8).value == 3
    assert damage(model, found.ordered, HEADS, [1, 12]).units_to(0.8).value == 1
    assert curve_sizes(40)[-3:] == [35, 38, 40]


@pytest.fixture(scope="module")
def lab() -> Lab:
    model = planted.build(dtype=torch.float64)
    model.model.__dict__["checks"] = ()
    return lab_of(model)


def test_the_planted_heads(lab: Lab) -> None:
    """Ablating the carrier or the reader costs the whole logit difference; no other head or MLP costs anything."""
    found = lab.scan()
    top = {found.members[i].name for i in found.order[:2]}
    assert top == {str(planted.CARRIER), str(planted.READER)}
    np.testing.assert_allclose(np.sort(found.effects)[-2:], FULL, atol=1e-6)
    np.testing.assert_allclose(np.sort(found.effects)[:-2], 0, atol=1e-6)
    assert found.choices["metric"] == "logit_diff"
    grown = lab.damage(found)
    assert grown.units_to().value == 1
    assert grown.lost.shape[1] == len(lab.data.evaluate)
    np.testing.assert_allclose(lab.scan("mlp").effects, 0, atol=1e-6)
    assert lab.scan("attn").ordered[0].name in ("L1.ATTN", "L4.ATTN")
    assert lab.scan("kv", metric="accuracy").effects.max() == 1.0


def test_a_backup_is_found_greedily() -> None:
    """Two readers do the same: alone each costs a fifth, and the second costs the rest."""
    model = planted.build(dtype=torch.float64, backup=True)
    model.model.__dict__["checks"] = ()
    lab = lab_of(model)
    assert lab.scan().ordered[0].name == str(planted.CARRIER)
    readers = [str(planted.READER), str(planted.BACKUP)]
    effects = {m.name: effect for m, effect in zip(lab.scan().members, lab.scan().effects, strict=True)}
    for reader in readers:
        assert effects[reader] == pytest.approx(16 / np.sqrt(5) - FULL)
    assert lab.scan(order="greedy").choices["damage"] == 0.8


def test_refusals(lab: Lab) -> None:
    with pytest.raises(UsageError, match="unknown order 'best'"):
        lab.scan(order="best")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown member 'heads'"):
        lab.scan("heads")  # type: ignore[arg-type]


def test_no_share_is_taken_of_what_ablation_does_not_cost() -> None:
    """With everything ablated the metric is higher: shares of that would call an improvement damage."""
    model = Additive({"L0.H1": -3.0, "L2.H3": -1.0})
    found = heads(model)
    with pytest.raises(UsageError, match="ablating everything changes the metric by 4"):
        greedy(model, found, 0.8)
    grown = damage(model, found.ordered, HEADS)
    assert grown.lost[-1].mean() == pytest.approx(-4.0)
    with pytest.raises(UsageError, match="nothing to lose"):
        _ = grown.curve
    assert heads(Additive({})).effects == pytest.approx(np.zeros(12))
    with pytest.raises(UsageError, match="nothing to lose"):
        greedy(Additive({}), heads(Additive({})), 0.8)
