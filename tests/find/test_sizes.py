"""Circuits of edges by size, and CPR and CMD."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from circuittest.circuit import Circuit
from circuittest.errors import UsageError
from circuittest.find.sizes import MIB_SIZES, Areas, areas, connected, edge_circuits, faithfulness
from circuittest.measure.attribution import attribute
from circuittest.measure.patching import patch
from circuittest.tables import ScoreTable
from circuittest.units import Edge, Layout
from tests.helpers import tiny
from tests.helpers.items import random_items

LAYOUT = Layout(n_layers=2, n_heads=4, n_kv_heads=2)
EDGES = tuple(LAYOUT.edges())


def table_of(scores: dict[str, float], layout: Layout = LAYOUT) -> ScoreTable:
    """Two examples whose mean score is as given, and zero for other edges."""
    edges = tuple(layout.edges())
    means = np.array([scores.get(str(edge), 0.0) for edge in edges])
    return ScoreTable(np.stack([means + 1, means - 1]).astype(np.float32), edges, (4, 7), {"method": "eap"})


def ids(circuit: Circuit) -> set[str]:
    return {str(edge) for edge in circuit.edges}


def test_the_largest_mean_scores_by_size_whatever_their_sign() -> None:
    table = table_of({"embed->logits": 3, "L0.H1->logits": -5, "embed->L0.H1.q": 4, "L1.MLP->logits": 2})
    one, three, four = edge_circuits(table, [1, 3, 4], prune=False)
    assert ids(one) == {"L0.H1->logits"}
    assert ids(three) == {"L0.H1->logits", "embed->L0.H1.q", "embed->logits"}
    assert ids(four) - ids(three) == {"L1.MLP->logits"}
    assert three.name == "top 3 edges"
    assert three.origin["examples"] == [4, 7]
    assert three.origin["scores"] == {"method": "eap"}
    assert three.layout is None
    assert edge_circuits(table, [3], layout=LAYOUT)[0].layout == LAYOUT


def test_what_is_not_connected_is_pruned() -> None:
    table = table_of({"embed->logits": 3, "L0.H1->logits": -5, "embed->L0.H1.q": 4, "L1.MLP->logits": 2})
    one, four = edge_circuits(table, [1, 4])
    assert ids(one) == set()
    assert one.origin["pruned"] == 1
    assert ids(four) == {"L0.H1->logits", "embed->L0.H1.q", "embed->logits"}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("embed->L0.KV0.k L0.H1->logits", "embed->L0.KV0.k L0.H1->logits"),  # H1 belongs to KV0
        ("embed->L0.KV0.k L0.H2->logits", ""),
        (
            "embed->L0.KV1.v L0.H2->L1.H3.q L1.H3->logits L0.H0->L1.KV0.v",
            "embed->L0.KV1.v L0.H2->L1.H3.q L1.H3->logits",
        ),
        ("embed->L0.MLP L0.MLP->L1.MLP", ""),
        ("embed->L0.H0.q L0.H0->L0.MLP L0.MLP->logits", "embed->L0.H0.q L0.H0->L0.MLP L0.MLP->logits"),
        ("L0.H0->L0.MLP L0.MLP->logits embed->logits", "embed->logits"),
    ],
)
def test_connections_by_hand(given: str, left: str) -> None:
    edges = [Edge.parse(text) for text in given.split()]
    assert connected(edges, LAYOUT) == [Edge.parse(text) for text in left.split()]


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(EDGES)))
def test_pruning_leaves_the_edges_that_lie_on_paths(chosen: set[Edge]) -> None:
    """By another way: reachable from the embedding, and reaching the logits, by search along the chosen edges."""
    parts = lambda unit: LAYOUT.parts(unit) if unit.kind == "kv" else (unit,)
    steps = {(edge.source, part, edge) for edge in chosen for part in parts(edge.target)}
    kept = connected(sorted(chosen), LAYOUT)
    forward, backward = {"embed"}, {"logits"}
    for _ in range(2 * LAYOUT.n_layers + 2):
        forward |= {str(to) for origin, to, _ in steps if str(origin) in forward}
        backward |= {str(origin) for origin, to, _ in steps if str(to) in backward}
    on_paths = {edge for origin, to, edge in steps if str(origin) in forward and str(to) in backward}
    assert on_paths <= set(kept)
    assert set(kept) <= {edge for edge in chosen if str(edge.source) in forward}
    assert kept == sorted(kept)
    assert connected(kept, LAYOUT) == kept


@lru_cache
def scored(architecture: str) -> tuple[object, list[object], ScoreTable]:
    model, items = tiny.build_loaded(architecture, dtype=torch.float64), random_items(3)
    return model, items, attribute(model, items, metric="log_prob", level="edges")


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gpt_neox"])
def test_pruning_changes_no_outcome_where_values_are_counterfactual(architecture: str) -> None:
    model, items, table = scored(architecture)
    sizes = [5, 20, "10%", "30%"]
    pruned, whole = edge_circuits(table, sizes), edge_circuits(table, sizes, prune=False)
    assert [c.edges for c in pruned] == [c.edges for c in edge_circuits(table, sizes, layout=model.layout)]
    assert any(len(a) < len(b) for a, b in zip(pruned, whole, strict=True))
    found = patch(model, items, [*pruned, *whole], keep=True).columns["log_prob"]
    np.testing.assert_allclose(found[: len(sizes)], found[len(sizes) :], atol=1e-10)


def test_sizes_of_the_benchmark_end_at_the_model() -> None:
    model, items, table = scored("llama")
    circuits = edge_circuits(table)
    assert len(circuits) == len(MIB_SIZES)
    assert len(circuits[-1]) == len(table.members)
    kept = patch(model, items, [(), *circuits], keep=True).columns["log_prob"]
    values = faithfulness(kept[1:], kept[-1], kept[0])
    assert values[-1] == 1.0
    shares = [float(size.rstrip("%")) / 100 for size in MIB_SIZES]
    found = areas(shares, values)
    assert found.cpr <= 1 + found.cmd  # f <= 1 + |1 - f|


def test_areas_are_those_of_the_benchmark() -> None:
    """The loop of MIB-circuit-track's evaluate_area_under_curve, on made-up values."""
    percentages = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
    values = [-0.2, 0.1, 0.3, 0.2, 0.6, 1.3, 1.1, 0.9, 0.97, 1.0]
    area_under = area_from_1 = 0.0
    for i in range(len(values) - 1):
        step = percentages[i + 1] - percentages[i]
        area_from_1 += step * (abs(1 - values[i]) + abs(1 - values[i + 1])) / 2
        area_under += step * (values[i] + values[i + 1]) / 2
    found = areas(percentages, values, ends=False)
    assert found.cpr == pytest.approx(area_under, rel=1e-12)
    assert found.cmd == pytest.approx(area_from_1, rel=1e-12)
    whole = areas(percentages, values)  # f(0) = 0, so that there is a trapezoid before the first size, too
    assert whole.cpr == pytest.approx(area_under + 0.001 * -0.2 / 2, rel=1e-12)
    assert whole.cmd == pytest.approx(area_from_1 + 0.001 * (1 + 1.2) / 2, rel=1e-12)


def test_areas_of_a_perfect_circuit_and_of_the_model_alone() -> None:
    assert areas([0.25], [1.0]).cpr == pytest.approx(1 - 0.125)  # all there is from a quarter on
    assert areas([0.25], [1.0]).cmd == pytest.approx(0.125)
    assert areas([1.0], [1.0]) == Areas(0.5, 0.5)  # the straight line between nothing and everything


def test_faithfulness_is_a_ratio_of_means_and_is_not_clamped() -> None:
    full, empty = [2.0, 4.0], [1.0, 1.0]
    assert faithfulness([[2.0, 4.0], [1.0, 1.0], [5.0, 5.0], [0.0, 0.0]], full, empty).tolist() == [
        1,
        0,
        2,
        -0.5,
    ]
    with pytest.raises(UsageError, match="faithfulness is undefined"):
        faithfulness([[1.0, 2.0]], [1.0, 3.0], [2.0, 2.0])
    with pytest.raises(UsageError, match="faithfulness is undefined"):
        faithfulness([[1.0]], [math.nan], [2.0])


class TestRefusals:
    @pytest.mark.parametrize("size", [-1, 10_000, True, 1.5, "101%", "-1%"])
    def test_sizes(self, size: object) -> None:
        with pytest.raises(UsageError, match="size"):
            edge_circuits(table_of({}), [size])

    def test_tables(self) -> None:
        units = ScoreTable(np.zeros((1, 2), np.float32), LAYOUT.units(("mlp",)), (0,))
        with pytest.raises(UsageError, match="need a table of edge scores"):
            edge_circuits(units, [1])
        with pytest.raises(UsageError, match="the table has no examples"):
            edge_circuits(table_of({}).rows([]), [1])
        part = table_of({"embed->logits": 1}).columns(EDGES[:40])
        with pytest.raises(UsageError, match="does not have every edge"):
            edge_circuits(part, [1])
        assert len(edge_circuits(part, [1], layout=LAYOUT)) == 1

    @pytest.mark.parametrize(
        ("shares", "values"),
        [
            ([], []),
            ([0.1, 0.2], [1]),
            ([0.2, 0.1], [1, 1]),
            ([0.0, 1.0], [1, 1]),
            ([0.5, 1.5], [1, 1]),
            ([0.1, 1], [1, math.nan]),
        ],
    )
    def test_areas(self, shares: list[float], values: list[float]) -> None:
        with pytest.raises(UsageError, match="areas"):
            areas(shares, values)
