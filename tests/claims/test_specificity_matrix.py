"""The cross-task matrix on planted tasks: who is in which role, every task or their mean, saturation, and refusals."""

from __future__ import annotations

import pytest

from circuittest.stats import InvalidClaim
from tests.claims.test_specificity import HEADS, loses, planted
from tests.helpers.table_lab import TableLab


def three(own: tuple[int, int, int] = (30, 30, 30), cross: int = 6) -> TableLab:
    """Tasks planted, b and c with two heads each; the first of each costs `own` of 60 examples and `cross` elsewhere."""
    firsts, names = (0, 2, 4), ("planted", "b", "c")
    labs = {}
    for i, name in enumerate(names):
        lost = {first: own[i] if j == i else cross for j, first in enumerate(firsts)}
        labs[name] = planted((firsts[i], firsts[i] + 1), loses(lost))
    labs["planted"].others = labs
    return labs["planted"]


def test_the_mean_over_tasks() -> None:
    found = three((30, 36, 24)).specificity_matrix(tasks=["planted", "b", "c"], top="10%")
    assert found.value == pytest.approx((30 + 36 + 24) / 180 - 0.1)
    assert found > 0.2
    details = found.details
    assert details["drops"]["b"]["b"]["value"] == pytest.approx(0.6)
    assert details["drops"]["b"]["planted"]["value"] == pytest.approx(0.1)
    low, high = details["drops"]["b"]["b"]["interval"]
    assert low < 0.6 < high
    assert details["contrasts"]["c"]["value"] == pytest.approx(0.3)
    assert details["overlap"]["planted"]["b"] == {"jaccard": 0.0, "chance": pytest.approx(0.2 / 3.8)}
    assert details["circuits"]["c"] == ["L0.H4", "L0.H5"]
    assert found.n_examples == 180
    assert found.circuit is None


def test_every_task() -> None:
    lab = three((30, 36, 8))
    assert lab.specificity_matrix(tasks=["planted", "b", "c"], top="10%") > 0.1
    found = lab.specificity_matrix(tasks=["planted", "b", "c"], top="10%", over="every")
    assert found.value == pytest.approx(8 / 60 - 0.1)
    assert (found > 0.1).outcome in ("undecided", "refuted")
    assert three().specificity_matrix(tasks=["planted", "b", "c"], top="10%", over="every") > 0.1


def test_rows_are_tasks_and_columns_circuits() -> None:
    # the circuit of b kills the lab's own task and costs b itself nothing; the transposed reading would call b specific
    labs = {"b": planted((2, 3), loses({2: 0, 0: 0})), "planted": planted((0, 1), loses({0: 6, 2: 40}))}
    labs["planted"].others = labs
    found = labs["planted"].specificity_matrix(tasks=["planted", "b"], top="10%")
    drops = found.details["drops"]
    assert drops["planted"]["b"]["value"] == pytest.approx(40 / 60)
    assert drops["b"]["planted"]["value"] == 0.0
    assert found.value == pytest.approx(((6 - 40) / 60 + 0.0) / 2)
    assert not found > 0


def test_capacity_adjusted_contrasts_stand_beside_it() -> None:
    found = three().specificity_matrix(tasks=["planted", "b"], top="10%", controls=20)
    value = found.details["adjusted"]["planted"]["value"]
    assert value == pytest.approx(
        (0.5 - (17 * 0.1 * 2 - 0.1) / 153) - (0.1 - (17 * 0.5 + 17 * 0.1 - 0.5) / 153), abs=0.02
    )


def test_saturation_is_named_and_the_matrix_shown() -> None:
    found = three((60, 30, 30), cross=60).specificity_matrix(tasks=["planted", "b", "c"], top="10%")
    assert "saturated: on planted" in found.invalid
    assert found.details["at_floor"]["planted"] == {"own": True, "others": True}
    assert found.details["drops"]["planted"]["b"]["value"] == 1.0
    with pytest.raises(InvalidClaim):
        bool(found > 0)


def test_floors_on_one_side_bound_the_value() -> None:
    assert three((60, 30, 30)).specificity_matrix(tasks=["planted", "b"], top="10%").censored == "lower"
    mixed = {"b": planted((2, 3), loses({0: 60, 2: 6})), "planted": planted((0, 1), loses({0: 60, 2: 6}))}
    mixed["planted"].others = mixed
    found = mixed["planted"].specificity_matrix(tasks=["planted", "b"], top="10%")
    assert "a bound on neither side" in found.invalid


@pytest.mark.parametrize("tasks", [[], ["planted"], ["planted", "b", "b"]])
def test_tasks_are_at_least_two_each_once(tasks: list[str]) -> None:
    assert "at least two" in three().specificity_matrix(tasks=tasks).invalid


def test_what_cannot_be_judged_names_the_task() -> None:
    labs = {"b": planted((2, 3), lambda units, i: 0.0)}
    lab = planted((0, 1), loses({0: 30}), labs)
    assert lab.specificity_matrix(tasks=["planted", "b"], top="10%").invalid.startswith(
        "b: the model is not comp"
    )
    empty = planted((2, 3), loses({2: 30}))
    empty.values = empty.values * 0.0
    empty.values[:, :] = [[(i * 7 + j * 13) % 22 for j in range(22)] for i in range(40)]
    lab = planted((0, 1), loses({0: 30}), {"b": empty})
    assert lab.specificity_matrix(tasks=["planted", "b"], top="10%").invalid.startswith(
        "b: the circuit is empty"
    )
    assert len(HEADS) == 20
