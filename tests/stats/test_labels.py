"""Named outcomes: which name is established, what a verdict on a name says, and names that a claim does not have."""

from __future__ import annotations

from typing import Any

import pytest

from circuittest.errors import UsageError
from circuittest.report.records import record
from circuittest.report.terminal import claims_table
from circuittest.stats import Estimate, InvalidClaim, MeanInference, Undecided
from circuittest.stats.labels import Label

LABELS = {
    "load-bearing": Label("supported", "three measures agree", 0.01),
    "none": Label("refuted", "it is load-bearing"),
    "redundant": Label("undecided", "no complement was given"),
}


def measured(labels: dict[str, Label] | None = None, **more: Any) -> Estimate:
    mean = MeanInference([0.4, 0.6] * 20)
    given: dict[str, Any] = {"value": mean.value, "inference": mean, "n_examples": 40}
    return Estimate(claim="closure", labels=LABELS if labels is None else labels, **{**given, **more})


def test_the_established_name_is_the_label() -> None:
    assert measured().label == "load-bearing"
    assert measured({"none": Label("undecided")}).label is None
    assert measured({}, label="kept").label == "kept"
    with pytest.raises(UsageError, match="a and b are both established"):
        measured({"a": Label("supported"), "b": Label("supported")})


def test_verdicts_on_names() -> None:
    estimate = measured()
    assert estimate.labelled("load-bearing")
    assert not estimate.labelled("none")
    with pytest.raises(Undecided, match="closure is redundant: undecided: no complement was given"):
        bool(estimate.labelled("redundant"))
    with pytest.raises(InvalidClaim, match="closure is none: invalid: too few"):
        bool(measured(value=None, inference=None, invalid="too few").labelled("none"))


def test_names_that_the_claim_does_not_have() -> None:
    with pytest.raises(UsageError, match="Did you mean 'load-bearing'"):
        measured().labelled("loadbearing")
    with pytest.raises(UsageError, match="Compare it with a threshold"):
        measured({}).labelled("none")
    with pytest.raises(UsageError, match="no outcome 3"):
        measured().labelled(3)  # type: ignore[arg-type]


def test_what_is_said() -> None:
    verdict = measured(model="zoo:gqa", task="ioi").labelled("load-bearing")
    assert repr(verdict).splitlines() == [
        "closure is load-bearing: supported (zoo:gqa, ioi)",
        f"measured {measured().measured()}",
        "three measures agree",
    ]
    text = verdict.explain()
    assert "threshold  is load-bearing" in text
    assert "0.01 against closure is not load-bearing" in text
    assert "outcome    redundant undecided: no complement was given" in text
    assert (measured() > 0.1).explain().count("outcome    ") == 3


def test_records_and_table() -> None:
    found = record(measured().labelled("none"), id="x::closure", outcome="failed")
    assert found["threshold"] == {"op": "is", "value": "none"}
    assert (found["verdict"], found["label"], found["p_value"]) == ("refuted", "load-bearing", None)
    table = claims_table([found, record(measured() > 0.1, id="y", outcome="passed")])
    assert "is none" in table
    assert "> 0.1" in table
    assert "refuted (load-bearing)" in table
