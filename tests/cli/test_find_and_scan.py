"""`find --method minimal` and `scan`, on a model of the zoo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuittest import Circuit, Lab
from circuittest.cli import main
from circuittest.tables import ScoreTable

MODEL = ["--model", "zoo:gqa", "--task", "ioi", "--discover", "12"]
FIND = ["find", *MODEL, "--method", "minimal", "--cap", "3%", "--steps", "2"]


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(words) == code
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab("zoo:gqa", "ioi", discover=12, evaluate=0)


def test_minimal(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        "-o",
        str(tmp_path / "c.json"),
        "--tables",
        str(tmp_path / "t"),
        "--json",
        str(tmp_path / "f.json"),
    ]
    text = output(capsys, *FIND, "--faithfulness", "0.5", *files)
    expected = lab.minimal(cap="3%", steps=2, faithfulness=0.5)
    assert expected.reached
    assert f"{len(expected.circuit.edges)} of {expected.total} edges" in text
    circuit = Circuit.load(tmp_path / "c.json")
    assert circuit == expected.circuit
    assert circuit.origin["search"] == "minimal"
    found = json.loads((tmp_path / "f.json").read_text())
    assert found["edges"] == len(circuit.edges)
    assert found["curve"] == expected.to_dict()["curve"]
    assert len(ScoreTable.load(tmp_path / "t" / "discover.safetensors").members) == expected.total


def test_not_reached_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *FIND, "--faithfulness", "0.99", "--cap", "4")
    assert "no circuit of at most 4 of the" in text


@pytest.mark.parametrize(
    "words",
    [
        [*FIND, "--top", "20%"],
        [*FIND, "--universe", "heads"],
        ["find", *MODEL, "--cap", "5%"],
        ["find", *MODEL, "--method", "minimal", "--cap", "0%"],
        ["find", *MODEL, "--method", "minimal", "--faithfulness", "1.5"],
    ],
)
def test_options_that_do_not_go_together(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("circuittest find: ")


def test_scan(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scan", *MODEL, "--evaluate", "10"]
    text = output(capsys, *words)
    found = lab.scan()
    assert found.ordered[0].name in text
    assert "80 % of the damage of all is done" in text
    assert text.count("[") >= 10
    data = json.loads(output(capsys, *words, "--universe", "kv", "--order", "greedy", "--json"))
    assert len(data["scan"]["effects"]) == 12
    assert data["scan"]["choices"]["order"] == "greedy"
    assert set(data["damage"]["curve"]) == {str(k) for k in range(1, 13)}
    assert data["damage"]["units_to"]["level"] == 0.8


def test_scan_of_mlps_without_evaluation_examples(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "scan", *MODEL, "--evaluate", "0", "--universe", "mlps", "--metric", "accuracy")
    assert "L0.MLP" in text
    assert "damage so far" not in text
