"""Circuits: canonical form, set algebra, JSON, and where a circuit came from."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from circuittest.circuit import Circuit
from circuittest.errors import CircuitError, UnitError
from circuittest.units import Edge, Layout, Unit
from hypothesis_circuittest import circuits, layouts

LAYOUT = Layout(4, 8, 2)


@st.composite
def some_circuits(draw: st.DrawFn, count: int) -> tuple[Circuit, ...]:
    """Circuits of one layout, with units and edges."""
    layout = draw(layouts(max_layers=3, max_heads=4))
    return tuple(draw(circuits(layout, min_units=0, max_edges=6)) for _ in range(count))


@given(st.data(), layouts(max_layers=3, max_heads=4))
def test_members_are_sorted_whatever_order_they_came_in(data: st.DataObject, layout: Layout) -> None:
    circuit = data.draw(circuits(layout, max_edges=6))
    ids = data.draw(st.permutations([str(m) for m in circuit] * 2))
    again = Circuit.of(ids, layout=layout)
    assert again == circuit
    assert hash(again) == hash(circuit)
    assert list(again.units) == sorted(set(circuit.units))
    assert list(again.edges) == sorted(set(circuit.edges))


@given(some_circuits(3))
def test_set_algebra(three: tuple[Circuit, ...]) -> None:
    a, b, c = three
    assert a | b == b | a
    assert a & b == b & a
    assert a & (b | c) == (a & b) | (a & c)
    assert a - b == a - (a & b)
    assert a ^ b == (a - b) | (b - a)
    assert len(a | b) == len(a) + len(b) - len(a & b)
    assert (a & b) <= a <= (a | b)
    assert (a <= b) == (a | b == b) == (a - b == Circuit())
    assert all((member in a & b) == (member in a and member in b) for member in a | b)


@given(some_circuits(1))
def test_json_and_pickle_round_trip(one: tuple[Circuit, ...]) -> None:
    circuit = one[0].renamed("mine")
    again = Circuit.from_dict(json.loads(json.dumps(circuit.to_dict())))
    for copy in (again, pickle.loads(pickle.dumps(circuit))):
        assert copy == circuit
        assert (copy.name, copy.layout, copy.origin) == ("mine", circuit.layout, circuit.origin)


def test_file_round_trip_is_byte_stable(tmp_path: Path) -> None:
    origin = {"task": "ioi", "seed": 1, "prompts": ["ab", "cd"]}
    circuit = Circuit.of(["L3.MLP", "L0.H3->L3.H1.q", "L2.H1"], layout=LAYOUT, name="é", origin=origin)
    circuit.save(tmp_path / "a.json")
    again = Circuit.load(tmp_path / "a.json")
    again.save(tmp_path / "b.json")
    assert again == circuit
    assert again.seen() == {"ab", "cd"}
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_combining_keeps_what_both_parts_have_seen() -> None:
    a = Circuit.of(["L0.H0"], origin={"task": "ioi", "prompts": ["ab"]})
    b = Circuit.of(["L0.H1"], origin={"task": "sva", "prompts": ["cd"]})
    assert ((a | b) - a).seen() == {"ab", "cd"}


def test_counts_and_len() -> None:
    circuit = Circuit.of(["L1.MLP", "L0.H1", "L0.H0", "embed->logits"])
    assert circuit.counts() == {"head": 2, "mlp": 1}
    assert len(circuit) == 4
    assert Unit.parse("L0.H0") in circuit
    assert Edge.parse("embed->logits") in circuit
    assert "L0.H0" not in circuit


def test_one_id_is_no_list_of_letters() -> None:
    assert Circuit.of("L0.H1") == Circuit.of(["L0.H1"])


def test_a_circuit_of_many_edges_is_built_at_once() -> None:
    everything = Circuit.of([str(edge) for edge in Layout(12, 12, 12).edges()])
    assert len(everything) == 32_491


@pytest.mark.parametrize("ids", [["L99.H0"], ["L0.H8"], ["L0.E0"], ["L0.H0->L9.MLP"]])
def test_units_that_the_layout_lacks(ids: list[str]) -> None:
    with pytest.raises(UnitError, match="the model has no"):
        Circuit.of(ids, layout=LAYOUT)


def test_edges_that_run_backwards_or_across_a_parallel_block() -> None:
    with pytest.raises(UnitError, match="reads before its source writes"):
        Circuit.of(["L2.H0->L1.MLP"], layout=LAYOUT)
    Circuit.of(["L1.H0->L1.MLP"], layout=LAYOUT)
    with pytest.raises(UnitError, match=r"no edge L1\.H0->L1\.MLP"):
        Circuit.of(["L1.H0->L1.MLP"], layout=Layout(4, 8, 2, parallel=True))


def test_circuits_of_different_architectures_do_not_mix() -> None:
    a = Circuit.of(["L0.H0"], layout=LAYOUT, name="a")
    b = Circuit.of(["L0.H0"], layout=Layout(4, 8, 8), name="b")
    for mix in (lambda: a | b, lambda: a & b, lambda: a - b, lambda: a ^ b, lambda: a <= b):
        with pytest.raises(CircuitError, match="a and b belong to different architectures"):
            mix()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "circuittest-circuit/9"}, "found 'circuittest-circuit/9'"),
        ({"unit": []}, "unknown key 'unit'"),
        ({"units": "L0.H1"}, "must be a list of ids"),
        ({"units": [3]}, "must be a list of ids"),
        ({"units": ["L0.H99"]}, r"no L0\.H99"),
        ({"units": ["L0.X1"]}, "not a unit id"),
        ({"edges": ["L0.H1"]}, "not an edge id"),
        ({"edges": None}, "must be a list of ids"),
        ({"layout": 3}, "malformed"),
        ({"layout": {"n_layers": 2}}, "malformed"),
        ({"layout": {"n_layers": 2, "n_heads": 3, "n_kv_heads": 2}}, "no such layout"),
        ({"origin": [1]}, "origin of a circuit file must be a mapping"),
    ],
)
def test_bad_files_name_the_file_and_the_mistake(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(Circuit.of(["L0.H1"], layout=LAYOUT).to_dict() | change))
    with pytest.raises(CircuitError, match=message) as error:
        Circuit.load(path)
    assert "bad.json" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'"L0.H1"'])
def test_files_that_hold_no_circuit(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(CircuitError, match=r"bad\.json"):
        Circuit.load(path)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(CircuitError, match="cannot read the circuit file .*nope.json: No such file"):
        Circuit.load(tmp_path / "nope.json")
    with pytest.raises(CircuitError, match="cannot read"):
        Circuit.load(tmp_path)


def test_repr_is_short() -> None:
    assert repr(Circuit.of(["L0.H1"], name="x")) == "Circuit(x: L0.H1)"
    assert repr(Circuit.of(LAYOUT.universe("heads"))).endswith(", …)")
