"""What may be paired with a lock: the same weights, the same weights in another order, a fine-tune; never another run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuittest.circuit import Circuit, prompt_digest
from circuittest.claims import pairing
from circuittest.errors import LoadError, SpecError, UsageError
from circuittest.lock import Lock, lock_path
from circuittest.spec import judge, load_spec
from circuittest.spec.lock import make_lock
from circuittest.units import Layout, Unit
from circuittest.weights import SAMPLE, Weights
from tests.helpers.table_lab import TableLab, task_data

LAYOUT = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
CORE = (Unit.parse("L1.H0"), Unit.parse("L2.H3"))
THERE = (Unit.parse("L4.H4"), Unit.parse("L5.H1"))
SPEC = """\
circuittest: 1
model: base
task: ioi
circuit: {top: 10%, at: 90}
claims:
  - necessity: {min: 0.3}
  - drift.behaviour: {margin: 0.15}
  - drift.function: {margin: 0.15}
  - drift.function: {id: kept-alone, part: sufficiency, margin: 0.15}
  - drift.structure: {margin: 0.2}
  - regression: {is: kept, margin: 0.15}
"""
COMPARED = ("drift.behaviour", "drift.function", "kept-alone", "drift.structure", "regression")


def lab_of(
    leaders: tuple[Unit, ...] = CORE,
    *,
    base: float = 0.95,
    helpers: int = 0,
    scored: tuple[Unit, ...] | None = None,
    fingerprint: str = "t",
) -> TableLab:
    """Right on a share `base` of the examples as long as no leader is ablated and of the other heads `helpers` are left;
    the units `scored` (the leaders) have the largest scores.
    """
    members = LAYOUT.units(("head", "mlp"))
    values = np.random.default_rng(1).uniform(0, 0.1, (60, len(members)))
    values[:, [members.index(unit) for unit in (leaders if scored is None else scored)]] += 1.0
    heads = set(LAYOUT.units(("head",)))
    works = lambda units: not set(leaders) & units and len(heads - set(leaders) - units) >= helpers
    right = lambda units, i: float(works(units) and (i * 7919 % 100) / 100 < base)
    lab = TableLab(right, values=values, data=task_data(40, 160), layout=LAYOUT)
    lab.model.fingerprint = fingerprint * 64
    return lab


def weights_like(seed: int, *, swapped: bool = False) -> Weights:
    rng = np.random.default_rng(seed)
    heads = [[f"{seed}-{layer}-{head}" for head in range(8)] for layer in range(6)]
    if swapped:
        heads[1][0], heads[1][5] = heads[1][5], heads[1][0]
    return Weights(tuple(map(tuple, heads)), f"rest {seed}", tuple(rng.normal(size=SAMPLE).round(3)))


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The spec and the lock of a base whose weights are those of seed 0."""
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC)
    monkeypatch.setattr(pairing, "weights_of_lab", lambda lab: weights_like(0))
    make_lock(load_spec(path, locked=False), lab_of(fingerprint="b")).save(lock_path(path))
    return load_spec(path)


def judged(spec: Any, lab: Any) -> dict[str, Any]:
    return {claim.id: judge(spec, claim, lab) for claim in spec.claims}


def test_heads_in_another_order_are_the_base_at_other_places(
    spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "weights_of_lab", lambda lab: weights_like(0, swapped=True))
    moved = (Unit.parse("L1.H5"), Unit.parse("L2.H3"))
    lab = lab_of(moved)
    found = judged(spec, lab)
    for name in COMPARED:
        estimate = found[name].estimate
        assert found[name].outcome == "supported", name
        assert estimate.value == 0.0
        assert estimate.interval == (0.0, 0.0)
        assert estimate.details["permuted"] == {"L1.H0": "L1.H5", "L1.H5": "L1.H0"}
        assert "another order" in estimate.inference.method
    assert found["drift.structure"].estimate.details["rediscovered"] == ["L1.H5", "L2.H3"]
    assert found["regression"].estimate.label == "kept"
    assert found["regression"].estimate.details["notes"] == ["permuted"]
    assert "found at its places: L1.H5, L2.H3" in found["drift.function"].estimate.hints[0]
    # other claims judge the locked circuit where it is now
    assert found["necessity"].estimate.circuit.units == moved
    assert found["necessity"].outcome == "supported"


def test_the_base_s_weights_into_which_somebody_put_hooks_are_measured(spec: Any) -> None:
    lab = lab_of(base=0.2, fingerprint="b")
    lab.model.module = torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert (
        judged(spec, lab)["drift.behaviour"].outcome == "supported"
    )  # of equal weights: nothing is measured
    lab.model.module[0].register_forward_hook(lambda *_: None)
    found = judged(spec, lab)
    assert found["drift.behaviour"].outcome == "refuted"
    assert found["regression"].estimate.label == "broken"


def test_no_lock_is_made_of_a_model_into_which_somebody_put_hooks(tmp_path: Path) -> None:
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC)
    lab = lab_of()
    lab.model.module = torch.nn.Linear(1, 1)
    lab.model.module.register_forward_hook(lambda *_: None)
    with pytest.raises(UsageError, match="computes something else than its weights say"):
        make_lock(load_spec(path, locked=False), lab)


def test_another_training_run_is_not_compared_by_position(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "weights_of_lab", lambda lab: weights_like(1))
    found = judged(spec, lab_of())
    assert found["drift.behaviour"].outcome == "supported"
    for name in ("drift.function", "kept-alone", "drift.structure", "regression"):
        assert found[name].outcome == "invalid"
        assert "not those of a model trained from the base: " in found[name].reason
        assert abs(found[name].estimate.details.get("weights_correlation", 0.0)) < 0.1


@pytest.mark.parametrize(("base", "label"), [(0.2, "broken"), (0.7, "weakened")])
def test_behaviour_lost_is_never_invalid(
    base: float, label: str, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "weights_of_lab", lambda lab: weights_like(1))
    verdict = judged(spec, lab_of(base=base))["regression"]
    assert verdict.outcome == "refuted"
    assert verdict.estimate.label == label


def test_a_circuit_that_needs_the_others_now_has_drifted_in_sufficiency_alone(spec: Any) -> None:
    found = judged(spec, lab_of(helpers=20))
    assert found["drift.function"].outcome == "supported"
    assert found["kept-alone"].outcome == "refuted"
    estimate = found["kept-alone"].estimate
    assert estimate.details["restored_base"] == pytest.approx(0.95, abs=0.02)
    assert estimate.details["restored_tuned"] == 0.0
    assert estimate.value == pytest.approx(estimate.details["restored_base"])
    assert estimate.details["signed"] < 0


def test_what_was_kept_in_the_base_is_measured_on_the_counterfactual(spec: Any) -> None:
    lab = lab_of()
    judge(spec, spec.claims[3], lab)
    assert {how["value"] for how in lab.how[-1:]} == {"counterfactual"}
    kept = lab.calls[-1]
    assert [len(units) for units in kept] == [48, 46]
    assert not set(CORE) & set(kept[1])


def test_order_that_changed_beyond_noise_is_noted_where_the_circuit_was_kept(spec: Any) -> None:
    found = judged(spec, lab_of(scored=THERE))
    estimate = found["regression"].estimate
    assert estimate.label == "kept"
    assert estimate.details["notes"] == ["reordered"]
    assert estimate.details["jaccard"] == 0.0
    assert "reordered" in estimate.labels["kept"].reason
    assert judged(spec, lab_of())["regression"].estimate.details["notes"] == []


def test_the_circuit_found_again_is_asked_of_the_base(spec: Any) -> None:
    lab, base = lab_of(THERE), lab_of(fingerprint="b")
    asked: list[str] = []
    lab.with_model = lambda name: asked.append(name) or base  # type: ignore[method-assign, func-returns-value]
    options: Any = {"baseline": str(lock_path(spec.path)), "margin": 0.15, "found": "tuned"}
    circuit = lab.circuit(spec.lock.circuits["circuit"].circuit)
    estimate = lab.measure("drift.function", circuit, **options)
    assert asked == ["planted"]
    assert estimate.circuit.units == THERE
    assert estimate.details["beyond_tuned"] > 0.8
    assert estimate.details["beyond_base"] < 0.1
    assert estimate.value > 0.7
    kept = lab.measure("drift.function", circuit, part="sufficiency", **options)
    assert kept.details["restored_tuned"] > 0.9
    assert kept.details["restored_base"] == 0.0
    lab.with_model = lambda name: lab_of(fingerprint="x")  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="elsewhere is not the base of the lock"):
        lab.measure("drift.function", circuit, base="elsewhere", **options)

    def missing(name: str) -> Any:
        raise LoadError(f"cannot find {name!r}")

    lab.with_model = missing  # type: ignore[method-assign]
    assert "the base is needed" in lab.measure("drift.function", circuit, **options).invalid


@pytest.mark.parametrize("claim", ["drift.behaviour", "drift.function", "drift.structure", "regression"])
def test_a_margin_that_is_no_size_is_refused_where_it_stands(claim: str, tmp_path: Path) -> None:
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC.split("  - necessity")[0] + f"  - {claim}: {{id: it, margin: -0.1}}\n")
    with pytest.raises(SpecError, match=r"x\.circuit\.yaml:6") as caught:
        load_spec(path, name="x.circuit.yaml")
    assert "margin" in str(caught.value)


@pytest.mark.parametrize("claim", ["drift.behaviour", "drift.function", "drift.structure", "regression"])
def test_the_same_from_python(claim: str, spec: Any) -> None:
    lab = lab_of()
    about = () if claim == "drift.behaviour" else (Circuit.of(CORE),)
    with pytest.raises(UsageError, match=r"margin is -0\.1"):
        lab.measure(claim, *about, baseline=str(lock_path(spec.path)), margin=-0.1)


def test_a_circuit_chosen_on_evaluation_examples_is_not_judged_on_them(spec: Any) -> None:
    lock = Lock.load(lock_path(spec.path))
    locked = lock.circuits["circuit"]
    prompts = [prompt_digest(lab_of().data.evaluate[0].prompt_ids)]
    origin = {**locked.circuit.origin, "prompts": prompts}
    circuit = Circuit.of(CORE, layout=LAYOUT, origin=origin)
    replace(lock, circuits={"circuit": replace(locked, circuit=circuit)}).save(lock_path(spec.path))
    found = judged(load_spec(spec.path), lab_of())
    for name in ("drift.function", "kept-alone", "regression"):
        assert found[name].outcome == "invalid"
        assert "1 of the 160 evaluation prompts chose the circuit" in found[name].reason
