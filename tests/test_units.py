"""Ids, canonical order, layouts and the edges between units."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from circuittest.errors import UnitError
from circuittest.units import KINDS, UNIVERSES, Edge, Layout, Unit, parse
from hypothesis_circuittest import edges, layouts

INDEX = st.integers(0, 10_000)
ANY_UNIT = st.one_of(
    st.just(Unit("embed")),
    st.just(Unit("logits")),
    st.builds(Unit, st.sampled_from(["head", "kv", "expert", "neuron"]), INDEX, INDEX),
    st.builds(Unit, st.sampled_from(["attn", "mlp"]), INDEX),
)


@given(ANY_UNIT)
def test_unit_ids_round_trip(unit: Unit) -> None:
    assert Unit.parse(str(unit)) == parse(str(unit)) == unit
    assert pickle.loads(pickle.dumps(unit)) == unit


@given(st.data(), layouts())
def test_edge_ids_round_trip(data: st.DataObject, layout: Layout) -> None:
    edge = data.draw(edges(layout))
    assert Edge.parse(str(edge)) == parse(str(edge)) == edge
    assert hash(Edge.parse(str(edge))) == hash(edge)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("L3.H5", Unit("head", 3, 5)),
        ("L3.KV1", Unit("kv", 3, 1)),
        ("L3.MLP", Unit("mlp", 3)),
        ("L3.ATTN", Unit("attn", 3)),
        ("L3.E12", Unit("expert", 3, 12)),
        ("L3.N401", Unit("neuron", 3, 401)),
        ("embed", Unit("embed")),
        ("logits", Unit("logits")),
    ],
)
def test_documented_ids(text: str, unit: Unit) -> None:
    assert Unit.parse(text) == unit
    assert str(unit) == repr(unit) == text


@pytest.mark.parametrize(
    "text",
    ["", "L3", "L3.H", "L3.H05", "L03.H5", "l3.h5", "L3.H5 ", " L3.H5", "L3.H5\n", "L3.H-1", "L-1.H0", "L3.MLP0",
     "L3.ATTN1", "L3.Q5", "L3H5", "3.5", "L٣.H5", "Embed", "embed0", "L3.H5.q", "L3.H5->", "L1.H1->logits"],
)  # fmt: skip
def test_what_is_no_unit_id(text: str) -> None:
    with pytest.raises(UnitError, match="not a unit id") as error:
        Unit.parse(text)
    assert "L3.H5 (head)" in str(error.value)


@given(st.text(max_size=12))
def test_any_text_is_an_id_or_a_unit_error(text: str) -> None:
    try:
        found = parse(text)
    except UnitError:
        return
    assert str(found) == text


@pytest.mark.parametrize("value", [None, 3, b"L3.H5", ["L3.H5"]])
def test_what_is_no_text_is_a_unit_error(value: object) -> None:
    with pytest.raises(UnitError):
        Unit.parse(value)  # type: ignore[arg-type]
    with pytest.raises(UnitError):
        Edge.parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "L0.H3",  # no arrow
        "L0.H3->L4.H1",  # a head reads q, and says so
        "L0.H3->L4.H1.k",  # keys are read once per KV head
        "L0.H3->L4.KV1.q",
        "L0.H3->L4.KV1",
        "L0.H3->L4.MLP.q",
        "L0.H3->logits.q",
        "L0.H3->embed",
        "logits->L4.MLP",
        "L0.H3->L4.ATTN",
        "L0.H3->L4.H1.q->logits",
    ],
)
def test_what_is_no_edge_id(text: str) -> None:
    with pytest.raises(UnitError):
        Edge.parse(text)


@pytest.mark.parametrize(
    ("kind", "layer", "index"),
    [
        ("head", 1, None),
        ("head", None, 1),
        ("mlp", 1, 1),
        ("embed", 0, None),
        ("thing", 1, 1),
        ("head", -1, 0),
    ],
)
def test_impossible_units(kind: str, layer: int | None, index: int | None) -> None:
    with pytest.raises(UnitError, match="no such unit"):
        Unit(kind, layer, index)


def test_canonical_order_of_a_block() -> None:
    order = [
        "embed",
        "L0.H0",
        "L0.H1",
        "L0.H10",
        "L0.KV0",
        "L0.ATTN",
        "L0.E0",
        "L0.MLP",
        "L0.N3",
        "L1.H0",
        "logits",
    ]
    assert [str(u) for u in sorted(Unit.parse(t) for t in reversed(order))] == order


@given(layouts(neurons=True, experts=True), st.sets(st.sampled_from(KINDS)))
def test_units_come_sorted_and_belong(layout: Layout, kinds: set[str]) -> None:
    units = layout.units(kinds)
    assert list(units) == sorted(set(units))
    assert all(unit in layout and unit.kind in kinds for unit in units)
    layers = range(layout.n_layers)
    layered = sum(layout.count(kind, layer) for kind in kinds - {"embed", "logits"} for layer in layers)
    assert len(units) == layered + len(kinds & {"embed", "logits"})


@given(layouts())
def test_every_universe_is_the_union_of_its_kinds(layout: Layout) -> None:
    for name, kinds in UNIVERSES.items():
        if all(layout.count(kind, 0) for kind in kinds):
            assert layout.universe(name) == layout.units(kinds) == layout.universe(list(kinds))
    assert layout.universe(["mlps", "heads"]) == layout.universe("all")


def test_bad_universes_say_what_is_known() -> None:
    layout = Layout(2, 4, 2)
    with pytest.raises(UnitError, match="unknown universe 'head s'.*'heads'"):
        layout.universe("head s")
    with pytest.raises(UnitError, match="'experts' is empty: none of its layers is a mixture of experts"):
        layout.universe("experts")
    with pytest.raises(UnitError, match="is empty: no projection is known"):
        layout.universe(["neurons"])
    with pytest.raises(UnitError, match="not 3"):
        layout.universe([3])  # type: ignore[list-item]
    with pytest.raises(UnitError, match="unknown kind"):
        layout.units(["heads"])


@pytest.mark.parametrize(
    "sizes", [(0, 4, 2), (2, 4, 3), (2, 0, 1), (2, 4, 0), (2.0, 4, 2), (True, 4, 2), ("2", 4, 2)]
)
def test_impossible_layouts(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(UnitError, match="no such layout"):
        Layout(*sizes)


@pytest.mark.parametrize("each", [(1,), (1, 2, 3), (1, -1), (True, 1), -1, 1.5])
def test_impossible_numbers_of_neurons(each: object) -> None:
    with pytest.raises(UnitError, match="no such layout"):
        Layout(2, 4, 2, n_neurons=each)  # type: ignore[arg-type]


def test_a_unit_that_the_model_lacks_is_named_with_the_sizes() -> None:
    layout = Layout(4, 8, 2)
    with pytest.raises(
        UnitError, match=r"no L99\.H0: it has layers L0 to L3, heads H0 to H7 and KV groups KV0 to KV1"
    ):
        layout.check([Unit.parse("L0.H0"), Unit.parse("L99.H0")])
    for missing in ("L0.H8", "L0.KV2", "L0.E0", "L0.N0", "L4.MLP"):
        assert Unit.parse(missing) not in layout
    for there in ("L3.H7", "L3.KV1", "L3.ATTN", "L3.MLP", "embed", "logits"):
        assert Unit.parse(there) in layout
    assert "L0.H0" not in layout


def test_layers_may_differ_in_experts_and_neurons() -> None:
    layout = Layout(3, 4, 2, n_neurons=(0, 24, 0), n_experts=[8, 0, 4])  # type: ignore[arg-type]
    assert [str(unit) for unit in layout.universe("experts")] == [
        *(f"L0.E{i}" for i in range(8)),
        *(f"L2.E{i}" for i in range(4)),
    ]
    assert len(layout.universe("neurons")) == 24
    assert Unit.parse("L1.N23") in layout
    for missing in ("L0.N0", "L1.N24", "L1.E0", "L2.E4"):
        with pytest.raises(
            UnitError, match=rf"no {missing}: .* experts E0 to E7 in L0, experts E0 to E3 in L2"
        ):
            layout.check([Unit.parse(missing)])
    assert Layout(**layout.to_dict()) == layout  # type: ignore[arg-type]
    assert Layout(2, 4, 2, n_experts=(3, 3)) == Layout(2, 4, 2, n_experts=3)
    with pytest.raises(UnitError, match="no L1.E0: none of its layers is a mixture"):
        Layout(2, 4, 2).check([Unit.parse("L1.E0")])


# --- edges -----------------------------------------------------------------------------------------------------


def number_of_edges(layers: int, heads: int, kv: int, parallel: bool) -> int:
    """Worked out by hand: each block's readers see embed, all earlier blocks and, in sequence, their own heads."""
    total = 0
    for layer in range(layers):
        earlier = 1 + layer * (heads + 1)
        total += (heads + 2 * kv) * earlier  # q of each head, k and v of each KV head
        total += earlier + (0 if parallel else heads)  # the MLP
    return total + 1 + layers * (heads + 1)  # the logits


def test_gpt2_has_32491_edges() -> None:
    assert sum(1 for _ in Layout(12, 12, 12).edges()) == 32_491 == number_of_edges(12, 12, 12, False)


@given(layouts())
def test_number_of_edges(layout: Layout) -> None:
    found = list(layout.edges())
    assert len(found) == number_of_edges(layout.n_layers, layout.n_heads, layout.n_kv_heads, layout.parallel)
    assert found == sorted(set(found))


@given(layouts(max_layers=3, max_heads=4))
def test_edges_go_forward(layout: Layout) -> None:
    place = {reader: position for position, reader in enumerate(layout.readers)}
    for edge in layout.edges():
        assert layout.sees(edge.target, edge.source)
        assert (edge.target, edge.slot) in place
        if edge.source.layer is not None and edge.target.layer is not None:
            assert edge.source.layer <= edge.target.layer
            same_block = edge.source.layer == edge.target.layer
            assert not same_block or (edge.source.kind, edge.target.kind) == ("head", "mlp")
            assert not (same_block and layout.parallel)


@given(st.data(), layouts())
def test_groups_and_their_heads(data: st.DataObject, layout: Layout) -> None:
    head = data.draw(st.sampled_from(layout.universe("heads")))
    group = layout.kv_group(head)
    assert group in layout
    assert head in layout.parts(group)
    assert len(layout.parts(group)) == layout.group_size
    groups = layout.universe("kv")
    assert layout.expand(groups) == layout.universe("heads") == layout.expand(layout.universe("attn"))
    assert layout.expand([head, group]) == layout.parts(group)


@given(layouts(neurons=True, experts=True))
def test_layouts_survive_json_types(layout: Layout) -> None:
    assert Layout(**layout.to_dict()) == layout  # type: ignore[arg-type]
