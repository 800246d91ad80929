"""What an item measures of a model: the circuit that claims judge, its sizes, and the heads' roles."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.errors import UnsupportedModel
from circuittest.find.roles.table import RoleTable
from circuittest.sweep.judged import circuit_of, role_scores
from circuittest.units import Layout, Unit

LAYOUT = Layout(2, 2, 1)


def lab(found: Circuit | None = None) -> SimpleNamespace:
    return SimpleNamespace(layout=LAYOUT, circuit=lambda one: one, shared=lambda **how: found)


def spec(**how: object) -> SimpleNamespace:
    return SimpleNamespace(**{"lock": None, "rediscover": False, "circuit": None, **how})


@pytest.mark.parametrize(("rediscover", "expected"), [(False, ["L1.H0"]), (True, ["L0.H1"])])
def test_the_circuit_is_the_one_that_claims_judge(rediscover: bool, expected: list[str]) -> None:
    locked, found = (Circuit.of([Unit.parse(name)], layout=LAYOUT) for name in ("L1.H0", "L0.H1"))
    lock = SimpleNamespace(circuits={"circuit": SimpleNamespace(circuit=locked)})
    how = {"universe": "heads", "top": "20%"}
    result = circuit_of(spec(lock=lock, rediscover=rediscover, circuit=how), lab(found))
    assert (result["members"], result["given"]) == (expected, not rediscover)
    assert (result["resampled"] is None) == (not rediscover)


def test_sizes_of_a_circuit_of_units() -> None:
    found = circuit_of(spec(circuit=Circuit.of(["L0.KV0", "L1.MLP"], layout=LAYOUT)), lab())
    assert (found["units"], found["possible"]) == (["L0.KV0", "L1.MLP"], 6)
    assert (found["edges"], found["of_edges"]) == (None, None)
    assert (found["nodes"], found["of_nodes"]) == (3, 6)  # the two heads of the group, and the MLP
    assert found["heads"] == ["L0.H0", "L0.H1"]
    assert found["layout"] == [2, 2, 1, False]


def test_sizes_of_a_circuit_of_edges() -> None:
    edges = ["embed->L0.H1.q", "L0.H1->L1.KV0.k", "L0.H1->logits", "embed->L1.MLP"]
    found = circuit_of(spec(circuit=Circuit.of(edges, layout=LAYOUT)), lab())
    # into a block's q of 2 heads, k, v and MLP: from the embedding and 3 or, in the MLP, 2 more units of its layer
    assert found["of_edges"] == found["possible"] == (4 * 1 + 3) + (4 * 4 + 6) + 7
    assert found["edges"] == 4
    assert found["units"] == ["L0.H1", "L1.KV0", "L1.MLP"]
    assert found["nodes"] == 2  # which head of the group reads the key an edge does not say
    assert found["heads"] == ["L0.H1"]


def test_parts_of_mlps_are_no_nodes() -> None:
    layout = Layout(1, 2, 2, n_neurons=4)
    there = SimpleNamespace(layout=layout, circuit=lambda one: one)
    found = circuit_of(spec(circuit=Circuit.of(["L0.N1", "L0.H0"], layout=layout)), there)
    assert (found["nodes"], found["heads"], found["of_nodes"]) == (None, None, 3)


def test_roles_of_heads_with_their_standard_errors() -> None:
    heads = (Unit.parse("L0.H0"), Unit.parse("L0.H1"))
    nan = math.nan
    tables = {
        "copy": RoleTable("copy", np.array([[0.0, 1.0], [nan, nan], [1.0, 1.0]]), heads, (0, 1, 2), "why"),
        "induction": RoleTable("induction", np.full((2, 2), nan), heads, (0, 1), "no token is repeated"),
        "self": RoleTable("self", np.array([[0.2, 0.3]]), heads, (0,)),
    }

    def roles(kinds):
        if kinds == ["local"]:
            raise UnsupportedModel("no weights")
        return {kind: tables[kind] for kind in kinds}

    found = role_scores(SimpleNamespace(roles=roles), ["copy", "induction", "self", "local"])
    assert found["copy"] == {"heads": {"L0.H0": [0.5, 0.5], "L0.H1": [1.0, 0.0]}, "n": 2, "undefined": ""}
    assert found["induction"] == {"heads": {}, "n": 0, "undefined": "no token is repeated"}
    assert found["self"]["heads"] == {"L0.H0": [0.2, None], "L0.H1": [0.3, None]}
    assert found["local"]["heads"] == {}
    assert "no weights" in found["local"]["undefined"]
