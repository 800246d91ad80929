"""Mutated specs are read or refused with a SpecError that has a place; nothing else ever escapes."""

from __future__ import annotations

import json

import yaml
from hypothesis import given, settings, strategies as st

from circuittest.errors import SpecError
from circuittest.spec import Spec, load_spec

GOOD = """\
circuittest: 1
model: [zoo:gqa, zoo:mha]
task: {name: ioi, discover: 20, seed: 0}
circuit: {method: eap, universe: heads, top: 20%, at: 95}
groups: &g {movers: [L5.H1, L5.H6], early: [L0.MLP]}
claims:
  - reuse: {min: 0.25}
  - necessity: {of: movers, above: 0.3, controls: 40, match: kind}
  - coverage: {id: own, max: 0.5}
"""
SNIPPETS = ["", " ", "\n", "  ", "-", ":", ": ", "{", "}", "[", "]", ",", "&a", "*a", "*g", "!!int ", "'", '"', "#", "|", "no",
            "1e-3", "1", "-0.5", ".nan", "null", "~", "min", "of: early", "id: reuse", "L2.H1", "L1.X", "units", "file: x",
            "\t", "\x00", "é", "\ud800", "<<: *g", "? ", "---\n", "%"]  # fmt: skip


def check(text: str, tmp: object) -> None:
    path = tmp / "x.circuit.yaml"  # type: ignore[operator]
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        spec = load_spec(path, name="x.circuit.yaml")
    except SpecError as error:
        assert str(error).startswith("x.circuit.yaml:")  # noqa: PT017
        lines = (
            text.count("\n")
            + text.count("\r")
            + text.count("\x85")
            + text.count("\u2028")
            + text.count("\u2029")
            + 2
        )
        assert error.line is None or 1 <= error.line <= lines  # noqa: PT017
        assert error.what  # noqa: PT017
    else:
        assert isinstance(spec, Spec)
        assert spec.claims
        assert len({claim.id for claim in spec.claims}) == len(spec.claims)
        for claim in spec.claims:
            assert claim.of is None or claim.of in spec.groups
            assert isinstance(claim.threshold, float)


@settings(max_examples=300)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), st.sampled_from(SNIPPETS)), max_size=4
    )
)
def test_edited_text(tmp_path_factory, edits):
    text = GOOD
    for at, length, snippet in edits:
        text = text[:at] + snippet + text[at + length :]
    check(text, tmp_path_factory.getbasetemp())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(SNIPPETS[:-8])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["min", "max", "of", "id", "name", "units", "file", "top", "reuse", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


def paths(data: object, path: tuple = ()) -> list[tuple]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(deeper for key, value in inner for deeper in paths(value, (*path, key)))]


@settings(max_examples=200)
@given(data=st.data(), value=VALUES)
def test_replaced_values(tmp_path_factory, data, value):
    tree = yaml.safe_load(GOOD)
    path = data.draw(st.sampled_from(paths(tree)[1:]))
    place = tree
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    check(json.dumps(tree), tmp_path_factory.getbasetemp())
