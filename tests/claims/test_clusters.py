"""Examples that are drawn together: labels, refusals, and what they do to intervals and folds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.claims.clusters import cluster_labels, few_clusters
from circuittest.errors import UsageError
from circuittest.find.shared import coverage, cross_fitted, shared
from circuittest.stats.crossing import CrossingInference
from circuittest.tasks import TaskData
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

KEY = frozenset({Unit("head", 1, 2), Unit("head", 3, 4)})


def grouped(size: int, discover: int = 40, evaluate: int = 60) -> TaskData:
    """Groups of `size` examples in a row; five templates in turn."""
    data = task_data(discover, evaluate)

    def label(items: tuple) -> tuple:
        return tuple(
            replace(item, group=f"g{i // size}", features={"template": i % 5}) for i, item in enumerate(items)
        )

    return replace(data, discover=label(data.discover), evaluate=label(data.evaluate))


def circuit(*ids: str) -> Circuit:
    return Circuit.of(ids or ("L1.H2", "L3.H4"))


def in_blocks(units: frozenset[Unit], index: int) -> float:
    """The circuit matters for every other block of three evaluation examples."""
    return float(len(units) < 40 and not (units & KEY and ((index - 40) // 3) % 2))


def test_labels_are_what_the_task_says() -> None:
    items = grouped(4).evaluate[:6]
    assert cluster_labels(items, "none") is None
    assert cluster_labels(items, "group") == ["g0", "g0", "g0", "g0", "g1", "g1"]
    assert cluster_labels(items, "template") == ["0", "1", "2", "3", "4", "0"]


@pytest.mark.parametrize("cluster", ["group", "template"])
def test_missing_labels_are_refused(cluster: str) -> None:
    with pytest.raises(UsageError, match=f"60 of the 60 examples have no {cluster}"):
        TableLab(in_blocks).necessity(circuit(), cluster=cluster)


def test_clusters_widen_the_interval_of_what_they_share() -> None:
    lab = TableLab(in_blocks, data=grouped(3))
    alone, together = lab.necessity(circuit()), lab.necessity(circuit(), cluster="group")
    assert alone.value == together.value
    assert alone.interval is not None
    assert together.interval is not None
    width = [high - low for low, high in (alone.interval, together.interval)]
    assert width[1] > 1.3 * width[0]
    assert together.choices["cluster"] == "group"
    assert together.details["clusters"] == {"by": "group", "count": 20}
    assert "clusters" not in alone.details
    assert alone.choices["cluster"] == "none"


def test_enough_clusters_need_no_hint() -> None:
    (hint,) = few_clusters(["a", "b"] * 20, "template")
    assert "only 2 different templates" in hint
    assert few_clusters([str(i) for i in range(10)], "group") == ()
    assert few_clusters(None, "none") == ()


def test_competence_is_judged_by_clusters_too() -> None:
    # right on four of six blocks: sixty examples clear the headroom, six groups do not
    rule = lambda units, index: float(not units and (index // 10) % 3 > 0)
    lab = TableLab(rule, data=grouped(10))
    assert "not competent" not in lab.necessity(circuit()).invalid
    assert "not competent" in lab.necessity(circuit(), cluster="group").invalid


def test_folds_keep_groups_together() -> None:
    rng = np.random.default_rng(0)
    inside = rng.random((12, 6)) < 0.6
    inside[:, 0] = True
    groups = ["a", "b", "c", "d"] * 3
    values = cross_fitted(inside, 50, 2, groups)
    fold = np.array([0, 1, 0, 1] * 3)
    for held_out in (0, 1):
        expected = coverage(inside[fold == held_out], shared(inside[fold != held_out], 50))
        assert values[fold == held_out] == pytest.approx(expected)
    # each alone: the same as without groups
    assert cross_fitted(inside, 50, 3, [str(i) for i in range(12)]) == pytest.approx(
        cross_fitted(inside, 50, 3)
    )


def scored(size: int) -> TableLab:
    """Blocks of examples have their own second head."""
    values = np.zeros((60, 54), dtype=np.float32)
    values[:, 0] = 2
    for i in range(60):
        values[i, 1 + (i // size) % 8] = 1
    rule = lambda units, index: float(len(units) < 40)
    return TableLab(rule, data=grouped(size), values=values)


def test_reuse_of_clusters() -> None:
    lab = scored(2)
    found = lab.shared(top="4%", at=50)
    alone, together = lab.reuse(found), lab.reuse(found, cluster="group")
    assert alone.interval is not None
    assert together.interval is not None
    assert together.interval[1] - together.interval[0] > alone.interval[1] - alone.interval[0]
    assert together.details["clusters"] == {"by": "group", "count": 20}
    assert "5 different templates in 5 folds" in lab.reuse(found, cluster="template").invalid


def test_coverage_of_clusters() -> None:
    lab = scored(5)
    found = circuit("L0.H0", "L0.H1")
    alone = lab.coverage(found, top="4%", universe="heads")
    together = lab.coverage(found, top="4%", universe="heads", cluster="group")
    assert alone.value == together.value
    assert alone.interval is not None
    assert together.interval is not None
    assert together.interval[1] - together.interval[0] > alone.interval[1] - alone.interval[0]
    assert together.details["clusters"]["count"] == 12


A, B, BACKUP = Unit("head", 1, 2), Unit("head", 3, 4), Unit("head", 4, 4)


def block(index: int) -> bool:
    """Every other block of six evaluation examples."""
    return bool((index - 40) // 6 % 2)


def test_completeness_of_clusters() -> None:
    def graded(units: frozenset[Unit], i: int) -> float:  # B has a backup for every other block
        lost = B in units and (BACKUP in units or not block(i))
        return 4.0 * (A not in units and not lost) + 0.1 * (i % 5)

    lab = TableLab(lambda units, i: float(A not in units), data=grouped(6, 40, 240), graded=graded)
    alone = lab.completeness(circuit())
    together = lab.completeness(circuit(), cluster="group")
    groups = {item.index: item.group for item in lab.data.evaluate}
    searched = {groups[i] for i in together.details["searched_on"]}
    tested = set(groups.values()) - searched
    assert len(searched) == len(tested) == 20
    assert together.n_examples == 120
    assert together.details["clusters"] == {"by": "group", "count": 20}
    assert "clusters" not in alone.details
    assert {groups[i] for i in alone.details["searched_on"]} == set(groups.values())
    assert alone.interval is not None
    assert together.interval is not None
    assert together.interval[1] - together.interval[0] > 1.6 * (alone.interval[1] - alone.interval[0])
    assert "5 different templates: half search" in lab.completeness(circuit(), cluster="template").invalid


def test_minimality_of_clusters() -> None:
    # B is worth 1 in every other block, each of the 46 heads outside 0.3 everywhere
    def graded(units: frozenset[Unit], i: int) -> float:
        there = 48 - len(units) - (A not in units) - (B not in units)
        return 4.0 * (A not in units) + (B not in units and block(i)) + 0.3 * there

    lab = TableLab(lambda units, i: float(A not in units), data=grouped(6), graded=graded)
    alone, together = lab.minimality(circuit()), lab.minimality(circuit(), cluster="group")
    assert alone.value == together.value == 1.0
    p = [found.details["units"]["L3.H4"]["p_earns"] for found in (alone, together)]
    assert p[0] <= 0.025 < p[1]
    assert together.details["clusters"] == {"by": "group", "count": 10}
    assert together.n_examples == 60
    knocked = lab.minimality(circuit(), given="knockouts", controls=20, cluster="group")
    assert knocked.details["clusters"]["count"] == 5  # as many search
    assert "only 5 different groups" in knocked.hints[-1]
    few = lab.minimality(circuit(), given="knockouts", cluster="template")
    assert "5 different templates: half search" in few.invalid


LAYOUT = Layout(n_layers=3, n_heads=6, n_kv_heads=6)
HEADS = LAYOUT.units(("head",))
OWN, FOREIGN = HEADS[1], HEADS[8]


def blocks(needed: Unit, **more: Any) -> TableLab:
    """Blocks of five examples, in every other of which the needed head matters; every block has a strength of its own."""
    rows = np.zeros((60, 21), dtype=np.float32)
    rows[:, LAYOUT.units(("head", "mlp")).index(needed)] = 1.0

    def graded(ablated: frozenset[Unit], index: int) -> float:
        if len(ablated) == len(HEADS):
            return 0.0
        block = (index - 20) // 5
        own = 3.0 + float(np.sin(7.0 * block)) - 3.5 * (needed in ablated and block % 2 == 0)
        return own + 0.02 * float(np.sin(12.9898 * index + sum(map(HEADS.index, ablated))))

    return TableLab(
        lambda u, i: float(graded(u, i) > 0.8),
        layout=LAYOUT,
        data=grouped(5, 20, 40),
        values=rows,
        graded=graded,
        **more,
    )


def both() -> tuple[TableLab, Circuit]:
    """The lab of a task beside another one, "b", and the circuit of the first."""
    other = blocks(FOREIGN)
    other.data = replace(other.data, task="b")
    lab = blocks(OWN, others={"b": other})
    lab.headroom = other.headroom = 0.05  # eight groups show no more
    return lab, lab.shared(top="5%", at=90)


@pytest.mark.parametrize(
    ("claim", "options"),
    [
        ("graded_necessity", {}),
        ("graded_necessity", {"normalise": False}),
        ("closure", {}),
        ("closure", {"metric": "accuracy"}),
        ("adversarial_controls", {}),
        ("adversarial_controls", {"metric": "log_prob"}),
        ("specificity", {"against": ["b"]}),
        ("specificity_matrix", {"tasks": ["planted", "b"], "top": "5%", "at": 90}),
        ("specificity_matrix", {"tasks": ["planted", "b"], "top": "5%", "at": 90, "over": "every"}),
        ("concentration", {"statistic": "area"}),
        ("concentration", {"statistic": "top"}),
        ("concentration", {"statistic": "top", "scale": "share"}),
        ("transfer", {"to": "b"}),
    ],
    ids=str,
)
def test_every_claim_about_behaviour_may_draw_examples_together(claim: str, options: dict[str, Any]) -> None:
    lab, found = both()
    about = () if claim in ("concentration", "specificity_matrix") else (found,)
    alone, together = (lab.measure(claim, *about, **options, **more) for more in ({}, {"cluster": "group"}))
    assert not alone.invalid
    assert not together.invalid
    assert alone.value == pytest.approx(together.value)
    assert alone.interval is not None
    assert together.interval is not None
    width = [high - low for low, high in (alone.interval, together.interval)]
    assert width[1] > 1.2 * width[0]
    assert together.choices["cluster"] == "group"
    count = together.details["clusters"]["count"]
    assert count == ({"planted": 8, "b": 8} if claim == "specificity_matrix" else 8)
    assert any("only 8 different groups" in hint for hint in together.hints)
    assert "clusters" not in alone.details
    assert not any("different groups" in hint for hint in alone.hints)


def test_what_says_nothing_of_clusters_is_the_record_it_was() -> None:
    lab, found = both()
    assert "cluster" not in lab.closure(found).choices
    assert "cluster" not in lab.concentration().choices


def test_the_size_of_a_crossing_is_tested_by_clusters() -> None:
    # the curve is above the level in five blocks of eight: examples are sure of it, blocks are not
    def crossing(groups: list[str] | None) -> CrossingInference:
        damage = np.array(
            [[0.9 + 0.02 * np.sin(i) if (i // 5) % 8 < 5 else 0.75 for i in range(160)], [1.0] * 160]
        )
        return CrossingInference(damage, np.ones(160), [1, 2], level=0.8, groups=groups)

    assert crossing(None).interval() == (1, 1)
    assert crossing([f"t{(i // 5) % 8}" for i in range(160)]).interval() == (1, 2)
