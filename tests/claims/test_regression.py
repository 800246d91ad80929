"""The regression verdict: each outcome on a model whose fine-tune is known, and no outcome without its proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuittest.claims.regression import NAMES, Elsewhere, judge
from circuittest.lock import lock_path
from circuittest.spec import judge as judge_spec, load_spec
from circuittest.spec.lock import make_lock
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

CORE = (Unit.parse("L1.H0"), Unit.parse("L2.H3"))
THERE = (Unit.parse("L4.H4"), Unit.parse("L5.H1"))
SPEC = """\
circuittest: 1
model: base
task: ioi
circuit: {top: 10%, at: 90}
claims:
  - regression: {is: kept, margin: 0.15}
"""
LAYOUT = Layout(n_layers=6, n_heads=8, n_kv_heads=8)


def lab_of(
    leaders: tuple[Unit, ...] = CORE,
    *,
    loss: float = 0.8,
    base: float = 0.95,
    scored: tuple[Unit, ...] | None = None,
    fingerprint: str = "t",
) -> TableLab:
    """Right on a share `base` of the examples, of which `loss` is lost where any leader is ablated; the units `scored`
    (the leaders) have the largest scores.
    """
    members = LAYOUT.units(("head", "mlp"))
    values = np.random.default_rng(1).uniform(0, 0.1, (60, len(members)))
    values[:, [members.index(unit) for unit in (leaders if scored is None else scored)]] += 1.0
    right = lambda i: (i * 7919 % 100) / 100 < base
    lost = lambda units, i: len(units) > 8 or (bool(set(leaders) & units) and (i * 6101 % 97) / 97 < loss)
    lab = TableLab(
        lambda units, i: float(right(i) and not lost(units, i)),
        values=values,
        data=task_data(40, 160),
        layout=LAYOUT,
    )
    lab.model.fingerprint = fingerprint * 64
    return lab


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("base") / "x.circuit.yaml"
    path.write_text(SPEC)
    make_lock(load_spec(path, locked=False), lab_of(fingerprint="b")).save(lock_path(path))
    return load_spec(path)


@pytest.mark.parametrize(
    ("lab", "label"),
    [
        (lambda: lab_of(fingerprint="b"), "kept"),
        (lambda: lab_of(), "kept"),
        (lambda: lab_of(loss=0.78, base=0.93), "kept"),
        (lambda: lab_of(THERE), "moved"),
        (lambda: lab_of((), scored=THERE), "spread"),
        (lambda: lab_of(base=0.7), "weakened"),
        (lambda: lab_of(base=0.2), "broken"),
        (lambda: lab_of(base=0.0), "broken"),
        (lambda: lab_of(loss=0.3), None),  # less necessary, and no other circuit
        (lambda: lab_of(base=0.42), None),  # fallen, but to the edge of competence
    ],
)
def test_known_fine_tunes_have_their_label(spec: Any, lab: Any, label: str | None) -> None:
    verdict = judge_spec(spec, spec.claims[0], lab())
    estimate = verdict.estimate
    assert not estimate.invalid
    assert estimate.label == label
    assert set(estimate.labels) == set(NAMES)
    assert verdict.outcome == ("supported" if label == "kept" else "refuted")
    assert estimate.value == pytest.approx(estimate.details["acc_tuned"] - estimate.details["acc_base"])
    if label is not None:
        assert all(estimate.labels[name].outcome == "refuted" for name in NAMES if name != label)
        assert estimate.labels[label].p_value <= 0.025


def test_equal_weights_ask_nothing_of_the_model(spec: Any) -> None:
    lab = lab_of(fingerprint="b")
    assert judge_spec(spec, spec.claims[0], lab).estimate.value == 0.0
    assert lab.calls == []


def test_a_circuit_that_did_nothing_in_the_base_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC)
    make_lock(load_spec(path, locked=False), lab_of(loss=0.1, fingerprint="b")).save(lock_path(path))
    spec = load_spec(path)
    verdict = judge_spec(spec, spec.claims[0], lab_of())
    assert verdict.outcome == "invalid"
    assert "not necessary in the base beyond the margin" in verdict.reason


def test_accuracy_that_rose_has_no_name(tmp_path: Path) -> None:
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC)
    make_lock(load_spec(path, locked=False), lab_of(base=0.6, fingerprint="b")).save(lock_path(path))
    spec = load_spec(path)
    estimate = judge_spec(spec, spec.claims[0], lab_of()).estimate
    assert estimate.label is None
    for name in NAMES:
        assert estimate.labels[name].outcome == "refuted"
        assert "rose" in estimate.labels[name].reason


P = {"fell": 1.0, "rose": 1.0, "same": 0.0, "function_same": 1.0, "function_fell": 0.0, "function_rose": 1.0}
GATE = {"competent": 0.0, "incompetent": 1.0}


@pytest.mark.parametrize(
    ("p", "elsewhere", "label"),
    [
        ({"function_same": 0.0, "function_fell": 1.0}, {}, "kept"),
        ({}, {"new_necessary": 0.0, "new_differs": 0.0}, "moved"),
        ({}, {"new_necessary": 0.0, "new_differs": 0.03}, None),
        ({}, {"new_necessary": 0.03, "new_differs": 0.0}, None),
        ({"function_fell": 0.03}, {"new_necessary": 0.0, "new_differs": 0.0}, None),
        ({}, {"old_idle": 0.0, "new_idle": 0.0}, "spread"),
        ({}, {"old_idle": 0.0, "new_idle": 0.03}, None),
        ({}, {"old_idle": 0.03, "new_idle": 0.0}, None),
        ({"same": 1.0}, {"old_idle": 0.0, "new_idle": 0.0}, None),
        ({"same": 1.0, "fell": 0.0}, {}, "weakened"),
        ({"same": 1.0, "fell": 0.0, "competent": 0.03}, {}, None),
        ({"same": 1.0, "fell": 0.0, "competent": 1.0, "incompetent": 0.0}, {}, "broken"),
        ({"same": 1.0, "fell": 0.03, "competent": 1.0, "incompetent": 0.0}, {}, None),
        ({"same": 1.0, "rose": 0.0, "function_same": 0.0}, {}, None),
    ],
)
def test_every_part_of_a_label_is_needed(
    p: dict[str, float], elsewhere: dict[str, float], label: str | None
) -> None:
    found = judge({**P, **GATE, **p}, Elsewhere(elsewhere), 0.1)
    assert [name for name, one in found.items() if one.outcome == "supported"] == ([label] if label else [])
    if label is None and p.get("rose") == 0.0:
        assert {one.outcome for one in found.values()} == {"refuted"}
