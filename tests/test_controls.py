"""Matched controls: the same number of each kind, outside the circuit, and a fair sample of all there are."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from circuittest.circuit import Circuit
from circuittest.controls import ENUMERATE_UP_TO, Controls, matched_controls, strata
from circuittest.errors import ControlError
from circuittest.stats import rank_p
from circuittest.units import Layout, Unit
from hypothesis_circuittest import circuits, control_sets, layouts, unit_sets

MATCH = st.sampled_from(["kind", "layer"])


def feasible(
    circuit: Circuit, layout: Layout, universe: str, match: str, count: int = 12, seed: int = 0
) -> Controls:
    """Controls, or an uninteresting draw where none exists."""
    try:
        return matched_controls(
            circuit.units, layout.universe(universe), layout, count=count, seed=seed, match=match
        )
    except ControlError:
        assume(False)
        raise


def shape(units: tuple[Unit, ...], match: str) -> Counter[tuple[str, int | None]]:
    """What must agree between a circuit and its controls."""
    return Counter((unit.kind, unit.layer if match == "layer" else None) for unit in units)


@given(st.data(), layouts(), MATCH, st.sampled_from(["all", "heads", "kv", "mlps"]), st.integers(0, 2**32))
def test_controls_match_avoid_the_circuit_and_differ(
    data: st.DataObject, layout: Layout, match: str, universe: str, seed: int
) -> None:
    circuit = data.draw(circuits(layout, universe=universe, max_units=6))
    controls = feasible(circuit, layout, universe, match, seed=seed)
    assert len(set(controls.sets)) == len(controls.sets) <= controls.population
    assert controls.enumerated == (len(controls.sets) == controls.population)
    for units in controls.sets:
        assert list(units) == sorted(set(units))
        assert shape(units, match) == shape(circuit.units, match)
        assert not set(units) & set(circuit.units)
        assert set(units) <= set(layout.universe(universe))


@given(st.data(), layouts(max_layers=3, max_heads=4), MATCH)
def test_small_populations_are_enumerated(data: st.DataObject, layout: Layout, match: str) -> None:
    circuit = data.draw(circuits(layout, max_units=2))
    controls = feasible(circuit, layout, "all", match, count=1)
    assume(controls.population <= ENUMERATE_UP_TO)
    rest = [unit for unit in layout.universe("all") if unit not in circuit]
    by_hand = {
        units
        for units in combinations(rest, len(circuit.units))
        if shape(units, match) == shape(circuit.units, match)
    }
    assert set(controls.sets) == by_hand
    assert controls.enumerated
    assert controls.population == len(by_hand)


@given(st.data(), layouts(max_layers=4), MATCH)
@settings(max_examples=50)
def test_the_strategy_draws_from_the_same_population(data: st.DataObject, layout: Layout, match: str) -> None:
    circuit = data.draw(circuits(layout, max_units=3))
    controls = feasible(circuit, layout, "all", match)
    drawn = data.draw(control_sets(circuit, layout, match=match))
    assert shape(drawn, match) == shape(circuit.units, match)
    assert not set(drawn) & set(circuit.units)
    if controls.enumerated:
        assert drawn in controls.sets


@given(st.data(), layouts(), st.integers(0, 2**32))
def test_same_seed_same_draws_whatever_the_order_of_the_input(
    data: st.DataObject, layout: Layout, seed: int
) -> None:
    circuit = data.draw(circuits(layout, max_units=4))
    controls = feasible(circuit, layout, "all", "kind", seed=seed)
    universe = data.draw(st.permutations(layout.universe("all")))
    units = data.draw(st.permutations(circuit.units * 2))
    assert matched_controls(units, universe, layout, count=12, seed=seed) == controls


def test_another_seed_draws_other_sets_and_more_draws_extend_fewer() -> None:
    layout = Layout(6, 8, 2)
    circuit = Circuit.of(["L0.H0", "L1.H1", "L2.H2", "L3.H3"])
    universe = layout.universe("heads")
    few = matched_controls(circuit.units, universe, layout, count=20, seed=3)
    many = matched_controls(circuit.units, universe, layout, count=40, seed=3)
    other = matched_controls(circuit.units, universe, layout, count=40, seed=4)
    assert many.sets[:20] == few.sets
    assert set(many.sets) != set(other.sets)
    assert few.population == comb(44, 4)
    assert not few.enumerated


def test_every_unit_outside_is_drawn_equally_often() -> None:
    """Exchangeability: relabelling the units outside the circuit must not change the distribution of the draws."""
    layout = Layout(6, 8, 2)
    circuit = Circuit.of(["L0.H0", "L1.H1", "L2.H2", "L5.H7"])
    controls = matched_controls(circuit.units, layout.universe("heads"), layout, count=4_000, seed=0)
    seen = Counter(unit for units in controls.sets for unit in units)
    assert len(seen) == 44
    mean = 4_000 * 4 / 44
    # Each count is close to binomial; 44 of them stay within five standard deviations but once in 40,000 seeds.
    assert max(abs(n - mean) for n in seen.values()) < 5 * np.sqrt(mean * (1 - 4 / 44))
    pairs = Counter(pair for units in controls.sets for pair in combinations(units, 2))
    expected = 4_000 * comb(4, 2) / comb(44, 2)
    chi2 = sum((pairs[pair] - expected) ** 2 / expected for pair in combinations(sorted(seen), 2))
    assert 700 < chi2 < 1_200  # 945 degrees of freedom, less four fifths of them for fixed set sizes


def test_layer_match_draws_each_layer_fairly() -> None:
    layout = Layout(4, 8, 2)
    circuit = Circuit.of(["L0.H0", "L1.H1", "L2.H2", "L3.H3"])
    controls = matched_controls(
        circuit.units, layout.universe("heads"), layout, count=1_500, seed=1, match="layer"
    )
    assert controls.population == 7**4
    seen = Counter(unit for units in controls.sets for unit in units)
    assert len(seen) == 28
    assert max(abs(n - 1_500 / 7) for n in seen.values()) < 5 * np.sqrt(1_500 / 7)


def test_a_control_never_touches_the_circuit_by_another_name() -> None:
    layout = Layout(2, 4, 2)
    heads = matched_controls([Unit.parse("L0.H0")], layout.universe("heads"), layout, count=40, seed=0)
    assert len(heads.sets) == 7
    groups = matched_controls(
        [Unit.parse("L0.KV0")], layout.universe(["kv", "heads"]), layout, count=40, seed=0
    )
    assert [str(s[0]) for s in groups.sets] == ["L0.KV1", "L1.KV0", "L1.KV1"]


def test_mixed_names_of_the_same_heads_are_refused() -> None:
    layout = Layout(4, 4, 2)
    circuit = [Unit.parse("L0.H0"), Unit.parse("L1.KV0")]
    with pytest.raises(ControlError, match="mixes units of kinds head, kv"):
        matched_controls(circuit, layout.universe(["kv", "heads"]), layout, count=40, seed=0)


@pytest.mark.parametrize(
    ("ids", "universe", "match", "message"),
    [
        (["L0.H0", "L0.H1", "L0.H2", "L0.H3", "L1.H0"], "heads", "kind",
         "holds 5 units of kind head and only 3 are left"),
        (["L0.MLP", "L1.MLP"], "all", "kind", "holds 2 units of kind mlp and only 0 are left"),
        (["L0.H0", "L0.H1", "L0.H2"], "heads", "layer", "holds 3 units of kind head in layer 0 and only 1 are left"),
        (["L0.MLP"], "all", "layer", "holds 1 units of kind mlp in layer 0 and only 0 are left"),
        (["L0.MLP"], "heads", "kind", r"L0\.MLP is not in the universe.*the universe ranks head"),
        ([], "heads", "kind", "the circuit is empty"),
        (["L0.H0"], "heads", "size", "unknown match 'size'"),
    ],
)  # fmt: skip
def test_what_cannot_be_matched_is_an_error(ids: list[str], universe: str, match: str, message: str) -> None:
    layout = Layout(2, 4, 2)
    units = [Unit.parse(i) for i in ids]
    with pytest.raises(ControlError, match=message):
        matched_controls(units, layout.universe(universe), layout, count=40, seed=0, match=match)
    with pytest.raises(ControlError, match=message):
        control_sets(units, layout, universe, match=match)


def test_edges_and_no_controls_are_refused() -> None:
    layout = Layout(2, 4, 2)
    circuit = Circuit.of(["L0.H0", "L0.H0->logits"])
    with pytest.raises(ControlError, match="the circuit holds edges"):
        matched_controls(circuit, layout.universe("heads"), layout, count=4, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ControlError, match="0 controls were asked for"):
        matched_controls(circuit.units, layout.universe("heads"), layout, count=0, seed=0)


def test_overlap_is_the_mean_jaccard_index() -> None:
    layout = Layout(1, 4, 4)
    controls = matched_controls([Unit.parse("L0.H0")], layout.universe("heads"), layout, count=3, seed=0)
    assert controls.overlap == 0.0
    pairs = matched_controls(
        [Unit.parse("L0.H0"), Unit.parse("L1.H0")],
        Layout(2, 3, 3).universe("heads"),
        Layout(2, 3, 3),
        count=3,
        seed=0,
    )
    by_hand = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in combinations(pairs.sets, 2)]
    assert pairs.overlap == pytest.approx(np.mean(by_hand))
    one = matched_controls(
        [Unit.parse("L0.H0")], Layout(1, 2, 2).universe("heads"), Layout(1, 2, 2), count=3, seed=0
    )
    assert (one.population, one.overlap) == (1, None)


@given(st.data(), layouts(), MATCH)
def test_strata_count_the_circuit_and_never_hold_it(data: st.DataObject, layout: Layout, match: str) -> None:
    units = data.draw(unit_sets(layout, min_size=1, max_size=5))
    try:
        found = strata(units, layout.universe("all"), layout, match)
    except ControlError:
        return
    assert sum(need for _, need in found.values()) == len(units)
    assert list(found) == sorted(found)
    assert not {unit for pool, _ in found.values() for unit in pool} & set(units)


def test_random_circuits_are_drawn_from_the_whole_universe() -> None:
    layout = Layout(n_layers=3, n_heads=4, n_kv_heads=4)
    heads = layout.universe("heads")
    few = matched_controls(heads[:1], heads, layout, count=5, seed=0, outside=False)
    assert few.enumerated
    assert set(few.sets) == {(unit,) for unit in heads[1:]}
    # more than half of the universe: no control lies outside, random circuits exist all the same
    many = matched_controls(heads[:7], heads, layout, count=300, seed=0, outside=False)
    assert not many.enumerated
    assert many.population == comb(12, 7) - 1
    assert len(set(many.sets)) == 300
    assert heads[:7] not in many.sets
    assert {unit for units in many.sets for unit in units} == set(heads)
    with pytest.raises(ControlError, match="no other matched set"):
        matched_controls(heads, heads, layout, count=5, seed=0, outside=False)


def test_only_among_random_circuits_is_the_rank_of_one_exact() -> None:
    layout = Layout(n_layers=4, n_heads=8, n_kv_heads=8)
    heads = layout.universe("heads")
    rng = np.random.default_rng(0)
    false = {True: 0, False: 0}
    for _ in range(200):
        effect = dict(zip(heads, rng.exponential(size=len(heads)), strict=True))
        circuit = [heads[i] for i in rng.choice(len(heads), 12, replace=False)]
        for outside in false:
            drawn = matched_controls(
                circuit, heads, layout, count=39, seed=int(rng.integers(1000)), outside=outside
            )
            totals = [sum(effect[unit] for unit in units) for units in drawn.sets]
            p = rank_p(sum(effect[unit] for unit in circuit), totals, harmful_is="high").p
            false[outside] += p <= 0.05
    assert false[False] / 200 <= 0.05 + 2.6 * (0.05 * 0.95 / 200) ** 0.5
    assert false[True] / 200 > 0.1


def test_controls_at_levels_count_each_level_as_the_circuit_does() -> None:
    layout = Layout(n_layers=3, n_heads=6, n_kv_heads=6)
    heads = layout.universe("heads")
    levels = {unit: (unit.index or 0) % 3 for unit in heads}
    circuit = [heads[0], heads[3], heads[4]]  # two at level 0, one at level 1
    drawn = matched_controls(circuit, heads, layout, count=30, seed=0, match="sink", levels=levels)
    assert drawn.population == comb(4, 2) * comb(5, 1)
    assert drawn.enumerated
    for units in drawn.sets:
        assert sorted(levels[unit] for unit in units) == [0, 0, 1]
        assert not set(units) & set(circuit)
    everything = [unit for unit in heads if levels[unit] == 2]
    with pytest.raises(ControlError, match="6 units of kind head at sink level 2 and only 0 are left"):
        matched_controls(everything, heads, layout, count=30, seed=0, match="sink", levels=levels)
    for match, known in (("sink", None), ("layer", levels)):
        with pytest.raises(ControlError, match="levels"):
            matched_controls(circuit, heads, layout, count=30, seed=0, match=match, levels=known)
