"""Drift against a lock: exactly zero without change, the known size with one, and no pairing of what is no pair."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from circuittest.circuit import Circuit
from circuittest.errors import SpecError, UsageError
from circuittest.lock import Lock, lock_path
from circuittest.spec import judge, load_spec
from circuittest.spec.lock import changes, make_lock, refuse_other_weights
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab, task_data

CORE = [Unit.parse("L1.H0"), Unit.parse("L2.H3")]
SPEC = """\
circuittest: 1
model: base
task: ioi
circuit: {top: 10%, at: 90}
claims:
  - necessity: {min: 0.3}
  - drift.behaviour: {margin: 0.2}
  - drift.function: {baseline: lock, margin: 0.2}
  - drift.structure: {margin: 0.2}
  - drift.function: {id: graded, metric: log_prob, margin: 0.5}
  - drift.behaviour: {id: worse, margin: 0.05, side: worse}
"""


def lab_of(
    leaders: list[Unit] = CORE,
    *,
    loss: float = 1.0,
    base: float = 1.0,
    brittle: float = 0.0,
    fingerprint: str = "b",
) -> TableLab:
    """A model whose leaders have the largest scores, right on a share `base` of the examples.

    `loss`: the share that is lost without a leader; `brittle`: without any unit.
    """
    layout = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
    members = layout.units(("head", "mlp"))
    values = np.random.default_rng(1).uniform(0, 0.1, (60, len(members)))
    values[:, [members.index(unit) for unit in leaders]] += 1.0
    hit = lambda units: bool(set(leaders) & units) or len(units) > 8
    right = lambda i: (i * 7919 % 100) / 100 < base
    lost = lambda i: (i * 6101 % 97) / 97 < loss
    breaks = lambda units, i: bool(units) and (i * 7331 % 89) / 89 < brittle
    rule = lambda units, i: float(right(i) and not (hit(units) and lost(i)) and not breaks(units, i))
    graded = lambda units, i: (
        -0.1 - (i % 5) / 10 - ((3.0 + i % 3 / 10) * loss if hit(units) else 0.0) - 2.0 * (1 - base)
    )
    lab = TableLab(rule, values=values, data=task_data(40, 120), graded=graded, layout=layout)
    lab.model.fingerprint = fingerprint * 64
    return lab


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lock of the base model."""
    path = tmp_path_factory.mktemp("base") / "x.circuit.yaml"
    path.write_text(SPEC)
    return make_lock(load_spec(path, name="x.circuit.yaml", locked=False), lab_of()).render()


@pytest.fixture
def spec(locked: str, tmp_path: Path) -> Any:
    """The spec with a lock of the base model."""
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC)
    lock_path(path).write_text(locked)
    return load_spec(path, name="x.circuit.yaml")


def judged(spec: Any, lab: Any) -> dict[str, Any]:
    return {claim.id: judge(spec, claim, lab) for claim in spec.claims}


def test_the_same_weights_do_not_drift_and_cost_nothing(spec: Any) -> None:
    lab = lab_of()
    found = judged(spec, lab)
    assert {id_: verdict.outcome for id_, verdict in found.items()} == dict.fromkeys(found, "supported")
    for id_ in list(found)[1:]:
        assert found[id_].estimate.value == 0.0
        assert found[id_].estimate.interval == (0.0, 0.0)
    asked = len(lab.calls)
    judge(spec, spec.claims[2], lab)
    assert len(lab.calls) == asked


def test_equal_numbers_under_another_fingerprint_are_measured_and_exactly_zero(spec: Any) -> None:
    lab = lab_of(fingerprint="t")
    found = judged(spec, lab)
    for id_ in ("drift.behaviour", "drift.function", "drift.structure", "graded", "worse"):
        assert found[id_].estimate.value == 0.0
    assert found["drift.behaviour"].outcome == found["drift.function"].outcome == "supported"
    assert found["drift.structure"].estimate.details["jaccard"] == 1.0
    assert found["drift.structure"].estimate.details["rank_correlation"] == pytest.approx(1.0)
    assert found["drift.structure"].estimate.details["weighted_overlap"] == 1.0
    low, high = found["drift.behaviour"].estimate.interval
    assert low == 0.0
    assert 0.01 < high < 0.05


def test_lost_behaviour_is_drift_and_not_invalid(spec: Any) -> None:
    found = judged(spec, lab_of(base=0.3, fingerprint="t"))
    behaviour = found["drift.behaviour"]
    assert behaviour.outcome == "refuted"
    assert behaviour.estimate.value == pytest.approx(0.7, abs=0.05)
    assert behaviour.estimate.details["signed"] == pytest.approx(-0.7, abs=0.05)
    assert found["worse"].outcome == "refuted"
    assert found["worse"].estimate.value > 0
    assert found["drift.function"].outcome == "refuted"


def test_a_circuit_that_matters_less_has_drifted_in_function_alone(spec: Any) -> None:
    found = judged(spec, lab_of(loss=0.4, fingerprint="t"))
    assert found["drift.behaviour"].outcome == found["drift.structure"].outcome == "supported"
    assert found["drift.function"].outcome == found["graded"].outcome == "refuted"
    details = found["drift.function"].estimate.details
    assert details["beyond_base"] - details["beyond_tuned"] == pytest.approx(
        found["drift.function"].estimate.value
    )
    assert found["graded"].estimate.details["signed"] < -0.5


def test_what_controls_cost_now_is_taken_off(spec: Any) -> None:
    lab = lab_of(brittle=0.4, fingerprint="t")
    estimate = judge(spec, spec.claims[2], lab).estimate
    base, tuned = estimate.details["m_base"], estimate.details["m_tuned"]
    assert base[:2] == tuned[:2] == [1.0, 0.0]  # the circuit itself costs what it did
    assert estimate.value == pytest.approx(base[2] - tuned[2])
    assert estimate.value == pytest.approx(0.4, abs=0.05)
    assert estimate.details["signed"] < 0


def test_a_circuit_elsewhere_has_drifted_in_structure(spec: Any) -> None:
    there = [Unit.parse("L4.H4"), Unit.parse("L5.H1")]
    found = judged(spec, lab_of(there, fingerprint="t"))
    assert found["drift.behaviour"].outcome == "supported"
    structure = found["drift.structure"].estimate
    assert found["drift.structure"].outcome == "refuted"
    assert structure.details["jaccard"] == structure.details["across"] == 0.0
    assert structure.details["floor"] == 1.0
    noise = (
        lab_of([]).scores().values.mean(0).sum()
    )  # that all members have; each of the two leaders has 1 beside it
    assert structure.details["weighted_overlap"] == pytest.approx(noise / (noise + 4), rel=1e-4)
    assert structure.details["rediscovered"] == ["L4.H4", "L5.H1"]
    # claims judge the locked circuit, which does nothing here
    assert found["necessity"].estimate.circuit == Circuit.of(CORE)
    assert found["necessity"].outcome == "refuted"


def test_circuit_rediscover_judges_the_model_s_own(spec: Any) -> None:
    spec.path.write_text(SPEC.replace("{top: 10%, at: 90}", "rediscover"))
    there = [Unit.parse("L4.H4"), Unit.parse("L5.H1")]
    found = load_spec(spec.path)
    verdict = judge(found, found.claims[0], lab_of(there, fingerprint="t"))
    assert verdict.estimate.circuit == Circuit.of(there)
    assert verdict.outcome == "supported"
    lock_path(spec.path).unlink()
    with pytest.raises(SpecError, match="there is no lock to find the circuit's like by"):
        load_spec(spec.path)


def test_what_is_no_pair_is_invalid_or_refused(spec: Any) -> None:
    lab = lab_of(fingerprint="t")
    lab.__dict__["data"] = task_data(40, 100)
    claim = {claim.id: claim for claim in spec.claims}
    verdict = judge(spec, claim["drift.behaviour"], lab)
    assert verdict.outcome == "invalid"
    assert "the evaluation examples are not those of the lock (100 of 100 are in it)" in verdict.reason
    lab.__dict__["data"] = task_data(30, 120)
    assert "discovery examples are not those" in judge(spec, claim["drift.structure"], lab).reason

    other = lab_of(fingerprint="t")
    other.model.layout = Layout(5, 8, 8)
    with pytest.raises(SpecError, match=r"x\.circuit\.lock: the lock is of another architecture"):
        judge(spec, claim["necessity"], other)
    other = lab_of(fingerprint="t")
    other.model.tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 1})
    with pytest.raises(SpecError, match="made with another tokenizer"):
        judge(spec, claim["necessity"], other)
    with pytest.raises(UsageError, match="does not hold the circuit"):
        lab.measure("drift.function", Circuit.of(["L0.H0"]), baseline=str(lock_path(spec.path)), margin=0.1)
    with pytest.raises(UsageError, match="only a spec has one beside it"):
        lab.measure("drift.behaviour", margin=0.1)


def test_a_base_that_could_not_do_it_is_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "x.circuit.yaml"
    path.write_text(SPEC)
    make_lock(load_spec(path, locked=False), lab_of(base=0.1)).save(lock_path(path))
    spec = load_spec(path)
    verdict = judge(spec, spec.claims[1], lab_of(fingerprint="t"))
    assert verdict.outcome == "invalid"
    assert "the base: the model is not competent" in verdict.reason


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("top: 10%", "top: 20%", "the circuit is not the one of the lock"),
        ("task: ioi", "task: sva", "the task is not the one of the lock"),
        ("task: ioi", "task: {name: ioi, seed: 3}", "the task is not the one of the lock"),
        ("model: base", "model: [base, other]", "the spec names 2 models"),
        ("{margin: 0.2}", "{side: worse}", "margin"),
    ],
)
def test_a_spec_that_left_its_lock_behind_is_an_error_at_its_place(
    spec: Any, old: str, new: str, words: str
) -> None:
    spec.path.write_text(SPEC.replace(old, new, 1))
    with pytest.raises(SpecError, match=words) as caught:
        load_spec(spec.path)
    assert caught.value.line is not None


def test_without_a_lock_the_claim_says_how_to_write_one(spec: Any) -> None:
    lock_path(spec.path).unlink()
    alone = load_spec(spec.path, name="x.circuit.yaml")
    with pytest.raises(SpecError, match=r"x\.circuit\.yaml:8:5: .*--circuit-update=new"):
        judge(alone, alone.claims[2], lab_of())


def test_locks_are_the_same_bytes_and_say_what_changed(spec: Any) -> None:
    bare = load_spec(spec.path, locked=False)
    first = Lock.load(lock_path(spec.path))
    assert make_lock(bare, lab_of()).render() == first.render()
    assert changes(first, make_lock(bare, lab_of())) == []
    there = [Unit.parse("L1.H0"), Unit.parse("L5.H1")]
    listed = changes(first, make_lock(bare, lab_of(there, fingerprint="t")))
    assert listed[0].startswith("model fingerprint: bbb")
    assert {"circuit: - L2.H3", "circuit: + L5.H1"} <= set(listed)
    assert changes(None, first) == ["there is no lock yet"]
    refuse_other_weights(first, lab_of(), False, "x")
    refuse_other_weights(first, lab_of(fingerprint="t"), True, "x")
    with pytest.raises(UsageError, match="--circuit-accept-model"):
        refuse_other_weights(first, lab_of(fingerprint="t"), False, "x")


def test_outcomes_of_other_answers_are_no_pairs(spec: Any) -> None:
    lab = lab_of(fingerprint="t")
    data = task_data(40, 120)
    turned = tuple(
        replace(item, answer_ids=item.foil_ids, foil_ids=item.answer_ids) for item in data.evaluate
    )
    lab.__dict__["data"] = replace(data, evaluate=turned)
    found = judged(spec, lab)
    for id_ in ("drift.behaviour", "drift.function", "graded", "worse"):
        assert found[id_].outcome == "invalid"
        assert "other answers or foils than in the lock" in found[id_].reason


def test_scores_of_another_metric_are_no_pairs(spec: Any) -> None:
    path = lock_path(spec.path)
    lock = Lock.load(path)
    base = lock.circuits["circuit"]
    origin = {**base.circuit.origin, "metric": "logit_diff"}
    circuit = Circuit.of(base.circuit.units, layout=lock.layout, origin=origin)
    replace(lock, circuits={"circuit": replace(base, circuit=circuit)}).save(path)
    verdict = judge(load_spec(spec.path), spec.claims[3], lab_of(fingerprint="t"))
    assert verdict.outcome == "invalid"
    assert "derivatives of logit_diff, and this lab's would be of log_prob" in verdict.reason
