"""Necessity where the right answer is known on paper, and every reason for not judging it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.statistics.sizes import random_circuit
from circuittest.circuit import Circuit, prompt_digest
from circuittest.claims.beyond import exchangeable_p
from circuittest.stats import InvalidClaim, Undecided, rank_p
from circuittest.stats.resampling import generator
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

KEY = frozenset({Unit("head", 1, 2), Unit("head", 3, 4)})


def needs_key(ablated: frozenset[Unit], example: int) -> float:
    """Right as long as some head works and no key head is ablated."""
    return float(not ablated & KEY)


def circuit(*ids: str, **more: object) -> Circuit:
    return Circuit.of(ids or ("L1.H2", "L3.H4"), **more)


def test_planted_circuit_is_wholly_necessary() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit(), controls=20)
    assert found.invalid == ""
    details = found.details
    assert (details["acc_base"], details["acc_circuit"]) == (1.0, 0.0)
    # Matched sets are pairs of the other 46 heads, none of which matters: theta is exactly 1.
    assert details["population"] == 46 * 45 // 2
    assert found.value == 1.0
    assert found.interval is not None
    # Conservative at R = 20: a control that was not drawn might destroy everything.
    assert found.interval[0] > 0.75
    assert found >= 0.5
    assert len(details["controls"]) == found.n_controls == 20
    assert not any(set(units) & {"L1.H2", "L3.H4"} for units in details["controls"])


def test_idle_circuit_is_refuted() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit("L0.H0", "L0.H1"), controls=40)
    # Some controls hit a key head, so an idle circuit is less harmful than chance: theta = -(share of such sets).
    assert found.value is not None
    assert found.value <= 0
    assert not found >= 0.3


def test_few_matched_sets_are_enumerated() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit("L1.H2"), controls=20)
    assert found.details["enumerated"]
    assert found.details["population"] == 47
    assert found.value == pytest.approx(46 / 47)  # one of the 47 other heads is L3.H4, which matters as much


def test_layer_matching_draws_from_the_same_layers() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit(), match="layer", controls=10)
    assert found.details["population"] == 49
    assert all(
        units[0].startswith("L1.") and units[1].startswith("L3.") for units in found.details["controls"]
    )


def test_rank_p_counts_controls_at_least_as_harmful() -> None:
    lab = TableLab(needs_key)
    found = lab.necessity(circuit("L1.H2"), controls=20)
    assert found.details["rank_p"] == pytest.approx(2 / 48)
    assert found.details["worst_control"]["units"] == ["L3.H4"]


def test_half_of_the_examples() -> None:
    lab = TableLab(lambda units, i: float(not (units & KEY and i % 2) and len(units) < 48))
    found = lab.necessity(circuit(), controls=20)
    assert found.details["acc_circuit"] == 0.5
    with pytest.raises(Undecided):
        bool(found >= found.value)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Circuit(), "empty"),
        (Circuit(origin={"empty": "no unit is in 95 % of the 40 circuits"}), "no unit is in 95 %"),
        (Circuit.of(["L0.H0->L1.H1.q"]), "edges"),
    ],
)
def test_a_circuit_without_units_is_invalid(given: Circuit, words: str) -> None:
    found = TableLab(needs_key).necessity(given)
    assert words in found.invalid
    with pytest.raises(InvalidClaim, match="empty|edges"):
        bool(found >= 0.1)


def test_what_chose_a_circuit_may_not_judge_it() -> None:
    lab = TableLab(needs_key)
    seen = [prompt_digest(item.prompt_ids) for item in lab.data.evaluate[:3]]
    found = lab.necessity(circuit(origin={"prompts": seen}))
    assert "3 of the 60 evaluation prompts" in found.invalid


def test_infeasible_control_names_kind_and_numbers() -> None:
    lab = TableLab(needs_key, layout=Layout(n_layers=4, n_heads=8, n_kv_heads=8))
    found = lab.necessity(Circuit.of(["L0.MLP", "L1.MLP", "L2.MLP"]))
    assert "no matched control" in found.invalid
    assert "3 units of kind mlp" in found.invalid
    assert "only 1" in found.invalid


def test_incompetent_model_is_invalid() -> None:
    found = TableLab(lambda units, i: float(i % 5 == 0 and not units)).necessity(circuit())
    assert "not competent" in found.invalid
    assert "0.20" in found.invalid


def test_guessing_between_candidates_is_no_competence() -> None:
    data = task_data(chance=0.5, accuracy="candidates")
    found = TableLab(lambda units, i: float(i % 5 < 3 and not units), data=data).necessity(circuit())
    assert "not competent" in found.invalid
    assert "chance" in found.invalid


def test_model_that_ignores_its_units_is_invalid() -> None:
    found = TableLab(lambda units, i: 1.0).necessity(circuit())
    assert "not competent" in found.invalid
    assert "ablated floor 1.00" in found.invalid


def test_controls_on_the_floor_make_it_invalid() -> None:
    found = TableLab(lambda units, i: float(not units)).necessity(circuit())
    assert "control destroys the model too" in found.invalid
    assert found.details["acc_controls"] == [0.0] * 40


def test_circuit_at_the_floor_is_a_lower_bound() -> None:
    lab = TableLab(lambda units, i: float(not (units & KEY) and (len(units) < 2 or i % 4 > 0)))
    found = lab.necessity(circuit())
    assert found.censored == "lower"
    assert found.value == pytest.approx(0.75, abs=0.1)
    with pytest.raises(Undecided, match="at least|lower bound|floor"):
        bool(found >= 0.99)


def test_circuit_outside_its_universe_is_invalid() -> None:
    found = TableLab(needs_key).necessity(circuit(), universe="mlps")
    assert "not in the universe" in found.invalid


def test_the_same_call_gives_the_same_numbers() -> None:
    a, b = (TableLab(needs_key).necessity(circuit("L0.H0", "L2.H2"), controls=15) for _ in range(2))
    assert a.details == b.details
    assert a.interval == b.interval
    c = TableLab(needs_key).necessity(circuit("L0.H0", "L2.H2"), controls=15, seed=1)
    assert c.details["controls"] != a.details["controls"]


def test_everything_is_ablated_as_asked_for_and_it_is_said() -> None:
    """Circuit, controls and the emptied universe of the competence gate alike."""
    lab = TableLab(needs_key)
    found = lab.necessity(circuit(), controls=5, ablation="counterfactual", positions="not-first")
    assert lab.how[0] == {"value": "counterfactual", "positions": "not-first"}
    assert all(how == lab.how[0] for how in lab.how)
    assert found.choices["ablation"] == "counterfactual"
    assert found.choices["positions"] == "not-first"


def test_chance_normalised() -> None:
    # half of the examples survive the circuit's ablation, as guessing between two candidates would
    data = task_data(chance=0.5, accuracy="candidates")
    lab = TableLab(lambda units, i: float(i % 2 or (not units & KEY and len(units) < 48)), data=data)
    plain, found = (lab.necessity(circuit("L1.H2"), normalise=by) for by in ("base", "floor"))
    assert plain.value == pytest.approx(0.5 * 46 / 47)
    assert found.value == pytest.approx(46 / 47)
    assert found.details["floor"]["floor"] == 0.5
    assert (plain.choices["normalise"], found.choices["normalise"]) == ("base", "floor")
    assert found >= 0.6
    with pytest.raises(Undecided):
        bool(plain >= 0.6)


def test_the_corrected_rank_of_a_random_circuit_is_a_p_value() -> None:
    rng = generator(5)
    for size in (8, 16):
        p = np.array([rank_p(*random_circuit(rng, size)).p for _ in range(800)])
        corrected = np.array([exchangeable_p(one, size / 48) for one in p])
        for level in (0.05, 0.1, 0.25):
            assert (corrected <= level).mean() <= level + 2.6 * (level * (1 - level) / 800) ** 0.5
        assert (corrected <= 0.25).mean() > 0.15
    assert (p <= 0.05).mean() > 0.1  # as it stands, a third of the universe seems special too often


def test_the_rank_in_the_record_is_corrected_by_stratum() -> None:
    details = TableLab(needs_key).necessity(circuit(), controls=40).details
    assert details["rank_p"] == 1 / 41
    assert details["rank_p_adjusted"] == exchangeable_p(1 / 41, 2 / 48)
    layer = (
        TableLab(needs_key).necessity(circuit(), match="layer").details
    )  # one head of the eight in its layer
    assert layer["rank_p"] == 1 / 50
    assert layer["rank_p_adjusted"] == exchangeable_p(1 / 50, 1 / 8)
