"""Reuse and coverage where every value is known on paper."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=2, n_heads=5, n_kv_heads=5)  # 10 heads, 12 head and MLP units


def lab_with(per_example: list[tuple[int, ...]], *, evaluate: int = 60) -> TableLab:
    """A lab whose example i has its heads `per_example[i]` on top, and which needs all of them at once."""
    values = np.zeros((len(per_example), 12))
    heads = [i for i, u in enumerate(LAYOUT.units(("head", "mlp"))) if u.kind == "head"]
    for row, top in enumerate(per_example):
        values[row, [heads[i] for i in top]] = 1
        values[row] += np.linspace(1e-3, 0, 12)
    return TableLab(
        lambda units, i: float(len(units) < 10),
        layout=LAYOUT,
        values=values,
        data=task_data(len(per_example), evaluate),
    )


def test_all_examples_share_everything() -> None:
    lab = lab_with([(0, 1)] * 40)
    found = lab.reuse(lab.shared(top="20%", at=95))
    assert (found.value, found.details["in_sample"], found.details["k"]) == (1.0, 1.0, 2)
    assert found.details["shared"] == ["L0.H0", "L0.H1"]
    assert found.details["share_of_universe"] == pytest.approx(0.2)
    assert found >= 0.8


def test_half_of_every_circuit_is_shared() -> None:
    lab = lab_with([(0, 1 + i % 9) for i in range(45)])
    found = lab.reuse(lab.shared(top="20%", at=95))
    assert (found.value, found.details["in_sample"]) == (0.5, 0.5)
    assert found.details["curve"]["100"] == 0.5


def test_cross_fitting_sees_what_in_sample_does_not() -> None:
    # Head 1 is on top for 38 of 40 examples, exactly 95 %. The two exceptions lie in fold 0: leaving another fold
    # out, head 1 is on top for 30 of 32 (93.75 %) and drops out of S_P; leaving fold 0 out it is in all.
    lab = lab_with([(0, 2) if i in (0, 5) else (0, 1) for i in range(40)])
    found = lab.reuse(lab.shared(top="20%", at=95))
    assert found.details["in_sample"] == pytest.approx((38 * 1 + 2 * 0.5) / 40)
    assert found.value == pytest.approx((32 * 0.5 + 6 * 1 + 2 * 0.5) / 40)


def test_an_empty_shared_set_is_a_circuit_and_reuse_zero() -> None:
    lab = lab_with([(i % 10, (i + 1) % 10) for i in range(40)])
    empty = lab.shared(top="20%", at=95)
    assert len(empty) == 0
    assert "the largest P with a non-empty set is 20" in empty.origin["empty"]
    found = lab.reuse(empty)
    assert found.value == 0.0
    assert "largest P" in found.hints[0]
    assert "empty" in lab.necessity(empty).invalid


def test_reuse_needs_a_recipe() -> None:
    lab = lab_with([(0, 1)] * 40)
    assert "coverage" in lab.reuse(Circuit.of(["L0.H0"])).invalid


def test_reuse_refuses_a_circuit_of_another_model() -> None:
    lab = lab_with([(0, 1)] * 40)
    found = lab.shared()
    other = Circuit.of(found.units, origin={**found.origin, "fingerprint": "0"})
    assert "find it with this lab" in lab.reuse(other).invalid


def test_too_few_examples_for_folds() -> None:
    lab = lab_with([(0, 1)] * 9)
    assert "9 discovery examples" in lab.reuse(lab.shared()).invalid


def test_incompetent_model_has_no_reuse() -> None:
    lab = lab_with([(0, 1)] * 40)
    lab.rule = lambda units, i: 0.0
    assert "not competent" in lab.reuse(lab.shared()).invalid


def test_coverage_of_a_given_circuit() -> None:
    lab = lab_with([(0, 1), (0, 2), (3, 4)] * 20)
    found = lab.coverage(Circuit.of(["L0.H0", "L0.H1"]), top="20%")
    assert found.value == pytest.approx((1 + 0.5 + 0) / 3)
    assert found.details["frequency"] == {"L0.H0": pytest.approx(2 / 3), "L0.H1": pytest.approx(1 / 3)}
    assert found.details["most_possible"] == 1.0


def test_coverage_is_judged_on_examples_that_did_not_choose_the_circuit() -> None:
    lab = lab_with([(0, 1)] * 60)
    seen = [prompt_digest(lab.data.evaluate[0].prompt_ids)]
    assert "1 of the 60" in lab.coverage(Circuit.of(["L0.H0"], origin={"prompts": seen})).invalid


def test_coverage_refuses_units_outside_the_universe() -> None:
    lab = lab_with([(0, 1)] * 60)
    assert "L0.MLP is not in the universe" in lab.coverage(Circuit.of(["L0.MLP"]), universe="heads").invalid


def test_unknown_claims_and_options_are_refused() -> None:
    lab = lab_with([(0, 1)] * 40)
    with pytest.raises(UsageError, match="(?i)did you mean 'necessity'"):
        lab.measure("necesity", lab.shared())
    with pytest.raises(UsageError, match="(?i)did you mean 'controls'"):
        lab.necessity(lab.shared(), control=3)


def test_decide_fixes_the_threshold() -> None:
    lab = lab_with([(0, 1)] * 40)
    found = lab.reuse(lab.shared(), decide=0.5)
    assert found >= 0.5
    with pytest.raises(UsageError, match=r"measured to decide 0\.5"):
        found >= 0.6  # noqa: B015


def test_a_circuit_of_another_architecture_is_refused() -> None:
    from circuittest.errors import CircuitError, UnitError

    lab = lab_with([(0, 1)] * 40)
    with pytest.raises(CircuitError, match="another architecture"):
        lab.necessity(Circuit.of(["L0.H0"], layout=Layout(3, 5, 5)))
    with pytest.raises(UnitError, match=r"no L99\.H0"):
        lab.circuit(["L99.H0"])
    assert lab.circuit([Unit("head", 0, 1)]).layout == LAYOUT
