"""``circuittest init``: a spec that its own model passes, with its lock, and nothing that was there overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuittest import Lab
from circuittest.cli import main
from circuittest.commands.init import _flow, draft
from circuittest.spec import judge, load_spec
from circuittest.units import Layout, Unit
from tests.helpers.table_lab import TableLab

INIT = ["init", "--model", "zoo:gqa", "--task", "ioi", "--discover", "24", "--evaluate", "60", "--at", "80"]


@pytest.mark.slow
def test_the_draft_is_met_by_its_model_and_comes_with_a_lock(tmp_path: Path, capsys: Any) -> None:
    target = tmp_path / "x.circuit.yaml"
    assert main([*INIT, "-o", str(target), "--against", "sva", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    spec = load_spec(target)
    assert spec.lock is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.circuit.lock", "x.circuit.yaml"]
    lab = Lab("zoo:gqa", "ioi", discover=24, evaluate=60)
    assert spec.lock.circuits["circuit"].circuit == lab.shared(top="20%", at=80)
    assert spec.lock.claims == told["claims"]
    assert {claim.claim for claim in spec.claims} >= {"reuse", "necessity"}
    for claim in spec.claims:
        assert judge(spec, claim, lab).outcome == "supported"
        low = told["claims"][claim.id]["interval"][0]
        assert 0 < claim.threshold <= low
        assert claim.threshold * 20 == pytest.approx(round(claim.threshold * 20))
        assert told["thresholds"][claim.id]["min"] == claim.threshold
    # the lines for tuned models are valid, too
    text = target.read_text().replace("  # - ", "  - ")
    target.write_text(text)
    drifted = load_spec(target)
    for claim in drifted.claims[-5:]:
        assert judge(drifted, claim, lab).outcome == "supported"
    assert str(tmp_path) not in text + (tmp_path / "x.circuit.lock").read_text()


@pytest.mark.parametrize("there", ["x.circuit.yaml", "x.circuit.lock"])
def test_what_is_there_is_not_overwritten(there: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / there).write_text("mine")
    assert main([*INIT, "-o", str(tmp_path / "x.circuit.yaml")]) == 2
    assert f"{there} is not overwritten: it exists" in capsys.readouterr().err
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("there", ["x.circuit.yaml", "x.circuit.lock"])
def test_what_another_process_wrote_meanwhile_is_not_overwritten(
    there: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    def other(lab: Any, *_: Any, **__: Any) -> Any:
        (tmp_path / there).write_text("theirs")
        return draft(lab, *_, **__)

    monkeypatch.setattr("circuittest.commands.init._lab", lambda arguments: fake_lab(1.0, 0.3))
    monkeypatch.setattr("circuittest.commands.init.draft", other)
    assert main([*INIT, "-o", str(tmp_path / "x.circuit.yaml"), "--top", "10%"]) == 2
    assert "another process wrote it while this one measured" in capsys.readouterr().err
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {there: "theirs"}


@pytest.mark.parametrize("at", ["measuring", "the lock", "the spec"])
def test_ctrl_c_leaves_nothing(at: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("circuittest.commands.init._lab", lambda arguments: fake_lab(1.0, 0.3))
    replace = os.replace

    def stop(*places: Any, **_: Any) -> None:
        if at == "measuring" or Path(places[1]).suffix == (".lock" if at == "the lock" else ".yaml"):
            raise KeyboardInterrupt
        replace(*places)

    monkeypatch.setattr("circuittest.commands.init.draft" if at == "measuring" else "os.replace", stop)
    assert main([*INIT, "-o", str(tmp_path / "x.circuit.yaml"), "--top", "10%"]) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_none_of_a_spec_writes_nothing(tmp_path: Path, capsys: Any) -> None:
    assert main([*INIT, "-o", str(tmp_path / "x.yaml")]) == 2
    assert "must end in .circuit.yaml" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("margin", ["0", "-0.1", "1", "nan", "some"])
def test_a_margin_that_is_none_is_bad_usage(margin: str, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*INIT, "-o", str(tmp_path / "x.circuit.yaml"), f"--margin={margin}"])
    assert caught.value.code == 2
    assert "is no change of accuracy between 0 and 1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


CORE = {Unit.parse("L1.H0"), Unit.parse("L2.H3")}


def fake_lab(leaders: float, loss: float) -> TableLab:
    """The two heads of `CORE` stand out by `leaders` in their scores and cost a share `loss` of the examples."""
    layout = Layout(n_layers=6, n_heads=8, n_kv_heads=8)
    members = layout.units(("head", "mlp"))
    values = np.random.default_rng(1).uniform(0, 0.1, (40, len(members)))
    values[:, [members.index(unit) for unit in CORE]] += leaders
    rule = lambda units, i: float(not (len(units) > 8 or (CORE & units and (i * 6101 % 97) / 97 < loss)))
    graded = lambda units, i: -0.1 - (i % 5) / 10 - 3.0 * (1 - rule(units, i))
    return TableLab(rule, values=values, layout=layout, graded=graded)


def test_a_margin_writes_the_claims_against_the_lock(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("circuittest.commands.init._lab", lambda arguments: fake_lab(1.0, 0.3))
    target = tmp_path / "x.circuit.yaml"
    assert main([*INIT, "-o", str(target), "--top", "10%", "--margin", "0.12"]) == 0
    claims = {claim.id: claim for claim in load_spec(target).claims}
    compared = ("drift.behaviour", "drift.function", "drift.sufficiency", "regression")
    assert set(compared) <= set(claims)
    assert {claims[name].options["margin"] for name in compared} == {0.12}
    assert claims["drift.sufficiency"].options["part"] == "sufficiency"
    text = target.read_text()
    assert "  # - drift.structure: {margin: 0.2}" in text
    assert "less the margin of 0.12" in text


def test_what_the_margin_lets_pass_does_not_fail_another_claim(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    base = fake_lab(1.0, 0.8)
    monkeypatch.setattr("circuittest.commands.init._lab", lambda arguments: base)
    drafted = {}
    for margin in ([], ["--margin", "0.15"]):
        target = tmp_path / f"x{len(margin)}.circuit.yaml"
        assert main([*INIT, "-o", str(target), "--top", "10%", *margin]) == 0
        drafted[len(margin)] = load_spec(target)
    alone, tuned = ({c.claim: c.threshold for c in spec.claims if c.op == ">="} for spec in drafted.values())
    assert list(alone) == list(tuned)
    for claim, threshold in tuned.items():
        low = drafted[2].lock.claims[claim]["interval"][0]
        assert threshold <= low - 0.15 < threshold + 0.05
        assert threshold < alone[claim]
    # a circuit that costs a tenth less than it did
    other = fake_lab(1.0, 0.7)
    other.model.fingerprint = "t" * 16
    necessity = {
        key: next(claim for claim in spec.claims if claim.claim == "necessity")
        for key, spec in drafted.items()
    }
    assert judge(drafted[0], necessity[0], other).outcome != "supported"
    assert judge(drafted[2], necessity[2], other).outcome == "supported"


def test_a_margin_larger_than_what_was_measured_leaves_nothing_to_claim(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("circuittest.commands.init._lab", lambda arguments: fake_lab(1.0, 0.3))
    target = tmp_path / "x.circuit.yaml"
    assert main([*INIT, "-o", str(target), "--top", "10%", "--margin", "0.4"]) == 0
    assert "  # necessity is not claimed: no threshold from 0.05 is below 0." in target.read_text()
    assert ", less the margin of 0.4\n" in target.read_text()


def test_what_is_claimed_follows_from_the_intervals(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("circuittest.commands.init._lab", lambda arguments: fake_lab(1.0, 0.3))
    target = tmp_path / "x.circuit.yaml"
    assert main([*INIT, "-o", str(target), "--top", "10%"]) == 0
    spec = load_spec(target)
    assert spec.lock is not None
    text = target.read_text()
    assert "task: {name: ioi, discover: 24, evaluate: 60, seed: 0}" in text
    assert "circuit: {universe: heads, top: 10%, at: 80}" in text
    claimed = {claim.claim: claim.threshold for claim in spec.claims}
    low = spec.lock.claims["necessity"]["interval"][0]
    assert 0 < claimed["necessity"] <= low < claimed["necessity"] + 0.2
    assert "# measured 0." in text
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("leaders", "loss", "words"),
    [
        (0.0, 0.3, "there is no circuit to write claims about: no unit is in 80 %"),
        (1.0, 0.0, "necessity is not claimed"),
    ],
)
def test_what_the_model_does_not_meet_is_not_claimed(
    leaders: float, loss: float, words: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("circuittest.commands.init._lab", lambda arguments: fake_lab(leaders, loss))
    code = main([*INIT, "-o", str(tmp_path / "x.circuit.yaml"), "--top", "10%"])
    captured = capsys.readouterr()
    assert code == (0 if leaders else 2)
    assert words in (captured.out if leaders else captured.err)
    assert bool(list(tmp_path.iterdir())) == bool(leaders)


def test_yaml_on_one_line() -> None:
    value = {
        "name": "zoo:gqa",
        "top": "20%",
        "n": 3,
        "list": ["a", "b c"],
        "file": "./a/b.jsonl",
        "odd": "a: b",
    }
    assert _flow(value) == '{name: zoo:gqa, top: 20%, n: 3, list: [a, "b c"], file: ./a/b.jsonl, odd: "a: b"}'
