"""Graph files of EAP-IG: read as they are written there, written so that they are read back, refused where they differ."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from hypothesis import given, strategies as st

from circuittest.circuit import Circuit
from circuittest.errors import CircuitError
from circuittest.interop import read_eap_ig, to_eap_ig
from circuittest.units import Edge, Layout, Unit
from hypothesis_circuittest import circuits, layouts

LAYOUT = Layout(2, 4, 2)


def theirs(*inside: str, **scores: float) -> dict:
    """A file as EAP-IG writes it, for two layers of four heads; names of edges are written out here once."""
    heads = [[f"a{layer}.h{i}" for i in range(4)] for layer in (0, 1)]
    edges = [f"input->{head}<{slot}>" for head in heads[0] for slot in "qkv"]
    edges += [f"{source}->m0" for source in ("input", *heads[0])]
    before = ["input", *heads[0], "m0"]
    edges += [f"{source}->{head}<{slot}>" for head in heads[1] for slot in "qkv" for source in before]
    edges += [f"{source}->m1" for source in (*before, *heads[1])]
    edges += [f"{source}->logits" for source in (*before, *heads[1], "m1")]
    return {
        "cfg": {"n_layers": 2, "n_heads": 4, "parallel_attn_mlp": False, "d_model": 8},
        "nodes": {name: {"in_graph": False} for name in (*before, *heads[1], "m1", "logits")},
        "edges": {name: {"score": scores.get(name, 0.0), "in_graph": name in inside} for name in edges},
    }


def test_their_names_are_read():
    data = theirs("a0.h3->a1.h1<q>", "input->m1", "m0->logits", "a0.h0->a1.h0<k>", "a0.h0->a1.h1<k>")
    found = read_eap_ig(data, layout=LAYOUT).circuit
    assert [str(edge) for edge in found.edges] == [
        "embed->L1.MLP",
        "L0.H0->L1.KV0.k",
        "L0.H3->L1.H1.q",
        "L0.MLP->logits",
    ]
    assert found.layout == LAYOUT


#: SHA-256 of the sorted names in circuits/ioi-eap-ig.json of https://github.com/hannamw/MIB-circuit-track (commit
#: b759df3), a published circuit of GPT-2 small: 158 nodes and 32,491 edges.
PUBLISHED = {
    "nodes": "b3f109a2b123d44b495596060f496ff43849c6742042e815a710083d0b5d3067",
    "edges": "6672d04286447197e3765fcba06723573c823578e901c828f9a91fb35cdb8f95",
}


def test_the_names_are_those_of_a_published_circuit():
    written = to_eap_ig(Circuit.of(["L0.H3"], layout=Layout(12, 12, 12)), width=768)
    found = {
        part: hashlib.sha256("\n".join(sorted(written[part])).encode()).hexdigest()
        for part in ("nodes", "edges")
    }
    assert found == PUBLISHED
    assert written["cfg"] == {"n_layers": 12, "n_heads": 12, "parallel_attn_mlp": False, "d_model": 768}
    assert {tuple(info) for info in written["nodes"].values()} == {("in_graph",)}
    assert {tuple(sorted(info)) for info in written["edges"].values()} == {("in_graph", "score")}


def test_nodes_with_scores():
    data = theirs()
    for name, score in (("a0.h1", 0.5), ("m1", -2.0), ("a1.h0", math.nan)):
        data["nodes"][name] |= {"score": score}
    found = read_eap_ig(json.loads(json.dumps(data)))
    assert found.unit_scores == {Unit.parse("L0.H1"): 0.5, Unit.parse("L1.MLP"): -2.0}
    assert not found.circuit.units


def test_circuits_without_scores():
    data = theirs("m0->logits")
    data["edges"] = {name: {"in_graph": info["in_graph"]} for name, info in data["edges"].items()}
    found = read_eap_ig(data)
    assert [str(edge) for edge in found.circuit.edges] == ["L0.MLP->logits"]
    assert found.scores == {}


def test_parts_of_a_node_are_no_unit():
    data = theirs()
    data["nodes"]["m0"] = {"in_graph": True, "neurons": [1.0] * 8}
    data["nodes"]["m1"] = {"in_graph": False, "neurons": [0.0] * 8}
    assert [str(unit) for unit in read_eap_ig(data).circuit.units] == ["L0.MLP"]
    data["nodes"]["m0"]["neurons"][2:4] = [0.0, False]
    with pytest.raises(CircuitError, match="holds m0 in part: 6 of its 8 output dimensions"):
        read_eap_ig(data)


def test_without_a_layout_each_head_has_keys_of_its_own():
    found = read_eap_ig(theirs("a0.h0->a1.h3<v>")).circuit
    assert str(found.edges[0]) == "L0.H0->L1.KV3.v"


def test_a_written_file_has_exactly_their_names():
    data = theirs("a0.h3->a1.h1<q>")
    written = to_eap_ig(Circuit.of(["L0.H3->L1.H1.q"], layout=Layout(2, 4, 4)), width=8)
    assert set(written["edges"]) == set(data["edges"])
    assert set(written["nodes"]) == set(data["nodes"])
    assert written["cfg"] == data["cfg"]
    assert [name for name, info in written["edges"].items() if info["in_graph"]] == ["a0.h3->a1.h1<q>"]
    assert sorted(name for name, info in written["nodes"].items() if info["in_graph"]) == [
        "a0.h3",
        "a1.h1",
        "input",
    ]


@pytest.mark.parametrize(("kv", "inside"), [("any", True), ("all", False)])
def test_heads_that_share_a_key_and_differ(kv, inside):
    data = theirs("a0.h0->a1.h0<k>")
    with pytest.raises(CircuitError, match="the heads that read L0.H0->L1.KV0.k differ: 1 of 2"):
        read_eap_ig(data, layout=LAYOUT)
    assert bool(read_eap_ig(data, layout=LAYOUT, kv=kv).circuit.edges) == inside


def test_scores_of_shared_keys_add_up():
    data = theirs(**{"a0.h0->a1.h0<k>": 1.0, "a0.h0->a1.h1<k>": -3.0, "m0->logits": 0.5})
    scores = read_eap_ig(data, layout=LAYOUT).scores
    assert scores[Edge.parse("L0.H0->L1.KV0.k")] == -2.0
    assert scores[Edge.parse("L0.MLP->logits")] == 0.5


def test_units_where_no_edge_is_in_the_graph_and_old_files():
    data = theirs()
    data["nodes"] = {name: name in ("a0.h3", "m1", "input") for name in data["nodes"]}
    assert [str(unit) for unit in read_eap_ig(data).circuit.units] == ["L0.H3", "L1.MLP"]


@given(layouts().flatmap(lambda layout: st.tuples(st.just(layout), circuits(layout))))
def test_units_come_back_as_edges_between_them(pair):
    layout, circuit = pair
    if any(unit.kind not in ("head", "mlp", "kv", "attn") for unit in circuit.units) or circuit.edges:
        return
    members = set(layout.expand(circuit.units))
    found = read_eap_ig(to_eap_ig(circuit, width=4, layout=layout), layout=layout, kv="any").circuit
    assert {u for e in found.edges for u in layout.expand([e.source]) if u.kind in ("head", "mlp")} <= members


@given(st.data())
def test_edges_and_scores_come_back(data):
    layout = data.draw(st.sampled_from([Layout(1, 1, 1), LAYOUT, Layout(2, 4, 1, True), Layout(2, 2, 2)]))
    edges = list(layout.edges())
    chosen = data.draw(st.lists(st.sampled_from(edges), unique=True))
    scores = {
        edge: data.draw(st.integers(-8, 8)) / 4
        for edge in data.draw(st.lists(st.sampled_from(edges), unique=True))
    }
    circuit = Circuit(edges=tuple(chosen), layout=layout)
    found = read_eap_ig(json.loads(json.dumps(to_eap_ig(circuit, width=4, scores=scores))), layout=layout)
    assert found.circuit == circuit
    assert {edge: value for edge, value in found.scores.items() if value} == pytest.approx(
        {edge: value for edge, value in scores.items() if value}
    )


def test_files(tmp_path):
    file = tmp_path / "ioi.json"
    with pytest.raises(CircuitError, match="cannot read the graph"):
        read_eap_ig(file)
    file.write_text("{")
    with pytest.raises(CircuitError, match="is not JSON"):
        read_eap_ig(file)
    file.write_text(json.dumps(theirs("m0->logits")))
    assert read_eap_ig(file).circuit.name == "ioi"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "is no graph of EAP-IG"),
        ({"cfg": {"n_layers": 2}}, "does not say its sizes"),
        ({"cfg": {"n_layers": 3, "n_heads": 4}}, "belongs to another architecture"),
        ({"edges": {"m0-logits": True}}, "no edge of EAP-IG"),
        ({"edges": {"x0->logits": True}}, "no node of EAP-IG: 'x0'"),
        ({"edges": {"m9->logits": True}}, "cannot be read"),
        ({"edges": {"m0->a1.h0": True}}, "cannot be read"),
    ],
)
def test_other_files_are_refused(change, message):
    with pytest.raises(CircuitError, match=message):
        read_eap_ig({**theirs(), **change}, layout=LAYOUT)


def test_members_without_a_name_are_refused():
    with pytest.raises(CircuitError, match="L0.N3 has no name in EAP-IG"):
        to_eap_ig(Circuit.of(["L0.N3"]), width=4, layout=Layout(2, 4, 2, n_neurons=8))
    with pytest.raises(CircuitError, match="has no layout"):
        to_eap_ig(Circuit.of(["L0.H3"]), width=4)
