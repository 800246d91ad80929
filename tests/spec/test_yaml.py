"""The YAML dialect: plain values, their places, and the traps that are refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, strategies as st

from circuittest.errors import SpecError
from circuittest.spec.yaml import parse_yaml, read_yaml


def refused(text: str | bytes) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "x.yaml")
    assert caught.value.file == "x.yaml"
    return caught.value


def test_values_and_places():
    document = parse_yaml("a: 1\nb:\n  - x: 0.5\n    z: [true, 'no']\n  - ~\n")
    assert document.data == {"a": 1, "b": [{"x": 0.5, "z": [True, "no"]}, None]}
    assert document.places[("b", 0, "z", 1)] == (4, 15)
    assert document.key_places[("b", 0, "z")] == (4, 5)
    assert document.place(("b", 0, "z", 7, "deeper")) == (4, 8)
    assert document.place(("nothing",)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("-3", -3), ("+7", 7), ("0.25", 0.25), ("1.", 1.0), (".5", 0.5), ("-0.5", -0.5), ("1.0e-3", 0.001),
        ("1.5e+3", 1500.0), ("20%", "20%"), ("'1e-3'", "1e-3"), ('"no"', "no"), ("true", True), ("False", False),
        ("null", None), ("", None), ("L2.H1", "L2.H1"), ("zoo:gqa", "zoo:gqa"), ("L0.H3->L4.H1.q", "L0.H3->L4.H1.q"),
        ("|\n  text\n", "text\n"), ("1.2.3", "1.2.3"), ("e5", "e5"), ("none", "none"), ("nope", "nope"),
    ],
)  # fmt: skip
def test_scalars(text, value):
    found = parse_yaml(f"a: {text}").data["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("word", ["no", "No", "NO", "off", "Off", "yes", "on", "ON", "y", "Y", "n", "N"])
def test_yaml_1_1_booleans_are_refused_with_their_place(word):
    error = refused(f"a: 1\nb: {word}\n")
    assert (error.line, error.column) == (2, 4)
    assert "ambiguous" in error.what
    assert f"{word!r}" in error.do
    assert refused(f"{word}: 1").what == error.what  # as a key, too


@pytest.mark.parametrize("number", ["1e-3", "1E5", "1.0e3", ".5e2", "-2e-4", "1.e5"])
def test_numbers_that_yaml_1_1_reads_as_text_are_refused(number):
    error = refused(f"a: {{b: {number}}}")
    assert (error.line, error.column) == (1, 8)
    assert "is a string, not a number" in error.what
    assert "1.0e-3" in error.do


@pytest.mark.parametrize(
    "number", ["012", "0x1f", "0b11", "1_000", "1:30", "1:30.5", ".nan", ".inf", "-.inf", "1.0e+999"]
)
def test_numbers_that_are_not_plainly_decimal_are_refused(number):
    assert "ambiguous number" in refused(f"a: {number}").what


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "the key 'a' is given twice"),
        ("a:\n  {b: 1, b: 1}", 2, 10, "the key 'b' is given twice"),
        ("a: !!python/object/apply:os.system [ls]", 1, 4, "is refused"),
        ("a: !x 1", 1, 4, "the tag !x is refused"),
        ("!!str a: 1", 1, 1, "is refused"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, 3, "merge keys are refused"),
        ("a: 2024-01-01", 1, 4, "is read as a timestamp"),
        ("1: 2", 1, 1, "a key must be a word, not '1'"),
        ("? [a]\n: 1", 1, 3, "a key must be a word"),
        ("a: &x [*x]", 1, 8, "*x contains itself"),
        ("a: *x", 1, 4, "no anchor &x above"),
        ("a: 1\n---\nb: 1\n", 2, 1, "a second document"),
        ("", 1, 1, "the spec is empty"),
        ("# nothing\n", 1, 1, "the spec is empty"),
        ("a: [1, 2", 2, 1, "not YAML"),
        ("a: b: c", 1, 5, "not YAML"),
        ("a:\n\tb: 1", 2, 1, "not YAML"),
        ("a: 1\nb: \x07", 2, 4, "not YAML"),
        (b"a: 1\nb: \xff", 2, 1, "the spec is not UTF-8 text"),
        ("[" * 100, 1, 42, "the spec is too large"),
        ("[" * 5000, None, None, "not YAML"),  # where it gives up depends on libyaml
    ],
)  # fmt: skip
def test_refusals_name_the_place(text, line, column, what):
    if text == "[" * 100:
        text += "]" * 100
    error = refused(text)
    assert what in str(error)
    if line is not None:
        assert (error.line, error.column) == (line, column)


def test_anchors_repeat_a_value_at_the_alias():
    document = parse_yaml("a: &x {k: [1, &w 2]}\nb: *x\nc: *w\n")
    assert document.data == {"a": {"k": [1, 2]}, "b": {"k": [1, 2]}, "c": 2}
    assert document.places[("b",)] == (2, 4)
    assert document.places[("b", "k", 0)] == (1, 12)


def test_an_alias_means_the_last_anchor_above_it():
    assert parse_yaml("a: &y {k: &x 2}\nb: &x 3\nc: *y\nd: *x\n").data["d"] == 3


def test_a_bomb_of_aliases_is_refused():
    text = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
    )
    assert "too large" in refused(text).what


def test_a_long_file_is_refused():
    assert "too long" in refused("#" * 1_000_001).what


def test_a_missing_file_is_a_spec_error(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        read_yaml(tmp_path / "x.yaml")
    with pytest.raises(SpecError, match="cannot be read"):
        read_yaml(tmp_path)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: [L1.H0]\r\n")
    assert read_yaml(tmp_path / "x.yaml").data == {"a": 1, "b": ["L1.H0"]}


def test_without_libyaml_the_same(monkeypatch):
    import circuittest.spec.yaml as module

    monkeypatch.setattr(module, "_LOADER", yaml.SafeLoader)
    assert parse_yaml("a: [1, {b: 0.5}]").data == {"a": [1, {"b": 0.5}]}
    assert refused("a: 1\nb: \x07").line == 2
    assert refused("a: no").column == 4


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(-1e6, 1e6, width=32)
    | st.text("abcL.H→ ", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdefg", min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcdefg", min_size=1), PLAIN, min_size=1))
def test_agrees_with_pyyaml_on_what_pyyaml_writes(data):
    text = yaml.safe_dump(data, default_style=None, allow_unicode=True)
    try:
        document = parse_yaml(text)
    except SpecError as error:
        assert any(word in error.what for word in ("ambiguous", "string, not a number"))  # noqa: PT017
        return
    assert document.data == yaml.safe_load(text) == data


@given(st.binary(max_size=60) | st.text("a:-[]{}&*!|>'\"%@`#?, \n\t1e<=", max_size=40))
def test_any_input_is_read_or_refused(text):
    try:
        document = parse_yaml(text, "x.yaml")
    except SpecError as error:
        assert str(error).startswith("x.yaml:")  # noqa: PT017
    else:
        assert () in document.places
