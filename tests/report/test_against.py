"""What speaks against a claim, on the page: examples and pairs, escaped, and nothing where there is nothing."""

from __future__ import annotations

import pytest

from circuittest.report.against import against
from tests.helpers.gallery import EXAMPLES
from tests.helpers.html import EVIL, Parsed


def shown(driven: object) -> Parsed:
    return Parsed(against({"details": {"driven_by": driven}}))


def test_examples_with_tokens_before_and_after():
    found = shown({"control": "40 random sets", "examples": EXAMPLES})
    assert "Control: 40 random sets" in found.text
    assert found.text.count("45%") == 3
    assert "−0.31" in found.text
    assert [attrs.get("scope") for attrs in found.all("th")].count("row") == 3


def test_missing_units_and_pairs():
    one = {**EXAMPLES[0], "missing": ["L0.H1", "L2.H3"]}
    one.pop("after")
    assert "L0.H1, L2.H3" in shown({"examples": [one]}).text
    pair = {"subtasks": ["a", "b"], "similarity": 0.2, "prompts": ["one", ""]}
    found = shown({"pairs": [pair]})
    assert "a and b" in found.text
    assert not found.all("br")


def test_texts_are_texts():
    one = {
        "index": 1,
        "prompt": EVIL,
        "answers": [EVIL],
        "pull": 0.1,
        "before": [[EVIL, 0.5]],
        "missing": [EVIL],
    }
    pair = {"subtasks": [EVIL, EVIL], "similarity": 0.1, "prompts": [EVIL, EVIL]}
    for driven in ({"examples": [one], "control": EVIL, "units": EVIL}, {"pairs": [pair]}):
        found = shown(driven)
        assert not found.all("script")
        assert EVIL in found.text


@pytest.mark.parametrize("driven", [None, [], "text"])
def test_nothing_where_there_is_nothing(driven):
    assert against({"details": {"driven_by": driven}}) == ""
    assert against({"details": {}}) == ""


def test_what_is_no_number_is_left_out():
    found = shown({"examples": [{"pull": None, "before": [["a", None], "b", ["c", 0.5]]}], "pairs": [1]})
    assert "50%" in found.text
