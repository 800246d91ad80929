"""The options of a claim follow from its function, whatever it is."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import ValidationError

import circuittest.claims
from circuittest.claims import ClaimKind
from circuittest.errors import SpecError, UsageError
from circuittest.spec import load_spec
from circuittest.spec.schema import options_model


def invented(
    lab: NeverImported,  # noqa: F821 - imported for type checkers only in real claims
    circuit: NeverImported,  # noqa: F821
    *,
    against: tuple[str, ...],
    rule: Literal["a", "b"] = "a",
    share: float | None = None,
    decide: float | None = None,
):
    """A claim of another package."""


def test_required_optional_and_reserved_options():
    model = options_model("invented", invented)
    assert set(model.model_fields) == {
        "min",
        "above",
        "skip",
        "xfail",
        "max",
        "below",
        "is_",
        "of",
        "id",
        "against",
        "rule",
        "share",
    }
    found = model.model_validate_json('{"against": ["x"], "share": 1, "min": 0}')
    assert (found.against, found.rule, found.share, found.min) == (("x",), "a", 1.0, 0.0)
    for bad in (
        "{}",
        '{"against": "x"}',
        '{"against": ["x"], "rule": "c"}',
        '{"against": ["x"], "decide": 1}',
    ):
        with pytest.raises(ValidationError):
            model.model_validate_json(bad)


def test_a_new_claim_needs_no_change_of_the_schema(tmp_path, monkeypatch):
    def claim_kind(name):
        if name != "invented":
            raise UsageError(f"unknown claim {name!r}")
        return ClaimKind("invented", invented)

    monkeypatch.setattr(circuittest.claims, "claim_kind", claim_kind)
    path = tmp_path / "x.circuit.yaml"
    head = "circuittest: 1\nmodel: a\ntask: ioi\ncircuit: {at: 95}\nclaims:\n"
    path.write_text(head + "  - invented: {against: [addition, facts], above: 0.0}\n")
    (claim,) = load_spec(path).claims
    assert (claim.options, claim.op, claim.threshold) == ({"against": ("addition", "facts")}, ">", 0.0)
    path.write_text(head + "  - invented: {above: 0.0}\n")
    with pytest.raises(SpecError, match="the key 'against' is missing in the claim invented"):
        load_spec(path)
