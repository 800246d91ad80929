"""Concentration on planted heads: the order, its number and share, groups of equal size, and what cannot be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.errors import TaskError
from circuittest.find.scan import members_of
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=4, n_heads=4, n_kv_heads=2)
HEADS = LAYOUT.units(("head",))
A, B, C = Unit("head", 1, 2), Unit("head", 3, 0), Unit("head", 2, 1)


def lab_of(worth: dict[Unit, float], joint: Any = None, layout: Layout = LAYOUT, **more: Any) -> TableLab:
    """Ablating a head costs what it is worth, all heads 10; `joint(heads, index)` adds to that."""
    heads = layout.units(("head",))

    def strength(ablated: frozenset[Unit], index: int) -> float:
        touched = frozenset(layout.expand(ablated))
        shake = 0.2 * float(np.sin(12.9898 * index + sum(map(heads.index, touched))))
        if len(touched) == len(heads):
            return shake
        return (
            10.0 - sum(worth.get(u, 0.0) for u in touched) - (joint(touched, index) if joint else 0.0) + shake
        )

    return TableLab(lambda u, i: float(strength(u, i) > 5), layout=layout, graded=strength, **more)


def test_one_head_that_does_it_all() -> None:
    found = lab_of({A: 9.5}).concentration()
    assert found.value == 1
    assert found.interval == (1, 1)
    assert found <= 1
    details = found.details
    assert details["order"][0] == str(A)
    assert details["units_to"] == {"number": 1, "share": pytest.approx(1 / 16)}
    assert details["damage"]["1"] == pytest.approx(0.95, abs=0.02)
    assert details["top"]["name"] == str(A)
    assert details["top"]["effect"] == pytest.approx(9.5, abs=0.1)
    assert details["top_among"]["layer"]["p"] == 1 / 4
    assert len(details["top_among"]["middle_layer"]["effects"]) == 4


def test_work_spread_over_heads() -> None:
    found = lab_of(dict.fromkeys(HEADS, 10 / 16)).concentration()
    assert found.value == 13
    assert not found <= 3
    assert found.details["area"]["value"] == pytest.approx(0.5, abs=0.02)


def test_number_share_area_and_top() -> None:
    worth = {A: 6.0, B: 3.0}
    assert lab_of(worth).concentration().value == 2
    assert lab_of(worth).concentration(scale="share").value == pytest.approx(2 / 16)
    assert lab_of(worth).concentration(statistic="top").value == pytest.approx(6.0, abs=0.1)
    share = lab_of(worth).concentration(statistic="top", scale="share")
    assert share.value == pytest.approx(0.6, abs=0.02)
    assert share >= 0.5
    area = lab_of(worth).concentration(statistic="area")
    # 0 to 0.6 to 0.9, then flat up to the last head, which takes the rest
    assert area.value == pytest.approx((0.3 + 0.75 + 13 * 0.9 + 0.95) / 16, abs=0.02)


def test_a_crossing_that_does_not_hold_is_no_crossing() -> None:
    # the second head in line undoes most of what the first did: the paper's first crossing would be one unit
    joint = lambda touched, index: -6.0 if {A, B} <= touched and len(touched) < 4 else 0.0
    found = lab_of({A: 9.0, B: 4.0, C: 3.0}, joint).concentration()
    assert found.details["damage"]["1"] > 0.8
    assert found.details["damage"]["2"] < 0.8
    assert found.value == 3


def test_greedy_finds_partners_that_static_order_misses() -> None:
    # B and C do nothing alone and everything together; a weak head stands before them in the static order
    joint = lambda touched, index: 6.0 if {B, C} <= touched else 0.0
    worth = {A: 3.0, B: 0.5, **dict.fromkeys(HEADS[:4], 0.6)}
    static = lab_of(worth, joint).concentration()
    greedy = lab_of(worth, joint).concentration(order="greedy")
    assert greedy.value is not None
    assert static.value is not None
    assert greedy.value <= static.value
    assert greedy.details["order"][0] == str(A)
    assert len(set(greedy.details["order"])) == 16


def test_the_order_may_come_from_attribution() -> None:
    columns = LAYOUT.units(("head", "mlp"))
    row = [2.0 * (u == B) + 1.0 * (u in (A, C)) + 0.1 * (u == HEADS[0]) for u in columns]
    lab = lab_of({A: 6.0, B: 3.0}, values=np.tile(row, (40, 1)))
    found = lab.concentration(order="attribution")
    assert found.details["order"][:3] == [str(B), str(A), str(C)]
    assert found.details["scores"][str(B)] == pytest.approx(2.0)
    assert found.value == 2
    assert found.details["easy_and_hard"]["same"]
    assert lab.concentration(order="attribution", per="kv").details["order"][0] == "L3.KV0"


def test_the_order_comes_from_discovery_examples() -> None:
    # on evaluation examples (index >= 40) another head matters: the order does not know
    def joint(touched: frozenset[Unit], index: int) -> float:
        return 9.5 * ((A if index < 40 else B) in touched)

    found = lab_of({}, joint).concentration()
    assert found.details["order"][0] == str(A)
    assert found.details["damage"]["1"] == pytest.approx(0.0, abs=0.02)


def test_like_is_compared_with_like() -> None:
    worth = {Unit("head", 1, 2): 4.5, Unit("head", 1, 3): 4.5}
    assert lab_of(worth).concentration(per="head").value == 2
    assert lab_of(worth).concentration(per="kv").value == 1
    assert lab_of(worth).concentration(per="kv", scale="share").value == pytest.approx(1 / 8)
    plain = Layout(n_layers=4, n_heads=4, n_kv_heads=4)
    groups = lab_of(worth, layout=plain).concentration(per="group", size=2)
    assert groups.value == 1
    assert groups.details["order"][0] == "L1.H2-3"
    assert [m.name for m in members_of(plain, "group", 4)] == [f"L{i}.H0-3" for i in range(4)]


def test_easy_and_hard_examples() -> None:
    same = lab_of({A: 9.0}).concentration().details["easy_and_hard"]
    assert (same["top_easy"], same["top_hard"], same["same"]) == (str(A), str(A), True)
    assert same["random_halves"]["same"] == 1.0

    # hard examples (odd, of smaller margin) go through another head
    def joint(touched: frozenset[Unit], index: int) -> float:
        return 2.0 * (index % 2) + 7.0 * ((B if index % 2 else A) in touched)

    found = lab_of({}, joint).concentration(damage=0.5).details["easy_and_hard"]
    assert (found["top_easy"], found["top_hard"], found["same"]) == (str(A), str(B), False)
    assert found["random_halves"]["p"] < 0.05


@pytest.mark.parametrize("options", [{"per": "group"}, {"per": "group", "size": 3}, {"size": 2}])
def test_sizes_of_groups(options: dict[str, Any]) -> None:
    assert "size is" in lab_of({A: 9.0}).concentration(**options).invalid


def test_random_orders_stand_beside_the_order_found() -> None:
    worth = {A: 6.0, B: 3.0}
    plain, found = lab_of(worth).concentration(), lab_of(worth).concentration(controls=19)
    assert (found.value, found.interval) == (plain.value, plain.interval)
    random = found.details["random_orders"]
    assert {key: found.details[key] for key in plain.details} == dict(plain.details)
    assert set(random["damage"]) == set(found.details["damage"])
    # the last is all of them, in whatever order
    assert random["damage"]["16"] == [pytest.approx(found.details["damage"]["16"])] * 19
    assert all(0.6 + 0.1 > damage > -0.1 for damage in random["damage"]["1"])
    # one random head in sixteen is A, and one is B
    assert len({round(damage, 1) for damage in random["damage"]["8"]}) >= 3  # neither, one or both of them
    assert np.mean(random["damage"]["8"]) == pytest.approx(0.45, abs=0.15)
    assert max(random["area"]) < found.details["area"]["value"]
    assert (random["area_p"], random["area_p_resolution"]) == (1 / 20, 1 / 20)
    # where all heads are worth the same, the order found is one of many
    same = lab_of(dict.fromkeys(HEADS, 10 / 16)).concentration(controls=19).details["random_orders"]
    assert same["area"] == pytest.approx([0.5] * 19, abs=0.03)
    assert "controls is -1" in lab_of(worth).concentration(controls=-1).invalid


def test_what_cannot_be_judged() -> None:
    assert "damage is" in lab_of({A: 9.0}).concentration(damage=1.0).invalid
    assert "not competent" in lab_of({}, lambda touched, i: 6.0).concentration().invalid
    assert "no discovery examples" in lab_of({A: 9.0}, data=task_data(0, 30)).concentration().invalid
    flat = TableLab(lambda u, i: float(len(u) < 16), layout=LAYOUT, graded=lambda u, i: float(i % 7))
    assert "contains zero" in flat.concentration().invalid
    assert "a greedy order has no damage to reach" in flat.concentration(order="greedy").invalid
    one = lab_of({A: 9.0}, data=task_data(2, 60)).concentration()
    assert "too few" in one.details["easy_and_hard"]["undefined"]


def test_discovery_and_evaluation_are_measured_as_asked() -> None:
    lab = lab_of({A: 9.0})
    found = lab.concentration(ablation="counterfactual", metric="logit_diff")
    assert {how["value"] for how in lab.how} == {"counterfactual"}
    assert found.choices["metric"] == "logit_diff"
    assert found.circuit is None


def test_examples_that_order_members_never_judge_them() -> None:
    data = task_data(40, 60)
    lab = TableLab(lambda units, i: float(not units), data=replace(data, evaluate=data.discover))
    with pytest.raises(TaskError, match="40 of 40 evaluation prompts are discovery prompts, too"):
        lab.concentration()


def test_no_example_counts_twice() -> None:
    data = task_data(40, 60)
    lab = TableLab(lambda units, i: float(not units), data=replace(data, evaluate=data.evaluate * 2))
    with pytest.raises(TaskError, match="60 of 120 examples of 'evaluate' are there already"):
        lab.concentration()
