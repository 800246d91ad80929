"""Edges of a universe, and the edges that a set of units spans."""

from __future__ import annotations

import numpy as np
import pytest

from circuittest.errors import UnitError
from circuittest.find.induced import Spanned, edge_universe
from circuittest.find.shared import chance_spanned, coverage, cross_fitted
from circuittest.units import Layout, Unit

LAYOUT = Layout(n_layers=3, n_heads=4, n_kv_heads=2)
UNITS = LAYOUT.units(("head", "mlp"))


def test_universes_of_edges() -> None:
    everything = edge_universe(LAYOUT, "all")
    assert everything == tuple(LAYOUT.edges())
    heads = edge_universe(LAYOUT, "heads")
    # per pair of layers: 4 heads write, 4 q, 2 k and 2 v slots read
    assert len(heads) == 3 * 4 * 8
    assert edge_universe(LAYOUT, ["head", "mlps"]) == tuple(
        e for e in everything if e.source.kind != "embed" and e.target.kind != "logits"
    )
    for wrong in ("kv", "attn", "hedas"):
        with pytest.raises(UnitError):
            edge_universe(LAYOUT, wrong)
    with pytest.raises(UnitError, match="no edges"):
        edge_universe(Layout(1, 4, 2), "heads")


def mask(*names: str) -> np.ndarray:
    return np.array([[str(unit) in names for unit in UNITS]])


def test_spanned_edges_by_hand() -> None:
    spanned = Spanned(LAYOUT, UNITS)
    found = [
        str(e)
        for e, keep in zip(spanned.edges, spanned.of(mask("L0.H1", "L0.MLP", "L2.H3"))[0], strict=True)
        if keep
    ]
    assert found == [
        "L0.H1->L0.MLP",
        "L0.H1->L2.H3.q",
        "L0.H1->L2.KV1.k",
        "L0.H1->L2.KV1.v",
        "L0.MLP->L2.H3.q",
        "L0.MLP->L2.KV1.k",
        "L0.MLP->L2.KV1.v",
    ]
    assert not spanned.of(mask("L1.H0", "L1.H1")).any()
    with pytest.raises(UnitError, match="span no edges"):
        Spanned(LAYOUT, [Unit("kv", 0, 0)])


def test_probabilities_and_chance_are_those_of_random_circuits() -> None:
    spanned, k = Spanned(LAYOUT, UNITS), 6
    rng = np.random.default_rng(0)
    inside = np.zeros((20_000, len(UNITS)), dtype=bool)
    np.put_along_axis(inside, rng.random(inside.shape).argsort(1)[:, :k], True, axis=1)
    assert np.allclose(spanned.of(inside).mean(0), spanned.probability(k), atol=0.015)
    values = [cross_fitted(spanned.of(part), 25, 5).mean() for part in np.split(inside[:10_000], 100)]
    values = [value for value in values if not np.isnan(value)]
    assert chance_spanned(spanned, k, 100, 25, 5, 0) == pytest.approx(np.mean(values), abs=0.02)


def test_coverage_of_an_empty_circuit_is_undefined() -> None:
    inside = np.array([[True, False], [False, False]])
    found = coverage(inside, np.array([True, True]))
    assert found[0] == 1.0
    assert np.isnan(found[1])
