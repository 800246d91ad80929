"""Circuits of resampled examples, and what they say of two checkpoints."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.find.minimal import minimal
from circuittest.find.recipe import propose
from circuittest.find.shared import shared
from circuittest.stats.resampling import count_blocks
from circuittest.sweep.resampled import SEED, alike, bands, resampled, same_and_apart
from circuittest.tables import ScoreTable
from circuittest.units import Layout

LAYOUT = Layout(2, 2, 2)
HEADS = LAYOUT.units(["head"])


def packed(*sets: str) -> dict:
    """Circuits of one-letter members."""
    members = sorted(set("".join(sets)))
    return {"members": members, "sets": [[members.index(one) for one in part] for part in sets]}


def table(values) -> ScoreTable:
    values = np.asarray(values, dtype=np.float32)
    return ScoreTable(values, HEADS, tuple(range(len(values))))


def found_in(scores: ScoreTable, at: str = "60%") -> tuple[SimpleNamespace, Circuit]:
    origin = {"method": "eap", "universe": "heads", "score": "edge-abs-sum", "top": "50%", "at": at}
    return SimpleNamespace(scores=lambda split, **how: scores), Circuit(layout=LAYOUT, origin=origin)


def test_the_same_examples_give_the_same_circuit() -> None:
    lab, circuit = found_in(table([[4, 3, 2, 1]] * 6))
    found = resampled(lab, {}, circuit, 20)
    assert found == {"members": ["L0.H0", "L0.H1"], "sets": [[0, 1]] * 20, "undefined": ""}


def test_a_sample_s_circuit_is_that_of_its_examples() -> None:
    """One by one, from the examples drawn: the count threshold in integers."""
    rng = np.random.default_rng(0)
    scores = table(rng.normal(size=(10, 4)))
    lab, circuit = found_in(scores)
    found = resampled(lab, {}, circuit, 30)
    inside = np.zeros((10, 4), dtype=bool)
    np.put_along_axis(inside, np.argsort(-np.abs(scores.values), 1)[:, :2], True, axis=1)
    (counts,) = count_blocks(SEED, 30, 10)
    expected = [
        [str(HEADS[i]) for i in np.flatnonzero(shared(np.repeat(inside, row.astype(int), 0), 60))]
        for row in counts
    ]
    assert [[found["members"][i] for i in one] for one in found["sets"]] == expected
    assert len({tuple(one) for one in expected}) > 3
    assert (counts @ inside == 6).any()  # exactly 60 %, which counts


def test_without_samples_or_a_recipe_there_is_a_reason() -> None:
    lab, circuit = found_in(table([[1, 2, 3, 4]]))
    assert resampled(lab, {}, circuit, 0)["undefined"] == "no resamples were asked for"
    assert "does not say" in resampled(lab, {}, Circuit(layout=LAYOUT), 5)["undefined"]


def test_a_minimal_circuit_keeps_the_number_of_edges_taken() -> None:
    """Edges whose scores are the same on every example are taken again in every sample."""
    edges = tuple(sorted(LAYOUT.edges(), key=lambda edge: edge.order))
    chain = ["L1.MLP->logits", "L0.H0->L1.MLP", "embed->L0.H0.q"]
    values = np.array([[{name: 9.0 - i for i, name in enumerate(chain)}.get(str(e), 0.0) for e in edges]] * 5)
    scores = ScoreTable(values.astype(np.float32), edges, tuple(range(5)))

    def measure(circuits):
        """The whole chain is what it takes."""
        return np.array([[float(set(chain) <= set(map(str, one)))] * 5 for one in circuits])

    how = {"method": "minimal", "cap": 6}
    search = lambda **options: minimal(
        scores, LAYOUT, measure, origin={"method": "eap-ig", "steps": 5}, **options
    )
    lab = SimpleNamespace(scores=lambda split, **how: scores, layout=LAYOUT, minimal=search)
    found = resampled(lab, {**how, "level": "edges"}, propose(lab, {**how, "level": "edges"}), 4)
    assert sorted(found["members"]) == sorted(chain)
    assert found["sets"] == [[0, 1, 2]] * 4
    assert resampled(lab, how, propose(lab, how), 4)["members"] == ["L0.H0", "L1.MLP"]
    beyond = {**how, "cap": 2}
    assert "reaches a faithfulness" in resampled(lab, beyond, propose(lab, beyond), 4)["undefined"]


def test_alike_compares_sample_by_sample() -> None:
    a, b = packed("ab", "a", "", "c"), packed("bc", "a", "", "")
    assert alike(a, b) == [1 / 3, 1.0, None, 0.0]
    assert alike(a, None) == alike(a, packed("a")) == []


def test_same_and_apart_compare_different_samples() -> None:
    stays, noisy = packed("ab", "ab"), packed("ab", "bc")
    assert same_and_apart(stays, stays) == (1.0, 1.0)
    # within: 1 in the first, 1/3 twice in the second; across: ab with bc, ab with ab
    assert same_and_apart(stays, noisy) == pytest.approx(((1 + 1 / 3) / 2, (1 / 3 + 1) / 2))
    assert same_and_apart(stays, packed("cd", "cd")) == (1.0, 0.0)
    assert same_and_apart(packed("", ""), stays) == (None, 0.0)


def test_bands_are_the_middle_of_the_samples() -> None:
    assert bands([[], [x / 100 for x in range(100)], [0.5, None, None]]) == [None, (0.02, 0.97), None]
