"""What the commands do, on a model of the zoo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from circuittest import Circuit, Lab
from circuittest.cli import main
from circuittest.tables import ScoreTable

FIND = ["find", "--model", "zoo:gqa", "--task", "ioi", "--discover", "24"]

SPEC = """\
circuittest: 1
model: zoo:gqa
task: {{name: ioi, discover: 30, evaluate: 60}}
circuit: {{method: eap, universe: heads, top: 20%, at: 90}}
claims:
  - reuse: {{{reuse}}}
  - necessity: {{{necessity}, controls: 20}}
"""


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    capsys.readouterr()
    assert main(words) == code
    return capsys.readouterr().out


def test_find_prints_the_circuit_and_a_map(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *FIND)
    assert "zoo:gqa, ioi:" in text
    assert "in the top 20% (K = 9) on at least 95% of 24 examples" in text
    assert "H7" in text
    assert "L5" in text
    assert "in the circuit" in text


def test_find_writes_circuit_tables_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        "-o",
        str(tmp_path / "c.json"),
        "--tables",
        str(tmp_path / "t"),
        "--json",
        str(tmp_path / "f.json"),
    ]
    output(capsys, *FIND, "--evaluate", "8", *files)
    circuit = Circuit.load(tmp_path / "c.json")
    lab = Lab("zoo:gqa", "ioi", discover=24, evaluate=8)
    assert circuit == lab.shared()
    assert circuit.origin == lab.shared().origin
    found = json.loads((tmp_path / "f.json").read_text())
    assert found["circuit"] == circuit.to_dict()
    assert found["environment"]["dtype"] == ["float32"]
    for split, rows in (("discover", 24), ("evaluate", 8)):
        table = ScoreTable.load(tmp_path / "t" / f"{split}.safetensors")
        assert table.values.shape == (rows, 48)
        assert list(table.examples) == [item.index for item in getattr(lab.data, split)]
    assert found["mean_scores"]["L0.H0"] == pytest.approx(float(lab.scores().values[:, 0].mean()), rel=1e-5)


def test_find_twice_gives_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["-o", str(tmp_path / "c.json"), "--tables", str(tmp_path)]
    first = output(capsys, *FIND, *files, "--json")
    once = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert output(capsys, *FIND, *files, "--json") == first
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == once
    assert set(once) == {"c.json", "discover.safetensors"}
    json.loads(first)


def test_an_empty_circuit_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *FIND, "--top", "1", "--at", "100")
    assert "the circuit is empty: no unit is in 100 %" in text or "1 of 48 units" in text


def test_several_universes(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(output(capsys, *FIND, "--universe", "heads,mlps", "--json"))
    assert len(data["mean_scores"]) == 6 * 9
    assert data["circuit"]["origin"]["universe"] == ["heads", "mlps"]


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "doctor", "--model", "zoo:gqa", "--task", "ioi", "--evaluate", "60")
    assert "FAILED" not in text
    assert "competence" in text
    assert text.endswith("all checks passed\n")
    data = json.loads(output(capsys, "doctor", "--model", "zoo:gqa", "--json"))
    assert data["passed"] is True
    assert data["model"]["layout"]["n_heads"] == 8
    assert {check["name"] for check in data["checks"]} >= {"canary", "heads"}


def test_doctor_says_when_a_task_is_beyond_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Another prefix than the one the model was trained with would do; headroom of a tiny sample is simpler."""
    words = ["doctor", "--model", "zoo:gqa", "--task", "ioi", "--evaluate", "3"]
    text = output(capsys, *words, code=1)
    assert "FAILED" in text
    assert "not competent" in text


def test_tasks_show(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tasks", "show", "ioi", "--model", "zoo:gqa", "--discover", "6", "--evaluate", "4"]
    text = output(capsys, *words, "--n", "2")
    assert text.count("discover") == 2
    data = json.loads(output(capsys, *words, "--n", "all", "--seed", "3", "--json"))
    assert [one["split"] for one in data["examples"]] == ["discover"] * 6 + ["evaluate"] * 4
    needed = {"index", "prompt", "prompt_ids", "answer_ids", "counterfactual_ids", "features"}
    assert all(needed <= set(one) for one in data["examples"])
    lab = Lab("zoo:gqa", "ioi", discover=6, evaluate=4, seed=3)
    assert [one["prompt_ids"] for one in data["examples"]] == [
        list(item.prompt_ids) for item in (*lab.data.discover, *lab.data.evaluate)
    ]


def test_tasks_show_of_a_small_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["Tom", "Kate", "Mary", "Anna", "David"]
    text = "Now {0} and {1} were near the garden. {2} handed a gift to"
    lines = [
        {
            "prompt": text.format(one, two, one),
            "answer": f" {two}",
            "foil": f" {one}",
            "counterfactual": text.format(one, two, two),
            "counterfactual_answer": f" {one}",
        }
        for one, two in zip(names, names[1:] + names[:1], strict=True)
    ]
    file = tmp_path / "small.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    words = ["tasks", "show", str(file), "--model", "zoo:gqa"]
    data = json.loads(output(capsys, *words, "--n", "all", "--json"))
    assert [one["split"] for one in data["examples"]] == ["discover"] * 3 + ["evaluate"] * 2
    assert main([*words, "--discover", "40"]) == 2  # a number that was asked for is kept to
    assert "Ask for 5 or fewer in all, 'discover' and 'evaluate' together." in capsys.readouterr().err


def test_tasks_show_token_by_token(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tasks", "show", "ioi", "--model", "zoo:gqa", "--discover", "3", "--evaluate", "3", "--n", "2"]
    lines = [line.split() for line in output(capsys, *words, "--tokens").splitlines()]
    lab = Lab("zoo:gqa", "ioi", discover=3, evaluate=3)
    for item in lab.data.discover[:2]:
        at = lines.index([f"#{item.index}", "discover"]) + 2
        tokens = lab.model.tokenizer.convert_ids_to_tokens(list(item.prompt_ids))
        for place, (i, token, other) in enumerate(
            zip(item.prompt_ids, tokens, item.counterfactual_ids, strict=True)
        ):
            line = lines[at + place]
            assert line[:3] == [str(place), str(i), repr(token)]
            assert ("answer" in line, "foil" in line) == (i in item.answer_ids, i in item.foil_ids)
            assert (str(other) in line[3:]) == (i != other)
        (answer,), (foil,) = item.answer_ids, item.foil_ids
        after = [line for line in lines[at + len(tokens) :] if line][:3]
        assert [line[0] for line in after] == ["next"] * 3
        assert after[0][1] == str(answer)
        assert after[1][1] == str(foil)
        assert after[2][-2] == str(item.counterfactual_answer_ids[0])
    data = json.loads(output(capsys, *words, "--tokens", "--json"))
    one = data["examples"][0]
    assert len(one["prompt_tokens"]) == len(one["prompt_ids"])
    assert one["answer_tokens"] == [one["answers"][0].strip()]


def test_tasks_show_with_shots_and_a_variant(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tasks", "show", "copy_colors", "--model", "zoo:gqa", "--discover", "1", "--evaluate", "1"]
    data = json.loads(output(capsys, *words, "--shots", "2", "--variant", "open", "--json"))
    assert (data["task"], data["choices"]["variant"]) == ("copy_colors+open+2shots", "open")
    assert data["examples"][0]["prompt"].startswith("".join(data["choices"]["shots"][0]))


@pytest.mark.parametrize(
    ("reuse", "necessity", "code"),
    [
        ("min: 0.01", "above: -0.5", 0),
        ("max: 0.01", "above: -0.5", 1),
        ("min: 0.01", "max: 0.1", 1),
    ],
)
def test_check_exit_codes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], reuse: str, necessity: str, code: int
) -> None:
    spec = tmp_path / "a.circuit.yaml"
    spec.write_text(SPEC.format(reuse=reuse, necessity=necessity))
    assert main(["check", str(spec), "--json", str(tmp_path / "v.json")]) == code
    claims: list[dict[str, Any]] = json.loads((tmp_path / "v.json").read_text())["claims"]
    assert [claim["claim"] for claim in claims] == ["necessity", "reuse"]
    assert "supported" in capfd.readouterr().out


def test_check_of_an_undecided_claim(tmp_path: Path) -> None:
    """No interval excludes the point value itself."""
    lab = Lab("zoo:gqa", "ioi", discover=30, evaluate=60)
    point = float(lab.reuse(lab.shared(top="20%", at=90)))
    spec = tmp_path / "a.circuit.yaml"
    spec.write_text(SPEC.format(reuse=f"min: {point}", necessity="above: -0.5"))
    assert main(["check", str(spec)]) == 3
    assert main(["check", str(spec), "--undecided", "skip"]) == 0


def test_check_of_a_bad_spec(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "a.circuit.yaml"
    spec.write_text(SPEC.format(reuse="mim: 0.1", necessity="min: 0.1"))
    assert main(["check", str(spec)]) == 2
    text = capfd.readouterr()
    assert "a.circuit.yaml:6:" in text.out + text.err
    assert "min" in text.out + text.err


def test_check_passes_arguments_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "a.circuit.yaml"
    spec.write_text(SPEC.format(reuse="min: 0.01", necessity="above: -0.5"))
    assert main(["check", str(spec), "--", "-k", "reuse"]) == 0
    assert "1 deselected" in capfd.readouterr().out
