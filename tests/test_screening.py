"""Ranking in half precision, judging in the model's own dtype."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from circuittest import Lab
from circuittest.errors import TableError, UnsupportedModel, UsageError
from circuittest.find.agreement import agreement
from circuittest.find.recipe import recipe_of
from circuittest.models.screening import in_dtype
from circuittest.spec import load_spec
from circuittest.tables import ScoreTable
from circuittest.units import Layout
from tests.helpers import tiny


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab("zoo:gqa", "ioi", discover=40, evaluate=40)


def test_the_copy_is_another_module_under_the_same_name() -> None:
    model = tiny.build_loaded("llama")
    half = in_dtype(model, "bfloat16")
    assert {p.dtype for p in half.module.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in model.module.parameters()} != {torch.bfloat16}
    assert (half.name, half.fingerprint, half.layout) == (model.name, model.fingerprint, model.layout)
    assert half.blocks[0].out is not model.blocks[0].out
    assert in_dtype(half, "bfloat16") is half


def test_unknown_dtypes_and_quantised_models_are_refused() -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match="unknown dtype 'bf16'"):
        in_dtype(tiny.build_loaded("llama"), "bf16")
    with pytest.raises(UnsupportedModel, match="quantised"):
        in_dtype(replace(tiny.build_loaded("llama"), quantised=True), "bfloat16")


def test_scores_are_those_of_the_copy_and_nearly_the_model_s(lab: Lab) -> None:
    own, half = lab.scores(), lab.scores(dtype="bfloat16")
    assert (own.choices["dtype"], half.choices["dtype"]) == ("float32", "bfloat16")
    assert half.values.dtype == np.float32
    error = np.abs(own.values - half.values).max() / np.abs(own.values).max()
    assert 1e-6 < error < 0.05


def test_the_origin_says_it_and_claims_are_judged_in_float32(lab: Lab) -> None:
    circuit = lab.shared(dtype="bfloat16")
    assert circuit.origin["dtype"] == "bfloat16"
    found = circuit.origin["agreement"]
    assert found["examples"] == 8
    assert 0.9 < found["overlap"] <= 1.0
    assert recipe_of(circuit.origin)["dtype"] == "bfloat16"  # type: ignore[index]
    necessity = lab.necessity(circuit, controls=10)
    assert necessity.choices["dtype"] == "float32"
    same = lab.necessity(lab.circuit([str(u) for u in circuit.units]), controls=10, universe="heads")
    assert float(necessity) == float(same)
    assert "dtype" not in lab.shared().origin


def test_reuse_finds_again_in_the_same_dtype(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    scores = Lab.scores
    monkeypatch.setattr(
        Lab, "scores", lambda self, *a, **k: asked.append(k.get("dtype")) or scores(self, *a, **k)
    )
    lab.reuse(lab.shared(dtype="bfloat16"))
    assert asked[-1] == "bfloat16"


def test_a_poor_agreement_is_said(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("circuittest.lab.circuits.AGREEMENT", 1.01)
    with caplog.at_level(logging.WARNING, logger="circuittest.lab.circuits"):
        lab.shared(dtype="bfloat16")
    assert "ranked in bfloat16 agree with the model's own" in caplog.text


def test_agreement_of_known_tables() -> None:
    units = Layout(1, 4, 4).units(("head",))
    table = lambda rows: ScoreTable(np.array(rows, dtype=np.float32), units, tuple(range(len(rows))))
    one = table([[4, 3, 2, 1], [4, 3, 2, 1]])
    assert agreement(one, one, "50%").spearman == pytest.approx(1)
    found = agreement(one, table([[1, 2, 3, 4], [4, 1, 2, 3]]), "50%")
    assert found.overlap == pytest.approx((0 + 0.5) / 2)
    assert found.spearman == pytest.approx((-1 + 0.2) / 2)
    with pytest.raises(TableError):
        agreement(one, one.rows([0]), "50%")


def test_a_spec_can_ask_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.circuit.yaml"
    path.write_text(
        "circuittest: 1\nmodel: zoo:gqa\ntask: ioi\ncircuit: {dtype: bfloat16}\nclaims:\n  - reuse: {min: 0.2}\n"
    )
    assert load_spec(path).circuit["dtype"] == "bfloat16"  # type: ignore[index]
