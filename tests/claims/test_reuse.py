"""Reuse and coverage where every value is known on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit, prompt_digest
from circuittest.errors import UsageError
from circuittest.find.shared import chance, cross_fitted
from circuittest.units import Layout, Unit
from tests.helpers.score_lab import EDGES, UNITS, ScoreLab
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


def test_reuse_refuses_a_circuit_of_other_examples_or_another_metric() -> None:
    circuit = lab_with([(0, 1)] * 40).shared(top="20%", at=95)
    assert not lab_with([(0, 1)] * 40).reuse(Circuit.from_dict(circuit.to_dict())).invalid
    assert "found on other discovery examples" in lab_with([(0, 1)] * 44).reuse(circuit).invalid
    other = lab_with([(0, 1)] * 40)
    other._metric = "logit_diff"
    assert (
        "found by derivatives of log_prob, and this lab scores by logit_diff" in other.reuse(circuit).invalid
    )


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


# Edges, and what stands beside the value -----------------------------------------------------------------------------


def edge_lab(rows: list[tuple[int, ...]], **more: Any) -> ScoreLab:
    """A lab whose example i has the edges `rows[i]` on top (of all); as many examples judge, with the same edges."""
    values = np.linspace(1e-3, 0, len(EDGES)) * np.ones((2 * len(rows), 1))
    for i, row in enumerate((*rows, *rows)):
        values[i, list(row)] = -1.0  # ranked by size, whatever the sign
    return ScoreLab([{}] * (2 * len(rows)), edges=values, **more)


def test_edges_are_ranked_themselves() -> None:
    k = len(EDGES) // 50
    always, sometimes = list(range(k - 1)), [k + 5 + i for i in range(9)]
    lab = edge_lab([(*always, sometimes[i % 9]) for i in range(45)])
    circuit = lab.shared(level="edges", universe="all", top="2%", at=95)
    assert circuit.edges == tuple(EDGES[: k - 1])
    assert circuit.units == ()
    found = lab.reuse(circuit)
    assert found.value == pytest.approx((k - 1) / k)
    assert found.choices["level"] == "edges"
    assert found.details["n_units"] == len(EDGES)
    same = lab.coverage(circuit)
    assert same.value == pytest.approx((k - 1) / k)
    assert same.choices["level"] == "edges"
    assert "is not in the universe" in lab.coverage(circuit, universe="heads").invalid
    assert "edges already" in lab.reuse(circuit, level="induced").invalid
    empty = edge_lab([(i,) for i in range(40)]).shared(level="edges", universe="all", top="1%", at=100)
    assert "no edge is in 100 %" in empty.origin["empty"] or len(empty)


def test_induced_edges_follow_from_the_units() -> None:
    # L0.H0 is in every circuit; its partner changes, and with it all edges but none of the units' shares
    lab = ScoreLab([{}] * 80, units=_units([("L0.H0", f"L1.H{i % 4}") for i in range(80)]))
    circuit = lab.shared(top="14%", at=95, universe="all")
    assert [str(u) for u in circuit.units] == ["L0.H0"]
    assert lab.reuse(circuit).value == pytest.approx(0.5)
    induced = lab.reuse(circuit, level="induced")
    assert induced.value == 0.0
    assert induced.details["in_sample"] == 0.0
    same = ScoreLab([{}] * 80, units=_units([("L0.H0", "L1.H1")] * 80))
    found = same.reuse(same.shared(top="14%", at=95, universe="all"), level="induced")
    assert found.value == 1.0
    assert found.details["shared"] == ["L0.H0->L1.H1.q", "L0.H0->L1.KV0.k", "L0.H0->L1.KV0.v"]
    lone = ScoreLab([{}] * 80, units=_units([("L0.H0", "L0.H1")] * 80))
    assert (
        "have no edge between their 2 units"
        in lone.reuse(lone.shared(top="14%", universe="all"), level="induced").invalid
    )


def _units(tops: list[tuple[str, ...]]) -> np.ndarray:
    names = [str(u) for u in UNITS]
    values = np.linspace(1e-3, 0, len(names)) * np.ones((len(tops), 1))
    for row, top in enumerate(tops):
        values[row, [names.index(name) for name in top]] = 1.0
    return values


def test_equation_2_is_not_the_size_of_the_shared_set() -> None:
    # the published code prints min(|S_P|, k)/k, which is the upper bound of Eq. 2 and equal to it at P = 100 only
    lab = lab_with([(0, 1) if i % 2 else (0, 2) for i in range(40)])
    circuit = lab.shared(top="20%", at=50)
    found = lab.reuse(circuit)
    assert len(circuit) == 3
    assert min(len(circuit), found.details["k"]) / found.details["k"] == 1.0
    assert found.details["in_sample"] == 1.0  # S_50 holds both partners: covered, although |S_P| > k
    some = lab_with([(0, 1) if i % 10 < 6 else (2 + i % 8, (3 + i) % 10 or 1) for i in range(40)])
    half = some.shared(top="20%", at=60)
    value = some.reuse(half).details["in_sample"]
    assert value < min(len(half), 2) / 2
    assert 0.6 * len(half) / 2 <= value


@pytest.mark.parametrize(("k", "at"), [(3, 30), (5, 50), (2, 95)])
def test_chance_is_what_random_circuits_give(k: int, at: int) -> None:
    rng = np.random.default_rng(0)
    inside = np.zeros((400, 40, 10), dtype=bool)
    np.put_along_axis(inside, rng.random(inside.shape).argsort(2)[:, :, :k], True, axis=2)
    simulated = np.mean([cross_fitted(one, at, 5).mean() for one in inside])
    assert chance(40, k, 10, at, 5) == pytest.approx(simulated, abs=0.01)


def test_the_curve_over_k_and_p() -> None:
    lab = lab_with([(0, 1 + i % 9) for i in range(45)])
    rows = lab.reuse(lab.shared(top="20%"), sweep=True).details["sweep"]
    assert len(rows) == 5 * 8
    by = {(row["top"], row["at"]): row for row in rows}
    assert by["20%", 100]["value"] == by["20%", 100]["in_sample"] == 0.5
    assert by["20%", 100]["size"] == 1
    assert by["10%", 100]["value"] <= by["10%", 50]["value"]
    assert by["20%", 50]["chance"] < 0.05


def test_an_untrained_model_with_high_reuse_is_visible() -> None:
    rows = [("L0.MLP", "L1.MLP")] * 80
    trained, twin = (ScoreLab([{}] * 80, units=_units(rows)) for _ in range(2))
    trained.twin = twin
    found = trained.reuse(trained.shared(top="14%", universe="all"), untrained=True)
    assert found.details["untrained"] == {"value": 1.0, "in_sample": 1.0, "size": 2}
    assert "untrained twin of the model has reuse 1.00" in found.hints[0]
    other = ScoreLab([{}] * 80, units=np.random.default_rng(0).standard_normal((80, len(UNITS))))
    trained.twin = other
    found = trained.reuse(trained.shared(top="14%", universe="all"), untrained=True)
    assert found.details["untrained"]["value"] < 0.2
    assert found.hints == ()


def test_overlap_with_other_tasks_beside_chance() -> None:
    other = lab_with([(0, 2)] * 40)
    lab = lab_with([(0, 1)] * 40)
    lab.others = {"other": other}
    beside = lab.reuse(lab.shared(top="20%"), overlap=["other"]).details["overlap"]["other"]
    assert beside == {"size": 2, "jaccard": pytest.approx(1 / 3), "chance": pytest.approx(0.4 / 3.6)}


@pytest.mark.parametrize(
    ("top", "at"), [("0%", 95), ("100%", 95), ("20%", 0), ("20%", 101), ("20%", float("nan"))]
)
def test_shares_out_of_range_are_refused(top: str, at: float) -> None:
    lab = ScoreLab([{}] * 8, units=np.ones((8, len(UNITS))), edges=np.ones((8, len(EDGES))))
    for level in ("units", "edges"):
        with pytest.raises(UsageError):
            lab.shared(top=top, at=at, level=level)  # type: ignore[arg-type]


def test_one_example_and_equal_scores() -> None:
    assert "1 discovery examples" in lab_with([(0, 1)]).reuse(lab_with([(0, 1)]).shared()).invalid
    flat = ScoreLab([{}] * 80, units=np.ones((80, len(UNITS))))
    found = flat.reuse(flat.shared(top="14%", universe="all"))
    assert (found.value, found.details["ties"]) == (1.0, 40)
    dead = ScoreLab([{}] * 80, units=np.zeros((80, len(UNITS))))
    assert dead.reuse(dead.shared(top="14%", universe="all")).details["zero_scores"] == 40
