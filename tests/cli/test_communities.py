"""``circuittest communities`` on a zoo model: a table, JSON, a drawing, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuittest.cli import main

SMALL = [
    "communities",
    "--model",
    "zoo:mha",
    "--task",
    "ioi",
    "--discover",
    "80",
    "--evaluate",
    "40",
    "--k",
    "6",
]


def test_proposals_are_printed_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    file = tmp_path / "j.svg"
    assert main([*SMALL, "--propose-only", "--svg", str(file)]) == 0
    out = capsys.readouterr().out
    assert "6 clusters, by given" in out
    assert "proposed, not judged" in out
    assert "circuit" not in out
    assert file.read_text(encoding="utf-8").startswith("<svg ")


def test_json_has_a_verdict_for_each_community_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json", "--most", "1", "--controls", "40", "--match", "kind"]) == 0
    data = json.loads(capsys.readouterr().out)
    judged = [one for one in data["communities"] if one["judgement"]]
    assert len(judged) == 1
    assert judged[0]["judgement"]["damage"]["kind"]["log_prob"].keys() == {"effect", "beyond", "p", "p_help"}
    assert data["schema"] == "circuittest/1"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--k", "100"], "fewer heads than clusters"),
        (["--k", "six"], "Write numbers with commas"),
        (["--routes", "2"], "no routing to condition on"),
        (["--affinity", "cosine"], "unknown affinity"),
    ],
)
def test_what_cannot_be_done_is_refused(
    more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--propose-only", *more]) == 2
    assert words in capsys.readouterr().err
