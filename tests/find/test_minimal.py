"""Minimal faithful circuits: the order from the logits, the search over sizes, and what the paper's code gets wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from circuittest.errors import UsageError
from circuittest.find.minimal import Minimal, from_logits, grid, holds, minimal, nodes
from circuittest.find.recipe import propose
from circuittest.find.sizes import connected
from circuittest.lab import Lab
from circuittest.models import from_module
from circuittest.tables import ScoreTable
from circuittest.units import Edge, Layout, Unit
from tests.helpers import planted
from tests.known_answers.test_planted_edges import PATH, lab_of

LAYOUT = Layout(n_layers=2, n_heads=4, n_kv_heads=2)
EDGES = tuple(LAYOUT.edges())
EXAMPLES = 40


def table_of(scores: dict[str, float] | np.ndarray, layout: Layout = LAYOUT) -> ScoreTable:
    """Examples whose mean score is as given, and zero for other edges."""
    edges = tuple(layout.edges())
    means = np.array([scores.get(str(edge), 0.0) for edge in edges]) if isinstance(scores, dict) else scores
    shifts = np.tile([1.0, -1.0], EXAMPLES // 2)
    return ScoreTable((means + shifts[:, None]).astype(np.float32), edges, tuple(range(EXAMPLES)))


def chain(length: int) -> np.ndarray:
    """Scores whose order from the logits is: all edges of the embedding, MLPs and heads, connected at every step."""
    return np.linspace(2.0, 1.0, len(EDGES)) * (np.arange(len(EDGES)) < length)


class Model:
    """m(C) by a rule on the number of edges; remembers what was asked."""

    def __init__(self, rule: Callable[[int], float], full: float = 1.0, empty: float = 0.0) -> None:
        self.rule, self.full, self.empty = rule, full, empty
        self.asked: list[list[int]] = []

    def __call__(self, circuits: Sequence[tuple[Edge, ...]]) -> np.ndarray:
        self.asked.append([len(circuit) for circuit in circuits])
        rows = []
        for circuit in circuits:
            known = {0: 0.0, len(EDGES): 1.0}
            share = known[len(circuit)] if len(circuit) in known else self.rule(len(circuit))
            rows.append(np.full(EXAMPLES, self.empty + share * (self.full - self.empty)))
        return np.array(rows) + 0.01 * np.sin(np.arange(EXAMPLES))


def search(rule: Callable[[int], float], **how: object) -> tuple[Minimal, Model]:
    model = Model(rule)
    return minimal(table_of(chain(len(EDGES))), LAYOUT, model, **how), model


def ids(edges: Sequence[Edge]) -> list[str]:
    return [str(edge) for edge in edges]


class TestOrder:
    def test_an_edge_waits_until_its_end_is_there(self) -> None:
        scores = {"embed->L0.H1.q": 9, "L0.H1->L1.MLP": 8, "L1.MLP->logits": -2, "embed->logits": 1}
        order = from_logits(table_of(scores), LAYOUT)
        assert ids(order[:3]) == ["L1.MLP->logits", "L0.H1->L1.MLP", "embed->L0.H1.q"]
        assert ids(order[3:4]) == ["embed->logits"]
        assert sorted(order) == sorted(EDGES)

    def test_a_kv_group_is_there_with_its_first_head(self) -> None:
        scores = {"embed->L1.KV1.v": 9, "L1.H0->logits": 5, "L1.H3->logits": 2, "L1.H2->logits": 1}
        order = ids(from_logits(table_of(scores), LAYOUT))
        assert order[:4] == ["L1.H0->logits", "L1.H3->logits", "embed->L1.KV1.v", "L1.H2->logits"]

    @settings(max_examples=25, deadline=None)
    @given(st.integers(0, 2**32 - 1), st.booleans())
    def test_it_is_the_plain_greedy_search(self, seed: int, parallel: bool) -> None:
        """By another way: at every step look at all edges that are left."""
        layout = Layout(n_layers=2, n_heads=2, n_kv_heads=1, parallel=parallel)
        edges = tuple(layout.edges())
        rng = np.random.default_rng(seed)
        table = table_of(rng.integers(-4, 5, len(edges)) / 4, layout)
        strength = np.abs(table.values.mean(0, dtype=np.float64))
        there, left, order = {Unit("logits")}, list(edges), []
        while left:
            open_ = [e for e in left if not there.isdisjoint(layout.parts(e.target) or (e.target,))]
            best = max(open_, key=lambda e: (strength[edges.index(e)], -edges.index(e)))
            order.append(best)
            left.remove(best)
            there.add(best.source)
        assert from_logits(table, layout) == order

    def test_prefixes_are_nested_after_pruning(self) -> None:
        rng = np.random.default_rng(3)
        order = from_logits(table_of(rng.normal(size=len(EDGES))), LAYOUT)
        last: set[Edge] = set()
        for n in range(len(EDGES) + 1):
            now = set(connected(order[:n], LAYOUT))
            assert last <= now
            assert all(edge.source.kind == "embed" or edge.source in nodes(sorted(now)) for edge in now)
            last = now

    def test_what_cannot_be_ordered(self) -> None:
        with pytest.raises(UsageError, match="the scores of all edges"):
            from_logits(table_of(chain(5)).columns(EDGES[:-1]), LAYOUT)
        with pytest.raises(UsageError, match="no examples"):
            from_logits(table_of(chain(5)).rows([]), LAYOUT)


class TestSearch:
    @pytest.mark.parametrize("wanted", [1, 3, 7, 30, 41])
    def test_the_exact_size_of_a_step(self, wanted: int) -> None:
        found, model = search(lambda n: float(n >= wanted), cap="100%")
        assert found.reached
        assert len(found.circuit.edges) == wanted
        assert found.faithfulness == pytest.approx(1.0)
        assert found.share == wanted / len(EDGES)
        assert found.circuit.edges == tuple(sorted(from_logits(table_of(chain(len(EDGES))), LAYOUT)[:wanted]))
        assert len(model.asked) <= 4  # calls, each of all circuits together
        assert sum(map(len, model.asked)) <= 2 + len(grid(len(EDGES))) + 8

    def test_it_must_hold_for_larger_circuits(self) -> None:
        """Faithful from 10 on, but for a dip at 25 to 29: a bisection would have stopped at 10."""
        found, _ = search(lambda n: float(n >= 10 and not 25 <= n < 30), cap="100%")
        assert len(found.circuit.edges) == 30
        assert any(p.edges < 25 and p.faithfulness > 0.9 for p in found.curve)

    def test_not_reached_is_a_result(self) -> None:
        """The paper's code returns the largest circuit tried as if it were faithful."""
        found, model = search(lambda n: n / 100, cap=40)
        assert not found.reached
        assert (found.faithfulness, found.share, found.circuit.edges) == (None, None, ())
        assert found.interval[1] is None
        assert found.resamples == {"not reached": 1.0}
        assert "no circuit of at most 40 of the" in found.reason
        assert "it is 0.4 there" in found.reason
        assert found.units.origin["empty"] == found.reason
        assert len(model.asked) == 1
        assert json.loads(json.dumps(found.to_dict()))["edges"] is None

    def test_the_cap_is_of_this_models_own_edges(self) -> None:
        found, _ = search(float, cap="10%")
        assert found.cap == len(EDGES) // 10
        assert grid(found.cap)[-1] == found.cap
        assert max(point.taken for point in found.curve) == found.cap
        assert search(float, cap="0.01%")[0].cap == 1

    def test_more_than_the_model_is_not_clamped(self) -> None:
        found, _ = search(lambda n: 1.7 if n >= 5 else -0.4, cap="50%")
        assert found.faithfulness == pytest.approx(1.7)
        assert len(found.circuit.edges) == 5
        assert min(point.faithfulness for point in found.curve) == pytest.approx(-0.4)

    def test_faithfulness_counts_from_nothing(self) -> None:
        """Where the counterfactual turns m round, m(C)/m(M) = 0.8 is a faithfulness of 0.9."""
        model = Model(lambda n: 0.9 if n >= 6 else 0.5, full=3.0, empty=-3.0)
        kept = model([EDGES[:6]]).mean()
        assert kept / 3.0 == pytest.approx(0.8, abs=0.01)
        found = minimal(table_of(chain(len(EDGES))), LAYOUT, model, level=0.85, cap="50%")
        assert len(found.circuit.edges) == 6
        assert found.faithfulness == pytest.approx(0.9)

    def test_what_no_path_reaches_is_no_part_of_it(self) -> None:
        """The edge taken first leaves an MLP that nothing reaches yet: two are taken, and one is the circuit."""
        table = table_of({"L1.MLP->logits": 9, "embed->logits": 8, "L0.H0->logits": 7, "embed->L0.H0.q": 6})
        found = minimal(table, LAYOUT, Model(lambda n: 1.0), cap="50%")
        assert ids(found.circuit.edges) == ["embed->logits"]
        assert found.units.units == ()
        assert [(p.taken, p.edges, p.nodes) for p in found.curve[:4]] == [
            (1, 0, 0),
            (2, 1, 0),
            (3, 1, 0),
            (4, 3, 1),
        ]

    def test_samples_of_examples(self) -> None:
        """Half of the examples need 12 edges, half need 3: at a level of 0.8 few samples do with 3."""

        def measure(circuits: Sequence[tuple[Edge, ...]]) -> np.ndarray:
            need = np.tile([3, 12], 5)
            return np.array([(len(circuit) >= need).astype(float) for circuit in circuits])

        found = minimal(table_of(chain(len(EDGES))), LAYOUT, measure, cap="100%")
        assert len(found.circuit.edges) == 12
        assert found.resamples.keys() == {"3", "12"}
        # at least 8 of 10 draws come from the first half
        expected = sum(math.comb(10, k) for k in range(8, 11)) / 2**10
        assert found.resamples["3"] == pytest.approx(expected, abs=0.03)
        low, high = found.interval
        assert low is not None
        assert high is not None
        assert low <= 12 <= high

    def test_without_a_range_nothing_is_divided(self) -> None:
        found = minimal(
            table_of(chain(9)), LAYOUT, Model(float), usable=lambda full, empty: f"range {full[0]:.0f}"
        )
        assert (found.reached, found.reason, found.curve) == (False, "range 1", ())

    @pytest.mark.parametrize(
        "how",
        [
            {"level": 0.0},
            {"level": 1.0},
            {"cap": 0},
            {"cap": "0%"},
            {"cap": "101%"},
            {"cap": 10_000},
            {"cap": True},
            {"cap": 0.05},
            {"cap": "five"},
        ],
    )
    def test_refusals(self, how: dict[str, object]) -> None:
        with pytest.raises(UsageError, match=r"^(cap|faithfulness)"):
            search(float, **how)

    def test_places_that_hold(self) -> None:
        assert holds([0.1, 0.9, 0.7, 0.8, 1.2], 0.8) == 3
        assert holds([0.9], 0.8) == 0
        assert holds([0.9, 0.1], 0.8) is None
        assert grid(1) == [1]
        assert grid(10) == [1, 2, 3, 4, 6, 9, 10]


@pytest.fixture(scope="module")
def lab() -> Lab:
    model = planted.build(dtype=torch.float64)
    model.model.__dict__["checks"] = ()
    return lab_of(model)


class TestPlanted:
    """Three edges carry the class; with any of them missing the answer is the counterfactual's."""

    def test_the_path_is_found(self, lab: Lab) -> None:
        found = lab.minimal()
        assert found.reached
        assert found.circuit.edges == tuple(sorted(PATH))
        assert found.units.units == (planted.CARRIER, planted.READER)
        assert found.faithfulness == pytest.approx(1.0)
        assert found.share == 3 / found.total
        assert found.total == sum(1 for _ in lab.layout.edges())
        assert found.cap == found.total // 20
        assert found.circuit.origin["examples"] == [item.index for item in lab.data.discover]

    def test_two_edges_are_too_few(self, lab: Lab) -> None:
        found = lab.minimal(cap=2)
        assert not found.reached
        assert [point.edges for point in found.curve] == [0, 0]  # no path from the embedding

    def test_the_size_may_be_measured_on_other_examples(self, lab: Lab) -> None:
        found = lab.minimal(split="evaluate", metric="accuracy", cap=6)
        assert found.circuit.edges == tuple(sorted(PATH))
        assert len(found.circuit.seen()) == len(lab.data.discover) + len(lab.data.evaluate)

    def test_a_spec_gets_units_or_edges(self, lab: Lab) -> None:
        found = propose(lab, {"method": "minimal", "faithfulness": 0.9})
        assert found.units == (planted.CARRIER, planted.READER)
        assert propose(lab, {"method": "minimal", "level": "edges"}).edges == tuple(sorted(PATH))
        assert propose(lab, {"universe": "heads", "at": 60}) == lab.shared(universe="heads", at=60)

    def test_refusals(self, lab: Lab) -> None:
        divergence = Lab(lab.model, lab.data, metric="kl")
        with pytest.raises(UsageError, match="'kl' is undefined"):
            divergence.minimal()
        with pytest.raises(UsageError, match="unknown split"):
            lab.minimal(split="test")


def test_a_chain_through_an_mlp_and_two_readers() -> None:
    for how, expected in (
        ({"mlp": True}, {"L5.MLP->logits", "L4.H5->L5.MLP", "L1.H2->L4.KV5.v", "embed->L1.KV2.v"}),
        (
            {"backup": True},
            {*map(str, PATH), "L1.H2->L5.KV1.v", "L5.H1->logits"},
        ),
    ):
        model = planted.build(dtype=torch.float64, **how)
        model.model.__dict__["checks"] = ()
        found = lab_of(model).minimal(faithfulness=0.95)
        assert set(ids(found.circuit.edges)) == expected


def test_a_head_that_works_against_the_answer() -> None:
    """Three heads read the class: L4.H5 writes it once, L5.H1 −0.9 times and L5.H3 0.8 times.

    What is left of the answer a and the counterfactual b in the residual beside the query's flag: with L4.H5 kept
    1 a − 0.1 b, with L5.H1 too 0.1 a + 0.8 b, with all of them 0.9 a, with none 0.9 b. The logit difference is 8 times
    a − b, over the length. So three edges are faithful, five are not, and seven are: the first crossing does not hold.
    """
    model = planted.build(dtype=torch.float64)
    block = model.model.module.transformer.h[5]
    for head, length in ((1, -0.9), (3, 0.8)):
        places = {
            "query": planted._IS_QUERY,
            "key": planted._IS_RELAY,
            "value": planted._R,
            "out": planted._O,
        }
        with torch.no_grad():
            planted._head(block, head, length=length, **places)
    model = replace(model, model=from_module(model.model.module, name="planted"))
    model.model.__dict__["checks"] = ()
    left = {3: (1.0, -0.1), 5: (0.1, 0.8), 7: (0.9, 0.0)}
    logits = {n: 8 * (a - b) / math.sqrt(1 + a * a + b * b) for n, (a, b) in left.items()}
    found = lab_of(model).minimal(cap=30)
    curve = {point.edges: point.faithfulness for point in found.curve}
    assert {3, 7} <= set(curve)
    for n in set(curve) & set(logits):
        assert curve[n] == pytest.approx((logits[n] + logits[7]) / (2 * logits[7]), abs=1e-6)
    assert curve[3] > 1.05
    dip = min(value for n, value in curve.items() if 3 < n < 7)
    assert dip == pytest.approx(0.5 + logits[5] / logits[7] / 2, abs=1e-6)
    assert dip < 0.2
    assert len(found.circuit.edges) == 7
    assert set(map(str, found.units.units)) == {"L1.H2", "L4.H5", "L5.H1", "L5.H3"}
