"""``circuittest diff``: what differs between two files of records, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuittest.cli import main
from circuittest.report.records import record, write_records
from circuittest.stats import Estimate, ProportionInference


def made(name: str, successes: int = 150, threshold: float | None = 0.3, n: int = 200, invalid: str = ""):
    inference = None if invalid else ProportionInference(successes, n)
    estimate = Estimate(
        claim="necessity", value=None if invalid else successes / n, inference=inference, n_examples=n,
        invalid=invalid, model="m", task="t",
    )  # fmt: skip
    return record(estimate if threshold is None else estimate >= threshold, id=name, outcome="passed")


@pytest.fixture
def diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def run(before, after, *words: str) -> tuple[int, str]:
        for name, claims in (("a.json", before), ("b.json", after)):
            write_records(tmp_path / name, claims)
        code = main(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), *words])
        return code, capsys.readouterr().out

    return run


def test_the_same_twice(diff):
    same = [made("a"), made("b", 65)]
    assert diff(same, same) == (0, "2 of 2 claims are the same\n")


SUPPORTED, UNDECIDED, REFUTED = made("x"), made("x", 65), made("x", 10)
INVALID, MEASURED = made("x", invalid="no examples"), made("x", threshold=None)


@pytest.mark.parametrize(
    ("before", "after", "code", "word"),
    [
        (SUPPORTED, UNDECIDED, 1, "worse"), (SUPPORTED, REFUTED, 1, "worse"), (SUPPORTED, INVALID, 1, "worse"),
        (UNDECIDED, INVALID, 1, "worse"), (UNDECIDED, REFUTED, 1, "worse"), (INVALID, REFUTED, 1, "worse"),
        (REFUTED, SUPPORTED, 0, "better"), (INVALID, UNDECIDED, 0, "better"), (MEASURED, REFUTED, 0, "changed"),
        (SUPPORTED, MEASURED, 0, "changed"),
    ],
)  # fmt: skip
def test_verdicts(diff, before, after, code, word):
    found, text = diff([before, made("y")], [after, made("y")])
    assert found == code
    assert f"{word} " in text
    assert f"{before['verdict']} -> {after['verdict']}" in text
    assert text.endswith("1 of 2 claims are the same\n")


def test_an_estimate_moved_only_beyond_both_intervals(diff):
    wide = made("a", 9, n=12)  # 0.75 in [0.43, 0.95]
    near = made("a", 165)  # 0.83: outside the interval of 150 of 200, which holds 0.75 ± 0.07
    assert made("a")["interval"][1] < near["estimate"] < wide["interval"][1]
    assert "moved" not in diff([wide], [near])[1]
    code, text = diff([made("a")], [near])
    assert code == 0
    assert "moved" in text
    assert "0.75 [0.68, 0.81] -> 0.82 [0.77, 0.87]" in text or "0.75 [0.68, 0.81] -> 0.83" in text
    open_ended = made("a") | {"interval": [0.7, None]}
    assert "moved" not in diff([open_ended], [near])[1]


def test_new_gone_and_another_threshold(diff):
    code, text = diff([made("a"), made("b")], [made("a", threshold=0.4), made("c", 10)])
    assert code == 0  # no verdict got worse
    rows = [line.split() for line in text.splitlines()]
    assert ["asked", ">=", "0.3", "->", ">=", "0.4", "a"] in rows
    assert ["gone", "supported", "b"] in rows
    assert ["new", "refuted", "c"] in rows
    assert rows[-1][:3] == ["0", "of", "3"]


def test_json(diff):
    code, text = diff([SUPPORTED, made("g"), made("s")], [REFUTED, made("n"), made("s")], "--json")
    found = json.loads(text)
    assert code == 1
    assert found["schema"] == "circuittest/1"
    told = found["diff"]
    assert told["verdict"] == [{"id": "x", "from": "supported", "to": "refuted", "way": "worse"}]
    assert told["gone"] == [{"id": "g", "verdict": "supported"}]
    assert told["new"] == [{"id": "n", "verdict": "supported"}]
    assert told["moved"][0]["to"]["estimate"] == 0.05
    assert (told["asked"], told["same"]) == ([], 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "it is not JSON"),
        ("[]", "its 'schema' is not circuittest/"),
        ('{"schema": "circuittest/1"}', "its 'claims' are not records"),
        ('{"schema": "circuittest/1", "claims": [{"id": "a"}]}', "its 'claims' are not records"),
        ('{"schema": "circuittest/2", "claims": []}', "its schema is circuittest/2, not circuittest/1"),
        (json.dumps({"schema": "circuittest/1", "claims": [made("a"), made("a")]}), "an id is there twice"),
        (json.dumps({"schema": "circuittest/1", "claims": [made("a") | {"interval": "x"}]}), "not records"),
        (json.dumps({"schema": "circuittest/1", "claims": [made("a") | {"threshold": 3}]}), "not records"),
    ],
)
def test_bad_files(tmp_path, capsys, content, message):
    good, bad = tmp_path / "a.json", tmp_path / "b.json"
    write_records(good, [made("a")])
    bad.write_text(content)
    for order in ((good, bad), (bad, good)):
        assert main(["diff", *map(str, order)]) == 2
        assert message in capsys.readouterr().err
    assert main(["diff", str(good), str(tmp_path / "none.json")]) == 2


def test_an_empty_file_is_told_as_empty(tmp_path, capsys):
    (tmp_path / "a.json").write_text("\n")
    assert main(["diff", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 2
    assert "holds no verdict records: it is empty. Write it with --circuit-json" in capsys.readouterr().err
