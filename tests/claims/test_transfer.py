"""Circuits that were found elsewhere: function and structure on another task, subtask and model, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from circuittest.circuit import Circuit
from circuittest.errors import TaskError, UsageError
from circuittest.lab import Lab
from circuittest.tasks import as_task
from circuittest.tasks.subtask import restricted
from tests.claims.test_specificity import HEADS, loses, planted
from tests.helpers.table_lab import TableLab, task_data


def pair(b: Any = None, **more: Any) -> TableLab:
    """Task planted goes through head 0 (with 1 beside it), task b through the heads that `b` says; same recipe."""
    other = b or planted((0, 1), loses({0: 50}))
    other.__dict__["data"] = replace(other.data, task="b")
    return planted((0, 1), loses({0: 50}), {"b": other}, **more)


def test_a_circuit_that_does_the_same_work_elsewhere() -> None:
    lab = pair()
    found = lab.transfer(lab.shared(top="10%"), to="b")
    assert found.claim == "transfer"
    assert found.task == "b"
    assert found > 0.5
    details = found.details
    assert details["from"]["task"] == "planted"
    assert details["from"]["acc_base"] == 1.0
    assert details["own"]["value"] == found.value
    assert details["structure"]["jaccard"] == 1.0
    assert details["structure"]["chance"] == pytest.approx(0.2 / 3.8)
    assert details["structure"]["jaccard_of_halves"] == 1.0
    assert details["structure"]["rank_correlation"] == pytest.approx(1.0)
    assert found.choices["function"] == "necessity"
    assert found.value == lab.on("b").necessity(lab.shared(top="10%")).value


def test_function_and_structure_come_apart() -> None:
    # the other task's own circuit is elsewhere, but it also needs head 0: function without agreement in structure
    lab = pair(planted((2, 3), loses({0: 50, 2: 50})))
    found = lab.transfer(lab.shared(top="10%"), to="b")
    assert found > 0.4
    assert found.details["structure"]["jaccard"] == 0.0
    assert found.details["structure"]["rediscovered"] == ["L0.H2", "L0.H3"]
    assert found.details["structure"]["rank_correlation"] < 0

    # and the same structure without function
    lab = pair(planted((0, 1), loses({2: 50})))
    found = lab.transfer(lab.shared(top="10%"), to="b")
    assert found.details["structure"]["jaccard"] == 1.0
    assert not found > 0.1


def test_other_functions_and_their_options() -> None:
    lab = pair()
    circuit = lab.shared(top="10%")
    found = lab.transfer(circuit, to="b", controls=7, match="layer")
    assert found.choices["match"] == "layer"
    with pytest.raises(UsageError, match="transfer of sufficiency has no option 'match'"):
        lab.transfer(circuit, to="b", function="sufficiency", match="layer")
    with pytest.raises(UsageError, match="transfer of necessity has no option 'metric'"):
        lab.transfer(circuit, to="b", metric="log_prob")


def test_a_circuit_of_another_model() -> None:
    lab = pair()
    there = lab.shared(top="10%")
    foreign = Circuit(
        there.units, layout=lab.layout, origin={**there.origin, "fingerprint": "0" * 16, "model": "x"}
    )
    found = lab.transfer(foreign)
    assert found > 0.5
    assert found.details["from"] == {
        "model": "x",
        "fingerprint": "0" * 16,
        "task": "planted",
        "acc_base": None,
    }
    assert found.details["structure"]["rank_correlation"] is None


def test_a_circuit_of_units_has_function_alone() -> None:
    found = pair().transfer(Circuit.of(["L0.H0"]), to="b")
    assert found > 0.5
    assert found.details["structure"] is None
    assert found.details["own"] is None


def test_a_target_without_discovery_examples_has_function_alone() -> None:
    lab = pair()
    there = lab.on("b")
    there.__dict__["data"] = replace(there.data, discover=())
    found = lab.transfer(lab.shared(top="10%"), to="b")
    assert found > 0.5
    assert found.details["structure"] is None
    assert found.details["own"] is None


def test_what_cannot_be_judged() -> None:
    lab = pair()
    circuit = lab.shared(top="10%")
    assert "claim its necessity there" in lab.transfer(circuit).invalid
    assert "not known" in lab.transfer(Circuit.of(["L0.H0"])).invalid
    assert "empty" in lab.transfer(Circuit(), to="b").invalid
    assert "not competent" in pair(planted((0, 1), lambda u, i: 0.0)).transfer(circuit, to="b").invalid
    failing = planted((0, 1), lambda u, i: 0.0, {"b": pair().on("b")})
    found = failing.transfer(circuit, to="b")
    assert found.invalid.startswith("where it comes from (planted): the model is not competent")


def with_orders() -> TableLab:
    """Even examples go through head 0, odd ones through head 2."""
    data = task_data(40, 60)
    marked = {
        split: tuple(
            replace(item, features={"order": "AB" if item.index % 2 else "BA"})
            for item in getattr(data, split)
        )
        for split in ("discover", "evaluate")
    }
    lab = planted((0, 1), lambda u, i: float(len(u) < 20 and HEADS[2 if i % 2 else 0] not in u))
    lab.__dict__["data"] = replace(data, **marked)
    return lab


def test_subtasks() -> None:
    lab = with_orders()
    even, odd = lab.where("order == BA"), lab.where("order == AB")
    assert (len(even.data.evaluate), even.data.task) == (30, "planted[order == BA]")
    head = Circuit.of(["L0.H0"])
    assert even.necessity(head) > 0.5
    assert not odd.necessity(head) > 0.1
    assert lab.transfer(head, where="order == BA") > 0.5
    found = lab.transfer(head, where="order == AB")
    assert found.task == "planted[order == AB]"
    assert not found > 0.1


def test_restrictions_that_are_none() -> None:
    data = with_orders().data
    with pytest.raises(UsageError, match="no predicate"):
        restricted(data, "order")
    with pytest.raises(TaskError, match="no evaluation example"):
        restricted(data, "order == CD")
    with pytest.raises(TaskError, match="no feature 'ordr'"):
        restricted(data, "ordr == AB")
    both = restricted(data, "order == AB * order != BA")
    assert len(both.evaluate) == 30


def test_two_tasks_of_one_name_are_two_labs() -> None:
    lab = TableLab(lambda units, i: 1.0)
    one, other = as_task("ioi"), as_task("ioi")
    assert Lab.on(lab, one) is Lab.on(lab, one) is not Lab.on(lab, other)
