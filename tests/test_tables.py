"""Score and outcome tables: shapes, refusals, safetensors files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from circuittest.errors import TableError
from circuittest.tables import OutcomeTable, ScoreTable
from circuittest.units import Layout, Unit
from hypothesis_circuittest import edges, layouts, unit_sets

LAYOUT = Layout(2, 4, 2)


@st.composite
def score_tables(draw: st.DrawFn) -> ScoreTable:
    """Tables over units or over edges, with any finite scores."""
    layout = draw(layouts(max_layers=3, max_heads=4))
    if draw(st.booleans()):
        members = tuple(sorted(draw(st.sets(edges(layout), max_size=5))))
    else:
        members = draw(unit_sets(layout, max_size=5))
    examples = draw(st.lists(st.integers(0, 999), max_size=4, unique=True))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    cells = draw(
        st.lists(finite, min_size=len(examples) * len(members), max_size=len(examples) * len(members))
    )
    values = np.array(cells, dtype=np.float32).reshape(len(examples), len(members))
    return ScoreTable(values, members, tuple(examples), {"method": "eap", "seed": 0})


def table(values: object = None, members: tuple[str, ...] = ("L0.H0", "L0.H1"), n: int = 2) -> ScoreTable:
    """A small table for one purpose."""
    array = np.zeros((n, len(members)), np.float32) if values is None else np.array(values, np.float32)
    return ScoreTable(array, tuple(Unit.parse(m) for m in members), tuple(range(n)))


@given(st.data(), score_tables())
def test_restricting_keeps_each_score_with_its_member(data: st.DataObject, scores: ScoreTable) -> None:
    keep = data.draw(st.sets(st.sampled_from(scores.members))) if scores.members else set()
    part = scores.columns(keep)
    assert part.members == tuple(m for m in scores.members if m in keep)
    for column, member in enumerate(part.members):
        np.testing.assert_array_equal(part.values[:, column], scores.values[:, scores.members.index(member)])
    positions = data.draw(st.permutations(range(len(scores.examples))))
    rows = scores.rows(positions)
    assert rows.examples == tuple(scores.examples[i] for i in positions)
    np.testing.assert_array_equal(rows.values, scores.values[positions])


@given(scores=score_tables())
def test_file_round_trip(tmp_path_factory: pytest.TempPathFactory, scores: ScoreTable) -> None:
    path = tmp_path_factory.mktemp("tables") / "scores.safetensors"
    scores.save(path)
    again = ScoreTable.load(path)
    assert (again.members, again.examples) == (scores.members, scores.examples)
    assert dict(again.choices) == dict(scores.choices)
    np.testing.assert_array_equal(again.values, scores.values)
    assert again.values.dtype == np.float32


def test_equal_tables_are_equal_bytes(tmp_path: Path) -> None:
    """safetensors writes its metadata in an order of its own, another in each call."""
    scores = table([[1, 2], [3, 4]])
    written = set()
    for _ in range(20):
        scores.save(tmp_path / "scores.safetensors")
        written.add((tmp_path / "scores.safetensors").read_bytes())
    assert len(written) == 1


def test_shape_order_and_repeats_are_checked() -> None:
    with pytest.raises(TableError, match=r"shape \(2, 3\): 2 examples and 2 members"):
        table(np.zeros((2, 3)))
    with pytest.raises(TableError, match="not in canonical order"):
        table(members=("L0.H1", "L0.H0"))
    with pytest.raises(TableError, match="or repeat"):
        table(members=("L0.H1", "L0.H1"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(TableError, match=r"score of L0\.H1 on example 1 is not finite"):
        table([[0, 0], [0, bad]])


def test_a_missing_column_is_named() -> None:
    with pytest.raises(TableError, match=r"has no L1\.MLP"):
        table().columns([Unit.parse("L0.H0"), Unit.parse("L1.MLP")])


def test_what_is_no_score_table_file(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"weight": np.zeros(3)}, str(tmp_path / "weights.safetensors"))
    table().save(tmp_path / "cut.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "cut.safetensors").read_bytes()[:-4])
    for name in ("text", "weights", "cut", "missing"):
        with pytest.raises(TableError, match=f"{name}.safetensors is not a score table"):
            ScoreTable.load(tmp_path / f"{name}.safetensors")


def test_outcomes_by_set_and_measure() -> None:
    sets = ((), (Unit.parse("L0.H0"), Unit.parse("L0.H1")))
    outcomes = OutcomeTable(sets, {"argmax": np.array([[1.0, 1.0], [0.0, 1.0]])}, (7, 9))
    np.testing.assert_array_equal(outcomes.row("argmax", []), [1, 1])
    np.testing.assert_array_equal(outcomes.row("argmax", [sets[1][1], sets[1][0], sets[1][0]]), [0, 1])
    with pytest.raises(TableError, match=r"no outcomes for the intervention on L0\.H0\."):
        outcomes.row("argmax", [sets[1][0]])
    with pytest.raises(TableError, match="no outcomes 'log_prob'. Known are argmax"):
        outcomes.measure("log_prob")
    with pytest.raises(TableError, match="no outcomes 'logit_diff': it compares answers with foils"):
        outcomes.measure("logit_diff")


def test_outcomes_are_checked() -> None:
    with pytest.raises(TableError, match="1 sets and 2 examples"):
        OutcomeTable(((),), {"argmax": np.zeros((2, 2))}, (0, 1))
    with pytest.raises(
        TableError, match="log_prob on example 1 is not finite: under the intervention on nothing"
    ):
        OutcomeTable(((),), {"log_prob": np.array([[0.0, -np.inf]])}, (0, 1))


def test_tables_compare_by_identity() -> None:
    one = table()
    assert one == one
    assert one != table()
    assert len({one, one}) == 1
